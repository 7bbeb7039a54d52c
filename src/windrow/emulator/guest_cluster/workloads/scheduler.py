"""The scheduler: binds a pod to its node, or writes its condition PodScheduled."""

from __future__ import annotations

from windrow.core.clock import format_time
from windrow.emulator.guest_cluster.workloads.context import ControllerContext
from windrow.emulator.guest_cluster.workloads.placement import find_node
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.errors import NotFound, error_for
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import NODE, POD, ref_of


class Scheduler:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    async def schedule(self, pod: Raw) -> None:
        informers = self._context.informers
        place = find_node(pod, list(informers[NODE].values()), informers[POD].values())
        if place.node:
            await self._bind(pod, place.node)
        else:
            await self._report_unschedulable(pod, place.message)

    async def _bind(self, pod: Raw, node: str) -> None:
        body = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": node}}
        ref = ref_of(POD, pod)
        local = self._context.client()
        error = error_for(await local.send(requests.create_subresource(ref, "binding", body)))
        if error is not None and not isinstance(error, NotFound):
            raise error
        self._context.mutated(POD, await local.find(ref))

    async def _report_unschedulable(self, pod: Raw, why_not: str) -> None:
        conditions = nested(pod, "status", "conditions", default=[])
        before = find_condition(conditions, "PodScheduled")
        if before is not None and before.message == why_not:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": format_time(self._context.now()),
            "reason": "Unschedulable",
            "message": why_not,
        }
        rest = [one for one in conditions if one["type"] != "PodScheduled"]
        status = {**(pod.get("status") or {}), "conditions": [*rest, condition]}
        await self._context.update_status(POD, pod, status)
