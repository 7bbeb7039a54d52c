"""Lifecycle of one pod: scheduled, started, Ready, not Ready with its node, evicted, deleted. What is due now, and when
the next step is due.

While a kubelet does not report, its pods stay as they are, but for what the control plane writes (not Ready, deletion),
until their Node is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zlib import crc32

from windrow.core.clock import format_time
from windrow.emulator.guest_cluster.containers.restarts import (
    count_restarts,
    find_backoff,
    is_backing_off,
    render_terminated,
    restarts_on_failure,
)
from windrow.emulator.guest_cluster.containers.runtime import (
    CREATING,
    NOTHING_ACTS,
    ContainerEnd,
    ContainerState,
    Waiting,
)
from windrow.emulator.kit.scheduling import tolerates
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested, uid_of

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True)
class PodTimings:
    """Delays of a pod's steps, already divided by the time scale."""

    start: timedelta
    ready: timedelta
    stop: timedelta
    time_scale: float = 1.0
    run: timedelta = timedelta(seconds=1)  # how long the containers of a pod that ends run
    collect: timedelta = timedelta(seconds=20)
    crash: timedelta = timedelta(
        seconds=10
    )  # before the second restart of a container; later ones wait longer
    crash_limit: timedelta = timedelta(seconds=300)

    def scale(self, seconds: float) -> timedelta:
        """A duration of an object's spec, divided by the time scale."""
        return timedelta(seconds=seconds / self.time_scale)


@dataclass(frozen=True, slots=True)
class PodState:
    """What is observed about a pod beside its object. `since` is when it entered its present stage."""

    now: timedelta  # by the monotonic clock, as all instants here
    since: timedelta
    node: Raw | None
    kubelet_alive: bool  # the kubelet of its node
    tainted_since: Mapping[str, timedelta]  # since when, by taint key
    timings: PodTimings
    is_mounted: bool = True  # whether all volumes that it needs are
    has_mounts: bool = False  # whether any volume still is
    containers: ContainerState = NOTHING_ACTS  # those of its containers that act


@dataclass(frozen=True, slots=True)
class BindPod:
    because: str = "it has no node"


@dataclass(frozen=True, slots=True)
class AwaitVolumes:
    """Write that its containers are being created, or why they are not."""

    waiting: Waiting = CREATING
    because: str = "its volumes are not mounted"


@dataclass(frozen=True, slots=True)
class ReleaseVolumes:
    """Let the kubelet unmount its volumes."""

    because: str = "its containers have ended"


@dataclass(frozen=True, slots=True)
class StartPod:
    because: str


@dataclass(frozen=True, slots=True)
class SetPodReady:
    """Write the Ready condition."""

    ready: bool
    because: str


@dataclass(frozen=True, slots=True)
class EndPod:
    """Its containers have exited, and are not started again."""

    end: ContainerEnd
    because: str


@dataclass(frozen=True, slots=True)
class BackOff:
    """A container has failed, and waits so long before it is started again."""

    end: ContainerEnd
    delay: timedelta
    because: str = "it has failed again"


@dataclass(frozen=True, slots=True)
class RestartContainers:
    """Start a container again that has failed, in its pod."""

    end: ContainerEnd
    because: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete it: with its grace period, or at once where no kubelet runs it."""

    at_once: bool
    because: str


@dataclass(frozen=True, slots=True)
class WaitUntil:
    until: timedelta
    because: str


Step = (
    BindPod
    | AwaitVolumes
    | ReleaseVolumes
    | StartPod
    | SetPodReady
    | EndPod
    | BackOff
    | RestartContainers
    | DeletePod
    | WaitUntil
)


def is_ready(pod: Raw) -> bool:
    return is_true(nested(pod, "status", "conditions"), "Ready")


def is_final(pod: Raw) -> bool:
    return nested(pod, "status", "phase") in ("Succeeded", "Failed")


def is_active(pod: Raw) -> bool:
    """Whether the pod is neither deleting nor final."""
    return not is_deleting(pod) and not is_final(pod)


def stage_of(pod: Raw, *, alive: bool, is_mounted: bool = True) -> str:
    """The stage from whose beginning its delays count."""
    if is_deleting(pod):
        return f"terminating {alive}"
    if nested(pod, "status", "phase") == "Running":
        if is_backing_off(pod):
            return f"backing off {count_restarts(pod)}"
        return "ready" if is_ready(pod) else f"running {alive}"
    return f"starting {alive} {is_mounted}" if nested(pod, "spec", "nodeName") else "unplaced"


def plan_pod(pod: Raw, state: PodState) -> list[Step]:
    """The steps that are due for the pod: at most one action and one wait."""
    node = nested(pod, "spec", "nodeName", default="")
    if is_final(pod) and not is_deleting(pod):
        return [ReleaseVolumes()] if state.has_mounts else []
    if is_deleting(pod):
        is_left = pod["metadata"].get("deletionGracePeriodSeconds") == 0  # to who holds it by a finalizer
        return [] if is_left else _plan_termination(pod, state, node)
    if not node:
        return [BindPod()]
    if state.node is None:
        return [DeletePod(at_once=True, because=f"node {node} is gone")]
    evicted = _plan_eviction(pod, state)
    if isinstance(evicted, DeletePod):
        return [evicted]
    steps = _plan_running(pod, state)
    return [*steps, evicted] if evicted is not None else steps


def _plan_termination(pod: Raw, state: PodState, node: str) -> list[Step]:
    if not node or state.node is None:
        return [DeletePod(at_once=True, because="no kubelet runs it")]
    if not state.kubelet_alive:
        return _plan_collection(state.node, state)
    due = state.since + state.timings.stop
    ended = "its containers have ended"
    has_ended = is_final(pod) or state.now >= due
    if has_ended and state.has_mounts:
        return [ReleaseVolumes()]
    return [DeletePod(at_once=True, because=ended) if state.now >= due else WaitUntil(due, ended)]


def _plan_collection(node: Raw, state: PodState) -> list[Step]:
    """Garbage collection of a pod that terminates on a node that is not Ready: only where that one is out of service."""
    if is_true(nested(node, "status", "conditions"), "Ready") or not is_out_of_service(node):
        return []
    due = state.since + state.timings.collect
    collected = f"node {name_of(node)} is out of service"
    return [DeletePod(at_once=True, because=collected) if state.now >= due else WaitUntil(due, collected)]


def is_out_of_service(node: Raw) -> bool:
    """Whether it was shut down without notice, as a client says that knows it. The taint's value and effect do not matter."""
    return any(one.get("key") == OUT_OF_SERVICE for one in nested(node, "spec", "taints", default=[]))


def _plan_running(pod: Raw, state: PodState) -> list[Step]:
    healthy = is_true(nested(state.node, "status", "conditions"), "Ready")
    ready = is_ready(pod)
    if nested(pod, "status", "phase") != "Running":
        if not state.kubelet_alive:
            return []
        if not state.is_mounted:
            return [AwaitVolumes(state.containers.waiting or CREATING)]
        due = state.since + state.timings.start
        return [StartPod("its containers run") if state.now >= due else WaitUntil(due, "containers start")]
    if ready and not healthy:
        return [SetPodReady(False, f"node {name_of(state.node or {})} is not Ready")]
    if is_backing_off(pod) or _has_failed_in_place(pod, state):
        return _plan_restart(pod, state)
    if not ready and healthy and state.kubelet_alive:
        due = state.since + state.timings.ready
        return [SetPodReady(True, "its probe succeeds") if state.now >= due else WaitUntil(due, "its probe")]
    if nested(pod, "spec", "restartPolicy", default="Always") != "Always" and state.kubelet_alive:
        due = state.since + state.timings.run
        if state.containers.is_running:
            return []
        ended = EndPod(state.containers.end, "its containers have exited")
        return [ended if state.now >= due else WaitUntil(due, "they exit")]
    return []


def _has_failed_in_place(pod: Raw, state: PodState) -> bool:
    """Whether a container of it has failed that its kubelet starts again."""
    return (
        restarts_on_failure(pod) and not state.containers.is_running and state.containers.end.exit_code != 0
    )


def _plan_restart(pod: Raw, state: PodState) -> list[Step]:
    if not state.kubelet_alive or not state.is_mounted:
        return []
    restarts, end = count_restarts(pod), state.containers.end
    delay = find_backoff(restarts, state.timings.crash, state.timings.crash_limit)
    if not is_backing_off(pod):
        return [BackOff(end, delay) if restarts else RestartContainers(end, "it has failed once")]
    due = state.since + delay
    over = "its back-off is over"
    return [RestartContainers(end, over) if state.now >= due else WaitUntil(due, over)]


def _plan_eviction(pod: Raw, state: PodState) -> DeletePod | WaitUntil | None:
    """Eviction by the NoExecute taints of its node."""
    tolerations = nested(pod, "spec", "tolerations", default=[])
    soonest: timedelta | None = None
    for taint in nested(state.node, "spec", "taints", default=[]):
        if taint.get("effect") != "NoExecute":
            continue
        seconds = toleration_seconds(taint, tolerations)
        if seconds is None:
            continue
        due = state.tainted_since.get(taint["key"], state.now) + state.timings.scale(seconds)
        if state.now >= due:
            return DeletePod(at_once=False, because=f"its toleration of taint {taint['key']} has ended")
        soonest = due if soonest is None else min(soonest, due)
    return WaitUntil(soonest, "its toleration of the node's taints ends") if soonest is not None else None


def toleration_seconds(taint: Raw, tolerations: Sequence[Raw]) -> float | None:
    """For how many seconds the pod tolerates a taint; None without limit."""
    tolerating = [one for one in tolerations if tolerates(one, taint)]
    if not tolerating:
        return 0
    limits = [one["tolerationSeconds"] for one in tolerating if one.get("tolerationSeconds") is not None]
    return max(min(limits), 0) if limits else None


# --- statuses -------------------------------------------------------------------------------------------------------


def render_running(pod: Raw, node: Raw, address: str, now: datetime) -> Raw:
    """The status of a pod whose containers have just started."""
    at = format_time(now)
    host = internal_address(node)
    words = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    known = [one for one in nested(pod, "status", "conditions", default=[]) if one["type"] not in words]
    made = [_condition(word, word not in ("Ready", "ContainersReady"), at) for word in words]
    return {
        **(pod.get("status") or {}),
        "phase": "Running",
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": at,
        "conditions": [*made, *known],
        "containerStatuses": [
            _render_container(pod, one, at) for one in nested(pod, "spec", "containers", default=[])
        ],
    }


def is_waiting(pod: Raw, waiting: Waiting) -> bool:
    """Whether the status says so already."""
    statuses = nested(pod, "status", "containerStatuses", default=[])
    wanted = _render_waiting(waiting)
    return bool(statuses) and all(nested(one, "state", "waiting") == wanted for one in statuses)


def _render_waiting(waiting: Waiting) -> Raw:
    return {"reason": waiting.reason, **({"message": waiting.message} if waiting.message else {})}


def render_creating(pod: Raw, node: Raw, why: Waiting, now: datetime) -> Raw:
    """The status of a pod whose containers wait for its volumes, their images or their environment."""
    at, host = format_time(now), internal_address(node)
    words = {
        "PodReadyToStartContainers": False,
        "Initialized": True,
        "Ready": False,
        "ContainersReady": False,
    }
    status = pod.get("status") or {}
    known = [one for one in status.get("conditions") or () if one["type"] not in words]
    waiting = {"waiting": _render_waiting(why)}
    containers = [
        {
            "name": one["name"],
            "image": one.get("image", ""),
            "imageID": "",
            "ready": False,
            "started": False,
            "restartCount": 0,
            "state": waiting,
            "lastState": {},
        }
        for one in nested(pod, "spec", "containers", default=[])
    ]
    return {
        **status,
        "phase": "Pending",
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "startTime": at,
        "conditions": [*(_condition(word, holds, at) for word, holds in words.items()), *known],
        "containerStatuses": containers,
    }


def render_ended(status: Raw, end: ContainerEnd, now: datetime) -> Raw:
    """The status of a pod whose containers have ended so."""
    at, is_good = format_time(now), end.exit_code == 0
    conditions = [
        {**_condition(one["type"], one["type"] == "Initialized", at), "reason": "PodCompleted"}
        if one["type"] in ("Initialized", "Ready", "ContainersReady") and is_good
        else _condition(one["type"], False, at)
        if one["type"] in ("Ready", "ContainersReady", "PodReadyToStartContainers")
        else one
        for one in status.get("conditions") or ()
    ]
    containers = [
        {**one, "ready": False, "started": False, "state": {"terminated": render_terminated(end, one, at)}}
        for one in status.get("containerStatuses") or ()
    ]
    phase = "Succeeded" if is_good else "Failed"
    return {**status, "phase": phase, "conditions": conditions, "containerStatuses": containers}


def render_readiness(status: Raw, ready: bool, now: datetime, *, probed: bool) -> Raw:
    """The status with another readiness. Without a probe the control plane writes it: the condition Ready alone."""
    at = format_time(now)
    changing = ("Ready", "ContainersReady") if probed else ("Ready",)
    conditions = [
        _condition(one["type"], ready, at)
        if one["type"] in changing and is_true([one], one["type"]) != ready
        else one
        for one in status.get("conditions") or ()
    ]
    made = {**status, "conditions": conditions}
    if probed:
        made["containerStatuses"] = [{**one, "ready": ready} for one in status.get("containerStatuses") or ()]
    return made


def _condition(type: str, holds: bool, at: str) -> Raw:
    made: Raw = {"type": type, "status": str(holds), "lastProbeTime": None, "lastTransitionTime": at}
    if type in ("Ready", "ContainersReady") and not holds:
        made["reason"] = "ContainersNotReady"
    return made


def _render_container(pod: Raw, container: Raw, at: str) -> Raw:
    number = crc32(f"{uid_of(pod)} {container['name']}".encode())
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "containerID": f"containerd://{number:08x}",
        "ready": False,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": at}},
        "lastState": {},
    }


def internal_address(node: Raw) -> str:
    """The Node's InternalIP, "" without one."""
    addresses = nested(node, "status", "addresses", default=[])
    return next((str(one["address"]) for one in addresses if one.get("type") == "InternalIP"), "")
