"""Deployments: plan, status and controller."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from windrow.emulator.guest_cluster.workloads.context import ControllerContext, OwnerIndex
from windrow.emulator.guest_cluster.workloads.replica_counts import resolve_count
from windrow.emulator.guest_cluster.workloads.templates import (
    is_of_template,
    render_replica_set,
    selector_matches_template,
)
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting, name_of, nested
from windrow.kubernetes.resources import DEPLOYMENT, REPLICA_SET

REVISION = "deployment.kubernetes.io/revision"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"


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
        headroom = wanted + bounds.max_surge - sum(_desired(one) for one in old)
        because = f"{name_of(deployment)} has a new template"
        return [
            *steps,
            CreateReplicaSet(
                max(min(wanted, headroom), 0), {**annotations, REVISION: str(revision)}, because
            ),
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
        surge = resolve_count(rolling.get("maxSurge", "25%"), wanted, math.ceil)
        below = resolve_count(rolling.get("maxUnavailable", "25%"), wanted, math.floor)
        return _Bounds(surge, below if surge or below else 1)


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
    headroom = wanted + bounds.max_surge - sum(_desired(one) for one in old)
    count = wanted if have > wanted else max(min(wanted, headroom), have)
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
    available_for, text = ("Available", "has") if enough else ("Unavailable", "does not have")
    progress, phrase = (
        ("NewReplicaSetAvailable", "has successfully progressed")
        if is_done
        else ("ReplicaSetUpdated", "is progressing")
    )
    return [
        Condition(
            "Available",
            "True" if enough else "False",
            f"MinimumReplicas{available_for}",
            f"Deployment {text} minimum availability.",
        ),
        Condition("Progressing", "True", progress, f'ReplicaSet "{name}" {phrase}.'),
    ]


class DeploymentController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._replica_sets = OwnerIndex(context.informers[REPLICA_SET])
        context.informers[REPLICA_SET].add_event_handler(partial(context.enqueue_owner, DEPLOYMENT))

    async def reconcile(self, key: Key) -> None:
        context = self._context
        deployment = context.informers[DEPLOYMENT].get(key)
        if deployment is None or is_deleting(deployment) or not selector_matches_template(deployment):
            return
        for step in plan_deployment(deployment, self._replica_sets.owned_by(deployment)):
            match step:
                case CreateReplicaSet(replicas, annotations, _):
                    await context.create(REPLICA_SET, render_replica_set(deployment, replicas, annotations))
                case ScaleReplicaSet(replica_set, replicas, annotations, _):
                    await context.update(REPLICA_SET, replica_set, partial(_scale, replicas, annotations))
                case AnnotateDeployment(annotations, _):
                    await context.update(DEPLOYMENT, deployment, partial(_annotate, annotations))
                case DeleteReplicaSet(replica_set, _):
                    await context.delete(REPLICA_SET, replica_set)
        status = render_deployment_status(deployment, self._replica_sets.owned_by(deployment), context.now())
        await context.update_status(DEPLOYMENT, deployment, status)


def _scale(replicas: int, annotations: Mapping[str, str], raw: Raw) -> None:
    raw["spec"]["replicas"] = replicas
    _annotate(annotations, raw)


def _annotate(annotations: Mapping[str, str], raw: Raw) -> None:
    raw["metadata"]["annotations"] = {**annotations_of(raw), **annotations}
