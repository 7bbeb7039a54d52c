"""Observation of one Cluster: everything the plan needs, read once, before anything is decided.

What changes often comes from informers. Read each time are only: what the preflight checks, until it has passed;
whether the name of the guest's ServiceAccount is free; the pods of a Node that is being drained; VMs that no Machine
seems to record; and the LoadBalancers of a deleted cluster, once its machines are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta

from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api import names
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.machine import Machine
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.api.operations.snapshot import ETCDSnapshot
from windrow.clusters.api.secrets import read_secrets
from windrow.clusters.api.version_steps import VERSION
from windrow.clusters.bootstrap_data import find_config_hashes, list_left_versions
from windrow.clusters.bootstrap_secrets import find_s3_digest
from windrow.clusters.context import ReconcileContext
from windrow.clusters.observe.addresses import AddressObserver
from windrow.clusters.observe.balancers import BalancerObserver
from windrow.clusters.observe.credentials import CredentialObserver
from windrow.clusters.observe.guest import GuestObserver
from windrow.clusters.observe.orphans import OrphanObserver
from windrow.clusters.observe.preflight import Preflight, needs_preflight
from windrow.clusters.plan.volumes.reclaim import must_ask
from windrow.clusters.sources.address_scopes import AddressScopes
from windrow.clusters.sources.addresses import AddressBook
from windrow.clusters.sources.credentials import CredentialProber
from windrow.clusters.sources.guest_api import GuestClusterCache
from windrow.clusters.sources.harvester_objects import HarvesterObjects, machine_places
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.clusters.sources.hosts import UNKNOWN, HarvesterHosts, ObservedHosts, host_of
from windrow.clusters.sources.machine_configs import MachineConfigs
from windrow.clusters.sources.manager_leases import ManagerLeases
from windrow.clusters.state import ClusterState, GuestCredentialState, MachineState, ManagerLease, Place
from windrow.clusters.updates.observation import with_updates
from windrow.clusters.versions import compare_later_versions
from windrow.drivers.api import read_machine_config_kinds
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested
from windrow.kubernetes.resources import SECRET, ObjectRef
from windrow.machines.port import HARVESTER, Machines, MachineStatus, Problem


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
        self._guests, self._prober, self._objects = guests, prober, objects
        # What was hashed last, and its hashes, by version: a large configuration takes some hundred milliseconds.
        self._hashes: dict[ObjectRef, dict[str, tuple[object, Mapping[str, str]]]] = {}
        # What of the versions was compared last, and the result: a manifest of a megabyte may be part of it.
        self._compared: dict[ObjectRef, tuple[object, tuple[Problem, ...]]] = {}
        self._leases = leases
        self._claims = addresses
        self._snapshots = snapshots
        self._hosts = hosts
        self.credentials = CredentialObserver(context, harvesters, prober, objects)
        self.addresses = AddressObserver(prober, objects, addresses, scopes, self.credentials.list_allowed)
        self.balancers = BalancerObserver(context, harvesters, objects, self.credentials)
        self._orphans = OrphanObserver(context, harvesters, objects)
        self._guest = GuestObserver(context, harvesters, guests)
        self._preflight = Preflight(context, infrastructure, harvesters, prober, addresses)

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
            guest_credential=self.credentials.read_for_guest(cluster, kept),
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
        state = replace(
            self._guest.with_guest(state), credential_problems=self.credentials.find_problems(state)
        )
        state = replace(state, credential_end=self.credentials.find_end(cluster))
        state = replace(state, places=self._list_places(state))
        state = await self.addresses.with_scope(replace(state, lease=self.read_lease(state)))
        vms = self.addresses.list_vms(state)
        state = self.addresses.with_addresses(state, vms)
        state = await self._orphans.with_claims(await self.balancers.with_balancers(state))
        if cluster.has_finalizer and cluster.deletion_timestamp is not None and not state.machines:
            end = self._context.by_wall_clock(self._find_account_end(state))
            return replace(
                state, orphans=await self._orphans.find_orphans(cluster), account_may_be_made_until=end
            )
        if must_ask(state):
            asked, now = self._context.process_state.volumes_asked, self._context.clock.monotonic()
            asked_for = now - asked.setdefault(cluster.uid, now)
            said = await self._guest.list_guest_volumes(state)
            state = replace(state, guest_volumes=said, volumes_asked_for=asked_for)
        is_taken = cluster.uid in self._context.process_state.account_taken
        if is_taken or needs_preflight(state):
            generation, found = self._context.process_state.preflight_passed.get(cluster.uid, (0, ()))
            if is_taken or generation != cluster.generation:
                if self.credentials.list_unprobed(cluster):
                    return replace(state, awaits_probe=True)
                found = await self._preflight.run(state)
            state = replace(state, preflight=found)
        if cluster.deletion_timestamp is None:
            state = replace(state, version_problems=self._compare_later_versions(key, state))
            state = self.addresses.with_unrecorded(await self._orphans.with_unrecorded(state), vms)
            if await self.credentials.has_lost_account(state):
                state = replace(state, guest_credential=GuestCredentialState("lost"))
        return await self._guest.with_volumes(
            await with_updates(await self._guest.with_pods(state), self._guests.find(state.cluster.uid))
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

    def _machines_of(self, cluster: Cluster) -> tuple[MachineState, ...]:
        records = [
            record
            for record in self._context.machines.by_index(cluster.uid)
            if record.namespace == cluster.namespace
        ]
        records.sort(key=lambda record: (record.created, record.name))
        seen = {one: self._hosts.find(one) for one in self.credentials.list_allowed(cluster)}
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

    def _list_places(self, state: ClusterState) -> frozenset[Place]:
        cluster, account = state.cluster, state.recorded.service_account
        records = (machine.record for machine in state.machines if machine.record.driver == HARVESTER)
        places = {Place(one.credential, one.vm_namespace, cluster.namespace) for one in records}
        if account is not None:
            places.add(Place(account.credential, account.namespace, cluster.namespace))
        places |= machine_places(cluster) | self.balancers.list_places(state)
        return frozenset(
            one for one in places if self.credentials.find_refusal(one.credential, cluster) is None
        )

    def read_lease(self, state: ClusterState) -> ManagerLease:
        """Whether this manager may act on what the cluster has on Harvester, at this instant."""
        return self._leases.read(state.places)

    def _list_snapshots(self, cluster: Cluster) -> tuple[ETCDSnapshot, ...]:
        mine = (one for one in self._snapshots.by_index(cluster.uid) if one.namespace == cluster.namespace)
        return tuple(sorted(mine, key=lambda one: one.name))

    def _find_hidden_hosts(self, cluster: Cluster) -> str:
        hidden = (self._hosts.find(one).hidden for one in self.credentials.list_allowed(cluster))
        return next(filter(None, hidden), "")

    def _compare_later_versions(self, key: ObjectRef, state: ClusterState) -> tuple[Problem, ...] | None:
        """What does not go together once the cluster runs: its spec, and its Harvester, may change then."""
        cluster, matrix = state.cluster, self._context.matrix
        credential = self.credentials.find_for_versions(cluster)
        harvester = self._prober.find_versions(credential)
        if not cluster.recorded.initialized or (credential and harvester is None):
            return None
        asked = (cluster.raw.get("spec"), cluster.pools, cluster.recorded.version, harvester)
        known = self._compared.get(key)
        if known is None or known[0] != asked:
            found = compare_later_versions(cluster, state.problems, matrix, harvester)
            known = self._compared[key] = (asked, found)
        return known[1]


def clusters_using_config(kind: str, config: Raw, clusters: list[Raw]) -> list[ObjectRef]:
    """The Clusters that name this machine config."""
    found = []
    for raw in clusters:
        pools = nested(raw, "spec", "rkeConfig", "machinePools", default=())
        named = any(nested(pool, "machineConfigRef", "name") == name_of(config) for pool in pools)
        if named and kind in read_machine_config_kinds(raw) and namespace_of(raw) == namespace_of(config):
            found.append(CLUSTER.ref(name_of(raw), namespace_of(raw)))
    return found
