"""The cloud provider, started with arguments."""

import logging
from collections.abc import Sequence
from typing import Any

from windrow.cloudprovider.cmd import main
from windrow.cloudprovider.cmd.arguments import parse_arguments


async def run(
    argv: Sequence[str],
    env: Any,
    read_file: Any,
    connect: Any,
    clock: Any,
    rng: Any,
    log: logging.Logger,
    **options: Any,
) -> int:
    """Parse the arguments and run the program: its exit code."""
    parsed = parse_arguments(argv, log.error, log.info)
    if isinstance(parsed, int):
        return parsed
    return await main.run(parsed, env, read_file, connect, clock, rng, log, **options)
