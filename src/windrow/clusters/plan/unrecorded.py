"""VMs on Harvester that carry the Cluster's uid and that no Machine records: adopted, or held and named.

The order "Machine first, VM then" makes none. One appears where the management API was restored to an earlier state, or
a Machine was deleted by force. The rule:

* adopted, that is recorded by a Machine of its name again, where its pool asks for more machines than exist, and
  where it is proven not to be a clone;
* else held: the condition VMsRecorded names it with the reason, and a person decides. A cluster that lives deletes none:
  the restored state may ask for fewer machines than the lost one did.

Until such a VM is recorded, etcd may have more members than are known, so that no member is removed; and a cluster that
has not started according to its record is not started beside VMs of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.machine import is_name_in_pool
from windrow.clusters.change.rollout import find_replicas
from windrow.clusters.orphans import MachineClaim, OrphanVm
from windrow.clusters.plan.endpoint import find_join_server_of_adopted
from windrow.clusters.state import ClusterState
from windrow.core.text import join_some
from windrow.kubernetes.kubectl import ON_HARVESTER, render_delete
from windrow.machines.port import HARVESTER

MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class HeldVm:
    """A VM that is neither adopted nor deleted, and why."""

    vm: OrphanVm
    because: str

    def __str__(self) -> str:
        return f"{self.vm} carries the uid of this Cluster and no Machine records it: {self.because}"


@dataclass(frozen=True, slots=True)
class UnrecordedVms:
    """What becomes of each."""

    adopted: tuple[tuple[OrphanVm, Pool], ...] = ()
    held: tuple[HeldVm, ...] = ()

    def adopted_by(self, pool: Pool) -> tuple[OrphanVm, ...]:
        return tuple(vm for vm, its_pool in self.adopted if its_pool.name == pool.name)


def find_pool_of(vm: OrphanVm, cluster: Cluster) -> Pool | None:
    """The pool that it was made for: its name is like those of that pool's machines, and of no other's."""
    pools = [pool for pool in cluster.pools if is_name_in_pool(cluster, pool, vm.name)]
    return pools[0] if len(pools) == 1 else None


def decide(state: ClusterState) -> UnrecordedVms:
    """Which VMs are adopted, and why the others are held."""
    if not state.unrecorded:
        return UnrecordedVms()
    missing = {
        pool.name: find_replicas(pool, state) - len(state.of_pool(pool)) for pool in state.cluster.pools
    }
    adopted: list[tuple[OrphanVm, Pool]] = []
    held: list[HeldVm] = []
    for vm in state.unrecorded:
        pool = find_pool_of(vm, state.cluster)
        if vm.unproven:
            held.append(HeldVm(vm, vm.unproven))
        elif pool is None:
            held.append(HeldVm(vm, "it is of no machine pool that the Cluster has"))
        elif because := _reason_to_hold(vm, pool, missing[pool.name], state):
            held.append(HeldVm(vm, because))
        else:
            adopted.append((vm, pool))
            missing[pool.name] -= 1
    return UnrecordedVms(tuple(adopted), tuple(held))


def _reason_to_hold(vm: OrphanVm, pool: Pool, missing: int, state: ClusterState) -> str:
    if any(machine.name == vm.name for machine in state.machines):
        return f"Machine {vm.name} records another VM"
    if missing <= 0:
        exist = len(state.of_pool(pool))
        return f"pool {pool.name} asks for {pool.quantity}, and {exist} exist; raise its quantity to have it adopted"
    if pool.paused:
        return f"machine pool {pool.name} is paused"
    if pool.options is None or pool.driver != HARVESTER:
        return f"pool {pool.name} has no machine config of Harvester"
    if not find_join_server_of_adopted(state) and vm.machine_uid != state.recorded.init_server_uid:
        return "according to its record the cluster has no server with an address; restore a later backup"
    return ""


def may_have_unrecorded_etcd_member(state: ClusterState) -> str:
    """A VM that may be an etcd member that no Machine records; "" for none."""
    for vm in state.unrecorded or ():
        pool = find_pool_of(vm, state.cluster)
        if pool is None or pool.is_etcd:
            return str(vm)
    return ""


def describe_held(held: tuple[HeldVm, ...]) -> str:
    """What condition and event say."""
    named = join_some(held, MAX_NAMED, "; ")
    return f"{named}; to be rid of one, delete it on Harvester: {render_delete(held[0].vm.ref, kubeconfig=ON_HARVESTER)}"


def describe_claims(claims: tuple[MachineClaim, ...]) -> str:
    """What condition and event say of disks of machines that no Machine records and whose VM is gone."""
    going = [claim for claim in claims if not claim.unproven]
    staying = [claim for claim in claims if claim.unproven]
    sentences = []
    if going:
        sentences.append(
            f"{_list_claims(going)}; they are deleted with the Cluster; to be rid of one before, delete it on Harvester: "
            f"{render_delete(going[0].ref, kubeconfig=ON_HARVESTER)}"
        )
    if staying:
        sentences.append(
            f"{_list_claims(staying)}; they stay when the Cluster is deleted, since {staying[0].unproven}; to be rid of one, "
            f"delete it on Harvester: {render_delete(staying[0].ref, kubeconfig=ON_HARVESTER)}"
        )
    return "; ".join(sentences)


def _list_claims(claims: Sequence[MachineClaim]) -> str:
    named = join_some([f"{claim.namespace}/{claim.name}" for claim in claims], MAX_NAMED)
    return (
        f"PersistentVolumeClaims {named} carry the uid of this Cluster, no VM uses them, and no Machine records those "
        "that they were made for"
    )
