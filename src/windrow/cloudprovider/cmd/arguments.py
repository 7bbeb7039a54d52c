"""The arguments of the program, with its help, version and usage errors; apart from `main`, so that these load little."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence

from windrow import __version__
from windrow.cloudprovider.cmd.flags import BadFlags, parse_flags, wants_full_help
from windrow.cloudprovider.options import Options

NAME = "cloudprovider.harvesterhci.io"
PROGRAM = "harvester-cloud-provider"
_EXTRA_ARGS = (
    "Hint: flags come from extraArgs in the values of the chart harvester-cloud-provider; correct them there"
)
_NO_CLOUD_CONFIG = BadFlags(
    "--cloud-config is missing: can't init from an empty reader (io.Reader); name the kubeconfig for Harvester with "
    "--cloud-config=FILE"
)


def parse_arguments(
    argv: Sequence[str], stderr: Callable[[str], None], stdout: Callable[[str], None]
) -> Options | int:
    """The options, or the exit code where the program ends here. `argv` may begin with PROGRAM.

    Errors go to `stderr`; help and version to `stdout`.
    """
    arguments = strip_program_name(argv)
    try:
        options = parse_flags(arguments)
    except BadFlags as error:
        print_failure(error, stderr)
        if wants_full_help(arguments):
            _print_help(stderr)
        return 1
    if options.help:
        _print_help(stdout)
        return 0
    if options.version:
        stdout(f"{PROGRAM} (Windrow) v{__version__}")
        return 0
    if not options.cloud_config:
        print_failure(_NO_CLOUD_CONFIG, stderr)
        return 1
    return options


def strip_program_name(argv: Sequence[str]) -> list[str]:
    """The arguments without PROGRAM at their beginning. Any other first word is an argument."""
    is_named = bool(argv) and posixpath.basename(argv[0]) == PROGRAM
    return list(argv[1:] if is_named else argv)


def print_failure(error: Exception, out: Callable[[str], None]) -> None:
    """The banner of the Go program, the error, and a hint."""
    out(f"FATAL: {NAME} failed to start")
    out(f"Error detail: {error}")
    if isinstance(error, BadFlags):
        out(_EXTRA_ARGS)
        out(f"Hint: every flag: {PROGRAM} --help")


def _print_help(out: Callable[[str], None]) -> None:
    from windrow.cloudprovider.cmd.help import render_help

    for line in render_help().splitlines():
        out(line)
