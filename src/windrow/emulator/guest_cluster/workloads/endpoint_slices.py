"""EndpointSlices of Services with a selector: contents, plan and controller."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.emulator import names
from windrow.emulator.guest_cluster.workloads.context import ControllerContext
from windrow.emulator.guest_cluster.workloads.pod_lifecycle import is_final, is_ready
from windrow.emulator.kit.listers import Key
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE, SERVICE_NAME, service_of
from windrow.kubernetes.objects import (
    Raw,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
    new_object,
    owner_reference,
    uid_of,
)
from windrow.kubernetes.resources import NODE, POD, SERVICE

SLICE_MANAGER = "endpointslice.kubernetes.io/managed-by"
SLICE_CONTROLLER = "endpointslice-controller.k8s.io"
MAX_ENDPOINTS = 100  # endpoints of one slice
Ports = tuple[tuple[str, str, int], ...]  # name, protocol, number


def has_selector(service: Raw) -> bool:
    return bool(nested(service, "spec", "selector")) and nested(service, "spec", "type") != "ExternalName"


def selects(service: Raw, pod: Raw) -> bool:
    wanted: Mapping[str, str] = nested(service, "spec", "selector", default={})
    return bool(wanted) and wanted.items() <= labels_of(pod).items()


def plan_contents(service: Raw, pods: Iterable[Raw], zones: Mapping[str, str]) -> list[Raw]:
    """Ports and endpoints of all slices of the Service: pods that have an address, grouped by equal ports."""
    by_ports: dict[Ports, list[Raw]] = defaultdict(list)
    for pod in sorted(pods, key=name_of):
        if nested(pod, "status", "podIP") and not is_final(pod):
            by_ports[_ports(service, pod)].append(render_endpoint(service, pod, zones))
    return [
        {
            "ports": [{"name": name, "protocol": kind, "port": number} for name, kind, number in ports],
            "endpoints": endpoints[start : start + MAX_ENDPOINTS],
        }
        for ports, endpoints in sorted(by_ports.items())
        for start in range(0, len(endpoints), MAX_ENDPOINTS)
    ] or [{"ports": [], "endpoints": []}]


def render_endpoint(service: Raw, pod: Raw, zones: Mapping[str, str]) -> Raw:
    serving, terminating = is_ready(pod), is_deleting(pod)
    always = bool(nested(service, "spec", "publishNotReadyAddresses"))
    node = nested(pod, "spec", "nodeName", default="")
    made: Raw = {
        "addresses": [nested(pod, "status", "podIP")],
        "conditions": {
            "ready": always or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "nodeName": node,
        "targetRef": {
            "kind": "Pod",
            "namespace": namespace_of(pod),
            "name": name_of(pod),
            "uid": uid_of(pod),
        },
    }
    if zones.get(node):
        made["zone"] = zones[node]
    return made


def _ports(service: Raw, pod: Raw) -> Ports:
    """The ports that the pod has for the Service; a named port that the pod lacks is left out."""
    named = {
        (one.get("name"), one.get("protocol", "TCP")): int(one["containerPort"])
        for container in nested(pod, "spec", "containers", default=[])
        for one in container.get("ports") or ()
    }
    found = []
    for port in nested(service, "spec", "ports", default=[]):
        kind, target = port.get("protocol", "TCP"), port.get("targetPort", port["port"])
        number = target if isinstance(target, int) else named.get((target, kind))
        if number:
            found.append((port.get("name") or "", kind, number))
    return tuple(found)


# --- steps ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateSlice:
    raw: Raw
    because: str = "pods have no slice yet"


@dataclass(frozen=True, slots=True)
class UpdateSlice:
    slice: Raw
    content: Raw
    because: str = "the pods have changed"


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    slice: Raw
    because: str = "nothing is left for it to hold"


SliceStep = CreateSlice | UpdateSlice | DeleteSlice


def is_managed_here(slice_: Raw) -> bool:
    return labels_of(slice_).get(SLICE_MANAGER) == SLICE_CONTROLLER


def plan_slices(service: Raw, contents: Iterable[Raw], slices: Sequence[Raw]) -> list[SliceStep]:
    """Steps that bring the Service's own slices to `contents`, each to the slice with the same ports if there is one."""
    left = list(slices)
    steps: list[SliceStep] = []
    for content in contents:
        same = next((one for one in left if (one.get("ports") or []) == content["ports"]), None)
        found = same or next(iter(left), None)
        if found is None:
            steps.append(CreateSlice(_render_slice(service, content)))
            continue
        left.remove(found)
        if any((found.get(key) or []) != value for key, value in content.items()):
            steps.append(UpdateSlice(found, content))
    return [*steps, *(DeleteSlice(one) for one in left)]


def _render_slice(service: Raw, content: Mapping[str, Any]) -> Raw:
    labels = {**labels_of(service), SERVICE_NAME: name_of(service), SLICE_MANAGER: SLICE_CONTROLLER}
    raw = new_object(
        ENDPOINT_SLICE,
        "",
        namespace_of(service),
        labels=labels,
        owners=[owner_reference(SERVICE, service, controller=True, block=True)],
        addressType="IPv4",
        **content,
    )
    del raw["metadata"]["name"]
    raw["metadata"]["generateName"] = f"{name_of(service)}-"
    return raw


class EndpointSliceController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._pods_in = context.informers[POD].add_index(_index_by_namespace)
        self._services_in = context.informers[SERVICE].add_index(_index_by_namespace)
        self._slices_of = context.informers[ENDPOINT_SLICE].add_index(lambda raw: [service_of(raw)])
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
            host: labels_of(node).get(names.ZONE, "")
            for host in hosts
            if (node := nodes.get(("", host))) is not None
        }

    def _on_pod(self, pod: Raw) -> None:
        for key in self._services_in.get((namespace_of(pod), ""), ()):
            if selects(self._context.informers[SERVICE][key], pod):
                self._context.queue.add((SERVICE, key))

    def _on_slice(self, slice_: Raw) -> None:
        if is_managed_here(slice_):
            self._context.queue.add((SERVICE, service_of(slice_)))


def _index_by_namespace(raw: Raw) -> list[Key]:
    return [(namespace_of(raw), "")]
