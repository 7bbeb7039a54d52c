"""Host Nodes, and the node lifecycle when a host loses power (reference 05 §2.5 F, §5.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate

from windrow.core.clock import format_time
from windrow.emulator import names
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Key
from windrow.emulator.release import Release
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, nested, new_object
from windrow.kubernetes.resources import NODE

# What libvirt finds usable on a server with a processor of the Cascade Lake generation.
CPU_MODELS = (
    "Penryn", "Nehalem", "Westmere", "SandyBridge", "IvyBridge", "Haswell-noTSX", "Broadwell-noTSX",
    "Skylake-Client-noTSX-IBRS", "Skylake-Server-noTSX-IBRS", "Cascadelake-Server-noTSX",
)  # fmt: skip

# Models that every host has: its own.
HOST_CPU_MODELS = ("host-model", "host-passthrough")
# How many of a device a host gets that a manifest refers to.
DEVICES_OF_A_HOST = 8


@dataclass(frozen=True, slots=True)
class HostSpec:
    """One host. `networks` are its cluster networks."""

    name: str
    region: str = ""
    zone: str = ""
    cpu: int = 32
    memory: str = "128Gi"
    address: str = ""
    networks: tuple[str, ...] = ("mgmt",)
    labels: Mapping[str, str] = field(default_factory=dict)
    cpu_models: tuple[str, ...] = CPU_MODELS
    devices: Mapping[str, int] = field(default_factory=dict)  # GPUs and other devices, by resource name
    storage: str = "20Ti"  # of the disk for volumes


def default_hosts(count: int = 3, region: str = "eu-west") -> tuple[HostSpec, ...]:
    """`count` equal hosts, one per zone."""
    return tuple(
        HostSpec(f"host-{place}", region, f"zone-{place}", address=f"192.168.100.{10 + place}")
        for place in range(1, count + 1)
    )


def render_node(host: HostSpec, now: datetime, version: str) -> Raw:
    """The Node of a healthy host of this version of Harvester."""
    labels = {
        names.HOSTNAME: host.name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "harvesterhci.io/managed": "true",
        "node-role.kubernetes.io/control-plane": "true",
        "node-role.kubernetes.io/etcd": "true",
        names.SCHEDULABLE: "true",
        names.CPU_MANAGER: "true",
        **{f"{names.NETWORK_PREFIX}/{network}": "true" for network in host.networks},
        **{f"{names.CPU_MODEL_PREFIX}/{model}": "true" for model in host.cpu_models},
        **({names.REGION: host.region} if host.region else {}),
        **({names.ZONE: host.zone} if host.zone else {}),
        **host.labels,
    }
    size = {
        "cpu": str(host.cpu),
        "memory": host.memory,
        "pods": "200",
        "ephemeral-storage": "200Gi",
        **{name: str(count) for name, count in host.devices.items()},
    }
    conditions: list[Raw] = []
    for type, status, reason, message in _HEALTHY:
        conditions = set_condition(conditions, Condition(type, status, reason, message), now)  # type: ignore[arg-type]
    return new_object(
        NODE,
        host.name,
        labels=labels,
        spec={"podCIDR": "10.52.0.0/24"},
        status={
            "capacity": dict(size),
            "allocatable": dict(size),
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": host.address},
                {"type": "Hostname", "address": host.name},
            ],
            "nodeInfo": {
                "kubeletVersion": Release.of(version).kubelet,
                "osImage": f"Harvester {version}",
                "kernelVersion": "6.4.0-150700.53-default",
                "containerRuntimeVersion": "containerd://2.1.5-k3s1",
                "architecture": "amd64",
                "operatingSystem": "linux",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kubeProxyVersion": "",
            },
        },
    )


async def add_to_hosts(
    client: AdminClient, hosts: Iterable[str], devices: set[str], cpu_models: set[str]
) -> None:
    """Give all hosts the devices, and the CPU models, that none of them has. May be repeated."""
    nodes = [raw for name in hosts if (raw := await client.find(NODE.ref(name))) is not None]
    wanted = {f"{names.CPU_MODEL_PREFIX}/{model}": "true" for model in cpu_models - set(HOST_CPU_MODELS)}
    sizes = [nested(raw, "status", "allocatable", default={}) for raw in nodes]
    counts = {name: str(DEVICES_OF_A_HOST) for name in devices if not any(name in size for size in sizes)}
    labels = {key: value for key, value in wanted.items() if not any(key in labels_of(raw) for raw in nodes)}

    def add_labels(raw: Raw) -> None:
        raw["metadata"]["labels"].update(labels)

    def add_devices(raw: Raw) -> None:
        for size in ("capacity", "allocatable"):
            raw["status"][size].update(counts)

    for node in nodes if labels else ():
        await client.mutate(NODE.ref(name_of(node)), add_labels)
    for node in nodes if counts else ():
        await client.mutate(NODE.ref(name_of(node)), add_devices, "status")


_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


@dataclass(frozen=True, slots=True)
class HostHealth:
    """The stages of a failed host: not ready, draining, out of service, pods force-deleted."""

    ready: bool = True
    draining: bool = False
    out_of_service: bool = False
    cleared: bool = False  # its pods are force-deleted


HEALTHY = HostHealth()


def host_health_at(
    lost: timedelta | None, now: timedelta, clock: ScaledClock, delays: Delays, release: Release
) -> tuple[HostHealth, timedelta | None]:
    """The health at `now` of a host without power since `lost`, and the instant of its next change."""
    if lost is None:
        return HEALTHY, None
    waits = (delays.node_draining, delays.node_out_of_service)
    if not release.taints_lost_hosts:
        waits = (delays.node_force_reset, 0.0)
    steps = (delays.node_unknown, *waits, delays.pod_force_delete)
    due = [clock.after(seconds, lost) for seconds in accumulate(steps)]
    requeue_at = next((instant for instant in due if now < instant), None)
    unknown, draining, out, cleared = (now >= instant for instant in due)
    tainted = release.taints_lost_hosts
    return HostHealth(not unknown, draining and tainted, out and tainted, cleared), requeue_at


# Each taint, and the stage at which the host has it.
_TAINTS: tuple[tuple[str, Raw], ...] = (
    ("unknown", {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}),
    ("unknown", {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}),
    ("draining", {"key": "kubevirt.io/drain", "value": "scheduling", "effect": "NoSchedule"}),
    ("out", {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}),
)
_MANAGED_TAINTS = frozenset((taint["key"], taint["effect"]) for _, taint in _TAINTS)


def taints_for(health: HostHealth, present: Iterable[Raw]) -> list[Raw]:
    """The taints for `health`; taints of other controllers are kept."""
    stages = {"unknown": not health.ready, "draining": health.draining, "out": health.out_of_service}
    kept = [dict(taint) for taint in present if (taint["key"], taint["effect"]) not in _MANAGED_TAINTS]
    return kept + [dict(taint) for stage, taint in _TAINTS if stages[stage]]


def conditions_for(health: HostHealth, present: list[Raw], now: datetime) -> list[Raw]:
    ready = (
        Condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")
        if health.ready
        else Condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    )
    made = set_condition([raw for raw in present if raw["type"] != "Drained"], ready, now)
    if not health.draining:
        return made
    cause = "due to kubelet/node not ready."
    drained = (
        Condition("Drained", "True", "HarvesterNodeIsDrained", f"Node is drained {cause}")
        if health.out_of_service
        else Condition("Drained", "False", "HarvesterNodeIsDraining", f"Node is draining {cause}")
    )
    return made + set_condition([raw for raw in present if raw["type"] == "Drained"], drained, now)


class HostController:
    """Which hosts have power, and the controller of their Nodes' conditions and taints."""

    def __init__(self, client: AdminClient, clock: ScaledClock, delays: Delays, release: Release) -> None:
        self._client = client
        self._release = release
        self._clock = clock
        self._delays = delays
        self._lost: dict[str, timedelta] = {}
        self._switched_off: set[str] = set()  # by annotation
        self.on_change: Callable[[str], None] = lambda name: (
            None
        )  # called for a host that is powered off or on

    def fail(self, name: str) -> None:
        """Power off the host. May be repeated."""
        self._lost.setdefault(name, self._clock.monotonic())
        self.on_change(name)

    def recover(self, name: str) -> None:
        """Power on the host; its kubelet reports again. May be repeated."""
        self._lost.pop(name, None)
        self.on_change(name)

    def has_power(self, name: str) -> bool:
        return name not in self._lost

    def health(self, name: str) -> tuple[HostHealth, timedelta | None]:
        """The health of the host now, and the instant of its next change."""
        lost, now = self._lost.get(name), self._clock.monotonic()
        return host_health_at(lost, now, self._clock, self._delays, self._release)

    def _follow_switch(self, node: Raw | None, name: str) -> None:
        """Power as the annotation says, so that kubectl can cut it; removed, the power is back."""
        is_off = node is not None and annotations_of(node).get(names.POWER) == "off"
        if is_off and name not in self._switched_off:
            self._switched_off.add(name)
            self.fail(name)
        elif not is_off and name in self._switched_off:
            self._switched_off.discard(name)
            self.recover(name)

    async def reconcile(self, key: Key) -> timedelta | None:
        name = key[1]
        self._follow_switch(await self._client.find(NODE.ref(name)), name)
        health, requeue_at = self.health(name)
        now = self._clock.now()

        def set_conditions(raw: Raw) -> None:
            raw["status"]["conditions"] = conditions_for(
                health, nested(raw, "status", "conditions", default=[]), now
            )

        def set_taints(raw: Raw) -> None:
            raw["spec"]["taints"] = taints_for(health, nested(raw, "spec", "taints", default=[]))
            if not raw["spec"]["taints"]:
                del raw["spec"]["taints"]
            alive = "true" if health.ready else "false"
            if name in self._lost or raw["metadata"]["labels"].get(names.SCHEDULABLE) == "false":
                raw["metadata"]["labels"][names.SCHEDULABLE] = alive
            if alive == "true":
                raw["metadata"].setdefault("annotations", {}).setdefault(names.HEARTBEAT, format_time(now))

        await self._client.mutate(NODE.ref(name), set_conditions, "status")
        await self._client.mutate(NODE.ref(name), set_taints)
        return requeue_at
