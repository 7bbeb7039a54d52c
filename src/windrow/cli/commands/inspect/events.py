"""Show the events of a cluster and of its machines, the latest last; without a name, those of every cluster.

Events say what the manager did and why. An API server keeps them for an hour.

Examples:
  windrow events prod
  windrow events fleet-default/prod --watch
  windrow events -o json
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

from windrow.app.describe.events import EventView, list_events, select_events
from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.output.events import render_events
from windrow.cli.output.formats import render_objects
from windrow.cli.output.lines import line
from windrow.cli.output.terminal import print_lines
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import Raw, namespace_of, uid_of
from windrow.kubernetes.resources import EVENT


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    options.add_all_namespaces(parser, "the events")
    parser.add_argument("-w", "--watch", action="store_true", help="go on with new events, until Ctrl-C")
    options.add_formats(parser)
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    return connect.run_connected(args, context, lambda manager: _show(args, context, manager))


async def _show(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    namespace = options.chosen_namespace(args)
    cluster = await connect.get_cluster(manager, args.name, namespace) if args.name else None
    scope = namespace_of(cluster) if cluster is not None else namespace
    if args.watch and not args.output:
        from windrow.cli.wait import watch_until

        await watch_until(
            _print_new(manager, cluster, scope, context), manager, namespace=scope, kinds=(EVENT,)
        )
        return exit_codes.OK
    raws = await _list_raw(manager, scope)
    shown = await _select(manager, cluster, raws)
    if args.output:
        kept = {one.uid for one in shown}
        context.print(render_objects([raw for raw in raws if uid_of(raw) in kept], args.output))
        return exit_codes.OK
    none = [line("No events: an API server keeps them for an hour.")]
    print_lines(context, render_events(shown, context.now(), context.width) or none)
    return exit_codes.OK


async def _list_raw(manager: Connection, namespace: str) -> list[Raw]:
    """Events of all namespaces, or of the connection's where listing all is forbidden."""
    try:
        return await manager.client.list(EVENT, namespace)
    except Forbidden:
        if namespace:
            raise
        return await manager.client.list(EVENT, manager.namespace)


async def _select(manager: Connection, cluster: Raw | None, raws: list[Raw]) -> tuple[EventView, ...]:
    events = list_events(raws)
    if cluster is None:
        return events
    clusters = await connect.find_clusters(manager, namespace=namespace_of(cluster))
    return select_events(events, cluster, clusters, await connect.list_machines(manager, [cluster]))


def _print_new(
    manager: Connection, cluster: Raw | None, scope: str, context: CliContext
) -> Callable[[], Awaitable[bool]]:
    """Prints each event when it comes, and again when it is counted."""
    printed: dict[str, int] = {}

    async def look() -> bool:
        shown = await _select(manager, cluster, await _list_raw(manager, scope))
        new = [one for one in shown if printed.get(one.uid) != one.count]
        printed.clear()
        printed.update({one.uid: one.count for one in shown})
        print_lines(context, render_events(new, context.now(), context.width))
        return False

    return look
