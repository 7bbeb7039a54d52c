"""Observation of the addresses of a Cluster's machines: what is claimed, what VMs have, and where the two disagree.

A VM may have an address that no IPAddress records, or that an IPAddress gives to another machine: the claim was restored
from a backup, or is in the state of another manager. So what all VMs of the Harvester are told to have and report is
compared with the claims; they are gone through once in an observation.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from windrow.clusters.api.addresses import resolve_ip_pools
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.orphans import OrphanVm, ReportingVm
from windrow.clusters.sources.address_scopes import AddressScopes, digest_of
from windrow.clusters.sources.addresses import AddressBook
from windrow.clusters.sources.credentials import CredentialProber
from windrow.clusters.sources.harvester_objects import HarvesterObjects
from windrow.clusters.state import (
    AddressScope,
    ClusterState,
    ContestedAddress,
    HeldAddress,
    MachineState,
    name_if_own,
)
from windrow.clusters.vm_addresses import NetworkAddress
from windrow.harvester.connection import describe_credential
from windrow.harvester.identity import is_certain
from windrow.harvester.resources import VM
from windrow.kubernetes.kubeconfig import ClientConfig

AddressedVm = OrphanVm | ReportingVm


class AddressedVms:
    """The VMs with addresses that any credential shows which leads to the Harvester of a Cluster, read when first asked for."""

    def __init__(self, list_all: Callable[[], Iterable[AddressedVm]]) -> None:
        self._list_all = list_all

    @cached_property
    def _all(self) -> tuple[AddressedVm, ...]:
        return tuple(self._list_all())

    @cached_property
    def by_network(self) -> Mapping[str, Mapping[str, list[AddressedVm]]]:
        """Those that have an address, by network and address. One may come repeatedly."""
        found: dict[str, dict[str, list[AddressedVm]]] = {}
        for vm in self._all:
            for network, address in vm.addresses:
                found.setdefault(network, {}).setdefault(address, []).append(vm)
        return found

    @cached_property
    def by_name(self) -> Mapping[tuple[str, str], list[NetworkAddress]]:
        """What a VM has, by its namespace and name."""
        found: dict[tuple[str, str], list[NetworkAddress]] = {}
        for vm in self._all:
            found.setdefault((vm.namespace, vm.name), []).extend(vm.addresses)
        return found


class AddressObserver:
    """Reads, without side effects. `list_allowed` are the credentials for a Harvester that a Cluster's namespace may use."""

    def __init__(
        self,
        prober: CredentialProber,
        objects: HarvesterObjects,
        addresses: AddressBook,
        scopes: AddressScopes,
        list_allowed: Callable[[Cluster], list[str]],
    ) -> None:
        self._prober, self._objects, self._addresses = prober, objects, addresses
        self._scopes, self._list_allowed = scopes, list_allowed

    def list_credentials(self, cluster: Cluster) -> frozenset[str]:
        """Those of its pools whose machines have addresses that are claimed."""
        named = {pool.credential for pool in cluster.pools if pool.address_pools}
        return frozenset(named.intersection(self._list_allowed(cluster)))

    def list_ip_pool_credentials(self, cluster: Cluster) -> frozenset[str]:
        """Those of its pools whose machines have addresses of an IPPool of Harvester."""
        named = {pool.credential for pool in cluster.pools if names_ip_pool(pool)}
        return frozenset(named.intersection(self._list_allowed(cluster)))

    def with_ip_pools(self, cluster: Cluster) -> Cluster:
        """The cluster with the ranges of the IPPools that its address pools name, as the watch shows them."""
        if not any(map(names_ip_pool, cluster.pools)):
            return cluster
        pools = (
            replace(
                pool,
                address_pools=resolve_ip_pools(
                    pool.address_pools, self._objects.find_ip_pools(pool.credential, cluster.namespace)
                ),
            )
            for pool in cluster.pools
        )
        return replace(cluster, pools=tuple(pools))

    async def with_scope(self, state: ClusterState) -> ClusterState:
        """Under which identity it claims addresses, and those that it has claimed."""
        cluster = state.cluster
        state = replace(state, claims=self._addresses.of_cluster(cluster.uid))
        ref = CLUSTER.ref(cluster.name, cluster.namespace)
        named = sorted({pool.credential for pool in cluster.pools if pool.address_pools})
        if not (named or state.claims):
            self._scopes.forget(ref)
        if not (named and is_certain(state.harvester_uid)) or cluster.deletion_timestamp is not None:
            return state  # nothing is claimed
        if because := self._find_obstacle(named, state):
            return replace(state, address_scope=AddressScope("", because=because))
        credentials = self.list_credentials(cluster)
        scope = await self._scopes.find(ref, cluster.uid, state.harvester_uid, credentials, state.places)
        return replace(state, address_scope=scope)

    def _find_obstacle(self, named: Iterable[str], state: ClusterState) -> str:
        """Why no server can say now where it claims addresses; "" where one can."""
        credentials = sorted(self.list_credentials(state.cluster))
        if not credentials:
            listed = ", ".join(map(describe_credential, named))
            return (
                f"a credential that may be used from namespace {state.cluster.namespace} ({listed} may not)"
            )
        for one in credentials:
            found = self._prober.find_identity(one)
            if not found:
                return (
                    f"Harvester to answer a probe with {describe_credential(one)}, which shows its identity"
                )
            if found != state.harvester_uid:
                return (
                    f"{describe_credential(one)} to lead to Harvester {state.harvester_uid}, on which the cluster is (it leads to "
                    f"Harvester {found})"
                )
        return ""

    def list_vms(self, state: ClusterState) -> AddressedVms:
        uid, scope = state.harvester_uid, state.address_scope

        def is_wanted(credential: str, access: ClientConfig) -> bool:
            # What was shown may still be there while the credential does not work.
            if self._prober.find_last_identity(credential) != uid:
                return False
            return scope is None or digest_of(access) in scope.servers

        return AddressedVms(lambda: self._objects.list_addressed(is_wanted))

    def with_addresses(self, state: ClusterState, vms: AddressedVms) -> ClusterState:
        """The addresses of its networks that are claimed are read where a machine may want one."""
        wanted = {one.network for pool in state.cluster.pools for one in pool.address_pools}
        if wanted:
            credentials = self._list_allowed(state.cluster)
            hidden = next(filter(self._prober.hides_identity, credentials), "")
            state = replace(state, harvester_hidden_from=hidden)
        if not (state.harvester_uid and wanted):
            return state
        allocated = (
            contested
            for network, one in self._list_allocated(state)
            for contested in self._list_contested(one.vm, "", [NetworkAddress(network, one.address)], state)
        )
        doubled = _list_doubled(state, vms)
        state = replace(state, contested=tuple(dict.fromkeys((*allocated, *doubled))))
        taken = {network: self._addresses.list_taken(network, state.scope_name) for network in wanted}
        lacking = {machine.record.uid for machine in state.active if _awaits_vm(machine, state.cluster)}
        state = replace(state, taken=taken, is_held_known=self._is_held_known(state))
        if not lacking:
            return state
        found = {
            vm.machine_uid: vm
            for vm in self._objects.list_shown_vms(state.cluster.uid)
            if vm.machine_uid in lacking and not vm.is_deleting
        }
        machines = tuple(replace(one, found_vm=found.get(one.record.uid)) for one in state.machines)
        own = (
            contested
            for one in machines
            if one.record.was_created and one.vm is not None
            for contested in self._list_contested(
                one.vm_ref, one.record.uid, _addresses_of(one, state.cluster), state
            )
        )
        held = self._list_held(state, wanted, vms)
        return replace(state, machines=machines, held=held, contested=(*state.contested, *own))

    def with_unrecorded(self, state: ClusterState, vms: AddressedVms) -> ClusterState:
        """The VMs that no Machine records with what their guest agents report after what they are told to have."""
        if not state.unrecorded or not any(pool.address_pools for pool in state.cluster.pools):
            return state
        unrecorded = tuple(
            replace(
                vm,
                addresses=tuple(
                    dict.fromkeys((*vm.addresses, *vms.by_name.get((vm.namespace, vm.name), ())))
                ),
            )
            for vm in state.unrecorded
        )
        contested = (
            one
            for vm in unrecorded
            for one in self._list_contested(str(vm), vm.machine_uid, vm.addresses, state)
        )
        return replace(state, unrecorded=unrecorded, contested=(*state.contested, *contested))

    def _list_allocated(self, state: ClusterState) -> Iterator[tuple[str, HeldAddress]]:
        """The addresses that load balancers have of the IPPools that the cluster names, by network."""
        namespaces = state.vm_namespaces
        for pool in state.cluster.pools:
            if not names_ip_pool(pool):
                continue
            found = self._objects.find_ip_pools(pool.credential, state.cluster.namespace) or {}
            for one in pool.address_pools:
                for address, holder in found[one.ip_pool].allocated if one.ip_pool in found else ():
                    named = name_if_own("LoadBalancer", holder, namespaces)
                    yield one.network, HeldAddress(address, named)

    def _is_held_known(self, state: ClusterState) -> bool:
        """Whether its credentials lead to its Harvester, and the VMs that they may see there were read."""
        credentials = self.list_credentials(state.cluster)
        if not credentials:
            return False
        if any(self._prober.find_identity(one) != state.harvester_uid for one in credentials):
            return False
        return self._objects.has_tried_addresses(credentials, state.cluster.namespace)

    def _list_held(
        self, state: ClusterState, networks: Iterable[str], vms: AddressedVms
    ) -> Mapping[str, Mapping[str, HeldAddress]]:
        """The addresses that VMs and load balancers have on these networks."""
        namespaces = state.vm_namespaces
        held = {
            network: {
                address: HeldAddress(address, _name_of(having[0], namespaces), having[0].machine_uid)
                for address, having in vms.by_network.get(network, {}).items()
            }
            for network in networks
        }
        for network, one in self._list_allocated(state):
            held[network][one.address] = one
        return held

    def _list_contested(
        self, vm: str, uid: str, addresses: Iterable[NetworkAddress], state: ClusterState
    ) -> Iterator[ContestedAddress]:
        """Those that an IPAddress gives to another machine."""
        for network, address in dict.fromkeys(addresses):
            claim = self._addresses.find(network, state.scope_name, address)
            if claim is not None and claim.machine_uid != uid:
                other = name_if_own("Machine", claim.machine, (state.cluster.namespace,))
                yield ContestedAddress(vm, uid, claim, other)


def names_ip_pool(pool: Pool) -> bool:
    return any(one.ip_pool for one in pool.address_pools)


def _list_doubled(state: ClusterState, vms: AddressedVms) -> Iterator[ContestedAddress]:
    """The addresses of the cluster's own VMs that a VM of another has, whether anything records that or not."""
    made, namespaces = {one.record.uid: one for one in state.machines}, state.vm_namespaces
    for claim in state.claims:
        machine = made.get(claim.machine_uid)
        if claim.harvester != state.scope_name or (machine and not machine.record.was_created):
            continue
        for vm in vms.by_network.get(claim.network, {}).get(claim.address, ()):
            is_its_own = vm.machine_uid == claim.machine_uid or (machine and str(vm) == machine.vm_ref)
            if not is_its_own:
                yield ContestedAddress(_name_of(vm, namespaces), vm.machine_uid, claim)


def _name_of(vm: AddressedVm, namespaces: Container[str]) -> str:
    return name_if_own(VM.kind, f"{vm.namespace}/{vm.name}", namespaces)


def _addresses_of(machine: MachineState, cluster: Cluster) -> Iterator[NetworkAddress]:
    """What the VM of the machine is told to have, and what it reports, on any network of its pool."""
    pool = cluster.find_pool(machine.pool)
    networks = dict.fromkeys(one.network for one in pool.address_pools) if pool else {}
    yield from machine.found_vm.addresses if machine.found_vm is not None else ()
    for text in machine.vm.addresses if machine.vm is not None else ():
        yield from (NetworkAddress(network, text) for network in networks)


def _awaits_vm(machine: MachineState, cluster: Cluster) -> bool:
    """Whether its VM is to be made with addresses that no other VM may have, or an address is not claimed for it."""
    is_unmade = bool(machine.addresses) and not machine.record.was_created
    return is_unmade or _lacks_address(machine, cluster)


def _lacks_address(machine: MachineState, cluster: Cluster) -> bool:
    """Whether an address of its pool is not claimed for it."""
    pool = cluster.find_pool(machine.pool)
    has = {(claim.network, claim.version) for claim in machine.addresses}
    return pool is not None and any((one.network, one.version) not in has for one in pool.address_pools)
