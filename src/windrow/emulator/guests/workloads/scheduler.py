"""The scheduler: binds a pod to its node, or says on the pod why there is none."""

from __future__ import annotations

from windrow.core.clock import format_time
from windrow.emulator.guests.workloads.bench import Bench
from windrow.emulator.guests.workloads.placing import find_place
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.errors import NotFound, error_for
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import NODE, POD, ref_of


class Scheduler:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def place(self, pod: Raw) -> None:
        sights = self._bench.sights
        place = find_place(pod, list(sights[NODE].values()), sights[POD].values())
        if place.node:
            await self._bind(pod, place.node)
        else:
            await self._say(pod, place.why_not)

    async def _bind(self, pod: Raw, node: str) -> None:
        body = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": node}}
        ref = ref_of(POD, pod)
        local = self._bench.local()
        error = error_for(await local.send(requests.create_subresource(ref, "binding", body)))
        if error is not None and not isinstance(error, NotFound):
            raise error
        self._bench.learn(POD, await local.find(ref))

    async def _say(self, pod: Raw, why_not: str) -> None:
        conditions = nested(pod, "status", "conditions", default=[])
        said = find_condition(conditions, "PodScheduled")
        if said is not None and said.message == why_not:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": format_time(self._bench.now()),
            "reason": "Unschedulable",
            "message": why_not,
        }
        rest = [one for one in conditions if one["type"] != "PodScheduled"]
        status = {**(pod.get("status") or {}), "conditions": [*rest, condition]}
        await self._bench.show(POD, pod, status)
