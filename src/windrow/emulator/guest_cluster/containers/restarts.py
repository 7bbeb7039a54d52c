"""Containers that fail in a pod with restartPolicy OnFailure: started again in the same pod, after a back-off that grows.

The first time at once, later after 10 s, 20 s and so on, up to 5 minutes. Not simulated: that the back-off begins anew
after ten minutes without a failure, and that a pod is Pending while an init container fails.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from windrow.core.clock import format_time
from windrow.emulator.guest_cluster.containers.runtime import ContainerEnd
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested, uid_of

_CRASHED = "CrashLoopBackOff"
_LISTS = {"initContainerStatuses": "initContainers", "containerStatuses": "containers"}


def restarts_on_failure(pod: Raw) -> bool:
    return bool(nested(pod, "spec", "restartPolicy") == "OnFailure")


def count_restarts(pod: Raw) -> int:
    """Of all its containers."""
    return sum(int(one.get("restartCount") or 0) for one in _statuses(pod))


def is_backing_off(pod: Raw) -> bool:
    """Whether a container has failed, and waits until it is started again."""
    return any(map(_waits, _statuses(pod)))


def find_backoff(restarts: int, first: timedelta, limit: timedelta) -> timedelta:
    """How long a container waits that has failed after so many restarts."""
    return min(first * 2 ** min(restarts - 1, 16), limit) if restarts else timedelta()


def render_terminated(end: ContainerEnd, container: Raw, at: str) -> Raw:
    """The terminated state of a container, from its status before."""
    found: Raw = {
        "exitCode": end.exit_code,
        "reason": end.reason or ("Error" if end.exit_code else "Completed"),
    }
    found |= {"finishedAt": at, **({"message": end.message} if end.message else {})}
    started = nested(container, "state", "running", "startedAt", default=at)
    return {**found, "startedAt": started, "containerID": container.get("containerID", "")}


def render_crashed(pod: Raw, end: ContainerEnd, delay_s: float, now: datetime) -> Raw:
    """The status of a pod of which a container has failed, and waits so long."""
    at = format_time(now)

    def fail(one: Raw) -> Raw:
        message = (
            f"back-off {_duration(delay_s)} restarting failed container={one['name']} "
            f"pod={name_of(pod)}_{namespace_of(pod)}({uid_of(pod)})"
        )
        state = {"waiting": {"reason": _CRASHED, "message": message}}
        return {**one, "state": state, "lastState": {"terminated": render_terminated(end, one, at)}}

    return _render(pod, end.container, fail, at)


def render_restarted(pod: Raw, end: ContainerEnd, now: datetime) -> Raw:
    """The status of a pod whose failed container has been started again."""
    at = format_time(now)

    def start(one: Raw) -> Raw:
        last = one["lastState"] if _waits(one) else {"terminated": render_terminated(end, one, at)}
        count = int(one.get("restartCount") or 0) + 1
        state = {"running": {"startedAt": at}}
        return {**one, "started": True, "restartCount": count, "state": state, "lastState": last}

    return _render(pod, end.container, start, at)


def _render(pod: Raw, container: str, change: Callable[[Raw], Raw], at: str) -> Raw:
    """The status with that container changed and not ready; without a name every one of the pod's own is."""
    status = dict(pod.get("status") or {})
    for statuses, specs in _LISTS.items():
        known = {one["name"]: one for one in status.get(statuses) or ()}
        for spec in nested(pod, "spec", specs, default=[]):
            if spec["name"] == container or (not container and specs == "containers"):
                new = {"name": spec["name"], "image": spec.get("image", ""), "imageID": "", "lastState": {}}
                known[spec["name"]] = {**change(known.get(spec["name"], new)), "ready": False}
        if known:
            status[statuses] = list(known.values())
    status["conditions"] = [
        {**one, "status": "False", "reason": "ContainersNotReady", "lastTransitionTime": at}
        if one["type"] in ("Ready", "ContainersReady") and one["status"] == "True"
        else one
        for one in status.get("conditions") or ()
    ]
    return status


def _statuses(pod: Raw) -> list[Raw]:
    return [one for key in _LISTS for one in nested(pod, "status", key, default=[])]


def _waits(container: Raw) -> bool:
    return bool(nested(container, "state", "waiting", "reason") == _CRASHED)


def _duration(seconds: float) -> str:
    """As Go writes it."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
