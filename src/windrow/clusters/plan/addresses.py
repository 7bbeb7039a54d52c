"""Addresses of machines: which are claimed for a machine before its VM is made, and which are released.

A machine's uid says where the search for a free address begins, so that clusters that claim at the same time seldom want
the same one, and an address that was released is not the next to be claimed: neighbours may still have it in their ARP
tables. Where two do want the same, the API server takes one of them, and the other is planned anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Set
from math import gcd

from windrow.clusters.api.addresses import AddressPool, IPAddress, address_name
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.plan.actions import (
    ClaimAddresses,
    PartialPlan,
    RecordHarvester,
    ReleaseAddresses,
    ReleaseUnusedAddresses,
)
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.formats.cidr import Address, NotAddress, parse_address
from windrow.harvester.connection import describe_credential
from windrow.harvester.identity import is_certain


def list_missing(machine: MachineState, pool: Pool | None) -> tuple[AddressPool, ...]:
    """The address pools of which the machine has no address yet. What has been planned for its driver stays as it is."""
    if pool is None or machine.record.was_requested:
        return ()
    has = {(claim.network, claim.version) for claim in machine.addresses}
    return tuple(one for one in pool.address_pools if (one.network, one.version) not in has)


def choose_address(pool: AddressPool, taken: Set[str], seed: str) -> Address | None:
    """A free address; None where all are taken. The same seed goes the same way: from a place of its own by steps of its own
    length, which meet every address once, and few taken ones on the way to a free one also where most are taken."""
    digest = hashlib.sha256(f"{seed}/{pool.network}/{pool.version}".encode()).digest()
    start, step = int.from_bytes(digest[:16]) % pool.size, int.from_bytes(digest[16:]) % pool.size or 1
    while gcd(step, pool.size) != 1:
        step += 1
    # Of so many addresses one is not among those taken.
    for number in range(min(pool.size, len(taken) + 1)):
        address = pool.address_at((start + number * step) % pool.size)
        if str(address) not in taken:
            return address
    return None


def list_node_ips(machine: MachineState, cluster: Cluster) -> tuple[str, ...]:
    """The addresses that its Node is to have, that of the cluster's first family first: those on the node's network, of the
    families of the cluster. Without any, kubelet chooses among those that it finds."""
    own = [claim for claim in machine.addresses if claim.is_of_node and claim.version in cluster.families]
    return tuple(
        claim.address for claim in sorted(own, key=lambda claim: cluster.families.index(claim.version))
    )


def list_taken(network: str, state: ClusterState) -> set[str]:
    """The addresses that no machine can claim there: those claimed, and what VMs of the cluster report, since a claim may be
    lost by a restored state."""
    reported = (address for machine in state.machines if machine.vm for address in machine.vm.addresses)
    return {*state.taken.get(network, ()), *reported}


class Claims:
    """The claims of one plan: each sees what those before it take."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._taken: dict[str, set[str]] = {}

    def _taken_on(self, network: str) -> set[str]:
        if network not in self._taken:
            self._taken[network] = list_taken(network, self._state)
        return self._taken[network]

    def plan(self, machine: MachineState, partial: PartialPlan) -> bool:
        """Claim what the machine lacks. Whether its VM can be made now."""
        state, pool = self._state, self._state.cluster.find_pool(machine.pool)
        missing = list_missing(machine, pool)
        if not missing or pool is None:
            return True
        if state.harvester_hidden_from:
            return False  # its diagnosis says so
        if not is_certain(state.harvester_uid):
            why = "addresses are claimed on it"
            if not any(isinstance(action, RecordHarvester) for action in partial.actions):
                partial.actions.append(RecordHarvester(why, pool.credential))
            return False
        claims = []
        for one in missing:
            address = choose_address(one, self._taken_on(one.network), machine.record.uid)
            if address is None:
                return False  # its diagnosis says so; what it could have of the others stays free
            claims.append(new_claim(machine, one, str(address), state))
        for claim in claims:
            self._taken_on(claim.network).add(claim.address)
        why = f"pool {pool.name} has addressPools"
        partial.actions.append(ClaimAddresses(why, machine.name, tuple(claims)))
        return False


def new_claim(machine: MachineState, pool: AddressPool, address: str, state: ClusterState) -> IPAddress:
    record = machine.record
    return IPAddress(
        name=address_name(state.harvester_uid, pool.network, address),
        uid="",
        address=address,
        prefix=pool.prefix,
        network=pool.network,
        harvester=state.harvester_uid,
        machine=f"{record.namespace}/{record.name}",
        machine_uid=record.uid,
        cluster_uid=record.cluster_uid,
        gateway=pool.gateway,
        nameservers=pool.nameservers,
        is_of_node=pool.is_of_node,
    )


def describe_shortage(machine: MachineState, state: ClusterState) -> str:
    """What a machine waits for that can have no address, "" where it can."""
    pool = state.cluster.find_pool(machine.pool)
    missing = list_missing(machine, pool)
    if missing and state.harvester_hidden_from:
        return (
            "Harvester to be known by the uid of its Namespace kube-system, under which addresses are claimed (let the user of "
            f"{describe_credential(state.harvester_hidden_from)} get that Namespace)"
        )
    if pool is None:
        return ""
    for one in missing:
        taken = list_taken(one.network, state)
        if len(taken) >= one.size and choose_address(one, taken, machine.record.uid) is None:
            return (
                f"an address of network {one.network} to be released (all {one.size} of {one.written} are claimed, or reported by VMs of "
                f"the cluster; widen {one.place} of {pool.kind} {state.cluster.namespace}/{pool.config_name}, or delete machines that have one)"
            )
    return ""


def plan_recovery(state: ClusterState) -> PartialPlan:
    """Claim again what VMs report to have, where the claim was lost with a restored state: before others can have it."""
    partial = PartialPlan()
    if not is_certain(state.harvester_uid):
        return partial
    for machine in state.active:
        pool = state.cluster.find_pool(machine.pool)
        if pool is None or not machine.record.was_created or machine.vm is None:
            continue
        has = {(claim.network, claim.version) for claim in machine.addresses}
        lost = []
        for one in pool.address_pools:
            if (one.network, one.version) in has:
                continue  # what it has beside that is none of its own, such as a Service's address that it announces
            taken = state.taken.get(one.network, frozenset())
            found = (text for text in machine.vm.addresses if text not in taken and _is_in(text, one))
            lost += [new_claim(machine, one, text, state) for text in found][:1]
        if lost:
            why = f"its VM reports {', '.join(claim.address for claim in lost)}, and nothing records it"
            partial.actions.append(ClaimAddresses(why, machine.name, tuple(lost)))
    return partial


def _is_in(text: str, pool: AddressPool) -> bool:
    try:
        return parse_address(text) in pool
    except NotAddress:
        return False


def plan_release(machine: MachineState, partial: PartialPlan) -> None:
    """Release the addresses of a machine whose VM is gone, or was never made."""
    if machine.addresses:
        partial.actions.append(ReleaseAddresses("its VM is gone", machine.name, machine.addresses))


def plan_unused(state: ClusterState, *, is_gone: bool = False) -> PartialPlan:
    """Release the addresses that Machines of the Cluster had that do not exist any more, and whose VM does not either.

    A VM that no Machine records keeps its address. `is_gone`: so are all VMs of the Cluster, but those that are kept.
    """
    partial = PartialPlan()
    if state.unrecorded is None and not is_gone:
        return partial
    known = {machine.record.uid for machine in state.machines}
    kept = state.orphans.vms if state.orphans else ()
    known |= {vm.machine_uid for vm in (kept if is_gone else state.unrecorded or ())}
    unused = tuple(claim for claim in state.claims if claim.machine_uid not in known)
    if unused:
        first, more = unused[0], f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        why = f"the Machine of {first.address}{more} does not exist any more"
        partial.actions.append(ReleaseUnusedAddresses(why, unused))
    return partial
