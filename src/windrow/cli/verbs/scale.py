"""Set the size of one or more pools.

Going down, machines marked with the annotation cluster.x-k8s.io/delete-machine leave first, then unhealthy ones,
then the oldest. Servers that carry etcd leave one by one, after their member has left.

Examples:
  windrow scale prod workers=5
  windrow scale fleet-default/prod servers=3 workers=0 --wait
"""

from __future__ import annotations

import argparse
from typing import Any

from windrow.cli import exits, options, reach
from windrow.cli.complaints import Complaint
from windrow.cli.edge import Edge
from windrow.cli.reach import Reached
from windrow.clusters.kinds import CLUSTER
from windrow.kube.objects import Raw, dig
from windrow.kube.refs import ref_of


def _size(text: str) -> tuple[str, int]:
    pool, separator, number = text.rpartition("=")
    if not separator or not pool or not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not POOL=NUMBER, as in workers=3")
    return pool, int(number)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    parser.add_argument(
        "sizes", nargs="+", type=_size, metavar="POOL=NUMBER", help="the size that the pool shall have"
    )
    options.add_wait(parser, "the cluster is ready again")
    options.add_manager(parser)


def run(given: argparse.Namespace, edge: Edge) -> int:
    options.settle_wait(given)
    return reach.with_manager(given, edge, lambda manager: _scale(given, edge, manager))


async def _scale(given: argparse.Namespace, edge: Edge, manager: Reached) -> int:
    cluster = await reach.get_cluster(manager, given.name, given.namespace or "")
    steps = plan_sizes(cluster, dict(given.sizes))
    ref = ref_of(CLUSTER, cluster)
    if steps:
        await manager.client.json_patch(ref, steps)
    for pool in _pools(cluster):
        if pool["name"] in dict(given.sizes):
            edge.say(_said(pool, dict(given.sizes)[pool["name"]]))
    if given.wait and steps:
        from windrow.cli import waiting

        return await waiting.wait_for_settled(manager, ref, given.timeout, edge)
    return exits.OK


def _pools(cluster: Raw) -> list[Raw]:
    return list(dig(cluster, "spec", "rkeConfig", "machinePools", default=()))


def _quantity(pool: Raw) -> int:
    found = pool.get("quantity")
    return 1 if found is None else int(found)


def _said(pool: Raw, wanted: int) -> str:
    had = _quantity(pool)
    return f"{pool['name']}: {had} → {wanted}" if had != wanted else f"{pool['name']}: {wanted}, as before"


def plan_sizes(cluster: Raw, sizes: dict[str, int]) -> list[dict[str, Any]]:
    """The JSON patch that gives the pools these sizes. Complains about pools that are not there, and where no
    machine would be left for etcd or the control plane."""
    pools = _pools(cluster)
    names = [str(pool.get("name")) for pool in pools]
    for name in sizes:
        if name not in names:
            raise Complaint(
                f"{reach.named(cluster)} has no pool {name!r}.",
                f"Its pools are: {', '.join(names)}",
                exits.NOT_FOUND,
            )
    for field, said in (("etcdRole", "etcd"), ("controlPlaneRole", "the control plane")):
        left = sum(
            sizes.get(name, _quantity(pool))
            for name, pool in zip(names, pools, strict=True)
            if pool.get(field)
        )
        if left == 0:
            raise Complaint(
                f"That would leave {reach.named(cluster)} without a machine for {said}.",
                f"Keep one, or delete the cluster: windrow delete {reach.named(cluster)}",
                exits.REFUSED,
            )
    steps: list[dict[str, Any]] = []
    for place, (name, pool) in enumerate(zip(names, pools, strict=True)):
        if name in sizes and sizes[name] != _quantity(pool):
            at = f"/spec/rkeConfig/machinePools/{place}"
            # The test makes sure that nobody moved the pools about between our look and the change.
            steps.append({"op": "test", "path": f"{at}/name", "value": name})
            steps.append({"op": "add", "path": f"{at}/quantity", "value": sizes[name]})
    return steps
