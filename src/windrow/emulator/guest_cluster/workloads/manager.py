"""The controllers of workloads in a guest cluster, on the server that leads: Deployments, ReplicaSets, StatefulSets,
DaemonSets, Jobs, the scheduler, kubelets' part in pods, eviction, EndpointSlices (just enough of each).

One object after the other is observed, planned, executed. Without workloads only their kinds are watched, so that
a cluster of hundreds of nodes without workloads costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from windrow.core.rng import Rng
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.components.chart_workloads import ChartLeaders
from windrow.emulator.guest_cluster.components.helm_jobs import is_helm_pod
from windrow.emulator.guest_cluster.containers.static_pods import is_mirror
from windrow.emulator.guest_cluster.csi.kinds import PV
from windrow.emulator.guest_cluster.disruption_budgets import PDB, DisruptionController
from windrow.emulator.guest_cluster.volumes.attach_detach import AttachDetachController
from windrow.emulator.guest_cluster.volumes.binding import VOLUME_KINDS, claims_of
from windrow.emulator.guest_cluster.workloads.context import ControllerContext
from windrow.emulator.guest_cluster.workloads.daemon_sets import DaemonSetController
from windrow.emulator.guest_cluster.workloads.deployments import DeploymentController
from windrow.emulator.guest_cluster.workloads.endpoint_slices import EndpointSliceController, has_selector
from windrow.emulator.guest_cluster.workloads.jobs import JobController
from windrow.emulator.guest_cluster.workloads.pods import PodController
from windrow.emulator.guest_cluster.workloads.replica_sets import ReplicaSetController
from windrow.emulator.guest_cluster.workloads.stateful_sets import StatefulSetController
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.informer import start_informers
from windrow.emulator.kit.listers import Key, key_of
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import (
    CONTROLLER_REVISION,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    NODE,
    POD,
    PVC,
    REPLICA_SET,
    SERVICE,
    STATEFUL_SET,
    ApiResource,
)

# Reconciled, and watched even where there is nothing to do.
_ALWAYS_WATCHED = (DEPLOYMENT, STATEFUL_SET, DAEMON_SET, JOB, REPLICA_SET, POD, SERVICE, PDB)
_WATCHED_ON_DEMAND = (NODE, ENDPOINT_SLICE, CONTROLLER_REVISION, PVC)
# Which each API server makes sure of, every ten seconds.
_KUBERNETES: Key = ("default", "kubernetes")
_SERVICE_PERIOD_S = 10
# Watched once a pod mounts a claim.
_WATCHED_FOR_VOLUMES = tuple(kind for kind in VOLUME_KINDS if kind != PVC)


async def run_controller_manager(guest: GuestOS, cluster: GuestCluster) -> None:
    """Run the controllers of the leading server until cancelled; after a KubeError, start them again."""
    while True:
        await cluster.wait_usable()
        try:
            await WorkloadControllers(guest, cluster).run()
        except* KubeError as errors:
            guest.log("kube-controller-manager", f"panic: {errors.exceptions[0]}")
            await guest.sleep(guest.delays.crash_backoff)


class WorkloadControllers:
    """Informers, the work queue, and one controller per kind."""

    def __init__(self, guest: GuestOS, cluster: GuestCluster) -> None:
        self._cluster = cluster
        self._context = ControllerContext(
            guest, cluster, (*_ALWAYS_WATCHED, *_WATCHED_ON_DEMAND, *_WATCHED_FOR_VOLUMES)
        )
        self._has_work = asyncio.Event()  # set once an object needs nodes and slices
        self._mounts_claims = asyncio.Event()  # set once a pod does
        self._lacks_kubernetes = asyncio.Event()  # set while Service default/kubernetes is gone
        # An object is queued before the owners and Services that depend on it.
        for kind in _ALWAYS_WATCHED:
            self._context.informers[kind].add_event_handler(partial(self._on_change, kind))
        self._pods = PodController(self._context)
        self._leaders = ChartLeaders(cluster, self._context.informers[POD])
        self._context.informers[POD].add_event_handler(self._leaders.on_pod)
        self._reconcilers: dict[ApiResource, Callable[[Key], Awaitable[None]]] = {
            DEPLOYMENT: DeploymentController(self._context).reconcile,
            STATEFUL_SET: StatefulSetController(self._context).reconcile,
            DAEMON_SET: DaemonSetController(self._context).reconcile,
            JOB: JobController(self._context).reconcile,
            REPLICA_SET: ReplicaSetController(self._context).reconcile,
            POD: self._pods.reconcile,
            PV: AttachDetachController(self._context).reconcile,
            SERVICE: EndpointSliceController(self._context).reconcile,
            PDB: DisruptionController(self._context).reconcile,
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            informers = self._context.informers
            await start_informers(group, (informers[kind] for kind in _ALWAYS_WATCHED))
            self._leaders.elect_all()
            group.create_task(self._keep_kubernetes_service())
            if _KUBERNETES not in informers[SERVICE]:
                self._lacks_kubernetes.set()
            await self._has_work.wait()
            await start_informers(group, (informers[kind] for kind in _WATCHED_ON_DEMAND))
            await self._watch_volumes(group)
            group.create_task(self._pods.watch_heartbeats())
            while True:
                kind, key = await self._context.queue.get()
                await self._cluster.wait_usable()
                await self._watch_volumes(group)
                await self._reconcilers[kind](key)
                self._context.queue.done((kind, key))

    async def _keep_kubernetes_service(self) -> None:
        """Create Service default/kubernetes again where someone has deleted it; it gets another uid."""
        guest, cluster = self._context.guest, self._cluster
        while True:
            await self._lacks_kubernetes.wait()
            await guest.sleep(_SERVICE_PERIOD_S)
            await cluster.wait_usable()
            self._lacks_kubernetes.clear()
            await cluster.api.ensure_kubernetes_service(Rng(f"{cluster.uid} {guest.now().isoformat()}"))

    async def _watch_volumes(self, group: asyncio.TaskGroup) -> None:
        """Start what volumes need before the first pod that mounts a claim is reconciled."""
        informers = [self._context.informers[kind] for kind in _WATCHED_FOR_VOLUMES]
        if self._mounts_claims.is_set() and not informers[0].has_synced.is_set():
            await start_informers(group, informers)

    def _on_change(self, kind: ApiResource, raw: Raw) -> None:
        is_of_other = kind == POD and (is_mirror(raw) or is_helm_pod(raw))
        if is_of_other or (kind == JOB and nested(raw, "spec", "managedBy")):
            return  # the kubelet's own, or another controller's
        key = key_of(raw)
        self._context.queue.add((kind, key))
        if kind == POD and claims_of(raw):
            self._mounts_claims.set()
        live = self._context.informers[kind].get(key)
        if kind == SERVICE and key == _KUBERNETES and live is None:
            self._lacks_kubernetes.set()
        if kind != SERVICE or (live is not None and has_selector(live)):
            self._has_work.set()
