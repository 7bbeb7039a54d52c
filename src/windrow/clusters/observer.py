"""Observation of one Cluster: everything the plan needs, read once, before anything is decided.

What changes often comes from informers. Read each time are only: what the preflight checks, until it has passed;
whether the name of the guest's ServiceAccount is free; the pods of a Node that is being drained; VMs that no Machine
seems to record; and the LoadBalancers of a deleted cluster, once its machines are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from windrow.bootstrap.guest_account import GuestAccount
from windrow.client.client import Client
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api import names
from windrow.clusters.api.addresses import IPAddress
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.guest_volumes import GuestVolumes
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.machine import Machine
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.api.operations.snapshot import ETCDSnapshot
from windrow.clusters.api.references import parse_secret_reference
from windrow.clusters.api.secrets import (
    CredentialError,
    SecretData,
    read_given_credential,
    read_guest_credential,
    read_published_server,
    read_secrets,
)
from windrow.clusters.api.status import GuestServiceAccount
from windrow.clusters.api.version_steps import VERSION
from windrow.clusters.bootstrap_data import (
    check_bootstrap,
    find_config_hashes,
    list_left_versions,
    sample_machine_spec,
)
from windrow.clusters.bootstrap_secrets import check_secrets, find_s3_digest
from windrow.clusters.change.rollout import find_replicas
from windrow.clusters.context import ReconcileContext
from windrow.clusters.endpoint_balancer import key_of_balancers, read_balancer
from windrow.clusters.observed_addresses import AddressObserver
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
from windrow.clusters.plan import endpoint_balancers
from windrow.clusters.plan.hosts import maintenance
from windrow.clusters.plan.volumes.fencing import is_shutdown_suspected
from windrow.clusters.plan.volumes.reclaim import must_ask
from windrow.clusters.sources.address_scopes import AddressScopes, digest_of, select_claims
from windrow.clusters.sources.addresses import AddressBook
from windrow.clusters.sources.credentials import CredentialProber
from windrow.clusters.sources.endpoint_pools import check_address_pools, check_endpoint
from windrow.clusters.sources.guest_api import GuestClusterCache
from windrow.clusters.sources.harvester_objects import (
    CREATOR_SELECTOR,
    HarvesterObjects,
    machine_places,
)
from windrow.clusters.sources.harvester_versions import read_harvester_versions
from windrow.clusters.sources.harvesters import HarvesterClients, VmLocation
from windrow.clusters.sources.hosts import UNKNOWN, HarvesterHosts, ObservedHosts, host_of
from windrow.clusters.sources.machine_configs import MachineConfigs
from windrow.clusters.sources.manager_leases import ManagerLeases
from windrow.clusters.sources.volumes.guest_volumes import Guest
from windrow.clusters.sources.volumes.node_pods import list_pods_to_evict, list_staying_volumes
from windrow.clusters.sources.volumes.on_harvester import list_guest_volumes, list_host_volumes
from windrow.clusters.state import (
    ClusterState,
    CredentialProblem,
    GuestCredentialState,
    GuestState,
    MachineState,
    ManagerLease,
    Node,
    Place,
)
from windrow.clusters.updates.observation import list_drained_for_update, with_updates
from windrow.clusters.versions import compare_later_versions, compare_versions, list_problems
from windrow.core import pki
from windrow.drivers.api import read_machine_config_kinds
from windrow.harvester.cloud_init_secret import secret_ref
from windrow.harvester.connection import describe_credential
from windrow.harvester.resources import LOAD_BALANCER, VM, VMI
from windrow.harvester.shutdown import LAUNCHERS, Shutdown, read_shutdown, select_launchers
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound
from windrow.kubernetes.objects import Raw, is_deleting, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.resources import (
    POD,
    PVC,
    SECRET,
    VOLUME_ATTACHMENT,
    ApiResource,
    ObjectRef,
)
from windrow.machines.port import HARVESTER, InfrastructureUnknown, Machines, MachineStatus, Problem

# How long after an attempt the uid of a guest that did not report it is read again.
GUEST_UID_RETRY = timedelta(minutes=10)


class Observer:
    """Reads, without side effects. `observe` is the only source of what a plan is made from."""

    def __init__(
        self,
        context: ReconcileContext,
        configs: MachineConfigs,
        infrastructure: Machines,
        harvesters: HarvesterClients,
        guests: GuestClusterCache,
        prober: CredentialProber,
        objects: HarvesterObjects,
        leases: ManagerLeases,
        addresses: AddressBook,
        scopes: AddressScopes,
        snapshots: MutationCache[ETCDSnapshot],
        hosts: HarvesterHosts,
    ) -> None:
        self._context, self._configs, self._infrastructure = context, configs, infrastructure
        self._harvesters, self._guests, self._prober, self._objects = harvesters, guests, prober, objects
        # What was hashed last, and its hashes, by version: a large configuration takes some hundred milliseconds.
        self._hashes: dict[ObjectRef, dict[str, tuple[object, Mapping[str, str]]]] = {}
        # What of the versions was compared last, and the result: a manifest of a megabyte may be part of it.
        self._compared: dict[ObjectRef, tuple[object, tuple[Problem, ...]]] = {}
        self._leases = leases
        self._claims = addresses
        self._snapshots = snapshots
        self._hosts = hosts
        self.addresses = AddressObserver(prober, objects, addresses, scopes, self.list_allowed_credentials)

    async def observe(self, key: ObjectRef) -> ClusterState | None:
        """The Cluster `key` as it is now; None when there is none."""
        raw = self._context.clusters.get(key)
        if raw is None:
            self._hashes.pop(key, None)
            self._compared.pop(key, None)
            return None
        configs = await self._configs.list_all(key.namespace, read_machine_config_kinds(raw))
        reading = read_cluster(raw, configs, self._configs.resolve_driver)
        cluster = self.addresses.with_ip_pools(self._context.read_recorded(reading.cluster))
        kept = self._context.secrets.get(SECRET.ref(names.secrets_name(cluster.name), cluster.namespace))
        state = ClusterState(
            now=self._context.clock.now(),
            cluster=cluster,
            problems=reading.problems,
            machines=self._machines_of(cluster),
            secrets=read_secrets(kept, cluster.uid),
            guest_credential=self._guest_credential(cluster, kept),
            config_hashes=self._find_config_hashes(key, cluster, cluster.recorded.version or cluster.version),
            wanted_hashes=self._find_wanted_hashes(key, cluster, reading.problems),
            left_hashes={
                version: self._find_config_hashes(key, cluster, version)
                for version in list_left_versions(cluster, self._context.machines.by_index(cluster.uid))
            },
            option_rules=self._context.option_rules,
            snapshots=self._list_snapshots(cluster),
            requests=frozenset(self._context.process_state.requests.get(cluster.uid, ())),
            s3_digest=find_s3_digest(cluster, self._context.secrets.get),
            hosts_hidden=self._find_hidden_hosts(cluster),
        )
        state = replace(self._with_guest(state), credential_problems=self._credential_problems(state))
        state = replace(state, credential_end=self._find_credential_end(cluster))
        state = replace(state, places=self._list_places(state))
        state = await self.addresses.with_scope(replace(state, lease=self.read_lease(state)))
        vms = self.addresses.list_vms(state)
        state = self.addresses.with_addresses(state, vms)
        state = await self._with_claims(await self._with_balancers(state))
        if cluster.has_finalizer and cluster.deletion_timestamp is not None and not state.machines:
            end = self._context.by_wall_clock(self._find_account_end(state))
            return replace(state, orphans=await self._find_orphans(cluster), account_may_be_made_until=end)
        if must_ask(state):
            asked, now = self._context.process_state.volumes_asked, self._context.clock.monotonic()
            asked_for = now - asked.setdefault(cluster.uid, now)
            said = await self._list_guest_volumes(state)
            state = replace(state, guest_volumes=said, volumes_asked_for=asked_for)
        is_taken = cluster.uid in self._context.process_state.account_taken
        if is_taken or _needs_preflight(state):
            generation, found = self._context.process_state.preflight_passed.get(cluster.uid, (0, ()))
            if is_taken or generation != cluster.generation:
                if self._list_unprobed(cluster):
                    return replace(state, awaits_probe=True)
                found = await self._preflight(state)
            state = replace(state, preflight=found)
        if cluster.deletion_timestamp is None:
            state = replace(state, version_problems=self._compare_later_versions(key, state))
            state = self.addresses.with_unrecorded(await self._with_unrecorded(state), vms)
            if await self._has_lost_account(state):
                state = replace(state, guest_credential=GuestCredentialState("lost"))
        return await self._with_volumes(
            await with_updates(await self._with_pods(state), self._guests.find(state.cluster.uid))
        )

    def _find_config_hashes(self, key: ObjectRef, cluster: Cluster, version: str) -> Mapping[str, str]:
        if cluster.deletion_timestamp is not None:
            return {}  # it needs none, and its spec may be what cannot be read
        # Endpoints are in certificates, and are recorded in the status: after a load balancer has its address, for example.
        hashed = cluster.raw.get("spec"), cluster.endpoint_hosts
        known = self._hashes.setdefault(key, {})
        if version not in known or known[version][0] != hashed:
            kept = {cluster.recorded.version, cluster.version}
            self._hashes[key] = known = {other: one for other, one in known.items() if other in kept}
            known[version] = (hashed, find_config_hashes(cluster, version))
        return known[version][1]

    def _find_wanted_hashes(
        self, key: ObjectRef, cluster: Cluster, problems: Iterable[Problem]
    ) -> Mapping[str, str]:
        """{} where no other version is asked for than the cluster runs, or one that it may not go to."""
        if cluster.recorded.version in ("", cluster.version) or any(
            one.field == VERSION and one.severity == "error" for one in problems
        ):
            return {}
        return self._find_config_hashes(key, cluster, cluster.version)

    # -- machines --------------------------------------------------------------------------------------------------

    def _machines_of(self, cluster: Cluster) -> tuple[MachineState, ...]:
        records = [
            record
            for record in self._context.machines.by_index(cluster.uid)
            if record.namespace == cluster.namespace
        ]
        records.sort(key=lambda record: (record.created, record.name))
        seen = {one: self._hosts.find(one) for one in self.list_allowed_credentials(cluster)}
        return tuple(self._machine(record, cluster.families[0], seen) for record in records)

    def _machine(self, record: Machine, family: int, seen: Mapping[str, ObservedHosts]) -> MachineState:
        statuses = self._infrastructure.statuses()
        vm: MachineStatus | None = statuses.get(record.uid)
        if vm is not None and not statuses.is_watching:
            vm = MachineStatus(
                record.uid, record.name, "unknown", because="Harvester cannot be watched right now"
            )
        reading, observed = self._context.with_unwritten_status(record), seen.get(record.credential, UNKNOWN)
        return MachineState(
            reading,
            vm,
            maintenance=observed.maintenance.get(host_of(reading, vm)),
            are_hosts_known=observed.is_current or bool(observed.hidden),
            deletion_requested=self._context.by_wall_clock(
                self._context.process_state.deletion_requested.get(record.uid)
            ),
            may_be_made_until=self._context.by_wall_clock(self._find_creation_end(record)),
            node_deleted=record.uid in self._context.process_state.node_deleted,
            addresses=self._claims.of_machine(record.uid),
            family=family,
        )

    def _find_creation_end(self, record: Machine) -> timedelta | None:
        """Of other drivers only themselves know what they have requested."""
        if record.driver != HARVESTER or not record.was_requested:
            return None
        unanswered = self._context.process_state.unanswered
        return unanswered.find_end(record.uid, was_observed=record.was_created)

    def _find_account_end(self, state: ClusterState) -> timedelta | None:
        """The token that is kept in the Secret of the Cluster is the last that is made. That Secret is the last to go,
        but for a namespace that is deleted: then the ServiceAccount counts as seen."""
        if state.recorded.service_account is None:
            return None
        was_observed = state.guest_credential.state == "ready" or state.secrets is None
        return self._context.process_state.unanswered.find_end(state.cluster.uid, was_observed=was_observed)

    # -- VMs that no Machine records -------------------------------------------------------------------------------

    def _list_places(self, state: ClusterState) -> frozenset[Place]:
        cluster, account = state.cluster, state.recorded.service_account
        records = (machine.record for machine in state.machines if machine.record.driver == HARVESTER)
        places = {Place(one.credential, one.vm_namespace, cluster.namespace) for one in records}
        if account is not None:
            places.add(Place(account.credential, account.namespace, cluster.namespace))
        places |= machine_places(cluster) | self.list_balancer_places(state)
        return frozenset(one for one in places if self._find_refusal(one.credential, cluster) is None)

    def read_lease(self, state: ClusterState) -> ManagerLease:
        """Whether this manager may act on what the cluster has on Harvester, at this instant."""
        return self._leases.read(state.places)

    async def _with_unrecorded(self, state: ClusterState) -> ClusterState:
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

    # -- disks of machines whose VM is gone ------------------------------------------------------------------------

    async def _with_claims(self, state: ClusterState) -> ClusterState:
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

    # -- the LoadBalancers of the endpoint -------------------------------------------------------------------------

    def list_balancer_places(self, state: ClusterState) -> frozenset[Place]:
        location = state.cluster.control_plane_endpoint.location
        if location is None or self._find_refusal(location.credential, state.cluster) is not None:
            return frozenset()
        return frozenset({Place(location.credential, location.namespace, state.cluster.namespace)})

    async def _with_balancers(self, state: ClusterState) -> ClusterState:
        """What the watch shows; read again where something would follow from it, or before the watch is open."""
        endpoint, uid = state.cluster.control_plane_endpoint, state.cluster.uid
        if endpoint.location is None:
            return state
        unanswered = self._context.process_state.unanswered
        end = unanswered.find_end(key_of_balancers(uid), was_observed=not endpoint.is_pending)
        state = replace(state, balancers_may_be_made_until=self._context.by_wall_clock(end))
        is_ending = state.cluster.deletion_timestamp is not None
        if is_ending and state.machines:
            return state  # they go after the machines
        places = self.list_balancer_places(state)
        shown = [one for place in places for one in self._objects.list_balancers(uid, place) or ()]
        is_shown = all(self._objects.list_balancers(uid, place) is not None for place in places)
        state = replace(state, balancers={one.name: one for one in shown} if is_shown and places else None)
        if state.balancers is None and not (endpoint.is_pending or is_ending):
            return state
        follows = endpoint_balancers.plan(state)
        if state.balancers is not None and not (is_ending or follows.actions or follows.waits):
            return state
        try:
            client = await self._harvesters.get_verified_client(endpoint.location, state.cluster.namespace)
            refs = [LOAD_BALANCER.ref(one.name, endpoint.location.namespace) for one in endpoint.balancers]
            found = await asyncio.gather(*map(client.find, refs))
        except (CredentialError, KubeError) as error:
            return replace(state, balancers=None, balancers_unknown=str(error))
        read = (read_balancer(raw) for raw in found if raw is not None)
        return replace(state, balancers={one.name: one for one in read})

    # -- what the guest had made -----------------------------------------------------------------------------------

    async def _find_orphans(self, cluster: Cluster) -> Orphans | None:
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

    async def _list_guest_volumes(self, state: ClusterState) -> GuestVolumes | None:
        connection = self._guests.find(state.cluster.uid)
        if connection is None or not state.guest.is_reachable:
            return None
        return await list_guest_volumes(connection.client)

    # -- guest -----------------------------------------------------------------------------------------------------

    def _with_guest(self, state: ClusterState) -> ClusterState:
        connection = self._guests.find(state.cluster.uid)
        if connection is None:
            return replace(state, guest=GuestState(published_server=self._published_server(state.cluster)))
        guest = replace(connection.observe(), published_server=self._published_server(state.cluster))
        nodes = _find_nodes(state.machines, guest.nodes)
        if not guest.is_reachable:
            # What the guest said last tells which nodes there are, but not how they are now.
            nodes = {
                uid: replace(node, ready=False, ready_message=guest.because) for uid, node in nodes.items()
            }
        machines = tuple(replace(machine, node=nodes.get(machine.record.uid)) for machine in state.machines)
        return replace(
            state,
            guest=guest,
            machines=machines,
            needs_guest_uid=guest.is_reachable and self._needs_guest_uid(state),
            snapshot_files=connection.snapshots.observe() if guest.is_reachable else None,
        )

    def _list_snapshots(self, cluster: Cluster) -> tuple[ETCDSnapshot, ...]:
        mine = (one for one in self._snapshots.by_index(cluster.uid) if one.namespace == cluster.namespace)
        return tuple(sorted(mine, key=lambda one: one.name))

    def _needs_guest_uid(self, state: ClusterState) -> bool:
        if not state.recorded.initialized or state.recorded.guest_uid:
            return False
        asked = self._context.process_state.guest_uid_requested.get(state.cluster.uid)
        return asked is None or self._context.clock.monotonic() >= asked + GUEST_UID_RETRY

    def _published_server(self, cluster: Cluster) -> str:
        secret = self._context.secrets.get(SECRET.ref(names.kubeconfig_name(cluster.name), cluster.namespace))
        return read_published_server(secret, cluster, self._context.clock.now())

    async def _with_pods(self, state: ClusterState) -> ClusterState:
        connection = self._guests.find(state.cluster.uid)
        draining = [
            machine
            for machine in state.deleting
            if (state.cluster.deletion_timestamp is None and state.is_drainable(machine))
        ]
        draining += [*list_drained_for_update(state), *maintenance.list_drained(state)]
        if connection is None or not draining:
            return state
        pods = await asyncio.gather(
            *(list_pods_to_evict(connection.client, machine.node_name) for machine in draining)
        )
        found = {machine.name: tuple(some) for machine, some in zip(draining, pods, strict=True)}
        machines = tuple(replace(machine, pods=found.get(machine.name, ())) for machine in state.machines)
        return replace(state, machines=machines)

    async def _with_volumes(self, state: ClusterState) -> ClusterState:
        """What is attached to the Nodes of machines that go or were shut down, and the proof that these were."""
        connection = self._guests.find(state.cluster.uid)
        if state.cluster.deletion_timestamp is not None or not state.guest.is_reachable or connection is None:
            return state
        suspected = {one.name: one for one in state.machines if is_shutdown_suspected(one)}
        leaving = {
            one.name for one in state.deleting if one.node is not None and _may_hold_volumes(one, state)
        }
        if not (suspected or leaving):
            return state
        attached = await _attached_by_node(connection.client)
        staying = await _list_staying(
            connection.client,
            [one for one in state.deleting if one.name in leaving and one.presence != "missing"],
            attached,
        )
        # A Machine that is deleted and has nothing attached needs no taint.
        doubted = [
            one for one in suspected.values() if not one.is_deleting or _attached_to(one, attached) != ()
        ]
        proofs = await asyncio.gather(*(self._prove_shutdown(one, state) for one in doubted))
        shutdowns = {one.name: proof for one, proof in zip(doubted, proofs, strict=True)}
        machines = tuple(
            replace(
                machine,
                attached=_attached_to(machine, attached),
                staying=staying.get(machine.name, frozenset()),
                shutdown=shutdowns.get(machine.name),
            )
            if machine.name in leaving or machine.name in suspected
            else machine
            for machine in state.machines
        )
        return replace(state, machines=machines)

    async def _prove_shutdown(self, machine: MachineState, state: ClusterState) -> Shutdown:
        """By live reads of the Harvester that the machine was made on, since a watch may be behind. Of other drivers nothing is
        known but what they say."""
        record = machine.record
        if record.driver != HARVESTER:
            return _prove_by_driver(machine)
        harvester = str((record.driver_config or {}).get("WindrowHarvesterUID") or state.harvester_uid)
        if not harvester:
            return Shutdown(False, "it is not recorded which Harvester it is on")
        location = VmLocation(record.vm_namespace, machine.name, record.credential, harvester)
        try:
            client = await self._harvesters.get_verified_client(location, record.namespace)
            refs = (kind.ref(machine.name, record.vm_namespace) for kind in (VM, VMI))
            raw_vm, raw_vmi = await asyncio.gather(*map(client.find, refs))
            pods = await client.list(POD, record.vm_namespace, LAUNCHERS)
        except (CredentialError, KubeError) as error:
            return Shutdown(False, str(error))
        return read_shutdown(machine.vm_ref, raw_vm, raw_vmi, select_launchers(machine.name, pods))

    # -- the guest's credential --------------------------------------------------------------------------------------

    def _guest_credential(self, cluster: Cluster, kept: SecretData | None) -> GuestCredentialState:
        given_ref = parse_secret_reference(cluster.cloud_config_secret)
        if given_ref is not None:
            try:
                self._context.require_consent(cluster.cloud_config_secret, cluster.namespace)
            except CredentialError as error:
                return GuestCredentialState("refused", because=f"{error.message}; {error.hint}")
            given = read_given_credential(self._context.secrets.get(given_ref), cluster)
            if given is not None:
                return GuestCredentialState("ready", given)
        if cluster.cloud_provider != "harvester" and not cluster.cloud_config_secret:
            return GuestCredentialState("unneeded")
        made = read_guest_credential(kept, cluster)
        if made is not None:
            return GuestCredentialState("ready", made)
        return GuestCredentialState("missing" if cluster.recorded.service_account is None else "pending")

    async def _has_lost_account(self, state: ClusterState) -> bool:
        """Whether the ServiceAccount that we created for the guest, or its token, is not on Harvester any more."""
        cluster, recorded = state.cluster, state.recorded.service_account
        if state.guest_credential.state != "ready" or recorded is None or cluster.cloud_config_secret:
            return False
        account = GuestAccount(recorded.name, recorded.namespace, cluster.uid)
        place = Place(recorded.credential, recorded.namespace, cluster.namespace)
        if self._objects.has_account(recorded.name, account.token.name, cluster.uid, place) is not False:
            return False
        try:
            client = await self._harvesters.get_verified_client(recorded, cluster.namespace)
            found = await asyncio.gather(client.find(account.account), client.find(account.token))
        except (CredentialError, KubeError):
            return False
        # One that is there and lacks our annotation, or has another's, is not ours to replace.
        return any(raw is None or is_deleting(raw) for raw in found)

    def _credential_problems(self, state: ClusterState) -> tuple[CredentialProblem, ...] | None:
        cluster, prober = state.cluster, self._prober
        probed = self.list_allowed_credentials(cluster)
        refused = [
            CredentialProblem(error.message, error.hint, is_rejected=True, is_allowed=False)
            for credential in sorted({*credentials_of(cluster), *(pool.credential for pool in cluster.pools)})
            if ":" in credential and (error := self._find_refusal(credential, cluster)) is not None
        ]
        if not refused and not all(prober.was_probed(credential) for credential in probed):
            return None
        return (
            *refused,
            *filter(None, (prober.find_problem(credential, state.harvester_uid) for credential in probed)),
        )

    def _find_credential_end(self, cluster: Cluster) -> tuple[str, datetime] | None:
        """The client certificate for Harvester that ends first, of those that the kubeconfigs hold."""
        ends = []
        for credential in self.list_allowed_credentials(cluster):
            with contextlib.suppress(CredentialError, pki.NotCertificate):
                if held := self._harvesters.get_config(credential, cluster.namespace).certificate:
                    ends.append((pki.read_certificate(held).not_after, credential))
        return min(ends)[::-1] if ends else None

    def _find_hidden_hosts(self, cluster: Cluster) -> str:
        hidden = (self._hosts.find(one).hidden for one in self.list_allowed_credentials(cluster))
        return next(filter(None, hidden), "")

    def list_allowed_credentials(self, cluster: Cluster) -> list[str]:
        """Its credentials for a Harvester that its namespace may use."""
        return [one for one in credentials_of(cluster) if self._find_refusal(one, cluster) is None]

    def _list_unprobed(self, cluster: Cluster) -> list[str]:
        """Credentials that lead to a Harvester of which it is not known yet whether it answers."""
        return [one for one in self.list_allowed_credentials(cluster) if not self._prober.was_probed(one)]

    def _find_refusal(self, credential: str, cluster: Cluster) -> CredentialError | None:
        try:
            self._context.require_consent(credential, cluster.namespace)
        except CredentialError as error:
            return error
        return None

    # -- preflight -------------------------------------------------------------------------------------------------

    async def _preflight(self, state: ClusterState) -> tuple[Problem, ...]:
        """Everything that is wrong, all at once, before anything is made."""
        cluster = state.cluster
        problems = check_bootstrap(cluster, state.problems)
        try:
            problems += await check_secrets(self._context.api.find, cluster, self._context.require_consent)
        except Forbidden as error:
            hint = "let the manager get Secrets and ConfigMaps of the Cluster's namespace"
            problems.append(Problem(str(error), hint, "spec.rkeConfig"))
        if state.guest_credential.state == "refused":
            message, _, hint = state.guest_credential.because.partition("; ")
            problems.append(Problem(message, hint, "spec.rkeConfig.machineGlobalConfig"))
        if state.harvester_hidden_from:
            problems += _list_hidden(state.harvester_hidden_from, cluster)
        usable = set()
        on_harvester = {pool.credential for pool in cluster.pools if pool.driver == HARVESTER}
        for credential in sorted({pool.credential for pool in cluster.pools if ":" in pool.credential}):
            try:
                if credential in on_harvester:
                    self._harvesters.get_config(credential, cluster.namespace)
                    if (failure := self._prober.find_failure(credential)) is not None:
                        # One probe asks for all Clusters of a Harvester; its result is what each of them would find.
                        raise CredentialError(failure.message, failure.hint)
                else:
                    self._context.require_consent(credential, cluster.namespace)
                usable.add(credential)
            except CredentialError as error:
                problems.append(Problem(error.message, error.hint, "spec.cloudCredentialSecretName"))
        pools = [
            pool
            for pool in cluster.pools
            if pool.options is not None
            and (pool.credential in usable or (not pool.credential and pool.driver != HARVESTER))
        ]
        # One for each machine, so that an adapter checks their sum.
        specs = [sample_machine_spec(cluster, pool, n) for pool in pools for n in range(pool.quantity)]
        try:
            problems += await self._infrastructure.check(specs)
            problems += await self._check_versions(state, sorted(usable & on_harvester))
            if state.guest_credential.state in ("missing", "pending") and cluster.credential in usable:
                problems += await self._check_service_account(cluster)
            for pool in pools:
                if pool.address_pools and pool.is_on_harvester and pool.credential in usable:
                    client = self._harvesters.get_client(pool.credential, cluster.namespace)
                    problems += await check_address_pools(client, pool, cluster.namespace)
            if cluster.control_plane_endpoint.mode == "loadBalancer" and cluster.credential in usable:
                client = self._harvesters.get_client(cluster.credential, cluster.namespace)
                problems += await check_endpoint(client, cluster, self._list_claims_beside(state))
        except InfrastructureUnknown as error:
            problems.append(Problem(error.message, error.hint, "spec.cloudCredentialSecretName"))
        except KubeError as error:
            hint = "make Harvester reachable, with a credential that may read there"
            problems.append(Problem(str(error), hint, "spec.cloudCredentialSecretName"))
        return tuple(dict.fromkeys(problems))

    def _list_claims_beside(self, state: ClusterState) -> list[IPAddress]:
        """The addresses of machines on the Harvester of the cluster's endpoint."""
        cluster = state.cluster
        identity = self._prober.find_identity(cluster.credential)
        claims = self._claims.with_uid(identity)
        if state.claims_on:
            return [one for one in claims if one.harvester == state.claims_on]
        access = self._harvesters.get_config(cluster.credential, cluster.namespace)
        return select_claims(claims, identity, digest_of(access), cluster.uid)

    async def _check_versions(self, state: ClusterState, credentials: Sequence[str]) -> list[Problem]:
        """What does not go together; all credentials of a cluster lead to one Harvester."""
        harvester = None
        if credentials:
            client = self._harvesters.get_client(credentials[0], state.cluster.namespace)
            harvester = await read_harvester_versions(client)
        compared = compare_versions(state.cluster, state.problems, self._context.matrix, harvester)
        return list_problems(compared)

    def _compare_later_versions(self, key: ObjectRef, state: ClusterState) -> tuple[Problem, ...] | None:
        """What does not go together once the cluster runs: its spec, and its Harvester, may change then."""
        cluster, matrix = state.cluster, self._context.matrix
        credential = self.find_versions_credential(cluster)
        harvester = self._prober.find_versions(credential)
        if not cluster.recorded.initialized or (credential and harvester is None):
            return None
        asked = (cluster.raw.get("spec"), cluster.pools, cluster.recorded.version, harvester)
        known = self._compared.get(key)
        if known is None or known[0] != asked:
            found = compare_later_versions(cluster, state.problems, matrix, harvester)
            known = self._compared[key] = (asked, found)
        return known[1]

    def find_versions_credential(self, cluster: Cluster) -> str:
        """The credential whose Harvester is asked about versions while the cluster runs: all of a cluster lead to one; "" for
        none."""
        if not cluster.recorded.initialized:
            return ""
        allowed = self.list_allowed_credentials(cluster)
        named = sorted({pool.credential for pool in cluster.pools if pool.driver == HARVESTER})
        return next((one for one in named if one in allowed), "")

    async def _check_service_account(self, cluster: Cluster) -> list[Problem]:
        """Whether the name of the guest's account is free, or its objects ours from an earlier attempt."""
        account = GuestAccount(cluster.name, cluster.vm_namespace, cluster.uid)
        client = self._harvesters.get_client(cluster.credential, cluster.namespace)
        found = await asyncio.gather(*(client.find(ref) for ref in account.refs))
        taken = [
            ref for ref, raw in zip(account.refs, found, strict=True) if raw and not account.is_owned(raw)
        ]
        if not taken:
            return []
        message = f"{taken[0]} on Harvester is not this cluster's, perhaps that of another cluster called {cluster.name}"
        hint = (
            "rename the cluster, choose another vmNamespace, or name a Secret with the guest's credential in "
            "cloud-provider-config"
        )
        return [Problem(message, hint, "metadata.name")]


def credentials_of(cluster: Cluster) -> list[str]:
    """Every credential for a Harvester that it names, `namespace:name` each."""
    named = {pool.credential for pool in cluster.pools if pool.driver == HARVESTER}
    if named or not cluster.pools or cluster.cloud_provider == "harvester":
        named.add(cluster.credential)
    return sorted(credential for credential in named if ":" in credential)


def _list_hidden(credential: str, cluster: Cluster) -> list[Problem]:
    """Addresses are claimed under the uid of kube-system, since under any other identity two could be given one address."""
    hint = "let the credential's user get Namespace kube-system on Harvester, or leave out addressPools"
    configs = dict.fromkeys(
        f"{pool.kind} {cluster.namespace}/{pool.config_name}" for pool in cluster.pools if pool.address_pools
    )
    return [
        Problem(
            f"{config}: addressPools is set, and {describe_credential(credential)} may not get Namespace kube-system on "
            "Harvester, under whose uid addresses are claimed",
            hint,
            "addressPools",
        )
        for config in configs
    ]


def _lacks_machines(state: ClusterState) -> bool:
    return any(len(state.of_pool(pool)) < find_replicas(pool, state) for pool in state.cluster.pools)


def _needs_preflight(state: ClusterState) -> bool:
    if state.cluster.deletion_timestamp is not None or state.recorded.initialized:
        return False
    observed = state.recorded.raw.get("observedGeneration") == state.cluster.generation
    return not (state.recorded.preflight_passed and observed)


def _find_nodes(machines: Sequence[MachineState], found: Iterable[Node]) -> dict[str, Node]:
    """By the uid of its Machine the Node of each machine: of its name, which no kubelet but its own may register or change. Its
    label alone proves nothing, since every kubelet may write any there; one that lost it is the Node that was recorded."""
    by_name = {node.name: node for node in found}
    nodes = {}
    for machine in machines:
        node = by_name.get(machine.name)
        recorded = nested(machine.record.status, "nodeRef", "uid", default="")
        if node is not None and (node.machine_uid == machine.record.uid or node.uid == recorded):
            nodes[machine.record.uid] = node
    return nodes


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


def _prove_by_driver(machine: MachineState) -> Shutdown:
    """What its driver last said of it; one that is only stopped may be started again, by whom is not known."""
    driver, vm = machine.record.driver, machine.vm
    if machine.presence == "missing":
        return Shutdown(True, f"driver {driver} does not find it")
    return Shutdown(
        False, f"driver {driver} reports it as {vm.state if vm and vm.state else machine.presence}"
    )


def _may_hold_volumes(machine: MachineState, state: ClusterState) -> bool:
    """Whether what is attached to the Node of a machine that is being deleted decides about its next step."""
    return machine.presence == "missing" or (state.is_drainable(machine) and not machine.pods)


def _attached_to(
    machine: MachineState, by_node: Mapping[str, tuple[str, ...]] | None
) -> tuple[str, ...] | None:
    return None if by_node is None else by_node.get(machine.node_name, ())


async def _list_staying(
    client: Client, leaving: list[MachineState], by_node: Mapping[str, tuple[str, ...]] | None
) -> dict[str, frozenset[str]]:
    """By machine, what a drain leaves attached to its Node."""
    found = {}
    for machine in leaving:
        if _attached_to(machine, by_node):
            found[machine.name] = await list_staying_volumes(client, machine.node_name)
    return found


async def _attached_by_node(client: Client) -> dict[str, tuple[str, ...]] | None:
    """The PersistentVolumes that are attached to each Node, or are being; None where that is not known."""
    try:
        found = await client.list(VOLUME_ATTACHMENT)
    except KubeError:
        return None
    attached: dict[str, list[str]] = {}
    for raw in found:
        volume = str(nested(raw, "spec", "source", "persistentVolumeName", default="") or name_of(raw))
        attached.setdefault(str(nested(raw, "spec", "nodeName", default="")), []).append(volume)
    return {node: tuple(sorted(volumes)) for node, volumes in attached.items()}


async def _list_if_served(client: Client, kind: ApiResource, namespace: str, labels: str) -> list[Raw]:
    """Nothing where the kind itself is not known there."""
    try:
        return await client.list(kind, namespace, labels)
    except NotFound:
        return []


def clusters_using_config(kind: str, config: Raw, clusters: list[Raw]) -> list[ObjectRef]:
    """The Clusters that name this machine config."""
    found = []
    for raw in clusters:
        pools = nested(raw, "spec", "rkeConfig", "machinePools", default=())
        named = any(nested(pool, "machineConfigRef", "name") == name_of(config) for pool in pools)
        if named and kind in read_machine_config_kinds(raw) and namespace_of(raw) == namespace_of(config):
            found.append(CLUSTER.ref(name_of(raw), namespace_of(raw)))
    return found


def find_twin(cluster: Cluster, clusters: Iterable[Raw]) -> str:
    """Another Cluster whose guest has the same uid, as it has after a start from the other's etcd snapshot; "" for none."""
    uid = cluster.recorded.guest_uid
    for raw in clusters if uid else ():
        if uid_of(raw) != cluster.uid and nested(raw, "status", "guestUID") == uid:
            return f"Cluster {namespace_of(raw)}/{name_of(raw)}"
    return ""
