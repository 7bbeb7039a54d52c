"""The Deployment controller: ReplicaSets for a template, old ones and new ones in step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from windrow.emulator.guest_cluster.workloads.context import ControllerContext
from windrow.emulator.guest_cluster.workloads.mutation_cache import OwnerIndex
from windrow.emulator.guest_cluster.workloads.replicas import (
    AnnotateDeployment,
    CreateReplicaSet,
    DeleteReplicaSet,
    ScaleReplicaSet,
    plan_deployment,
    render_deployment_status,
)
from windrow.emulator.guest_cluster.workloads.templates import render_replica_set, selector_matches_template
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting
from windrow.kubernetes.resources import DEPLOYMENT, REPLICA_SET


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
                case CreateReplicaSet(replicas, marks, _):
                    await context.create(REPLICA_SET, render_replica_set(deployment, replicas, marks))
                case ScaleReplicaSet(replica_set, replicas, marks, _):
                    await context.update(REPLICA_SET, replica_set, partial(_scale, replicas, marks))
                case AnnotateDeployment(marks, _):
                    await context.update(DEPLOYMENT, deployment, partial(_annotate, marks))
                case DeleteReplicaSet(replica_set, _):
                    await context.delete(REPLICA_SET, replica_set)
        status = render_deployment_status(deployment, self._replica_sets.owned_by(deployment), context.now())
        await context.update_status(DEPLOYMENT, deployment, status)


def _scale(replicas: int, annotations: Mapping[str, str], raw: Raw) -> None:
    raw["spec"]["replicas"] = replicas
    _annotate(annotations, raw)


def _annotate(annotations: Mapping[str, str], raw: Raw) -> None:
    raw["metadata"]["annotations"] = {**annotations_of(raw), **annotations}
