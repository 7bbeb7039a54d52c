"""List machines.

Examples:
  windrow machine list
  windrow machine list prod -o yaml
"""

from __future__ import annotations

import argparse

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.output.data import list_of, render_data
from windrow.cli.output.tables import render_machines
from windrow.cli.output.views import read_machine


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="list machines")
    listing.add_argument(
        "name", nargs="?", default="", metavar="CLUSTER", help="list the machines of this cluster only"
    )
    options.add_output(listing)
    options.add_connection(listing)
    options.add_verbose(listing)


def run(args: argparse.Namespace, context: CliContext) -> int:
    return connect.run_connected(args, context, lambda manager: _list(args, context, manager))


async def _list(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    if args.name:
        clusters = [await connect.get_cluster(manager, args.name, args.namespace or "")]
    else:
        clusters = await connect.find_clusters(manager, namespace=args.namespace or "")
    places = {(raw["metadata"]["namespace"], raw["metadata"]["name"]) for raw in clusters}
    raws = await connect.list_machines(manager, clusters)
    raws = [raw for raw in raws if (raw["metadata"]["namespace"], raw["spec"].get("clusterName")) in places]
    if args.output:
        context.print(render_data(list_of(raws), args.output))
        return exit_codes.OK
    lines = render_machines([read_machine(raw) for raw in raws], context.now(), context.width)
    for one in lines or ["No machines."]:
        context.print(one)
    return exit_codes.OK
