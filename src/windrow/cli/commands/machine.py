"""List machines, or read the console of one.

Examples:
  windrow machine list
  windrow machine list prod -o yaml
  windrow machine console fleet-default/prod-workers-x7k2p-9k2lp
"""

from __future__ import annotations

import argparse

from windrow.app.describe.views import read_machine
from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.cli.output.formats import is_table, render_objects
from windrow.cli.output.tables import render_machines, render_wide_machines
from windrow.kubernetes.objects import nested


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="list machines")
    listing.add_argument(
        "name", nargs="?", default="", metavar="CLUSTER", help="list the machines of this cluster only"
    )
    options.add_formats(listing, wide=True)
    options.add_connection(listing)
    options.add_verbose(listing)
    console = commands.add_parser("console", help="print the last lines of a machine's serial console")
    console.add_argument("name", metavar="MACHINE", help="NAME or NAMESPACE/NAME")
    console.add_argument("--tail", type=_count, default=50, metavar="LINES", help="how many (default: 50)")
    options.add_connection(console)
    options.add_verbose(console)


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines from 1 to 10000")
    return int(text)


def run(args: argparse.Namespace, context: CliContext) -> int:
    work = _console if args.command == "console" else _list
    return connect.run_connected(args, context, lambda manager: work(args, context, manager))


async def _list(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    if args.name:
        clusters = [await connect.get_cluster(manager, args.name, args.namespace or "")]
    else:
        clusters = await connect.find_clusters(manager, namespace=args.namespace or "")
    places = {(raw["metadata"]["namespace"], raw["metadata"]["name"]) for raw in clusters}
    raws = await connect.list_machines(manager, clusters)
    raws = [raw for raw in raws if (raw["metadata"]["namespace"], raw["spec"].get("clusterName")) in places]
    if not is_table(args.output):
        context.print(render_objects(raws, args.output))
        return exit_codes.OK
    views = [read_machine(raw) for raw in raws]
    if args.output == "wide":
        lines = render_wide_machines(views, raws, context.now())
    else:
        lines = render_machines(views, context.now(), context.width)
    for one in lines or ["No machines."]:
        context.print(one)
    return exit_codes.OK


async def _console(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    from windrow.app.harvester.console import NoConsole, read_console

    namespace, _, name = args.name.rpartition("/")
    raw = await connect.get_machine(manager, name, namespace or args.namespace or "")
    if nested(raw, "spec", "driver", default="harvester") != "harvester":
        driver = raw["spec"]["driver"]
        raise CliError(
            f"Machine {args.name} was made by node driver {driver}, whose consoles Windrow cannot read.",
            "Open it where that driver makes machines.",
            exit_codes.REFUSED,
        )
    try:
        lines = await read_console(manager.client, raw, args.tail, context.env)
    except NoConsole as error:
        raise CliError(error.message, error.hint, exit_codes.NOT_FOUND) from error
    for one in lines:
        context.print(one)
    return exit_codes.OK
