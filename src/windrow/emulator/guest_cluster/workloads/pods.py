"""Pod controller: the kubelets' part while they report, and the control plane's while they do not."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Set
from datetime import timedelta

from windrow.emulator.guest_cluster.components.helm_jobs import is_helm_pod
from windrow.emulator.guest_cluster.containers.restarts import render_crashed, render_restarted
from windrow.emulator.guest_cluster.containers.static_pods import is_mirror
from windrow.emulator.guest_cluster.volumes.pod_volumes import PodVolumes
from windrow.emulator.guest_cluster.workloads.context import ControllerContext
from windrow.emulator.guest_cluster.workloads.pod_lifecycle import (
    AwaitVolumes,
    BackOff,
    BindPod,
    DeletePod,
    EndPod,
    PodState,
    PodTimings,
    ReleaseVolumes,
    RestartContainers,
    SetPodReady,
    StartPod,
    WaitUntil,
    internal_address,
    is_waiting,
    plan_pod,
    render_creating,
    render_ended,
    render_readiness,
    render_running,
    stage_of,
)
from windrow.emulator.guest_cluster.workloads.scheduler import Scheduler
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.objects import Raw, name_of, nested, uid_of
from windrow.kubernetes.resources import NODE, POD


class PodAddressAllocator:
    """Pod addresses in ascending order, so that one that was freed is not reused at once."""

    def __init__(self) -> None:
        self._last_host: dict[str, int] = defaultdict(lambda: 1)

    def allocate(self, pod: Raw, node: Raw, used: Set[str]) -> str:
        """The next free address of the node's range; its own where the pod shares the node's network."""
        if nested(pod, "spec", "hostNetwork"):
            return internal_address(node)
        network = ipaddress.ip_network(nested(node, "spec", "podCIDR", default="10.42.0.0/24"))
        name, size = name_of(node), network.num_addresses
        for _ in range(size):
            self._last_host[name] = self._last_host[name] % (size - 2) + 1
            address = str(network[self._last_host[name]])
            if address not in used and self._last_host[name] > 1:
                return address
        return str(network[1])


class PodController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        guest, delays = context.guest, context.guest.delays
        seconds = (delays.pod_start, delays.pod_ready, delays.pod_stop, delays.pod_run, delays.pod_gc)
        start, ready, stop, run, collect = map(guest.scaled, seconds)
        crash = map(guest.scaled, (delays.crash_backoff, delays.crash_backoff_limit))
        self._timings = PodTimings(start, ready, stop, guest.host.time_scale, run, collect, *crash)
        self._scheduler = Scheduler(context)
        self._addresses = PodAddressAllocator()
        self._by_node = context.informers[POD].add_index(lambda raw: [("", _node_of(raw))])
        self._stages: dict[Key, tuple[str, str, timedelta]] = {}
        self._tainted_since: dict[str, dict[str, timedelta]] = {}
        self._alive: frozenset[str] = frozenset()
        self._volumes = PodVolumes(context)
        context.cluster.on_pod_volumes = lambda key: context.queue.add((POD, key))
        context.informers[NODE].add_event_handler(self._on_node)

    async def reconcile(self, key: Key) -> None:
        context = self._context
        pod = context.informers[POD].get(key)
        if pod is None:
            self._stages.pop(key, None)
            self._volumes.forget(key)
            self._enqueue_pods_on("")  # one of them may have kept away from it
            return
        if is_mirror(pod) or is_helm_pod(pod):
            return
        node = context.informers[NODE].get(("", _node_of(pod)))
        for step in plan_pod(pod, self._observe(key, pod, node)):
            match step:
                case BindPod():
                    await self._scheduler.schedule(pod)
                case AwaitVolumes(waiting, _) if node is not None:
                    if not is_waiting(pod, waiting):
                        await context.update_status(
                            POD, pod, render_creating(pod, node, waiting, context.now())
                        )
                case ReleaseVolumes():
                    self._volumes.release(pod)
                case StartPod() if node is not None:
                    address = self._addresses.allocate(pod, node, self._addresses_on(name_of(node)))
                    await context.update_status(POD, pod, render_running(pod, node, address, context.now()))
                    self._volumes.start_containers(pod)
                case SetPodReady(ready, _):
                    probed = self._is_alive(pod)
                    await context.update_status(
                        POD, pod, render_readiness(pod["status"], ready, context.now(), probed=probed)
                    )
                case EndPod(end, _):
                    await context.update_status(POD, pod, render_ended(pod["status"], end, context.now()))
                case BackOff(end, delay, _):
                    seconds = delay.total_seconds() * self._timings.time_scale
                    await context.update_status(POD, pod, render_crashed(pod, end, seconds, context.now()))
                case RestartContainers(end, _):
                    await context.update_status(POD, pod, render_restarted(pod, end, context.now()))
                    self._volumes.restart_containers(pod)
                case DeletePod(at_once, _):
                    await context.delete(POD, pod, 0 if at_once else None)
                case WaitUntil(until, _):
                    context.queue.add_after((POD, key), until - context.monotonic())

    async def watch_heartbeats(self) -> None:
        """Queue the pods of a node when its kubelet stops or starts to report."""
        cluster = self._context.cluster
        while True:
            alive = frozenset(name for name, heartbeat in cluster.heartbeats.items() if heartbeat.alive)
            for name in sorted(alive ^ self._alive):
                self._enqueue_pods_on(name)
            unsynced = {name for name, one in cluster.volume_managers.items() if not one.is_synced}
            for name in sorted((alive - self._alive) | unsynced):
                keys = sorted(self._by_node.get(("", name), ()))
                self._volumes.sync(name, [self._context.informers[POD][key] for key in keys])
            self._alive = alive
            await cluster.changed.wait()

    def _on_node(self, node: Raw) -> None:
        name = name_of(node)
        before = self._tainted_since.get(name, {})
        keys = {
            one["key"]
            for one in nested(node, "spec", "taints", default=[])
            if one.get("effect") == "NoExecute"
        }
        self._tainted_since[name] = {key: before.get(key, self._context.monotonic()) for key in keys}
        self._enqueue_pods_on(name)
        self._enqueue_pods_on("")

    def _enqueue_pods_on(self, node: str) -> None:
        for key in self._by_node.get(("", node), ()):
            self._context.queue.add((POD, key))

    def _addresses_on(self, node: str) -> set[str]:
        pods = self._context.informers[POD]
        return {nested(pods[key], "status", "podIP") for key in self._by_node.get(("", node), ())}

    def _is_alive(self, pod: Raw) -> bool:
        heartbeat = self._context.cluster.heartbeats.get(_node_of(pod))
        return heartbeat is not None and heartbeat.alive

    def _observe(self, key: Key, pod: Raw, node: Raw | None) -> PodState:
        now, alive = self._context.monotonic(), self._is_alive(pod)
        mounts = self._volumes.observe(key, pod)
        containers = self._volumes.observe_containers(pod, alive=alive)
        is_prepared = mounts.complete and containers.waiting is None
        stage = stage_of(pod, alive=alive, is_mounted=is_prepared)
        before = self._stages.get(key)
        if before is None or before[:2] != (uid_of(pod), stage):
            before = self._stages[key] = (uid_of(pod), stage, now)
        tainted = self._tainted_since.get(name_of(node), {}) if node is not None else {}
        return PodState(
            now,
            before[2],
            node,
            alive,
            tainted,
            self._timings,
            is_prepared,
            mounts.any,
            containers,
        )


def _node_of(pod: Raw) -> str:
    return str(nested(pod, "spec", "nodeName", default=""))
