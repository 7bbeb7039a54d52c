"""Print Windrow's version."""

from __future__ import annotations

import argparse

from windrow import __version__
from windrow.cli import exit_codes, options
from windrow.cli.context import CliContext
from windrow.cli.output.data import render_data


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_output(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    if args.output:
        context.print(render_data({"windrow": __version__}, args.output))
    else:
        context.print(f"windrow {__version__}")
    return exit_codes.OK
