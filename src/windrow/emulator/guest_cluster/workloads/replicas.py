"""Plans and statuses of ReplicaSets and Deployments. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windrow.emulator.guest_cluster.workloads.names import DESIRED_REPLICAS, MAX_REPLICAS, REVISION
from windrow.emulator.guest_cluster.workloads.pod_readings import is_active, is_ready
from windrow.emulator.guest_cluster.workloads.templates import is_of_template
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting, name_of, nested

# --- ReplicaSets ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreatePods:
    count: int
    because: str


@dataclass(frozen=True, slots=True)
class DeleteExcessPod:
    pod: Raw
    because: str


def plan_replica_set(replica_set: Raw, pods: Sequence[Raw]) -> list[CreatePods | DeleteExcessPod]:
    """Steps that bring the ReplicaSet to its replicas. `pods` are all of its own."""
    if is_deleting(replica_set):
        return []
    active = [pod for pod in pods if is_active(pod)]
    wanted = nested(replica_set, "spec", "replicas", default=1)
    because = f"{len(active)} of {name_of(replica_set)} are there, {wanted} are wanted"
    if len(active) < wanted:
        return [CreatePods(wanted - len(active), because)]
    return [
        DeleteExcessPod(pod, because) for pod in sorted(active, key=_deletion_order)[: len(active) - wanted]
    ]


def _deletion_order(pod: Raw) -> tuple[Any, ...]:
    """Order of deletion: unscheduled, not running, not Ready, youngest."""
    return (
        bool(nested(pod, "spec", "nodeName")),
        nested(pod, "status", "phase") == "Running",
        is_ready(pod),
        [-ord(sign) for sign in pod["metadata"]["creationTimestamp"]],
        name_of(pod),
    )


def render_replica_set_status(replica_set: Raw, pods: Sequence[Raw]) -> Raw:
    active = [pod for pod in pods if is_active(pod)]
    ready = sum(is_ready(pod) for pod in active)
    counts = {
        "fullyLabeledReplicas": len(active),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "terminatingReplicas": sum(is_deleting(pod) for pod in pods),
    }
    return {
        "observedGeneration": replica_set["metadata"].get("generation", 1),
        "replicas": len(active),
        **{name: count for name, count in counts.items() if count},
    }


# --- Deployments ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateReplicaSet:
    replicas: int
    annotations: Mapping[str, str]  # its annotations
    because: str


@dataclass(frozen=True, slots=True)
class ScaleReplicaSet:
    """Other replicas, other annotations, or both."""

    replica_set: Raw
    replicas: int
    annotations: Mapping[str, str]
    because: str


@dataclass(frozen=True, slots=True)
class AnnotateDeployment:
    """Write the Deployment's revision."""

    annotations: Mapping[str, str]
    because: str


@dataclass(frozen=True, slots=True)
class DeleteReplicaSet:
    replica_set: Raw
    because: str


DeploymentStep = CreateReplicaSet | ScaleReplicaSet | AnnotateDeployment | DeleteReplicaSet


def plan_deployment(deployment: Raw, sets: Sequence[Raw]) -> list[DeploymentStep]:
    """The next steps of the Deployment. `sets` are its own ReplicaSets."""
    if is_deleting(deployment) or nested(deployment, "spec", "paused"):
        return []
    wanted = int(nested(deployment, "spec", "replicas", default=1))
    current = next((one for one in sets if is_of_template(one, deployment)), None)
    old = [one for one in sets if one is not current]
    bounds = _Bounds.read(deployment, wanted)
    revision = _next_revision(current, old)
    annotations = {DESIRED_REPLICAS: str(wanted), MAX_REPLICAS: str(wanted + bounds.max_surge)}
    steps = _annotate_revision(deployment, revision)
    if current is None:
        if bounds.is_recreate and any(_observed(one) for one in old):
            return _scale_down_all(
                old, annotations, "strategy Recreate: old pods are deleted before new ones are created"
            )
        room = wanted + bounds.max_surge - sum(_desired(one) for one in old)
        because = f"{name_of(deployment)} has a new template"
        return [
            *steps,
            CreateReplicaSet(max(min(wanted, room), 0), {**annotations, REVISION: str(revision)}, because),
        ]
    return [
        *steps,
        *_scale_up(current, old, wanted, bounds, {**annotations, REVISION: str(revision)}),
        *_scale_down(current, old, wanted, bounds, annotations),
        *_prune_history(deployment, old),
    ]


def _next_revision(current: Raw | None, old: Sequence[Raw]) -> int:
    """The revision of the current template; the highest plus one where the template is new or was used before."""
    before = max((_revision(one) for one in old), default=0)
    return max(_revision(current), before + 1) if current is not None else before + 1


def _annotate_revision(deployment: Raw, revision: int) -> list[DeploymentStep]:
    annotations = {REVISION: str(revision)}
    if annotations.items() <= annotations_of(deployment).items():
        return []
    return [AnnotateDeployment(annotations, f"it is at its revision {revision}")]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """maxSurge and maxUnavailable of a rollout, as numbers of pods."""

    max_surge: int
    max_unavailable: int
    is_recreate: bool = False

    @staticmethod
    def read(deployment: Raw, wanted: int) -> _Bounds:
        strategy = nested(deployment, "spec", "strategy", default={})
        if strategy.get("type") == "Recreate":
            return _Bounds(0, wanted, is_recreate=True)
        rolling = strategy.get("rollingUpdate") or {}
        surge = _resolve_count(rolling.get("maxSurge", "25%"), wanted, math.ceil)
        below = _resolve_count(rolling.get("maxUnavailable", "25%"), wanted, math.floor)
        return _Bounds(surge, below if surge or below else 1)


def _resolve_count(text_or_number: Any, of: int, rounded: Any) -> int:
    text = str(text_or_number)
    if text.endswith("%") and text[:-1].isdigit():
        return int(rounded(int(text[:-1]) * of / 100))
    return int(text) if text.isdigit() else 0


def _desired(one: Raw) -> int:
    return int(nested(one, "spec", "replicas", default=0))


def _observed(one: Raw) -> int:
    return int(nested(one, "status", "replicas", default=0))


def _available(one: Raw) -> int:
    return int(nested(one, "status", "availableReplicas", default=0))


def _revision(one: Raw) -> int:
    text = annotations_of(one).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _scale_up(
    current: Raw, old: Sequence[Raw], wanted: int, bounds: _Bounds, annotations: Mapping[str, str]
) -> list[DeploymentStep]:
    have = _desired(current)
    room = wanted + bounds.max_surge - sum(_desired(one) for one in old)
    count = wanted if have > wanted else max(min(wanted, room), have)
    if bounds.is_recreate and any(_observed(one) for one in old):
        count = min(have, wanted)
    if count == have and annotations.items() <= annotations_of(current).items():
        return []
    return [ScaleReplicaSet(current, count, annotations, f"{wanted} are wanted")]


def _scale_down(
    current: Raw, old: Sequence[Raw], wanted: int, bounds: _Bounds, annotations: Mapping[str, str]
) -> list[DeploymentStep]:
    """Old pods are deleted as far as availability allows; unavailable ones in any case."""
    steps: list[DeploymentStep] = []
    spare = _available(current) + sum(_available(one) for one in old) - (wanted - bounds.max_unavailable)
    for one in old:
        if not _desired(one):
            continue
        idle = max(_desired(one) - _available(one), 0)
        going = min(_desired(one), idle + max(min(spare, _available(one)), 0))
        spare -= max(going - idle, 0)
        if going:
            because = "pods of the new template replace them"
            steps.append(ScaleReplicaSet(one, _desired(one) - going, annotations, because))
    return steps


def _scale_down_all(old: Sequence[Raw], annotations: Mapping[str, str], because: str) -> list[DeploymentStep]:
    return [ScaleReplicaSet(one, 0, annotations, because) for one in old if _desired(one)]


def _prune_history(deployment: Raw, old: Sequence[Raw]) -> list[DeploymentStep]:
    """Empty ReplicaSets are kept for a rollback, the last ten of them by default."""
    kept = int(nested(deployment, "spec", "revisionHistoryLimit", default=10))
    empty = sorted((one for one in old if not _desired(one) and not _observed(one)), key=_revision)
    return [DeleteReplicaSet(one, f"{kept} old ones are kept") for one in empty[: max(len(empty) - kept, 0)]]


def render_deployment_status(deployment: Raw, sets: Sequence[Raw], now: datetime) -> Raw:
    wanted = int(nested(deployment, "spec", "replicas", default=1))
    current = [one for one in sets if is_of_template(one, deployment)]
    observed, available = sum(map(_observed, sets)), sum(map(_available, sets))
    updated = sum(map(_observed, current))
    counts = {
        "replicas": observed,
        "updatedReplicas": updated,
        "readyReplicas": sum(int(nested(one, "status", "readyReplicas", default=0)) for one in sets),
        "availableReplicas": available,
        "unavailableReplicas": max(wanted - available, 0),
    }
    conditions = nested(deployment, "status", "conditions", default=[])
    for condition in _conditions(deployment, wanted, available, observed, updated, current):
        conditions = set_condition(conditions, condition, now)
    return {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        **{name: count for name, count in counts.items() if count},
        "conditions": conditions,
    }


def _conditions(
    deployment: Raw, wanted: int, available: int, observed: int, updated: int, current: Sequence[Raw]
) -> list[Condition]:
    enough = available >= wanted - _Bounds.read(deployment, wanted).max_unavailable
    name = name_of(current[0]) if current else ""
    is_done = bool(current) and updated == wanted == available == observed
    minimum = (
        Condition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        if enough
        else Condition(
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    )
    progress = (
        Condition(
            "Progressing",
            "True",
            "NewReplicaSetAvailable",
            f'ReplicaSet "{name}" has successfully progressed.',
        )
        if is_done
        else Condition("Progressing", "True", "ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.')
    )
    return [minimum, progress]
