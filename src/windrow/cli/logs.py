"""Where a command's logs go: to standard error, a line each.

`serve` and `emulate` print warnings. The other commands report their own errors, so they log with `--verbose` only.
"""

from __future__ import annotations

import logging

from windrow.cli.context import CliContext
from windrow.core.logs import LineFormatter


def configure(context: CliContext, *, long_running: bool, verbose: bool) -> None:
    """Set up the logs of this process. `long_running`: the command serves until it is interrupted."""
    handler: logging.Handler = (
        logging.StreamHandler(context.err) if long_running or verbose else logging.NullHandler()
    )
    handler.setFormatter(LineFormatter(tracebacks=verbose))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler], force=True)
