"""List machines.

Examples:
  windrow machine list
  windrow machine list prod -o yaml
"""

from __future__ import annotations

import argparse

from windrow.cli import exits, options, reach
from windrow.cli.data import render_data
from windrow.cli.edge import Edge
from windrow.cli.picture import read_machine
from windrow.cli.reach import Reached
from windrow.cli.screens.tables import render_machines


def arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="list machines")
    listing.add_argument("name", nargs="?", default="", metavar="CLUSTER", help="of this cluster only")
    options.add_output(listing)
    options.add_manager(listing)
    options.add_verbose(listing)


def run(given: argparse.Namespace, edge: Edge) -> int:
    return reach.with_manager(given, edge, lambda manager: _list(given, edge, manager))


async def _list(given: argparse.Namespace, edge: Edge, manager: Reached) -> int:
    if given.name:
        clusters = [await reach.get_cluster(manager, given.name, given.namespace or "")]
    else:
        clusters = await reach.find_clusters(manager, namespace=given.namespace or "")
    places = {(raw["metadata"]["namespace"], raw["metadata"]["name"]) for raw in clusters}
    raws = await reach.machines_of(manager, clusters)
    raws = [raw for raw in raws if (raw["metadata"]["namespace"], raw["spec"].get("clusterName")) in places]
    if given.output:
        edge.say(render_data({"apiVersion": "v1", "kind": "List", "items": raws}, given.output))
        return exits.OK
    lines = render_machines([read_machine(raw) for raw in raws], edge.now(), edge.width)
    for one in lines or ["There are no machines."]:
        edge.say(one)
    return exits.OK
