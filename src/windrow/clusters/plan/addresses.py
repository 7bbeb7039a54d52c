"""Addresses of machines: which are claimed for a machine before its VM is made, and which are released.

A machine's uid says where the search for a free address begins, so that clusters that claim at the same time seldom want
the same one, and an address that was released is not the next to be claimed: neighbours may still have it in their ARP
tables. Where two do want the same, the API server takes one of them, and the other is planned anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
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
from windrow.clusters.plan.unrecorded import MAX_NAMED, find_pool_of
from windrow.clusters.state import ClusterState, HeldAddress, MachineState, once_per_state
from windrow.clusters.vm_addresses import NetworkAddress
from windrow.core.formats.cidr import Address, NotAddress, parse_address
from windrow.core.text import join_some
from windrow.harvester.connection import describe_credential
from windrow.harvester.identity import is_certain


def list_missing(machine: MachineState, pool: Pool | None) -> tuple[AddressPool, ...]:
    """The address pools of which the machine has no address yet. What has been planned for its driver stays as it is, and so
    does a VM that is adopted."""
    if pool is None or machine.record.was_requested or machine.found_vm is not None:
        return ()
    return _without_claim(machine.addresses, pool)


def list_occupied(machine: MachineState, state: ClusterState) -> list[tuple[IPAddress, HeldAddress]]:
    """The addresses that are claimed for a machine without a VM, and that a VM of another has: the claim was restored from a
    backup, or is older than that VM."""
    if machine.record.was_created or machine.found_vm is not None:
        return []
    found = []
    for claim in machine.addresses:
        holder = state.held.get(claim.network, {}).get(claim.address)
        if holder and holder.machine_uid != machine.record.uid and holder.vm != machine.vm_ref:
            found.append((claim, holder))
    return found


def may_await_address(machine: MachineState, pool: Pool | None) -> bool:
    """Whether an address that others release may let its VM be made."""
    return pool is not None and bool(pool.address_pools) and not machine.record.was_created


def _without_claim(claims: Iterable[IPAddress], pool: Pool) -> tuple[AddressPool, ...]:
    has = {(claim.network, claim.version) for claim in claims}
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


def list_taken(network: str, state: ClusterState) -> Set[str]:
    """The addresses that no machine can claim there: those claimed, and what VMs have, since a claim may be lost by a
    restored state, or be in the state of another manager."""
    return _list_all_taken(state).get(network) or _list_reported(state)


@once_per_state
def _list_all_taken(state: ClusterState) -> Mapping[str, Set[str]]:
    networks = state.taken.keys() | state.held.keys()
    return {
        network: {*state.taken.get(network, ()), *state.held.get(network, ()), *_list_reported(state)}
        for network in networks
    }


@once_per_state
def _list_reported(state: ClusterState) -> Set[str]:
    return frozenset(address for machine in state.machines if machine.vm for address in machine.vm.addresses)


class Claims:
    """The claims of one plan: each sees what those before it take."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._taken: dict[str, set[str]] = {}
        self._used_up: list[AddressPool] = []

    def _choose(self, pool: AddressPool, seed: str) -> Address | None:
        if pool in self._used_up:
            return None
        address = choose_address(pool, self._taken_on(pool.network), seed)
        if address is None:
            self._used_up.append(pool)
        return address

    def _taken_on(self, network: str) -> set[str]:
        if network not in self._taken:
            self._taken[network] = set(list_taken(network, self._state))
        return self._taken[network]

    def plan(self, machine: MachineState, partial: PartialPlan) -> bool:
        """Claim what the machine lacks. Whether its VM can be made now.

        A VM that is adopted keeps the addresses that it has: they are claimed first, and where another has claimed one,
        the VM runs already, and waits for nothing.
        """
        state, pool = self._state, self._state.cluster.find_pool(machine.pool)
        if machine.found_vm is not None and pool is not None and not machine.record.was_requested:
            return not _recover(machine, pool, state, partial)
        if pool is None or machine.found_vm is not None:
            return True
        occupied = list_occupied(machine, state)
        if occupied and machine.record.was_requested:
            return False  # its diagnosis says so; its driver has been told that address
        missing = _list_wanted(machine, pool, occupied)
        if not missing and not occupied:
            return not machine.addresses or state.is_held_known
        if state.harvester_hidden_from:
            return False  # its diagnosis says so
        if not is_certain(state.harvester_uid):
            why = "addresses are claimed on it"
            if not any(isinstance(action, RecordHarvester) for action in partial.actions):
                partial.actions.append(RecordHarvester(why, pool.credential))
            return False
        if not (state.claims_on and state.is_held_known):
            return False  # its diagnosis says so
        claims = []
        for one in missing:
            if not one.ranges:
                return False  # its diagnosis says so
            address = self._choose(one, machine.record.uid)
            if address is None:
                return False  # its diagnosis says so; what it could have of the others stays free
            claims.append(new_claim(machine.record.name, machine.record.uid, one, str(address), state))
        for claim in claims:
            self._taken_on(claim.network).add(claim.address)
        if occupied:
            why = f"{occupied[0][1].vm} has {occupied[0][0].address}"
            released = tuple(claim for claim, _ in occupied)
            partial.actions.append(ReleaseAddresses(why, machine.name, released))
        if claims:
            why = f"pool {pool.name} has addressPools"
            partial.actions.append(ClaimAddresses(why, machine.name, tuple(claims)))
        return False


def _list_wanted(
    machine: MachineState, pool: Pool, occupied: Iterable[tuple[IPAddress, HeldAddress]]
) -> tuple[AddressPool, ...]:
    """The address pools of which it is to have another address, or the first."""
    given_up = {claim.name for claim, _ in occupied}
    kept = tuple(claim for claim in machine.addresses if claim.name not in given_up)
    return list_missing(replace(machine, addresses=kept), pool)


def new_claim(machine: str, uid: str, pool: AddressPool, address: str, state: ClusterState) -> IPAddress:
    return IPAddress(
        name=address_name(state.claims_on, pool.network, address),
        uid="",
        address=address,
        prefix=pool.prefix,
        network=pool.network,
        harvester=state.claims_on,
        machine=f"{state.cluster.namespace}/{machine}",
        machine_uid=uid,
        cluster_uid=state.cluster.uid,
        gateway=pool.gateway,
        nameservers=pool.nameservers,
        is_of_node=pool.is_of_node,
        server=state.address_scope.server if state.address_scope else "",
    )


def describe_shortage(machine: MachineState, state: ClusterState) -> str:
    """What a machine waits for that can have no address, "" where it can."""
    pool = state.cluster.find_pool(machine.pool)
    missing = list_missing(machine, pool)
    asks = bool(missing or machine.addresses) and machine.found_vm is None
    if asks and state.harvester_hidden_from and not (state.is_held_known and not missing):
        return (
            "Harvester to be known by the uid of its Namespace kube-system, under which addresses are claimed (let the user of "
            f"{describe_credential(state.harvester_hidden_from)} get that Namespace)"
        )
    if pool is None:
        return ""
    scope = state.address_scope
    waits = asks and is_certain(state.harvester_uid) and not state.claims_on
    if waits and scope is not None and scope.because and (missing or not state.is_held_known):
        return scope.because
    if waits and missing:
        return (
            f"proof that the server of {describe_credential(pool.credential)} is Harvester {state.harvester_uid}, on which Clusters of "
            "another namespace claim addresses through another server or CA (use the server and CA of their kubeconfig, or let the user "
            f"of the credential get Leases in all namespaces there)"
        )
    if asks and not state.is_held_known:
        return "the first list of VirtualMachines from Harvester (an address that a VM has is not claimed for another)"
    occupied = list_occupied(machine, state)
    if occupied and (machine.record.was_requested or not _has_another(machine, pool, occupied, state)):
        claim, holder = occupied[0]
        return (
            f"{holder.vm} to give up {claim.address} of network {claim.network} ({claim} gives it to this machine, whose VM is not "
            f"made while another has it; delete one of the two, or widen addressPools of {pool.kind} "
            f"{state.cluster.namespace}/{pool.config_name})"
        )
    for one in missing:
        if one.fault:
            return f"an address of network {one.network}: {one.fault}"
        if one in _list_used_up(state):
            source = (
                f"IPPool {one.ip_pool} on Harvester"
                if one.ip_pool
                else f"{one.place} of {pool.kind} {state.cluster.namespace}/{pool.config_name}"
            )
            return (
                f"an address of network {one.network} to be released (all {one.size} of {one.written} are claimed, or VMs have them"
                f"{_name_holders(one, state)}; widen {source}, or delete machines that have one)"
            )
    return ""


@once_per_state
def _list_used_up(state: ClusterState) -> Sequence[AddressPool]:
    """The address pools of which no machine can claim an address."""
    every = (one for pool in state.cluster.pools for one in pool.address_pools if one.ranges)
    return [one for one in every if choose_address(one, list_taken(one.network, state), "") is None]


def _has_another(
    machine: MachineState,
    pool: Pool,
    occupied: Iterable[tuple[IPAddress, HeldAddress]],
    state: ClusterState,
) -> bool:
    """Whether each address that it is to give up has one that takes its place."""
    return all(
        choose_address(one, list_taken(one.network, state), machine.record.uid) is not None
        for one in _list_wanted(machine, pool, occupied)
        if one.ranges
    )


def _name_holders(pool: AddressPool, state: ClusterState) -> str:
    """The VMs that have addresses of the pool which no IPAddress records."""
    claimed = state.taken.get(pool.network, frozenset())
    held = state.held.get(pool.network, {})
    unclaimed = [held[text] for text in sorted(held) if text not in claimed and _is_in(text, pool)]
    if not unclaimed:
        return ""
    named = join_some([f"{one.vm} has {one.address}" for one in unclaimed], MAX_NAMED)
    return f" without an IPAddress: {named}"


def plan_recovery(state: ClusterState) -> PartialPlan:
    """Claim again what VMs have, where the claim was lost with a restored state: before others can have it."""
    partial = PartialPlan()
    if not state.claims_on:
        return partial
    for machine in state.active:
        pool = state.cluster.find_pool(machine.pool)
        if pool is not None and machine.record.was_created:
            _recover(machine, pool, state, partial)
    for vm in state.unrecorded or ():
        pool = find_pool_of(vm, state.cluster)
        if pool is not None:
            own = [claim for claim in state.claims if claim.machine_uid == vm.machine_uid]
            lost = _list_lost(vm.name, vm.machine_uid, own, vm.addresses, (), pool, state)
            _reclaim(vm.name, str(vm), lost, partial)
    return partial


def _recover(machine: MachineState, pool: Pool, state: ClusterState, partial: PartialPlan) -> bool:
    """Claim again what its VM has. Whether there is such an address."""
    told = machine.found_vm.addresses if machine.found_vm is not None else ()
    reported = machine.vm.addresses if machine.vm is not None else ()
    record = machine.record
    if not state.claims_on:
        return False
    lost = _list_lost(record.name, record.uid, machine.addresses, told, reported, pool, state)
    return _reclaim(machine.name, "its VM", lost, partial)


def _list_lost(
    name: str,
    uid: str,
    own: Iterable[IPAddress],
    told: Iterable[NetworkAddress],
    reported: Iterable[str],
    pool: Pool,
    state: ClusterState,
) -> list[IPAddress]:
    """The claims that a VM of this machine lacks for what it has: the address that it is told to have on a network, else the
    first that it reports. What it has beside that is none of its own, such as a Service's address that it announces."""
    lost = []
    told, reported = tuple(told), tuple(reported)
    for one in _without_claim(own, pool):
        taken = state.taken.get(one.network, frozenset())
        on_network = [text for network, text in told if network == one.network and _is_in(text, one)]
        found = on_network or [text for text in reported if text not in taken and _is_in(text, one)]
        lost += [new_claim(name, uid, one, text, state) for text in found[:1] if text not in taken]
    return lost


def _reclaim(machine: str, vm: str, lost: Sequence[IPAddress], partial: PartialPlan) -> bool:
    if lost:
        why = f"{vm} has {', '.join(claim.address for claim in lost)}, and nothing records it"
        partial.actions.append(ClaimAddresses(why, machine, tuple(lost)))
    return bool(lost)


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
        why = f"the Machine of {join_some([one.address for one in unused], 1)} does not exist any more"
        partial.actions.append(ReleaseUnusedAddresses(why, unused))
    return partial
