"""Scheduler of the simulated Harvester: the host of an instance's pod, or the scheduler's message.

A part of kube-scheduler: readiness, taints, node selector, required node affinity, CPU and memory
requests; then preferred pod anti-affinity by topology, then the emptier host. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import Any

from windrow.emulator import names
from windrow.emulator.kit.scheduling import NO_AFFINITY, Placement, find_obstacle
from windrow.emulator.quantities import MI, quantity_or_zero
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, labels_of, name_of, nested, uid_of
from windrow.kubernetes.selectors import read_label_selector

# What KubeVirt adds to the guest's memory for launcher, QEMU and page tables; about this for a small machine.
LAUNCHER_OVERHEAD = 260 * MI


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    cpu: Fraction
    memory: Fraction

    def plus(self, other: ResourceRequest, sign: int = 1) -> ResourceRequest:
        return ResourceRequest(self.cpu + sign * other.cpu, self.memory + sign * other.memory)


@dataclass(frozen=True, slots=True)
class Host:
    """One Node with the resource requests and labels of the pods on it."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    taints: tuple[Mapping[str, Any], ...]
    cpu: Fraction
    memory: Fraction
    used_cpu: Fraction = Fraction(0)
    used_memory: Fraction = Fraction(0)
    pod_labels: tuple[Mapping[str, str], ...] = field(default=())
    cordoned: bool = False


def read_request(vmi: Mapping[str, Any]) -> ResourceRequest:
    requests = nested(vmi, "spec", "domain", "resources", "requests", default={})
    return ResourceRequest(
        quantity_or_zero(requests.get("cpu")), quantity_or_zero(requests.get("memory")) + LAUNCHER_OVERHEAD
    )


class HostAllocations:
    """The pods of each host. Sums are maintained, so that scheduling costs per host, not per pod."""

    def __init__(self) -> None:
        self._host_of: dict[str, str] = {}
        self._pods_on: dict[str, dict[str, tuple[ResourceRequest, Mapping[str, str]]]] = defaultdict(dict)
        self._used: dict[str, ResourceRequest] = defaultdict(
            lambda: ResourceRequest(Fraction(0), Fraction(0))
        )

    def assign(self, vmi: Raw, host: str) -> None:
        """Assign the instance's pod to `host`, and to no other."""
        uid, demand = uid_of(vmi), read_request(vmi)
        self.release(uid)
        self._host_of[uid] = host
        self._pods_on[host][uid] = (demand, labels_of(vmi))
        self._used[host] = self._used[host].plus(demand)

    def release(self, uid: str) -> None:
        """The instance's pod is gone. May be repeated."""
        host = self._host_of.pop(uid, None)
        if host is not None:
            demand, _ = self._pods_on[host].pop(uid)
            self._used[host] = self._used[host].plus(demand, -1)

    def read_host(self, node: Raw) -> Host:
        """The scheduler's view of a Node."""
        name = name_of(node)
        allocatable = nested(node, "status", "allocatable", default={})
        return Host(
            name=name,
            labels=labels_of(node),
            ready=is_true(nested(node, "status", "conditions"), "Ready"),
            taints=tuple(nested(node, "spec", "taints", default=[])),
            cpu=quantity_or_zero(allocatable.get("cpu")),
            memory=quantity_or_zero(allocatable.get("memory")),
            used_cpu=self._used[name].cpu,
            used_memory=self._used[name].memory,
            cordoned=bool(nested(node, "spec", "unschedulable")),
            pod_labels=tuple(labels for _, labels in self._pods_on[name].values()),
        )


def find_host(vmi: Mapping[str, Any], hosts: Sequence[Host]) -> Placement:
    spec = vmi["spec"]
    demand = read_request(vmi)
    obstacles = {host.name: _find_obstacles(spec, demand, host) for host in hosts}
    fitting = [host for host in hosts if not obstacles[host.name]]
    if not fitting:
        return Placement(message=_render_message(obstacles))
    best = min(fitting, key=lambda host: (_anti_affinity_penalty(spec, host), _load(host), host.name))
    return Placement(best.name)


def _find_obstacles(spec: Mapping[str, Any], demand: ResourceRequest, host: Host) -> list[str]:
    selector = {**(spec.get("nodeSelector") or {}), names.SCHEDULABLE: "true"}  # as virt-controller adds it
    pod = {**spec, "nodeSelector": selector}
    if obstacle := find_obstacle(pod, host.labels, host.taints, cordoned=host.cordoned):
        return [obstacle]
    if not host.ready:
        return [NO_AFFINITY]
    short = []
    if host.used_cpu + demand.cpu > host.cpu:
        short.append("Insufficient cpu")
    if host.used_memory + demand.memory > host.memory:
        short.append("Insufficient memory")
    return short


def _anti_affinity_penalty(spec: Mapping[str, Any], host: Host) -> int:
    """The weight of preferred anti-affinity terms that pods on the host match."""
    terms = nested(
        spec, "affinity", "podAntiAffinity", "preferredDuringSchedulingIgnoredDuringExecution", default=[]
    )
    total = 0
    for term in terms:
        selector = read_label_selector(nested(term, "podAffinityTerm", "labelSelector"))
        total += int(term.get("weight", 1)) * sum(selector.matches(labels) for labels in host.pod_labels)
    return total


def _load(host: Host) -> Fraction:
    return host.used_memory / host.memory if host.memory else Fraction(1)


def _render_message(obstacles: Mapping[str, list[str]]) -> str:
    counts = Counter(chain.from_iterable(obstacles.values()))
    parts = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    hosts = len(obstacles)
    return (
        f"0/{hosts} nodes are available: {parts}. preemption: 0/{hosts} nodes are available: "
        f"{hosts} No preemption victims found for incoming pod."
    )
