"""`--harvester-version` and `--inventory`: which Harvester `emulate` and `demo` emulate."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from windrow.cli import exit_codes
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError, combine, not_utf8
from windrow.cli.paths import read_text_file
from windrow.core.text import collapse_whitespace

if TYPE_CHECKING:
    from windrow.app.emulate import Site


def read_site(args: argparse.Namespace, context: CliContext) -> Site:
    """The site of the options. Raises one CliError for all faults of the inventory."""
    from windrow.app.emulate import BadInventory, read_site

    if args.inventory is None:
        return read_site(args.harvester_version)
    try:
        return read_site(args.harvester_version, _read_yaml(args.inventory, context))
    except BadInventory as refused:
        hint = "Correct the file; its fields: windrow docs describe-a-harvester"
        raise combine(
            [
                CliError(f"{args.inventory}: {problem}", hint, exit_codes.REFUSED)
                for problem in refused.problems
            ]
        ) from refused


def _read_yaml(name: str, context: CliContext) -> object:
    from windrow.core.formats.yaml import NotYaml, load

    try:
        return load(read_text_file(context.cwd / name, name)) or {}
    except UnicodeDecodeError as error:
        raise not_utf8(name) from error
    except NotYaml as error:
        raise CliError(
            f"{name} is not YAML: {collapse_whitespace(error)}", "Correct the file.", exit_codes.REFUSED
        ) from error
