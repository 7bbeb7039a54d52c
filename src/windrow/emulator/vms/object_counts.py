"""What an object counts for in a ResourceQuota: one of its kind, a Service by its type too."""

from __future__ import annotations

from typing import Any

from windrow.core.formats.quantity import Quantity
from windrow.emulator import kinds
from windrow.emulator.kit.listers import WATCHED_KINDS, Listers
from windrow.emulator.kit.vm_readings import FINAL, phase_of
from windrow.kubernetes.objects import Raw, namespace_of, nested
from windrow.kubernetes.resources import CONFIG_MAP, PVC, SERVICE, ApiResource

COUNT = "count/"
PODS = ("pods", "count/pods")
# Those that have had a name of their own since before any kind could be counted.
_NAMED = ("secrets", "configmaps", "services", "resourcequotas")
_COUNTED = {
    kind.group_resource: kind
    for kind in (*(kind for _, kind in WATCHED_KINDS), CONFIG_MAP, SERVICE, kinds.LOAD_BALANCER)
    if kind.namespaced and kind != PVC
}


def names_of(kind: ApiResource) -> frozenset[str]:
    """Which of a quota's names objects of the kind can count for, claims and pods apart."""
    resource = kind.group_resource
    names = {f"{COUNT}{resource}"}
    if resource in _NAMED:
        names.add(resource)
    if kind == SERVICE:
        names |= {"services.loadbalancers", "services.nodeports"}
    return frozenset(names)


def count(kind: ApiResource, raw: Raw) -> dict[str, Quantity]:
    """What a new object takes."""
    amounts = dict.fromkeys(names_of(kind) - {"services.loadbalancers", "services.nodeports"}, 1)
    if kind == SERVICE:
        type, ports = nested(raw, "spec", "type"), len(nested(raw, "spec", "ports", default=[]))
        if type == "LoadBalancer":
            amounts["services.loadbalancers"] = 1
        if type in ("LoadBalancer", "NodePort"):
            amounts["services.nodeports"] = ports
    return {name: Quantity.parse(str(number)) for name, number in amounts.items()}


async def count_all(client: Any, namespace: str, names: frozenset[str], listers: Listers) -> dict[str, str]:
    """What the namespace has of those names; a machine that runs is a pod, that of its launcher."""
    used: dict[str, Quantity] = {}
    for kind in _COUNTED.values():
        wanted = names & names_of(kind)
        if not wanted:
            continue
        used |= dict.fromkeys(wanted, Quantity(0))
        for raw in await client.list(kind, namespace):
            for name, number in count(kind, raw).items():
                if name in wanted:
                    used[name] = number + used[name]
    running = sum(
        namespace_of(one) == namespace and phase_of(one) not in FINAL for one in listers.instances.values()
    )
    used |= {name: Quantity.parse(str(running)) for name in PODS if name in names}
    return {name: str(number) for name, number in used.items()}
