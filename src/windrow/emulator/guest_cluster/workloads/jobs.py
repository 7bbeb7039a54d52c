"""Jobs: plan, status and controller. Pods are created until enough of them have succeeded, or too many failed.

A pod that ends is counted once: its uid is written into `uncountedTerminatedPods`, then the finalizer is taken from the
pod, then the counters are raised. Not simulated: Indexed completion, and policies for failed pods and for success.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from windrow.core.clock import format_time
from windrow.emulator.guest_cluster.containers.restarts import count_restarts, restarts_on_failure
from windrow.emulator.guest_cluster.workloads.context import ControllerContext, OwnerIndex
from windrow.emulator.guest_cluster.workloads.pod_lifecycle import is_active, is_ready
from windrow.emulator.guest_cluster.workloads.templates import render_pod
from windrow.emulator.kit.edits import remove_finalizer
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import (
    Raw,
    finalizers_of,
    is_deleting,
    name_of,
    namespace_of,
    nested,
    time_of,
    uid_of,
)
from windrow.kubernetes.resources import JOB, POD

TRACKING = "batch.kubernetes.io/job-tracking"
_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 10, 600


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a Job ends: the interim condition and the final one have the same reason and message."""

    succeeded: bool
    reason: str
    message: str

    @property
    def conditions(self) -> tuple[str, str]:
        """The types of the interim condition and of the final one."""
        return ("SuccessCriteriaMet", "Complete") if self.succeeded else ("FailureTarget", "Failed")


COMPLETIONS_REACHED = JobEnd(True, "CompletionsReached", "Reached expected number of succeeded pods")
BACKOFF_LIMIT = JobEnd(False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
DEADLINE = JobEnd(False, "DeadlineExceeded", "Job was active longer than specified deadline")


@dataclass(frozen=True, slots=True)
class CreateJobPods:
    count: int
    because: str


@dataclass(frozen=True, slots=True)
class DeleteJobPod:
    pod: Raw
    because: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    because: str


@dataclass(frozen=True, slots=True)
class WaitUntil:
    until: timedelta
    because: str


JobStep = CreateJobPods | DeleteJobPod | DeleteJob | WaitUntil


@dataclass(frozen=True, slots=True)
class JobState:
    """What is observed of a Job: its pods, both clocks, and when it may create pods after a failure."""

    job: Raw
    pods: Sequence[Raw]
    now: datetime
    monotonic: timedelta
    retry_at: timedelta | None = None
    time_scale: float = 1.0

    @property
    def active(self) -> list[Raw]:
        return [pod for pod in self.pods if is_active(pod)]

    @property
    def uncounted(self) -> dict[str, list[str]]:
        """The uids of ended pods that the counters do not include yet, by `succeeded` and `failed`."""
        held = nested(self.job, "status", "uncountedTerminatedPods", default={})
        found = {key: list(held.get(key) or ()) for key in ("succeeded", "failed")}
        known = {uid for uids in found.values() for uid in uids}
        for pod in self.pods:
            kind = "succeeded" if _has_succeeded(pod) else "failed" if _has_failed(pod) else ""
            if kind and TRACKING in finalizers_of(pod) and uid_of(pod) not in known:
                found[kind].append(uid_of(pod))
        return found

    def total(self, kind: str) -> int:
        """Pods that have succeeded, or failed, so far."""
        return int(nested(self.job, "status", kind, default=0)) + len(self.uncounted[kind])

    def passed(self, since: datetime) -> float:
        """Seconds of the simulation since an instant of the wall clock."""
        return (self.now - since).total_seconds() * self.time_scale

    def due(self, since: datetime, seconds: float) -> timedelta:
        """When `seconds` of the simulation will have passed since an instant of the wall clock."""
        return self.monotonic + timedelta(seconds=(seconds - self.passed(since)) / self.time_scale)


def _has_succeeded(pod: Raw) -> bool:
    return bool(nested(pod, "status", "phase") == "Succeeded")


def _has_failed(pod: Raw) -> bool:
    """A pod that is deleted before it has succeeded counts as failed."""
    is_lost = is_deleting(pod) and not _has_succeeded(pod)
    return bool(nested(pod, "status", "phase") == "Failed") or is_lost


def is_finished(job: Raw) -> bool:
    conditions = nested(job, "status", "conditions")
    return is_true(conditions, "Complete") or is_true(conditions, "Failed")


def is_suspended(job: Raw) -> bool:
    return bool(nested(job, "spec", "suspend"))


def find_end(state: JobState) -> JobEnd | None:
    """How the Job ends now, or was said to end already; None while it goes on."""
    if (decided := _find_decided_end(state.job)) is not None:
        return decided
    spec = state.job["spec"]
    started = time_of(state.job, "status", "startTime")
    deadline = spec.get("activeDeadlineSeconds")
    if state.total("failed") > int(spec.get("backoffLimit", 6)) or _restarts_too_often(state):
        return BACKOFF_LIMIT
    if deadline is not None and started and not is_suspended(state.job) and state.passed(started) >= deadline:
        return DEADLINE
    completions = spec.get("completions")
    wanted = 1 if completions is None else int(completions)
    return COMPLETIONS_REACHED if state.total("succeeded") >= wanted and not state.active else None


def _find_decided_end(job: Raw) -> JobEnd | None:
    """What an interim condition says: the pods from which it followed are being deleted."""
    for one in nested(job, "status", "conditions", default=[]):
        for succeeded, type in ((True, "SuccessCriteriaMet"), (False, "FailureTarget")):
            if one["type"] == type and one["status"] == "True":
                return JobEnd(succeeded, one.get("reason", ""), one.get("message", ""))
    return None


def _restarts_too_often(state: JobState) -> bool:
    """With restartPolicy OnFailure, containers are started again within their pod."""
    limit = int(nested(state.job, "spec", "backoffLimit", default=6))
    restarts = sum(count_restarts(pod) for pod in state.active if restarts_on_failure(pod))
    return restarts > 0 if limit == 0 else restarts >= limit


def plan_job(state: JobState) -> list[JobStep]:
    """The next steps of the Job. What it counts is in its status, see `render_job_status`."""
    if is_deleting(state.job):
        return []
    if is_finished(state.job):
        return _plan_removal(state)
    if (end := find_end(state)) is not None:
        return [DeleteJobPod(pod, end.message) for pod in state.active]
    if is_suspended(state.job):
        return [DeleteJobPod(pod, "the Job is suspended") for pod in state.active]
    return [*_plan_deadline(state), *_plan_pods(state)]


def _plan_removal(state: JobState) -> list[JobStep]:
    seconds = nested(state.job, "spec", "ttlSecondsAfterFinished")
    finished = max(
        (
            found
            for one in nested(state.job, "status", "conditions", default=[])
            if one["type"] in ("Complete", "Failed") and (found := time_of(one, "lastTransitionTime"))
        ),
        default=None,
    )
    if seconds is None or finished is None:
        return []
    if state.passed(finished) >= seconds:
        return [DeleteJob(f"it finished {seconds} s ago")]
    return [WaitUntil(state.due(finished, seconds), "ttlSecondsAfterFinished")]


def _plan_deadline(state: JobState) -> list[JobStep]:
    seconds = nested(state.job, "spec", "activeDeadlineSeconds")
    started = time_of(state.job, "status", "startTime") or state.now
    return [] if seconds is None else [WaitUntil(state.due(started, seconds), "activeDeadlineSeconds")]


def _plan_pods(state: JobState) -> list[JobStep]:
    spec, active, done = state.job["spec"], state.active, state.total("succeeded")
    parallelism = int(spec.get("parallelism", 1))
    if spec.get("completions") is None:
        wanted = len(active) if done else parallelism
    else:
        wanted = max(min(int(spec["completions"]) - done, parallelism), 0)
    because = f"{len(active)} pods are active, {wanted} are wanted"
    if len(active) > wanted:
        return [
            DeleteJobPod(pod, because) for pod in sorted(active, key=_deletion_order)[: len(active) - wanted]
        ]
    if len(active) == wanted:
        return []
    if state.retry_at is not None and state.monotonic < state.retry_at:
        return [WaitUntil(state.retry_at, "back-off after a failed pod")]
    return [CreateJobPods(wanted - len(active), because)]


def _deletion_order(pod: Raw) -> tuple[Any, ...]:
    return nested(pod, "status", "phase") == "Running", is_ready(pod), name_of(pod)


def backoff(failures: int) -> timedelta:
    """How long after the last of so many failures in a row no pod is created."""
    return timedelta(seconds=min(_FIRST_BACKOFF_S * 2.0 ** (min(failures, 16) - 1), _MAX_BACKOFF_S))


def render_job_pod(job: Raw, toleration_s: int) -> Raw:
    raw = render_pod(job, JOB, toleration_s)
    raw["metadata"]["finalizers"] = [TRACKING]
    return raw


def render_job_status(state: JobState, end: JobEnd | None) -> Raw:
    """The status before finalizers are removed: pods that ended are named, and how the Job will end."""
    before = state.job.get("status") or {}
    conditions = list(before.get("conditions") or ())
    started = before.get("startTime") or (None if is_suspended(state.job) else format_time(state.now))
    if end is not None:
        conditions = _add_condition(conditions, end.conditions[0], end, state.now)
    elif is_suspended(state.job) or any(one["type"] == "Suspended" for one in conditions):
        resumed = not is_suspended(state.job) and is_true(conditions, "Suspended")
        started = format_time(state.now) if resumed else started
        conditions = _set_suspended(conditions, state)
    counts = {
        "active": len(state.active),
        "succeeded": before.get("succeeded", 0),
        "failed": before.get("failed", 0),
    }
    made = {
        **{key: count for key, count in counts.items() if count},
        "ready": sum(is_ready(pod) for pod in state.active),
        "terminating": sum(is_deleting(pod) for pod in state.pods),
        "uncountedTerminatedPods": {key: uids for key, uids in state.uncounted.items() if uids},
    }
    made |= {"startTime": started} if started else {}
    return made | ({"conditions": conditions} if conditions else {})


def _set_suspended(conditions: list[Raw], state: JobState) -> list[Raw]:
    is_now = is_suspended(state.job)
    if is_true(conditions, "Suspended") == is_now:
        return conditions
    rest = [one for one in conditions if one["type"] != "Suspended"]
    words = JobEnd(False, *(("JobSuspended", "Job suspended") if is_now else ("JobResumed", "Job resumed")))
    return [*rest, {**_condition("Suspended", words, state.now), "status": str(is_now)}]


def render_counted_status(status: Raw, pods: Sequence[Raw], end: JobEnd | None, now: datetime) -> Raw:
    """The status once finalizers are removed: the pods that were named are counted, and the Job has ended."""
    tracked = {uid_of(pod) for pod in pods if TRACKING in finalizers_of(pod)}
    made, uncounted = dict(status), status["uncountedTerminatedPods"]
    for kind in ("succeeded", "failed"):
        gone = [uid for uid in uncounted.get(kind, ()) if uid not in tracked]
        if gone:
            made[kind] = made.get(kind, 0) + len(gone)
    left = {kind: [uid for uid in uids if uid in tracked] for kind, uids in uncounted.items()}
    made["uncountedTerminatedPods"] = {kind: uids for kind, uids in left.items() if uids}
    if end is None or made["uncountedTerminatedPods"] or made.get("active"):
        return made
    made["conditions"] = _add_condition(made.get("conditions", []), end.conditions[1], end, now)
    return made | ({"completionTime": format_time(now)} if end.succeeded else {})


def _add_condition(conditions: Sequence[Raw], type: str, end: JobEnd, now: datetime) -> list[Raw]:
    if any(one["type"] == type for one in conditions):
        return list(conditions)
    return [*conditions, _condition(type, end, now)]


def _condition(type: str, end: JobEnd, now: datetime) -> Raw:
    at = format_time(now)
    return {
        "type": type,
        "status": "True",
        "lastProbeTime": at,
        "lastTransitionTime": at,
        "reason": end.reason,
        "message": end.message,
    }


# --- controller ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Failures:
    """Failed pods since the last one that succeeded, and when the last one failed."""

    count: int = 0
    last: timedelta = timedelta()


class JobController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._pods = OwnerIndex(context.informers[POD])
        self._tracked = context.informers[POD].add_index(_job_of)
        self._failures: dict[str, _Failures] = {}
        context.informers[POD].add_event_handler(partial(context.enqueue_owner, JOB))

    async def reconcile(self, key: Key) -> None:
        job = self._context.informers[JOB].get(key)
        await self._release_orphans(key, job)
        if job is None or nested(job, "spec", "managedBy") is not None:
            return
        if nested(job, "spec", "completionMode") == "Indexed":
            self._context.guest.log(
                "kube-controller-manager", f"Job {'/'.join(key)}: Indexed is not simulated"
            )
            return
        if is_finished(job):
            self._failures.pop(uid_of(job), None)
        else:
            await self._count(job)
        if (live := self._context.informers[JOB].get(key)) is not None:
            for step in plan_job(self._observe(live)):
                await self._execute(live, step)

    async def _release_orphans(self, key: Key, job: Raw | None) -> None:
        """Pods of a Job that is gone, or being deleted, are not counted any more."""
        for pod_key in sorted(self._tracked.get(key, ())):
            pod = self._context.informers[POD][pod_key]
            owners = {one["uid"] for one in pod["metadata"].get("ownerReferences") or ()}
            if job is None or is_deleting(job) or is_finished(job) or uid_of(job) not in owners:
                await self._context.update(POD, pod, remove_finalizer(TRACKING))

    async def _count(self, job: Raw) -> None:
        """Write the status, release the pods that it names, and write what they count."""
        state = self._observe(job)
        self._note_failures(state)
        end = find_end(state)
        first = render_job_status(state, end)
        await self._context.update_status(JOB, job, first)
        named = {uid for uids in first["uncountedTerminatedPods"].values() for uid in uids}
        for pod in state.pods:
            if uid_of(pod) in named and TRACKING in finalizers_of(pod):
                await self._context.update(POD, pod, remove_finalizer(TRACKING))
        counted = render_counted_status(first, self._pods.owned_by(job), end, self._context.now())
        live = self._context.informers[JOB].get((namespace_of(job), name_of(job)))
        if live is not None:
            await self._context.update_status(JOB, live, counted)

    def _note_failures(self, state: JobState) -> None:
        before = nested(state.job, "status", "uncountedTerminatedPods", default={})
        found = self._failures.setdefault(uid_of(state.job), _Failures())
        fresh = {kind: set(uids) - set(before.get(kind) or ()) for kind, uids in state.uncounted.items()}
        if fresh["succeeded"]:
            found.count = 0
        if fresh["failed"]:
            found.count += len(fresh["failed"])
            found.last = state.monotonic

    async def _execute(self, job: Raw, step: JobStep) -> None:
        context = self._context
        match step:
            case CreateJobPods(count, _):
                for _ in range(count):
                    await context.create(POD, render_job_pod(job, context.toleration_s))
            case DeleteJobPod(pod, _):
                await context.delete(POD, pod)
            case DeleteJob(_):
                await context.delete(JOB, job)
            case WaitUntil(until, _):
                context.queue.add_after((JOB, (namespace_of(job), name_of(job))), until - context.monotonic())

    def _observe(self, job: Raw) -> JobState:
        context = self._context
        scale = context.guest.host.time_scale
        state = JobState(job, self._pods.owned_by(job), context.now(), context.monotonic(), None, scale)
        failures = self._failures.get(uid_of(job))
        if failures is None or not failures.count:
            return state
        return replace(state, retry_at=failures.last + backoff(failures.count) / scale)


def _job_of(pod: Raw) -> list[Key]:
    """The Job that the pod is tracked for."""
    if TRACKING not in finalizers_of(pod):
        return []
    owners = pod["metadata"].get("ownerReferences") or ()
    return [(namespace_of(pod), one["name"]) for one in owners if one["kind"] == JOB.kind]
