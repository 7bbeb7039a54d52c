"""Set the number of machines in one or more pools.

When a pool shrinks, machines with the annotation cluster.x-k8s.io/delete-machine are deleted first, then unhealthy
ones, then the oldest. Servers with etcd are deleted one by one, each after its member was removed from etcd.

Examples:
  windrow scale prod workers=5
  windrow scale fleet-default/prod servers=3 workers=0 --wait
"""

from __future__ import annotations

import argparse
from typing import Any

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.clusters.api.kinds import CLUSTER
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import ref_of


def _pool_size(text: str) -> tuple[str, int]:
    pool, separator, number = text.rpartition("=")
    if not separator or not pool or not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not POOL=NUMBER, as in workers=3")
    return pool, int(number)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    parser.add_argument(
        "sizes",
        nargs="+",
        type=_pool_size,
        metavar="POOL=NUMBER",
        help="a pool and its new number of machines",
    )
    options.add_wait(parser, "the cluster is ready again")
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    options.normalize_wait(args)
    return connect.run_connected(args, context, lambda manager: _scale(args, context, manager))


async def _scale(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    cluster = await connect.get_cluster(manager, args.name, args.namespace or "")
    steps = plan_sizes(cluster, dict(args.sizes))
    ref = ref_of(CLUSTER, cluster)
    if steps:
        await manager.client.json_patch(ref, steps)
    for pool in _pools(cluster):
        if pool["name"] in dict(args.sizes):
            context.print(_describe_change(pool, dict(args.sizes)[pool["name"]]))
    if args.wait and steps:
        from windrow.cli import wait

        return await wait.wait_for_settled(manager, ref, args.timeout, context)
    return exit_codes.OK


def _pools(cluster: Raw) -> list[Raw]:
    return list(nested(cluster, "spec", "rkeConfig", "machinePools", default=()))


def _quantity(pool: Raw) -> int:
    found = pool.get("quantity")
    return 1 if found is None else int(found)


def _describe_change(pool: Raw, wanted: int) -> str:
    had = _quantity(pool)
    return f"{pool['name']}: {had} → {wanted}" if had != wanted else f"{pool['name']}: {wanted}, as before"


def plan_sizes(cluster: Raw, sizes: dict[str, int]) -> list[dict[str, Any]]:
    """The JSON patch that gives the pools these sizes. Raises CliError for a pool that does not exist, and where no
    machine would be left for etcd or the control plane."""
    pools = _pools(cluster)
    names = [str(pool.get("name")) for pool in pools]
    for name in sizes:
        if name not in names:
            raise CliError(
                f"{connect.full_name(cluster)} has no pool {name!r}.",
                f"Its pools are: {', '.join(names)}",
                exit_codes.NOT_FOUND,
            )
    for field, said in (("etcdRole", "etcd"), ("controlPlaneRole", "the control plane")):
        left = sum(
            sizes.get(name, _quantity(pool))
            for name, pool in zip(names, pools, strict=True)
            if pool.get(field)
        )
        if left == 0:
            raise CliError(
                f"That would leave {connect.full_name(cluster)} without a machine for {said}.",
                f"Keep one, or delete the cluster: windrow delete {connect.full_name(cluster)}",
                exit_codes.REFUSED,
            )
    steps: list[dict[str, Any]] = []
    for place, (name, pool) in enumerate(zip(names, pools, strict=True)):
        if name in sizes and sizes[name] != _quantity(pool):
            at = f"/spec/rkeConfig/machinePools/{place}"
            # The test fails where the order of the pools changed since they were read.
            steps.append({"op": "test", "path": f"{at}/name", "value": name})
            steps.append({"op": "add", "path": f"{at}/quantity", "value": sizes[name]})
    return steps
