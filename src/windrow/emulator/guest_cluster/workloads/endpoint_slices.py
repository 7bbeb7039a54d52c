"""The EndpointSlice controller: for each Service with a selector, where its pods are."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.emulator.guest_cluster.workloads.context import ControllerContext
from windrow.emulator.guest_cluster.workloads.names import SERVICE_NAME, ZONE
from windrow.emulator.guest_cluster.workloads.slice_contents import (
    CreateSlice,
    DeleteSlice,
    UpdateSlice,
    has_selector,
    is_managed_here,
    plan_contents,
    plan_slices,
    selects,
)
from windrow.emulator.kit.listers import Key
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.kubernetes.objects import Raw, labels_of, namespace_of, nested
from windrow.kubernetes.resources import NODE, POD, SERVICE


class EndpointSliceController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._pods_in = context.informers[POD].add_index(_index_by_namespace)
        self._services_in = context.informers[SERVICE].add_index(_index_by_namespace)
        self._slices_of = context.informers[ENDPOINT_SLICE].add_index(lambda raw: [_service_of(raw)])
        context.informers[POD].add_event_handler(self._on_pod)
        context.informers[ENDPOINT_SLICE].add_event_handler(self._on_slice)

    async def reconcile(self, key: Key) -> None:
        context = self._context
        service = context.informers[SERVICE].get(key)
        if service is None or not has_selector(service):
            return  # slices go with their Service, and those of others are others'
        pods = [context.informers[POD][one] for one in self._pods_in.get((key[0], ""), ())]
        own = [pod for pod in pods if selects(service, pod)]
        slices = [context.informers[ENDPOINT_SLICE][one] for one in sorted(self._slices_of.get(key, ()))]
        pages = plan_contents(service, own, self._zones_of(own))
        for step in plan_slices(service, pages, [one for one in slices if is_managed_here(one)]):
            match step:
                case CreateSlice(raw, _):
                    await context.create(ENDPOINT_SLICE, raw)
                case UpdateSlice(slice_, content, _):
                    await context.update(ENDPOINT_SLICE, slice_, lambda raw, new=content: raw.update(new))  # type: ignore[misc]
                case DeleteSlice(slice_, _):
                    await context.delete(ENDPOINT_SLICE, slice_)

    def _zones_of(self, pods: Iterable[Raw]) -> dict[str, str]:
        """The zone of each node that one of the pods is on."""
        nodes = self._context.informers[NODE]
        hosts = {nested(pod, "spec", "nodeName", default="") for pod in pods}
        return {
            host: labels_of(node).get(ZONE, "")
            for host in hosts
            if (node := nodes.get(("", host))) is not None
        }

    def _on_pod(self, pod: Raw) -> None:
        for key in self._services_in.get((namespace_of(pod), ""), ()):
            if selects(self._context.informers[SERVICE][key], pod):
                self._context.queue.add(SERVICE, key)

    def _on_slice(self, slice_: Raw) -> None:
        if is_managed_here(slice_):
            self._context.queue.add(SERVICE, _service_of(slice_))


def _service_of(slice_: Raw) -> Key:
    return namespace_of(slice_), labels_of(slice_).get(SERVICE_NAME, "")


def _index_by_namespace(raw: Raw) -> list[Key]:
    return [(namespace_of(raw), "")]
