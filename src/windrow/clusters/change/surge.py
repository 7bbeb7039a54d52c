"""How many machines beyond its quantity a pool may have while its machines are replaced, and whether they can be with that.

With `maxSurge: 0` a machine goes before the one comes that takes its place. A server can only where others keep the cluster
meanwhile. Cluster API refuses such a control plane (`maxSurge` 0 needs three replicas); here the pool may stay as it is, and
what asks for a replacement is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.clusters.api.cluster import Pool
from windrow.machines.port import Problem

MACHINE_POOLS = "spec.rkeConfig.machinePools"
LEAST_MEMBERS = 3  # of etcd, of which one may go


def find_budget(pool: Pool) -> tuple[int, int]:
    """maxSurge and maxUnavailable of the pool as numbers. Both 0 by rounding: one may be unavailable, as Kubernetes has it."""
    surge, unavailable = (
        pool.max_surge.resolve_up(pool.quantity),
        pool.max_unavailable.resolve_down(pool.quantity),
    )
    return (surge, unavailable) if surge or unavailable else (0, 1)


def check_replacement(pool: Pool, pools: Sequence[Pool]) -> Problem | None:
    """Why no machine of the pool could ever be replaced, with how to change that; None where they can be."""
    if find_budget(pool)[0] or not pool.quantity:
        return None
    members = sum(one.quantity for one in pools if one.is_etcd)
    if pool.is_etcd and members < LEAST_MEMBERS:
        others = (
            "etcd has no other member"
            if members == 1
            else f"the other one of {members} etcd members is no majority"
        )
        return _refuse(pool, f"{others} without it")
    if pool.is_control_plane and sum(one.quantity for one in pools if one.is_control_plane) == 1:
        return _refuse(pool, "no other machine is a control plane")
    return None


def _refuse(pool: Pool, why: str) -> Problem:
    return Problem(
        f"no machine of pool {pool.name} can be replaced: with maxSurge 0 it goes before another one comes, and {why}",
        f"set rollingUpdate.maxSurge of pool {pool.name} to 1",
        f"{MACHINE_POOLS}[{pool.name}].rollingUpdate",
    )
