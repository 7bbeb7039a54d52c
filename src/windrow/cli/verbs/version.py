"""Print Windrow's version."""

from __future__ import annotations

import argparse

from windrow import __version__
from windrow.cli import exits, options
from windrow.cli.data import render_data
from windrow.cli.edge import Edge


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_output(parser)


def run(given: argparse.Namespace, edge: Edge) -> int:
    if given.output:
        edge.say(render_data({"windrow": __version__}, given.output))
    else:
        edge.say(f"windrow {__version__}")
    return exits.OK
