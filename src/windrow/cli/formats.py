"""The option `-o json|yaml`, the same for every verb that answers with data."""

from __future__ import annotations

import argparse
from typing import Any


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORMAT",
        choices=("json", "yaml"),
        help="print data for programs: json or yaml",
    )


def render(value: Any, output: str) -> str:
    """`value` as JSON or YAML text without a last newline."""
    if output == "json":
        from windrow.formats.json import pretty

        return pretty(value)
    from windrow.formats.yaml import dump

    return dump(value).rstrip("\n")
