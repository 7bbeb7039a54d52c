"""Delete a cluster: its machines, their disks, the load balancers of its services, and everything else that was made
for it. Nothing else.

At a terminal it asks first. It stays until all is gone and says what it waits for; --no-wait returns at once.

Examples:
  windrow delete prod
  windrow delete fleet-default/prod --yes --no-wait
"""

from __future__ import annotations

import argparse

from windrow.cli import exits, options, reach
from windrow.cli.complaints import Complaint
from windrow.cli.edge import Edge
from windrow.cli.picture import read_machine
from windrow.cli.reach import Reached
from windrow.clusters.kinds import CLUSTER
from windrow.kube.objects import Raw, uid_of
from windrow.kube.refs import ref_of


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--no-wait", action="store_true", help="return when it is ordered")
    options.add_timeout(parser)
    options.add_manager(parser)


def run(given: argparse.Namespace, edge: Edge) -> int:
    seen = ""
    if edge.terminal and edge.stdin.isatty() and not given.yes:
        # Asked outside of the event loop, which would keep Ctrl-C to itself until the line is read.
        cluster, machines = reach.with_manager(given, edge, lambda manager: _look(given, manager))
        _ask(cluster, machines, edge)
        seen = uid_of(cluster)
    return reach.with_manager(given, edge, lambda manager: _delete(given, edge, manager, seen))


async def _look(given: argparse.Namespace, manager: Reached) -> tuple[Raw, int]:
    """The cluster, and how many machines it has."""
    cluster = await reach.get_cluster(manager, given.name, given.namespace or "")
    views = [read_machine(raw) for raw in await reach.machines_of(manager, [cluster])]
    return cluster, sum(one.cluster == cluster["metadata"]["name"] for one in views)


async def _delete(given: argparse.Namespace, edge: Edge, manager: Reached, seen: str) -> int:
    """`seen` is the uid of the cluster that was agreed to; "" where nobody was asked."""
    cluster = await reach.get_cluster(manager, given.name, given.namespace or "")
    if seen and uid_of(cluster) != seen:
        raise Complaint(
            f"{reach.named(cluster)} was made anew meanwhile.", "Look at it, then delete it.", exits.FAILED
        )
    ref, uid = ref_of(CLUSTER, cluster), uid_of(cluster)
    await manager.client.delete(ref, uid=uid)
    edge.say(f"{ref} is being deleted")
    if given.no_wait:
        return exits.OK
    from windrow.cli import waiting

    return await waiting.wait_for_gone(manager, ref, uid, given.timeout, edge)


def _ask(cluster: Raw, count: int, edge: Edge) -> None:
    name = cluster["metadata"]["name"]
    edge.out.write(
        f"This deletes {reach.named(cluster)}: {count} machine{'s' * (count != 1)}, with their disks.\n"
        f"Type its name to go on: "
    )
    edge.out.flush()
    if edge.stdin.readline().strip() not in (name, reach.named(cluster)):
        raise Complaint("Nothing was deleted.", "Type the cluster's name, or give --yes.", exits.FAILED)
