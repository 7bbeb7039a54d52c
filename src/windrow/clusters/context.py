"""What every step of a reconcile shares: the management API, what is known of its objects, and writes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from windrow.bootstrap.support_matrix.matrix import SupportMatrix, shipped_matrix
from windrow.client.client import Client
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.machine import Machine, with_status
from windrow.clusters.api.references import parse_secret_reference
from windrow.clusters.api.secrets import SecretData, require_consent
from windrow.clusters.change.fields import OptionRules
from windrow.clusters.sources.guest_api import GuestClusterCache, GuestConnection
from windrow.clusters.state import ClusterState, MachineState, Node
from windrow.clusters.updates.recorded_stamps import (
    read_operations,
    read_status_with_maintenance,
    read_status_with_turn,
    read_status_with_upgrade,
)
from windrow.core.clock import CLOCK_TOLERANCE, Clock, format_time, parse_time
from windrow.core.errors import UserError
from windrow.core.rng import Rng
from windrow.core.stamps import ObservedStamps
from windrow.harvester.unanswered import UnansweredRequests
from windrow.kubernetes.errors import Conflict, NotFound
from windrow.kubernetes.objects import Raw, finalizers_of, resource_version_of, uid_of
from windrow.kubernetes.resources import ObjectRef
from windrow.machines.port import Problem

# A watch that shows a change later than that is behind, or silent.
WATCH_LAG = timedelta(seconds=5)
# Longer than the time between two attempts.
STALE_KEPT = timedelta(minutes=10)


class StalePlan(Exception):
    """The plan no longer fits what exists; nothing is done, and the next reconcile plans again."""


class WatchBehind(UserError):
    """Harvester says another thing than its watch shows, for longer than a watch needs."""


@dataclass(frozen=True, slots=True)
class StaleWatch:
    """That Harvester said another thing of a machine's VM than its watch showed: since when and until when, by the monotonic
    clock, and what it said."""

    machine: str
    since: timedelta
    until: timedelta
    sentence: str


@dataclass(frozen=True, slots=True)
class KnownReading:
    """The reading of a Machine, and what it was made from."""

    machine: Machine
    unwritten: Mapping[str, Any]
    wall_clock_ahead: timedelta
    reading: Machine

    def is_of(self, machine: Machine, unwritten: Mapping[str, Any], wall_clock_ahead: timedelta) -> bool:
        """Whether a reading of these would be the same. The wall clock, by which the stamps in it are read, may not have been
        set meanwhile."""
        moved = abs(wall_clock_ahead - self.wall_clock_ahead)
        return machine is self.machine and moved < CLOCK_TOLERANCE and unwritten == self.unwritten


@dataclass(slots=True)
class ProcessState:
    """What a restart may lose: it is then read or requested once more."""

    # By the cluster's uid: the generation that passed the preflight, and the warnings found.
    preflight_passed: dict[str, tuple[int, tuple[Problem, ...]]] = field(default_factory=dict)
    # By the cluster's uid, and by the machine's, by the monotonic clock.
    guest_uid_requested: dict[str, timedelta] = field(default_factory=dict)
    # Since when a guest of a Cluster that is deleted was asked for its volumes, by uid.
    volumes_asked: dict[str, timedelta] = field(default_factory=dict)
    deletion_requested: dict[str, timedelta] = field(default_factory=dict)
    node_deleted: set[str] = field(default_factory=set)  # machine uids
    unanswered: UnansweredRequests = field(default_factory=UnansweredRequests)
    # By uid: clusters whose ServiceAccount on Harvester turned out to be another cluster's after the preflight.
    account_taken: set[str] = field(default_factory=set)
    machine_statuses: dict[str, dict[str, Any]] = field(default_factory=dict)  # to be written, by machine uid
    readings: dict[str, KnownReading] = field(default_factory=dict)  # by machine uid
    stale_watches: dict[str, StaleWatch] = field(default_factory=dict)  # by the cluster's uid
    requests: dict[str, set[str]] = field(default_factory=dict)  # that are under way, by the cluster's uid

    @property
    def longest_lag(self) -> timedelta:
        """For how long, at most, a watch has been seen behind."""
        return max((one.until - one.since for one in self.stale_watches.values()), default=timedelta())


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """The management API with its caches, which are never older than our own writes."""

    api: Client
    clusters: MutationCache[Raw]
    machines: MutationCache[Machine]
    secrets: MutationCache[SecretData]
    clock: Clock
    rng: Rng
    stamps: ObservedStamps
    process_state: ProcessState = field(default_factory=ProcessState)
    matrix: SupportMatrix = field(default_factory=shipped_matrix)
    option_rules: OptionRules = field(default_factory=OptionRules)

    def require_consent(self, reference: str, namespace: str) -> None:
        """Raises CredentialError unless Clusters of `namespace` may use the Secret `reference`."""
        ref = parse_secret_reference(reference)
        require_consent(reference, self.secrets.get(ref) if ref is not None else None, namespace)

    def require_machine_consent(self, machine: Machine) -> None:
        """The same for the credential of a Machine, of which there are two records: its spec, and its driver config."""
        recorded = str((machine.driver_config or {}).get("WindrowCredential") or "")
        for credential in {machine.credential, recorded} - {""}:
            self.require_consent(credential, machine.namespace)

    def refresh_stale_watch(self, state: ClusterState) -> str:
        """What Harvester says of a VM and its watch does not show yet; "" where it has been so for no longer than a watch
        needs. Forgets it where the watch has caught up, or nothing has asked for it for STALE_KEPT."""
        found = self.process_state.stale_watches.get(state.cluster.uid)
        if found is None:
            return ""
        machine = find_machine(found.machine, state)
        is_over = self.clock.monotonic() > found.until + STALE_KEPT
        if is_over or machine is None or not state.is_healthy_etcd_member(machine):
            del self.process_state.stale_watches[state.cluster.uid]
            return ""
        return found.sentence if found.until - found.since >= WATCH_LAG else ""

    async def patch_cluster_status(self, state: ClusterState, change: Mapping[str, object]) -> None:
        """Merge `change` into the Cluster's status."""
        if change:
            self.clusters.mutated(await self.api.patch(cluster_ref(state), {"status": change}, "status"))

    async def patch_observed_cluster(self, state: ClusterState, change: Mapping[str, object]) -> None:
        """Merge `change` into the status of the Cluster if it is as it was observed. Raises StalePlan otherwise.

        For decisions that must not be taken twice: of two managers that have observed one state, one succeeds.
        """
        metadata = {"resourceVersion": resource_version_of(state.cluster.raw)}
        ref = cluster_ref(state)
        try:
            raw = await self.api.patch(ref, {"metadata": metadata, "status": change}, "status")
        except Conflict as error:
            if (changed := await self.api.find(ref)) is not None:
                self.clusters.mutated(changed)
            raise StalePlan from error
        self.clusters.mutated(raw)

    async def patch_observed_machine(self, machine: Machine, change: Mapping[str, object]) -> None:
        """Merge `change` into the status of the Machine if it is as it was observed. Raises StalePlan otherwise."""
        body = {"metadata": {"resourceVersion": machine.resource_version}, "status": change}
        try:
            raw = await self.api.patch(machine.ref, body, "status")
        except (Conflict, NotFound) as error:
            await self.refresh_machine(machine.ref)
            raise StalePlan from error
        self._on_machine_written(machine, raw, change)

    async def refresh_machine(self, ref: ObjectRef) -> None:
        """Read what a refused write has shown to be newer than the cache."""
        if (changed := await self.api.find(ref)) is not None:
            self.machines.mutated(changed)

    async def patch_machine_status(self, machine: Machine, change: Mapping[str, object]) -> None:
        """Merge `change` into the Machine's status. A Machine that does not exist any more needs none.

        It replaces what is yet to be written of the same fields, which is older.
        """
        if not change:
            return
        try:
            raw = await self.api.patch(machine.ref, {"status": change}, "status")
        except NotFound:
            return
        self._on_machine_written(machine, raw, change)

    def _on_machine_written(self, machine: Machine, raw: Raw, change: Mapping[str, object]) -> None:
        self.machines.mutated(raw)
        unwritten = self.process_state.machine_statuses.get(machine.uid, {})
        for key in change:
            unwritten.pop(key, None)

    def patch_machine_status_later(self, machine: Machine, change: Mapping[str, Any]) -> None:
        """Have `change` written at the end of the reconcile, with the status that follows. Readings have it at once."""
        self.process_state.machine_statuses.setdefault(machine.uid, {}).update(change)

    def with_unwritten_status(self, machine: Machine) -> Machine:
        """The reading of a Machine with what is yet to be written, its stamps by the wall clock of now.

        The same reading again while nothing of that has changed: most machines of a large cluster are as they were at the last
        reconcile.
        """
        unwritten = self.process_state.machine_statuses.get(machine.uid, {})
        ahead = self.stamps.wall_clock_ahead
        known = self.process_state.readings.get(machine.uid)
        if known is None or not known.is_of(machine, unwritten, ahead):
            reading = self._read_with_unwritten(machine, unwritten)
            known = KnownReading(machine, dict(unwritten), ahead, reading)
            self.process_state.readings[machine.uid] = known
        return known.reading

    def _read_with_unwritten(self, machine: Machine, unwritten: Mapping[str, Any]) -> Machine:
        if unwritten:
            machine = with_status(machine, {**machine.status, **unwritten})
        uid, read = machine.uid, self.stamps.read
        status = read_status_with_turn(uid, machine.status, self.stamps)
        return replace(
            machine,
            created=read(uid, "created", machine.created) or machine.created,
            deletion_timestamp=read(uid, "deletionTimestamp", machine.deletion_timestamp),
            last_restart=read(uid, "lastRestartTime", machine.last_restart),
            provisioned=read(uid, "provisioned", machine.provisioned),
            conditions=tuple(self._read_condition(uid, raw) for raw in machine.conditions),
            status=read_status_with_maintenance(uid, status, self.stamps),
        )

    def _read_condition(self, uid: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        written = raw.get("lastTransitionTime")
        if not written:
            return raw
        stamp = parse_time(written)
        read = self.stamps.read(uid, f"condition {raw.get('type')}", stamp)
        return raw if read is None or read == stamp else {**raw, "lastTransitionTime": format_time(read)}

    def read_recorded(self, cluster: Cluster) -> Cluster:
        """The reading of a Cluster, the stamps in its status by the wall clock of now."""
        recorded, read, now = cluster.recorded, self.stamps.read, self.clock.now()
        breakers = {
            pool: replace(one, released=read(cluster.uid, f"breaker {pool}", one.released))
            for pool, one in recorded.breakers.items()
        }
        since = read(cluster.uid, "initialized", recorded.initialized_since)
        return replace(
            cluster,
            recorded=replace(
                recorded,
                initialized_since=since,
                breakers=breakers,
                operations=read_operations(cluster.uid, recorded.operations, self.stamps, now),
                raw=read_status_with_upgrade(recorded.raw, now),
            ),
        )

    def by_wall_clock(self, instant: timedelta | None) -> datetime | None:
        """An instant of the monotonic clock by the wall clock of now."""
        return None if instant is None else self.clock.now() - (self.clock.monotonic() - instant)

    def refreshed(self, state: ClusterState) -> ClusterState:
        """The state with the Machines as they are after actions were executed."""
        machines = []
        for machine in state.machines:
            record = self.machines.get(machine.record.ref)
            if record is not None and record.object_uid == machine.record.object_uid:
                machines.append(replace(machine, record=self.with_unwritten_status(record)))
        return replace(state, machines=tuple(machines))

    async def patch_finalizers(
        self, ref: ObjectRef, uid: str, *, add: str = "", drop: str = ""
    ) -> Raw | None:
        """Against the object as it is now, since others may add theirs meanwhile. None when it does not exist."""
        raw = await self.api.find(ref)
        if raw is None or uid_of(raw) != uid:
            return None
        before = finalizers_of(raw)
        after = [name for name in before if name != drop] + ([add] if add and add not in before else [])
        if after == before:
            return raw
        change = {"metadata": {"finalizers": after, "resourceVersion": resource_version_of(raw)}}
        return await self.api.patch(ref, change)


def get_connection(guests: GuestClusterCache, state: ClusterState) -> GuestConnection:
    """The connection to the guest cluster. Raises StalePlan when there is none any more."""
    connection = guests.find(state.cluster.uid)
    if connection is None:
        raise StalePlan
    return connection


async def patch_observed_node(
    guests: GuestClusterCache, state: ClusterState, observed: Node | None, name: str, change: dict[str, Any]
) -> None:
    """Where the Node still is as it was observed: what was held up on its way, and arrives when another manager is done with the Node,
    would cordon it for good. Raises StalePlan."""
    if observed is not None and observed.resource_version:
        metadata = {**change.get("metadata", {}), "resourceVersion": observed.resource_version}
        change = {**change, "metadata": metadata}
    try:
        await get_connection(guests, state).patch_node(name, change)
    except Conflict as error:
        raise StalePlan from error


def cluster_ref(state: ClusterState) -> ObjectRef:
    return CLUSTER.ref(state.cluster.name, state.cluster.namespace)


def find_machine(name: str, state: ClusterState) -> MachineState | None:
    return state.find_machine(name)


def get_machine(name: str, state: ClusterState) -> MachineState:
    """Raises StalePlan."""
    machine = find_machine(name, state)
    if machine is None:
        raise StalePlan
    return machine


async def delete_if_exists(client: Client, ref: ObjectRef, uid: str = "", grace_s: int | None = None) -> None:
    """With `uid`, only if it still is that object. Raises Conflict: that it is deleted is not certain then."""
    try:
        await client.delete(ref, uid=uid, grace_s=grace_s)
    except NotFound:
        return
