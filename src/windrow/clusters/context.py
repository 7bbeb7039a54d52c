"""What every step of a reconcile shares: the management API, what is known of its objects, and writes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from windrow.client.client import Client
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.machine import Machine, with_status
from windrow.clusters.api.secrets import SecretData
from windrow.clusters.sources.guest_api import GuestClusterCache, GuestConnection
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.objects import Raw, finalizers_of, resource_version_of, uid_of
from windrow.kubernetes.resources import ObjectRef
from windrow.machines.port import Problem


class StalePlan(Exception):
    """The plan no longer fits what exists; nothing is done, and the next reconcile plans again."""


@dataclass(slots=True)
class ProcessState:
    """What a restart may lose: it is then read or requested once more."""

    # By the cluster's uid: the generation that passed the preflight, and the warnings found.
    preflight_passed: dict[str, tuple[int, tuple[Problem, ...]]] = field(default_factory=dict)
    guest_uid_requested: dict[str, datetime] = field(default_factory=dict)  # by the cluster's uid
    deletion_requested: dict[str, datetime] = field(default_factory=dict)  # by the machine's uid
    machine_statuses: dict[str, dict[str, Any]] = field(default_factory=dict)  # to be written, by machine uid


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """The management API with its caches, which are never older than our own writes."""

    api: Client
    clusters: MutationCache[Raw]
    machines: MutationCache[Machine]
    secrets: MutationCache[SecretData]
    clock: Clock
    rng: Rng
    process_state: ProcessState = field(default_factory=ProcessState)

    async def patch_cluster_status(self, state: ClusterState, change: Mapping[str, object]) -> None:
        """Merge `change` into the Cluster's status."""
        if change:
            self.clusters.mutated(await self.api.patch(cluster_ref(state), {"status": change}, "status"))

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
        self.machines.mutated(raw)
        unwritten = self.process_state.machine_statuses.get(machine.uid, {})
        for key in change:
            unwritten.pop(key, None)

    def patch_machine_status_later(self, machine: Machine, change: Mapping[str, Any]) -> None:
        """Have `change` written at the end of the reconcile, with the status that follows. Readings have it at once."""
        self.process_state.machine_statuses.setdefault(machine.uid, {}).update(change)

    def with_unwritten_status(self, machine: Machine) -> Machine:
        """The reading of a Machine with what is yet to be written."""
        unwritten = self.process_state.machine_statuses.get(machine.uid)
        return with_status(machine, {**machine.status, **unwritten}) if unwritten else machine

    def refreshed(self, state: ClusterState) -> ClusterState:
        """The state with the Machines as they are after actions were executed."""
        machines = []
        for machine in state.machines:
            record = self.machines.get(machine.record.ref)
            if record is not None and record.uid == machine.record.uid:
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


def cluster_ref(state: ClusterState) -> ObjectRef:
    return CLUSTER.ref(state.cluster.name, state.cluster.namespace)


def find_machine(name: str, state: ClusterState) -> MachineState | None:
    return next((machine for machine in state.machines if machine.name == name), None)


def get_machine(name: str, state: ClusterState) -> MachineState:
    """Raises StalePlan."""
    machine = find_machine(name, state)
    if machine is None:
        raise StalePlan
    return machine


async def delete_if_exists(client: Client, ref: ObjectRef, uid: str = "") -> None:
    """With `uid`, only if it still is that object. Raises Conflict: that it is deleted is not certain then."""
    try:
        await client.delete(ref, uid=uid)
    except NotFound:
        return
