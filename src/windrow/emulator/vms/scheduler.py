"""Scheduler of the simulated Harvester: the host of an instance's pod, or the scheduler's message.

A part of kube-scheduler. Filters: readiness, taints, node selector, required node affinity, requests, required pod
affinity and anti-affinity. Scores, weighted as its defaults: preferred node affinity, preferred pod affinity and
anti-affinity, the emptier host; among equals the first by name. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import Any

from windrow.emulator import names
from windrow.emulator.host.nodes import HOST_CPU_MODELS
from windrow.emulator.kit.scheduling import NO_AFFINITY, Placement, find_obstacle, node_preference
from windrow.emulator.kit.vm_readings import host_devices_of
from windrow.emulator.quantities import MI, quantity_or_zero
from windrow.emulator.vms.pod_affinity import PlacedPod, read_pod, read_topology
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, labels_of, name_of, nested, uid_of

VOLUME_ELSEWHERE = "node(s) had volume node affinity conflict"
# What KubeVirt adds to the guest's memory for launcher, QEMU and page tables; about this for a small machine.
LAUNCHER_OVERHEAD = 260 * MI
# Weights of kube-scheduler's plugins, each of which gives 0 to 100.
POD_AFFINITY_WEIGHT = NODE_AFFINITY_WEIGHT = 2
LEAST_ALLOCATED_WEIGHT = 1


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    cpu: Fraction
    memory: Fraction
    devices: Mapping[str, int] = field(default_factory=dict)  # GPUs and host devices, by resource name

    def plus(self, other: ResourceRequest, sign: int = 1) -> ResourceRequest:
        names = self.devices.keys() | other.devices.keys()
        devices = {name: self.devices.get(name, 0) + sign * other.devices.get(name, 0) for name in names}
        return ResourceRequest(self.cpu + sign * other.cpu, self.memory + sign * other.memory, devices)


@dataclass(frozen=True, slots=True)
class Host:
    """One Node with the pods on it and their resource requests."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    taints: tuple[Mapping[str, Any], ...]
    cpu: Fraction
    memory: Fraction
    used_cpu: Fraction = Fraction(0)
    used_memory: Fraction = Fraction(0)
    pods: tuple[PlacedPod, ...] = ()
    cordoned: bool = False
    devices: Mapping[str, int] = field(default_factory=dict)  # free GPUs and host devices


def read_request(vmi: Mapping[str, Any]) -> ResourceRequest:
    domain = vmi["spec"]["domain"]
    requests = nested(domain, "resources", "requests", default={})
    # An isolated emulator thread has a CPU of its own.
    isolated = 1 if nested(domain, "cpu", "isolateEmulatorThread") else 0
    asked = Counter(name for _, name in host_devices_of(vmi["spec"]))
    return ResourceRequest(
        quantity_or_zero(requests.get("cpu")) + isolated,
        quantity_or_zero(requests.get("memory")) + LAUNCHER_OVERHEAD,
        asked,
    )


def list_devices(node: Mapping[str, Any]) -> dict[str, int]:
    """How many GPUs and host devices of each resource name the host offers."""
    allocatable = nested(node, "status", "allocatable", default={})
    return {name: int(str(count)) for name, count in allocatable.items() if "/" in name}


class HostAllocations:
    """The pods of each host. Sums are maintained, so that scheduling costs per host, not per pod."""

    def __init__(self) -> None:
        self._host_of: dict[str, str] = {}
        self._pods_on: dict[str, dict[str, tuple[ResourceRequest, PlacedPod]]] = defaultdict(dict)
        self._used: dict[str, ResourceRequest] = defaultdict(
            lambda: ResourceRequest(Fraction(0), Fraction(0))
        )

    def assign(self, vmi: Raw, host: str) -> None:
        """Assign the instance's pod to `host`, and to no other."""
        uid, demand = uid_of(vmi), read_request(vmi)
        self.release(uid)
        self._host_of[uid] = host
        self._pods_on[host][uid] = (demand, read_pod(vmi))
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
            pods=tuple(pod for _, pod in self._pods_on[name].values()),
            devices={
                kind: count - self._used[name].devices.get(kind, 0)
                for kind, count in list_devices(node).items()
            },
        )


def find_host(vmi: Mapping[str, Any], hosts: Sequence[Host], volume_hosts: Collection[str] = ()) -> Placement:
    """`volume_hosts` are those of its local volumes, each of which must be on the host."""
    spec = vmi["spec"]
    demand = read_request(vmi)
    topology = read_topology(read_pod(vmi), ((host.labels, host.pods) for host in hosts))

    def find_obstacles(host: Host) -> list[str]:
        found = _find_obstacles(spec, demand, host)
        if not found and any(name != host.name for name in volume_hosts):
            return [VOLUME_ELSEWHERE]
        return found or list(filter(None, [topology.find_obstacle(host.labels)]))

    obstacles = {host.name: find_obstacles(host) for host in hosts}
    fitting = [host for host in hosts if not obstacles[host.name]]
    if not fitting:
        return Placement(message=_render_message(obstacles))
    by_node = [node_preference(spec, host.labels) for host in fitting]
    by_pods = [topology.score(host.labels) for host in fitting]
    scores = {
        host.name: NODE_AFFINITY_WEIGHT * _share(wish, 0, max(by_node))
        + POD_AFFINITY_WEIGHT * _share(liking, min(by_pods), max(by_pods))
        + LEAST_ALLOCATED_WEIGHT * _free_share(demand, host)
        for host, wish, liking in zip(fitting, by_node, by_pods, strict=True)
    }
    return Placement(min(fitting, key=lambda host: (-scores[host.name], host.name)).name)


def _share(number: int, least: int, most: int) -> Fraction:
    """Where `number` is between both, 0 to 100."""
    return Fraction(100 * (number - least), most - least) if most > least else Fraction(0)


def _free_share(demand: ResourceRequest, host: Host) -> Fraction:
    """The mean share of CPU and memory that stays free with the pod there, 0 to 100."""
    free = [
        (1 - (used + asked) / size) * 50
        for used, asked, size in (
            (host.used_cpu, demand.cpu, host.cpu),
            (host.used_memory, demand.memory, host.memory),
        )
        if size
    ]
    return sum(free, Fraction(0))


def _find_obstacles(spec: Mapping[str, Any], demand: ResourceRequest, host: Host) -> list[str]:
    pod = {**spec, "nodeSelector": {**(spec.get("nodeSelector") or {}), **_own_selector(spec)}}
    if obstacle := find_obstacle(pod, host.labels, host.taints, cordoned=host.cordoned):
        return [obstacle]
    if not host.ready:
        return [NO_AFFINITY]
    short = []
    if host.used_cpu + demand.cpu > host.cpu:
        short.append("Insufficient cpu")
    if host.used_memory + demand.memory > host.memory:
        short.append("Insufficient memory")
    short += [
        f"Insufficient {name}" for name, count in demand.devices.items() if count > host.devices.get(name, 0)
    ]
    return short


def _own_selector(spec: Mapping[str, Any]) -> dict[str, str]:
    """The node labels that virt-controller asks for on its own."""
    cpu = nested(spec, "domain", "cpu", default={})
    selector = {names.SCHEDULABLE: "true"}
    if cpu.get("dedicatedCpuPlacement"):
        selector[names.CPU_MANAGER] = "true"
    model = cpu.get("model") or HOST_CPU_MODELS[0]
    if model not in HOST_CPU_MODELS:
        selector[f"{names.CPU_MODEL_PREFIX}/{model}"] = "true"
    return selector


def _render_message(obstacles: Mapping[str, list[str]]) -> str:
    counts = Counter(chain.from_iterable(obstacles.values()))
    parts = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    hosts = len(obstacles)
    return (
        f"0/{hosts} nodes are available: {parts}. preemption: 0/{hosts} nodes are available: "
        f"{hosts} No preemption victims found for incoming pod."
    )
