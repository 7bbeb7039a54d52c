"""Observation of what stands on Harvester without the record of it: VMs and disks of no Machine, those of a Machine whose VM
is gone, and what the guest of a deleted Cluster had made.

What a watch shows is read again before anything follows from it, since two watches are never in step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from windrow.client.client import Client
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.api.status import GuestServiceAccount
from windrow.clusters.change.rollout import find_replicas
from windrow.clusters.context import ReconcileContext
from windrow.clusters.orphans import (
    MachineClaim,
    OrphanLoadBalancer,
    Orphans,
    OrphanVm,
    belongs_to_same_name_cluster,
    guest_account_of,
    is_claim_of,
    load_balancer_selector,
    location_of,
    prove_claim,
    prove_vm,
    read_cluster_vm,
    read_machine_claim,
    read_orphan_load_balancer,
    read_orphan_vm,
    same_name_selectors,
    with_configured_addresses,
    without_claims_of,
)
from windrow.clusters.sources.harvester_objects import CREATOR_SELECTOR, HarvesterObjects, machine_places
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.clusters.sources.volumes.guest_volumes import Guest
from windrow.clusters.sources.volumes.on_harvester import list_host_volumes
from windrow.clusters.state import ClusterState, MachineState, Place
from windrow.harvester.cloud_init_secret import secret_ref
from windrow.harvester.resources import LOAD_BALANCER, VM
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.resources import PVC, ApiResource
from windrow.machines.port import HARVESTER


class OrphanObserver:
    """Reads, without side effects."""

    def __init__(
        self, context: ReconcileContext, harvesters: HarvesterClients, objects: HarvesterObjects
    ) -> None:
        self._context, self._harvesters, self._objects = context, harvesters, objects

    async def with_unrecorded(self, state: ClusterState) -> ClusterState:
        """Looked for where machines are made now: what is elsewhere could not be adopted."""
        places = machine_places(state.cluster) & state.places
        unrecorded = await self._find_unrecorded(state, places)
        return replace(
            state,
            unrecorded=unrecorded,
            unrecorded_claims=await self._find_unrecorded_claims(state, places),
        )

    async def _find_unrecorded(
        self, state: ClusterState, places: frozenset[Place]
    ) -> tuple[OrphanVm, ...] | None:
        """What the watch shows, confirmed by a GET each, since two watches are never in step.

        Before the watch is open a list is read, but only where Machines are about to be created, and not from a Harvester
        that is known not to answer.
        """
        cluster = state.cluster
        vms = self._objects.list_vms(cluster.uid, places)
        recorded = {machine.record.uid for machine in state.machines}
        try:
            is_usable = cluster.has_finalizer and not state.credential_problems
            if vms is None and is_usable and _lacks_machines(state):
                vms = tuple([vm for place in places for vm in await self._list_vms(place, cluster)])
            found = [vm for vm in vms or () if vm.machine_uid not in recorded]
            confirmed = await asyncio.gather(*(self._confirm_vm(vm, places, cluster) for vm in found))
        except (CredentialError, KubeError):
            return None
        return None if vms is None else tuple(filter(None, confirmed))

    async def _list_vms(self, place: Place, cluster: Cluster) -> list[OrphanVm]:
        client = self._harvesters.get_client(place.credential, place.cluster_namespace)
        try:
            listed = await client.list(VM, place.namespace, CREATOR_SELECTOR)
        except Forbidden:
            return []  # then no VM of it can be observed at all; the machines say so
        vms = filter(None, (read_orphan_vm(raw, cluster) for raw in listed))
        return sorted((vm for vm in vms if not vm.is_deleting), key=str)

    async def _confirm_vm(self, vm: OrphanVm, places: frozenset[Place], cluster: Cluster) -> OrphanVm | None:
        """The VM as it is now, if it still is the one that was listed, with what its proof lacks."""
        for credential in sorted({place.credential for place in places if place.namespace == vm.namespace}):
            client = self._harvesters.get_client(credential, next(iter(places)).cluster_namespace)
            raw = await client.find(vm.ref)
            if raw is None or (now := read_cluster_vm(raw)) is None:
                continue
            if now.is_same(vm) and not now.is_deleting:
                return await _prove_vm(client, now, cluster, raw)
        return None

    async def _find_unrecorded_claims(
        self, state: ClusterState, places: frozenset[Place]
    ) -> tuple[MachineClaim, ...]:
        """What the watch shows of disks that no VM uses and whose machine no Machine records, confirmed by a GET each."""
        cluster = state.cluster
        recorded = {machine.record.uid for machine in state.machines}
        vms = self._objects.list_vms(cluster.uid, places) or ()
        found = [
            (claim, place)
            for place in places
            for claim in without_claims_of(vms, self._objects.list_claims(cluster.uid, (place,)) or ())
            if not (claim.is_deleting or claim.is_used or claim.machine_uid in recorded)
        ]
        try:
            confirmed = await asyncio.gather(*(self._confirm_claim(claim, place) for claim, place in found))
        except (CredentialError, KubeError):
            return ()
        claims = {prove_claim(claim, cluster) for claim in confirmed if claim is not None}
        return tuple(sorted(claims, key=str))

    async def _confirm_claim(self, claim: MachineClaim, place: Place) -> MachineClaim | None:
        """The claim, if it still is as the watch showed it."""
        client = self._harvesters.get_client(place.credential, place.cluster_namespace)
        raw = await client.find(claim.ref)
        return claim if raw is not None and read_machine_claim(raw) == claim else None

    async def with_claims(self, state: ClusterState) -> ClusterState:
        """With the disks of each machine that is being deleted and whose VM is gone."""
        leaving = [
            machine
            for machine in state.deleting
            if machine.presence == "missing" and machine.record.driver == HARVESTER
        ]
        if not leaving:
            return state
        found = await asyncio.gather(*map(self._find_claims, leaving))
        by_name = {machine.name: claims for machine, claims in zip(leaving, found, strict=True)}
        machines = (
            replace(machine, claims=by_name[machine.name]) if machine.name in by_name else machine
            for machine in state.machines
        )
        return replace(state, machines=tuple(machines))

    async def _find_claims(self, machine: MachineState) -> tuple[MachineClaim, ...] | None:
        """The claims that were made for it, by uid and name; None where that cannot be found out.

        The watch is enough for those that terminate. It may be a moment behind that of the VMs: what does not terminate
        according to it is read again.
        """
        record = machine.record
        place = Place(record.credential, record.vm_namespace, record.namespace)
        claims = self._objects.list_claims(record.cluster_uid, (place,))
        own = None if claims is None else [one for one in claims if is_claim_of(one, record.name, record.uid)]
        if own is not None and all(one.is_deleting for one in own):
            return tuple(own)
        planned = (record.driver_config or {}).get("WindrowClaims") or ()
        names = [str(name) for name in planned] if own is None else [one.name for one in own]
        try:
            client = self._harvesters.get_client(record.credential, record.namespace)
            found = await asyncio.gather(*(client.find(PVC.ref(name, record.vm_namespace)) for name in names))
        except Forbidden:
            return ()  # the VM is gone, which is what counts
        except (CredentialError, KubeError):
            return None
        read = filter(None, (read_machine_claim(raw) for raw in found if raw is not None))
        return tuple(claim for claim in read if is_claim_of(claim, record.name, record.uid))

    async def find_orphans(self, cluster: Cluster) -> Orphans | None:
        """One list, as long as nothing is left; what is not certain is unknown, and then nothing is deleted."""
        account = location_of(cluster)
        if account is None:
            return None
        try:
            return await self._list_orphans(account, cluster)
        except CredentialError as error:
            return Orphans(unknown=f"{error.message}; {error.hint}")
        except Forbidden as error:
            what = "list and delete load balancers, and list virtual machines and persistent volume claims"
            return Orphans(
                unknown=f"{error}; let {account.credential} {what} in namespace {account.namespace}"
            )
        except KubeError as error:
            return Orphans(unknown=str(error))

    async def _list_orphans(self, account: GuestServiceAccount, cluster: Cluster) -> Orphans:
        client = await self._harvesters.get_verified_client(account, cluster.namespace)
        balancers: tuple[OrphanLoadBalancer, ...] = ()
        if guest_account_of(cluster) is not None:
            labelled = await _list_if_served(
                client, LOAD_BALANCER, account.namespace, load_balancer_selector(cluster.name)
            )
            read = (read_orphan_load_balancer(raw, cluster.name, account.namespace) for raw in labelled)
            balancers = tuple(sorted(filter(None, read), key=lambda one: one.name))
        vms = [
            vm
            for labels in same_name_selectors(cluster.name)
            for vm in await client.list(VM, account.namespace, labels)
        ]
        namesakes = sorted(
            f"{namespace_of(vm)}/{name_of(vm)}" for vm in vms if belongs_to_same_name_cluster(vm, cluster)
        )
        read_vms = [vm for raw in vms if (vm := read_orphan_vm(raw, cluster)) is not None]
        unrecorded = [await _prove_vm(client, vm, cluster) for vm in read_vms]
        raw_claims = await client.list(PVC, account.namespace)
        listed = filter(None, map(read_machine_claim, raw_claims))
        claims = sorted((one for one in listed if one.cluster_uid == cluster.uid), key=str)
        volumes = await list_host_volumes(
            client, raw_claims, account.namespace, cluster.recorded.volumes, self._guest_of(cluster)
        )
        return Orphans(
            balancers,
            tuple(namesakes) if balancers else (),
            tuple(sorted(unrecorded, key=str)),
            tuple(
                str(claim)
                for claim in claims
                if claim.is_deleting and not prove_claim(claim, cluster).unproven
            ),
            tuple(
                prove_claim(claim, cluster)
                for claim in without_claims_of(read_vms, claims)
                if not (claim.is_deleting or claim.is_used)
            ),
            volumes.claims,
            volumes.dependents,
            volumes.unknown,
        )

    def _guest_of(self, cluster: Cluster) -> Guest:
        twin = find_twin(cluster, self._context.clusters.values())
        return Guest(cluster.recorded.guest_uid, cluster.created, twin)


def _lacks_machines(state: ClusterState) -> bool:
    return any(len(state.of_pool(pool)) < find_replicas(pool, state) for pool in state.cluster.pools)


async def _prove_vm(
    client: Client, vm: OrphanVm, cluster: Cluster, raw: Mapping[str, Any] | None = None
) -> OrphanVm:
    """The VM with what its proof lacks; a cloud-init Secret that may not be read proves nothing. With the object itself, also
    with the addresses that it is told to have."""
    try:
        secret = await client.find(secret_ref(vm.namespace, vm.name))
    except Forbidden:
        secret = None
    return prove_vm(vm if raw is None else with_configured_addresses(vm, raw, secret), cluster, secret)


async def _list_if_served(client: Client, kind: ApiResource, namespace: str, labels: str) -> list[Raw]:
    """Nothing where the kind itself is not known there."""
    try:
        return await client.list(kind, namespace, labels)
    except NotFound:
        return []


def find_twin(cluster: Cluster, clusters: Iterable[Raw]) -> str:
    """Another Cluster whose guest has the same uid, as it has after a start from the other's etcd snapshot; "" for none."""
    uid = cluster.recorded.guest_uid
    for raw in clusters if uid else ():
        if uid_of(raw) != cluster.uid and nested(raw, "status", "guestUID") == uid:
            return f"Cluster {namespace_of(raw)}/{name_of(raw)}"
    return ""
