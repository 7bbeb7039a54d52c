"""The first look at the command line: help, version and complaints need nothing else, so little is loaded for them."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence

from windrow import __version__
from windrow.cloudprovider.cmd.flags import BadFlags, Options, parse_flags, wants_full_help

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
    argv: Sequence[str], say: Callable[[str], None], answer: Callable[[str], None] | None = None
) -> Options | int:
    """What the command line asks for, or the exit code when all has been said. `argv` may begin with PROGRAM.

    Help and version that were asked for go to `answer`, where they may be piped on.
    """
    answer = answer or say
    arguments = strip_program_name(argv)
    try:
        options = parse_flags(arguments)
    except BadFlags as error:
        print_failure(error, say)
        if wants_full_help(arguments):
            _help(say)
        return 1
    if options.help:
        _help(answer)
        return 0
    if options.version:
        answer(f"{PROGRAM} (Windrow) v{__version__}")
        return 0
    if not options.cloud_config:
        print_failure(_NO_CLOUD_CONFIG, say)
        return 1
    return options


def strip_program_name(argv: Sequence[str]) -> list[str]:
    """The words after the program's own name, where they begin with that. Any other first word is one of the user's."""
    is_named = bool(argv) and posixpath.basename(argv[0]) == PROGRAM
    return list(argv[1:] if is_named else argv)


def print_failure(error: Exception, out: Callable[[str], None]) -> None:
    """The banner of the Go program, and the cure."""
    out(f"FATAL: {NAME} failed to start")
    out(f"Error detail: {error}")
    if isinstance(error, BadFlags):
        out(_EXTRA_ARGS)
        out(f"Hint: every flag: {PROGRAM} --help")


def _help(out: Callable[[str], None]) -> None:
    from windrow.cloudprovider.cmd.help import render_help

    for line in render_help().splitlines():
        out(line)
