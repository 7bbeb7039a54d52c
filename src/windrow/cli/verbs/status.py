"""Show clusters, their pools and machines: what each waits for, since when, and what comes next.

Without a name it shows every cluster that the credential may see. The sentences are those of the objects' own
status, so `kubectl describe` says the same.

Examples:
  windrow status
  windrow status prod --watch
  windrow status fleet-default/prod -o json
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

from windrow.cli import exits, options, reach
from windrow.cli.data import render_data
from windrow.cli.edge import Edge
from windrow.cli.picture import ClusterView, read_picture
from windrow.cli.reach import Reached
from windrow.cli.screens.lines import Line, line
from windrow.cli.screens.paint import live_board, say_lines
from windrow.cli.screens.tree import as_data, render_tree


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="look in every namespace")
    parser.add_argument("-w", "--watch", action="store_true", help="keep looking, until Ctrl-C")
    options.add_output(parser)
    options.add_manager(parser)


def run(given: argparse.Namespace, edge: Edge) -> int:
    if given.all_namespaces:
        given.namespace = ""
    return reach.with_manager(given, edge, lambda manager: _show(given, edge, manager))


async def _show(given: argparse.Namespace, edge: Edge, manager: Reached) -> int:
    if given.watch and not given.output:
        return await _watch(given, edge, manager)
    picture = await _picture(given, manager)
    if given.output:
        edge.say(render_data({"clusters": as_data(picture)}, given.output))
    else:
        say_lines(edge, _lines(picture, edge, given.namespace))
    return exits.OK


async def _picture(given: argparse.Namespace, manager: Reached) -> tuple[ClusterView, ...]:
    if given.name:
        clusters = [await reach.get_cluster(manager, given.name, given.namespace or "")]
    else:
        clusters = await reach.find_clusters(manager, namespace=given.namespace or "")
    return read_picture(clusters, await reach.machines_of(manager, clusters))


def _lines(picture: tuple[ClusterView, ...], edge: Edge, namespace: str | None) -> list[Line]:
    if not picture and namespace:
        return [line(f"There are no clusters in namespace {namespace}; see all: windrow status")]
    if not picture:
        return [line("There are no clusters yet. Make one: windrow apply FILE")]
    return render_tree(picture, edge.now(), edge.width)


async def _watch(given: argparse.Namespace, edge: Edge, manager: Reached) -> int:
    from windrow.cli.watching import look_until

    scope = given.namespace or ""
    if not edge.terminal:
        await look_until(_plain_look(given, edge, manager), manager, namespace=scope)
        return exits.OK
    with live_board(edge) as board:

        async def draw() -> bool:
            board.draw(_lines(await _picture(given, manager), edge, given.namespace))
            return False

        await look_until(draw, manager, namespace=scope, beat_s=1.0)
    return exits.OK


def _plain_look(given: argparse.Namespace, edge: Edge, manager: Reached) -> Callable[[], Awaitable[bool]]:
    """Prints the whole picture whenever it says something new; ages alone are not new."""
    seen: list[tuple[ClusterView, ...]] = []

    async def look() -> bool:
        picture = await _picture(given, manager)
        if seen != [picture]:
            seen[:] = [picture]
            edge.say(f"--- {edge.now():%H:%M:%S}")
            say_lines(edge, _lines(picture, edge, given.namespace))
        return False

    return look
