"""The EndpointSlice controller: for each Service with a selector, where its pods are."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.emulator.guests.workloads.bench import Bench
from windrow.emulator.guests.workloads.endpoints import (
    DropSlice,
    FillSlice,
    MakeSlice,
    has_selector,
    is_ours,
    plan_pages,
    plan_slices,
    selects,
)
from windrow.emulator.guests.workloads.names import SERVICE_NAME, ZONE
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.emulator.world import Key
from windrow.kubernetes.objects import Raw, labels_of, namespace_of, nested
from windrow.kubernetes.resources import NODE, POD, SERVICE


class EndpointSlices:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._pods_in = bench.sights[POD].index(_by_namespace)
        self._services_in = bench.sights[SERVICE].index(_by_namespace)
        self._slices_of = bench.sights[ENDPOINT_SLICE].index(lambda raw: [_service_of(raw)])
        bench.sights[POD].listen(self._pod_changed)
        bench.sights[ENDPOINT_SLICE].listen(self._slice_changed)

    async def serve(self, key: Key) -> None:
        bench = self._bench
        service = bench.sights[SERVICE].get(key)
        if service is None or not has_selector(service):
            return  # slices go with their Service, and those of others are others'
        pods = [bench.sights[POD][one] for one in self._pods_in.get((key[0], ""), ())]
        own = [pod for pod in pods if selects(service, pod)]
        slices = [bench.sights[ENDPOINT_SLICE][one] for one in sorted(self._slices_of.get(key, ()))]
        pages = plan_pages(service, own, self._zones_of(own))
        for step in plan_slices(service, pages, [one for one in slices if is_ours(one)]):
            match step:
                case MakeSlice(raw, _):
                    await bench.make(ENDPOINT_SLICE, raw)
                case FillSlice(slice_, content, _):
                    await bench.change(ENDPOINT_SLICE, slice_, lambda raw, new=content: raw.update(new))  # type: ignore[misc]
                case DropSlice(slice_, _):
                    await bench.end(ENDPOINT_SLICE, slice_)

    def _zones_of(self, pods: Iterable[Raw]) -> dict[str, str]:
        """The zone of each node that one of the pods is on."""
        nodes = self._bench.sights[NODE]
        hosts = {nested(pod, "spec", "nodeName", default="") for pod in pods}
        return {
            host: labels_of(node).get(ZONE, "")
            for host in hosts
            if (node := nodes.get(("", host))) is not None
        }

    def _pod_changed(self, pod: Raw) -> None:
        for key in self._services_in.get((namespace_of(pod), ""), ()):
            if selects(self._bench.sights[SERVICE][key], pod):
                self._bench.line.add(SERVICE, key)

    def _slice_changed(self, slice_: Raw) -> None:
        if is_ours(slice_):
            self._bench.line.add(SERVICE, _service_of(slice_))


def _service_of(slice_: Raw) -> Key:
    return namespace_of(slice_), labels_of(slice_).get(SERVICE_NAME, "")


def _by_namespace(raw: Raw) -> list[Key]:
    return [(namespace_of(raw), "")]
