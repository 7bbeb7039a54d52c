"""The ReplicaSet controller: as many pods as are wanted."""

from __future__ import annotations

from functools import partial

from windrow.emulator.guest_cluster.workloads.context import ControllerContext
from windrow.emulator.guest_cluster.workloads.mutation_cache import OwnerIndex
from windrow.emulator.guest_cluster.workloads.replicas import (
    CreatePods,
    DeleteExcessPod,
    plan_replica_set,
    render_replica_set_status,
)
from windrow.emulator.guest_cluster.workloads.templates import render_pod
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.objects import is_deleting
from windrow.kubernetes.resources import POD, REPLICA_SET


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
                        await context.create(POD, render_pod(replica_set, int(context.guest.delays.eviction)))
                case DeleteExcessPod(pod, _):
                    await context.delete(POD, pod)
        status = render_replica_set_status(replica_set, self._pods.owned_by(replica_set))
        await context.update_status(REPLICA_SET, replica_set, status)
