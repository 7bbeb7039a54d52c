"""Show all about one cluster or machine: its fields, conditions, tree and latest events.

Examples:
  windrow describe cluster prod
  windrow describe machine fleet-default/prod-workers-x7k2p-9k2lp
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import Raw, namespace_of
from windrow.kubernetes.resources import EVENT

if TYPE_CHECKING:
    from windrow.app.describe.events import EventView

KINDS = {"cluster": "cluster", "clusters": "cluster", "machine": "machine", "machines": "machine"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=tuple(KINDS), metavar="cluster|machine", help="what NAME is")
    parser.add_argument("name", metavar="NAME", help="NAME or NAMESPACE/NAME")
    options.add_formats(parser)
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    work = _cluster if KINDS[args.kind] == "cluster" else _machine
    return connect.run_connected(args, context, lambda manager: work(args, context, manager))


async def _cluster(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    from windrow.app.describe.events import select_events
    from windrow.app.describe.views import read_cluster, read_machine
    from windrow.cli.output.details import render_cluster_details
    from windrow.cli.output.terminal import print_lines

    raw = await connect.get_cluster(manager, args.name, args.namespace or "")
    if args.output:
        return _print_data(raw, args, context)
    machines = await connect.list_machines(manager, [raw])
    clusters = await connect.find_clusters(manager, namespace=namespace_of(raw))
    events = select_events(await _events(manager, raw), raw, clusters, machines)
    view = read_cluster(raw, map(read_machine, machines))
    print_lines(context, render_cluster_details(raw, view, events, context.now(), context.width))
    return exit_codes.OK


async def _machine(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    from windrow.app.describe.views import read_machine
    from windrow.cli.output.details import render_machine_details
    from windrow.cli.output.terminal import print_lines

    raw = await connect.get_machine(manager, args.name, args.namespace or "")
    if args.output:
        return _print_data(raw, args, context)
    view = read_machine(raw)
    events = [one for one in await _events(manager, raw) if (one.kind, one.name) == ("Machine", view.name)]
    print_lines(context, render_machine_details(raw, view, events, context.now(), context.width))
    return exit_codes.OK


async def _events(manager: Connection, raw: Raw) -> tuple[EventView, ...]:
    """The events of the object's namespace; none where they may not be read."""
    from windrow.app.describe.events import list_events

    try:
        return list_events(await manager.client.list(EVENT, namespace_of(raw)))
    except Forbidden:
        return ()


def _print_data(raw: Raw, args: argparse.Namespace, context: CliContext) -> int:
    from windrow.cli.output.formats import render_objects

    context.print(render_objects([raw], args.output, single=True))
    return exit_codes.OK
