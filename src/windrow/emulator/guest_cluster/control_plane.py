"""Controllers of the leading server of a guest cluster: node health, etcd membership, manifests, bundled charts, workloads.

One server leads at a time; the others wait for the leader lock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta

from windrow.core.clock import format_time, sleep
from windrow.emulator.guest_cluster.charts import deploy_bundled_charts
from windrow.emulator.guest_cluster.components.cloud_controller import run_cloud_controller
from windrow.emulator.guest_cluster.components.helm_controller import HelmController
from windrow.emulator.guest_cluster.components.service_lb import ServiceLB
from windrow.emulator.guest_cluster.containers.static_pods import remove_mirror_pods
from windrow.emulator.guest_cluster.csi.persistent_volumes import run_volume_controller
from windrow.emulator.guest_cluster.csi.snapshots import run_snapshot_controller
from windrow.emulator.guest_cluster.datastore.snapshot_objects import run_snapshot_objects
from windrow.emulator.guest_cluster.kubelet import NOT_READY, UNREACHABLE, set_node_condition
from windrow.emulator.guest_cluster.server_context import ServerContext
from windrow.emulator.guest_cluster.workloads.manager import run_controller_manager
from windrow.emulator.guest_os.notifier import result_unless
from windrow.emulator.kit.edits import annotate
from windrow.kubernetes.conditions import Condition, find_condition
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested
from windrow.kubernetes.resources import NODE, SECRET

IS_LEARNER = Condition(
    "EtcdIsVoter",
    "False",
    "MemberIsLearner",
    "Node has not been promoted to voting member of the etcd cluster",
)
IS_VOTER = Condition("EtcdIsVoter", "True", "MemberNotLearner", "Node is a voting member of the etcd cluster")


class ControlPlane:
    """The controllers of one server. `run` waits for the leader lock, then leads until cancelled."""

    def __init__(self, context: ServerContext) -> None:
        self.context = context
        self.guest = context.guest
        self.cluster = context.cluster
        self.settings = context.settings
        self.distribution = self.settings.distribution

    async def run(self) -> None:
        async with self.cluster.leader_lock:
            await self.guest.sleep(self.guest.delays.leader_takeover)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.cluster.api.run())
                group.create_task(self._watch_nodes())
                group.create_task(self._monitor_nodes())
                group.create_task(self._remove_stalled_learners())
                if not self.settings.is_true("disable-helm-controller"):
                    group.create_task(HelmController(self.context).run())
                if self._runs_service_lb():
                    group.create_task(ServiceLB(self.guest, self.cluster).run())
                group.create_task(run_controller_manager(self.guest, self.cluster))
                group.create_task(run_volume_controller(self.guest, self.cluster))
                if self.distribution.has_snapshot_controller:
                    group.create_task(run_snapshot_controller(self.guest, self.cluster))
                if self.cluster.etcd.is_embedded:
                    group.create_task(run_snapshot_objects(self.guest, self.cluster))
                if self._runs_cloud_controller():
                    group.create_task(run_cloud_controller(self.guest, self.cluster))
                group.create_task(deploy_bundled_charts(self.context))

    def _runs_cloud_controller(self) -> bool:
        is_off = self.settings.is_true("disable-cloud-controller")
        return self.distribution.runs_cloud_controller and not is_off

    def _runs_service_lb(self) -> bool:
        """Its controller is part of the cloud controller, and runs also where that initialises no Nodes."""
        is_off = "servicelb" in self.settings.list("disable")
        return self.distribution.runs_cloud_controller and not is_off

    # -- nodes

    async def _watch_nodes(self) -> None:
        """Remove etcd members and node passwords of deleted Nodes; notify waiters of changed Nodes."""
        while True:
            await self.cluster.wait_usable()
            await self._remove_orphaned_members()
            async with self.cluster.client().watch(NODE) as events:
                async for event in events:
                    if event.type == "DELETED":
                        await self._node_deleted(name_of(event.object))
                    elif event.type in ("ADDED", "MODIFIED"):
                        await self._node_changed(event.object)
                    self.cluster.changed.notify()
            await self.guest.sleep(1)

    async def _remove_orphaned_members(self) -> None:
        """Remove members whose Node was deleted while there was no leader."""
        nodes = {name_of(raw) for raw in await self.cluster.client().list(NODE)}
        for member in list(self.cluster.etcd.by_name.values()):
            if member.registered and member.node not in nodes:
                self.cluster.etcd.remove(member.name)

    async def _node_deleted(self, name: str) -> None:
        member = self.cluster.etcd.find_by_node(name)
        if member is not None:
            self.cluster.etcd.remove(member.name)
        await remove_mirror_pods(self.cluster, name)
        with contextlib.suppress(NotFound):
            await self.cluster.client().delete(
                SECRET.ref(self.distribution.node_password_secret(name), "kube-system")
            )

    async def _node_changed(self, raw: Raw) -> None:
        annotations, name = annotations_of(raw), name_of(raw)
        removed = self.distribution.etcd_annotation("removed-node-name")
        member = self.cluster.etcd.find_by_node(name)
        if member is not None:
            member.registered = True
        if annotations.get(self.distribution.etcd_annotation("remove")) == "true" and not annotations.get(
            removed
        ):
            if member is not None and not self.cluster.etcd.remove(member.name):
                self.guest.log(
                    "etcd", f"member of node {name} cannot be removed now: the rest would have no majority"
                )
                return
            known = annotations.get(self.distribution.etcd_annotation("node-name"), name)
            gone = member.name if member is not None else known
            await self.cluster.edit(NODE.ref(name), lambda node: annotate(node, {removed: gone}))
            return
        if member is not None and _read_voter_condition(raw) in (None, member.learner):
            await self._record_member(name)

    async def _record_member(self, name: str) -> None:
        member = self.cluster.etcd.find_by_node(name)
        if member is None:
            return
        wanted = {
            self.distribution.etcd_annotation("node-name"): member.name,
            self.distribution.etcd_annotation("node-address"): member.address,
        }
        condition = IS_LEARNER if member.learner else IS_VOTER
        await self.cluster.edit(NODE.ref(name), lambda raw: annotate(raw, wanted))
        await self.cluster.edit(
            NODE.ref(name),
            lambda raw: set_node_condition(raw, condition, self.guest.now()),
            subresource="status",
        )

    async def _monitor_nodes(self) -> None:
        """Taint nodes by their readiness; set the conditions of those whose kubelet stopped reporting to Unknown."""
        grace = self.guest.scaled(self.guest.delays.node_grace)
        while True:
            await self.cluster.wait_usable()
            wakes: list[timedelta] = []
            voters = {member.node: member.learner for member in self.cluster.etcd.by_name.values()}
            for raw in await self.cluster.list_nodes():
                name = name_of(raw)
                if name in voters and _read_voter_condition(raw) in (None, voters[name]):
                    await self._record_member(name)
                heartbeat = self.cluster.heartbeats.get(name)
                if heartbeat is not None and not heartbeat.alive:
                    due = heartbeat.last + grace
                    if self.guest.monotonic() >= due:
                        await self._mark_unknown(name)
                    else:
                        wakes.append(due)
                await self._taint(raw)
            await self._wait(wakes)

    async def _wait(self, wakes: Sequence[timedelta]) -> None:
        """Wait for a change of the cluster, or until the first of these instants of the monotonic clock."""
        if not wakes:
            await self.cluster.changed.wait()
            return
        span = min(wakes) - self.guest.monotonic()
        await result_unless(self.cluster.changed.wait(), sleep(self.guest.host.clock, span))

    async def _mark_unknown(self, name: str) -> None:
        def edit(raw: Raw) -> None:
            heartbeat = self.cluster.heartbeats.get(name)
            if heartbeat is not None and not heartbeat.alive:
                for type in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
                    message = "Kubelet stopped posting node status."
                    condition = Condition(type, "Unknown", "NodeStatusUnknown", message)
                    set_node_condition(raw, condition, self.guest.now())

        await self.cluster.edit(NODE.ref(name), edit, subresource="status")

    async def _taint(self, raw: Raw) -> None:
        if find_taints(raw, self.guest.now()) is not None:  # only a differing Node is written
            await self.cluster.edit(
                NODE.ref(name_of(raw)), lambda found: taint_by_readiness(found, self.guest.now())
            )

    # -- etcd

    async def _remove_stalled_learners(self) -> None:
        """Remove learners that are down for five minutes: they would block every join."""
        since: dict[str, timedelta] = {}
        limit = self.guest.scaled(self.guest.delays.learner_stalled)
        while True:
            stalled = [one for one in self.cluster.etcd.by_name.values() if one.learner and not one.up]
            since = {one.name: since.get(one.name, self.guest.monotonic()) for one in stalled}
            for name, start in since.items():
                if self.guest.monotonic() >= start + limit:
                    self.guest.log("etcd", f"Removing stalled learner {name}")
                    self.cluster.etcd.remove(name)
            dues = [start + limit for start in since.values()]
            await self._wait([due for due in dues if due > self.guest.monotonic()])


def _read_voter_condition(raw: Raw) -> bool | None:
    """The Node's condition EtcdIsVoter as a bool, None without the condition."""
    found = find_condition(nested(raw, "status", "conditions"), "EtcdIsVoter")
    return None if found is None else found.status == "True"


def find_taints(raw: Raw, now: datetime) -> list[Raw] | None:
    """All taints of the Node, with not-ready and unreachable by its Ready condition; None where it has them."""
    ready = find_condition(nested(raw, "status", "conditions"), "Ready")
    wanted = {"True": "", "Unknown": UNREACHABLE}.get(ready.status if ready else "False", NOT_READY)
    taints = nested(raw, "spec", "taints", default=[])
    kept = [one for one in taints if one["key"] not in (NOT_READY, UNREACHABLE) or one["key"] == wanted]
    have = {one["effect"] for one in kept if one["key"] == wanted}
    for effect in ("NoSchedule", "NoExecute") if wanted else ():
        if effect not in have:
            kept.append({"key": wanted, "effect": effect, "timeAdded": format_time(now)})
    return None if kept == taints else kept


def taint_by_readiness(raw: Raw, now: datetime) -> bool:
    """Set the Node's taints, see `find_taints`; False without a change."""
    taints = find_taints(raw, now)
    if taints:
        raw.setdefault("spec", {})["taints"] = taints
    elif taints is not None:
        del raw["spec"]["taints"]
    return taints is not None
