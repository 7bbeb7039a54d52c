"""Show clusters, their pools and machines: what each waits for, since when, and what comes next.

Without a name it shows every cluster that the kubeconfig may list. The sentences are those of status.waiting in the
objects, so `kubectl describe` shows the same. -o prints the Cluster objects; `windrow machine list -o` the Machines.

Examples:
  windrow status
  windrow status prod --watch
  windrow status fleet-default/prod -o json
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

from windrow.app.describe.views import ClusterView, read_views
from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.output.formats import render_objects
from windrow.cli.output.lines import StyledLine, line
from windrow.cli.output.terminal import live_display, print_lines
from windrow.cli.output.tree import render_tree
from windrow.kubernetes.objects import Raw, name_of, namespace_of


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    options.add_all_namespaces(parser, "the clusters")
    parser.add_argument(
        "-w", "--watch", action="store_true", help="show changes as they happen, until Ctrl-C"
    )
    options.add_formats(parser)
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    args.namespace = options.chosen_namespace(args)
    return connect.run_connected(args, context, lambda manager: _show(args, context, manager))


async def _show(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    if args.watch and not args.output:
        return await _watch(args, context, manager)
    clusters = await _list_clusters(args, manager)
    if args.output:
        context.print(render_objects(clusters, args.output, single=bool(args.name)))
    else:
        views = read_views(clusters, await connect.list_machines(manager, clusters))
        print_lines(context, _lines(views, context, args.namespace))
    return exit_codes.OK


async def _list_clusters(args: argparse.Namespace, manager: Connection) -> list[Raw]:
    if args.name:
        return [await connect.get_cluster(manager, args.name, args.namespace or "")]
    found = await connect.find_clusters(manager, namespace=args.namespace or "")
    return sorted(found, key=lambda raw: (namespace_of(raw), name_of(raw)))


async def _read_views(args: argparse.Namespace, manager: Connection) -> tuple[ClusterView, ...]:
    clusters = await _list_clusters(args, manager)
    return read_views(clusters, await connect.list_machines(manager, clusters))


def _lines(picture: tuple[ClusterView, ...], context: CliContext, namespace: str | None) -> list[StyledLine]:
    if not picture and namespace:
        return [line(f"No clusters in namespace {namespace}. All namespaces: windrow status")]
    if not picture:
        return [line("No clusters yet. Create one: windrow apply -f FILE")]
    return render_tree(picture, context.now(), context.width)


async def _watch(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    from windrow.cli.wait import watch_until

    scope = args.namespace or ""
    if not context.terminal:
        await watch_until(_print_changes(args, context, manager), manager, namespace=scope)
        return exit_codes.OK
    with live_display(context) as display:

        async def draw() -> bool:
            display.draw(_lines(await _read_views(args, manager), context, args.namespace))
            return False

        await watch_until(draw, manager, namespace=scope, interval_s=1.0)
    return exit_codes.OK


def _print_changes(
    args: argparse.Namespace, context: CliContext, manager: Connection
) -> Callable[[], Awaitable[bool]]:
    """Prints all clusters whenever something but an age has changed."""
    seen: list[tuple[ClusterView, ...]] = []

    async def look() -> bool:
        picture = await _read_views(args, manager)
        if seen != [picture]:
            seen[:] = [picture]
            context.print(f"--- {context.now():%H:%M:%S}")
            print_lines(context, _lines(picture, context, args.namespace))
        return False

    return look
