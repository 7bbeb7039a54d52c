"""ReplicaSets: plan, status and controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from windrow.emulator.guest_cluster.workloads.context import ControllerContext, OwnerIndex
from windrow.emulator.guest_cluster.workloads.pod_lifecycle import is_active, is_ready
from windrow.emulator.guest_cluster.workloads.templates import render_pod
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested
from windrow.kubernetes.resources import POD, REPLICA_SET


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


class ReplicaSetController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._pods = OwnerIndex(context.informers[POD])
        context.informers[POD].add_event_handler(partial(context.enqueue_owner, REPLICA_SET))

    async def reconcile(self, key: Key) -> None:
        context = self._context
        replica_set = context.informers[REPLICA_SET].get(key)
        if replica_set is None or is_deleting(replica_set):
            return
        for step in plan_replica_set(replica_set, self._pods.owned_by(replica_set)):
            match step:
                case CreatePods(count, _):
                    for _ in range(count):
                        await context.create(POD, render_pod(replica_set, REPLICA_SET, context.toleration_s))
                case DeleteExcessPod(pod, _):
                    await context.delete(POD, pod)
        status = render_replica_set_status(replica_set, self._pods.owned_by(replica_set))
        await context.update_status(REPLICA_SET, replica_set, status)
