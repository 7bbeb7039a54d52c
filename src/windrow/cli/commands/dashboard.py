"""Print a link that signs a browser in to the dashboard, once, as the user of the kubeconfig.

`windrow serve` serves the pages; the rights of that user decide what they show. The link is valid for one minute. Who has it first
is signed in: on a computer that you share, --no-open keeps it from the list of processes.

Examples:
  windrow dashboard
  windrow dashboard -n fleet-default --no-open
"""

from __future__ import annotations

import argparse

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-open", action="store_true", help="print the link only, start no browser")
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    url = connect.run_connected(args, context, lambda manager: _ask_for_link(args, manager))
    context.print(url)
    if not args.no_open and context.terminal and _has_desktop(context):
        import webbrowser

        webbrowser.open(url)
    return exit_codes.OK


async def _ask_for_link(args: argparse.Namespace, manager: Connection) -> str:
    from windrow.app.access.management import ask_for_link
    from windrow.kubernetes.errors import NotFound

    try:
        return await ask_for_link(manager.client, args.namespace or "")
    except NotFound as error:
        raise CliError(
            f"The management API at {manager.config.server} serves no dashboard.",
            "Start windrow serve with its own state directory, without --no-dashboard.",
            exit_codes.NOT_FOUND,
        ) from error


def _has_desktop(context: CliContext) -> bool:
    import sys

    return sys.platform == "darwin" or bool(context.env.get("DISPLAY") or context.env.get("WAYLAND_DISPLAY"))
