"""What the guest shows of a machine that is changed in place: the Job, its pod, and the static pods of the Node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from windrow.bootstrap.install.update_job import MACHINE_LABEL
from windrow.clusters.api.names import MIRROR_POD
from windrow.core.text import one_line
from windrow.kubernetes.objects import annotations_of, is_deleting, labels_of, name_of, nested, objects_at

# Waiting reasons of a container whose image is not to be had.
IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
MAX_MESSAGE, MAX_LINES = 500, 4
_TIMES = re.compile(r"\d\d:\d\d:\d\d[.,\dZ+:]*")
JOB_NAME = "batch.kubernetes.io/job-name"
_OLD_JOB_NAME = "job-name"  # before Kubernetes 1.27
# Images of static pods that have the version of Kubernetes as their tag.
_KUBERNETES_IMAGES = ("hardened-kubernetes", "kube-apiserver", "kube-controller-manager", "kube-scheduler")

JobState = Literal["absent", "waiting", "running", "succeeded", "failed"]


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """A Job of an update. waiting: its pod does not run yet, perhaps for the reason `message`; failed: `message` has the last
    lines of its output."""

    name: str
    state: JobState
    message: str = ""
    is_image_missing: bool = False


@dataclass(frozen=True, slots=True)
class UpdatePod:
    """The pod of a Job of ours."""

    job: str
    state: JobState
    message: str = ""
    is_image_missing: bool = False
    machine_uid: str = ""
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class UpdateJobObject:
    """A Job of ours; `failed` says that it creates no pod any more."""

    name: str
    failed: bool
    message: str
    machine_uid: str = ""
    resource_version: str = field(default="", compare=False)


def read_update_job(raw: Mapping[str, Any]) -> UpdateJobObject | None:
    if is_deleting(raw):
        return None
    failed = next(
        (
            one
            for one in objects_at(raw, "status", "conditions")
            if one.get("type") == "Failed" and one.get("status") == "True"
        ),
        None,
    )
    version = str(nested(raw, "metadata", "resourceVersion", default=""))
    message = one_line(str((failed or {}).get("message") or ""), MAX_MESSAGE)
    return UpdateJobObject(name_of(raw), failed is not None, message, _machine_of(raw), version)


def _machine_of(raw: Mapping[str, Any]) -> str:
    return str(labels_of(raw).get(MACHINE_LABEL) or "")


def read_update_pod(raw: Mapping[str, Any]) -> UpdatePod | None:
    labels, machine = labels_of(raw), _machine_of(raw)
    job = labels.get(JOB_NAME) or labels.get(_OLD_JOB_NAME) or ""
    if not job:
        return None
    phase = nested(raw, "status", "phase", default="")
    container = next(iter(objects_at(raw, "status", "containerStatuses")), {})
    waiting = nested(container, "state", "waiting", default={})
    ended = nested(container, "state", "terminated", default={})
    version = str(nested(raw, "metadata", "resourceVersion", default=""))
    match phase:
        case "Succeeded":
            return UpdatePod(job, "succeeded", machine_uid=machine, resource_version=version)
        case "Failed":
            told = str(ended.get("message") or nested(raw, "status", "message", default="") or "")
            code = ended.get("exitCode")
            message = _last_lines(told) or (f"exit code {code}" if code is not None else "its pod has failed")
            return UpdatePod(job, "failed", message, machine_uid=machine, resource_version=version)
        case "Running":
            return UpdatePod(job, "running", machine_uid=machine, resource_version=version)
    reason = str(waiting.get("reason") or "")
    told = ": ".join(filter(None, (reason, str(waiting.get("message") or ""))))
    message = one_line(told[:MAX_MESSAGE], MAX_MESSAGE)
    return UpdatePod(job, "waiting", message, reason in IMAGE_REASONS, machine, version)


def _last_lines(text: str) -> str:
    """The end of a program's output, in one line: as many whole lines as fit."""
    lines = [one_line(line[:MAX_MESSAGE]) for line in text.splitlines() if line.strip()]
    kept: list[str] = []
    for line in reversed(_without_repeated(lines[-MAX_LINES:])):
        if kept and len(line) + sum(map(len, kept)) > MAX_MESSAGE:
            break
        kept.insert(0, line)
    return " | ".join(kept)


def _without_repeated(lines: Sequence[str]) -> list[str]:
    """The lines without those that follow again, but for their times: what is tried again fails with the same words."""
    last = {_TIMES.sub("", line): place for place, line in enumerate(lines)}
    return [lines[place] for place in sorted(last.values())]


def observe_job(name: str, job: UpdateJobObject | None, pods: Iterable[UpdatePod]) -> ObservedJob:
    """The Job `name` by its object and its pods; the pod of a Job with one attempt is all that counts."""
    pod = next((one for one in pods if one.job == name), None)
    if pod is not None and (job is not None or pod.state in ("succeeded", "failed")):
        return ObservedJob(name, pod.state, pod.message, pod.is_image_missing)
    if job is None:
        return ObservedJob(name, "absent")
    if job.failed:
        return ObservedJob(name, "failed", job.message or "the Job has failed")
    return ObservedJob(name, "waiting")


def list_former_jobs(
    machine_uid: str, present: str, jobs: Iterable[UpdateJobObject], pods: Sequence[UpdatePod]
) -> tuple[ObservedJob, ...]:
    """The Jobs of the machine but for `present`, also those of which only a pod is left ("absent" unless that runs)."""
    of_machine = {one.name: one for one in jobs if one.machine_uid == machine_uid}
    left = [one.job for one in pods if one.machine_uid == machine_uid]
    names = sorted({*of_machine, *left} - {present})
    return tuple(_observe_former(name, of_machine.get(name), pods) for name in names)


def _observe_former(name: str, job: UpdateJobObject | None, pods: Sequence[UpdatePod]) -> ObservedJob:
    if any(one.job == name and one.state == "running" for one in pods):
        return ObservedJob(name, "running")
    return observe_job(name, job, pods)


def list_outdated_static_pods(pods: Iterable[Mapping[str, Any]], version: str) -> tuple[str, ...]:
    """The static pods of Kubernetes itself whose image is of another release than `version`; K3s has none."""
    tag = version.partition("+")[0]
    outdated = []
    for raw in pods:
        if MIRROR_POD not in annotations_of(raw):
            continue
        for container in objects_at(raw, "spec", "containers"):
            path, _, found = str(container.get("image") or "").rpartition(":")
            is_kubernetes = path.rpartition("/")[2] in _KUBERNETES_IMAGES
            if is_kubernetes and not (found == tag or found.startswith(f"{tag}-")):
                outdated.append(name_of(raw))
    return tuple(sorted(set(outdated)))
