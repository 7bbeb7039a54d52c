"""What VMs ask of the hosts themselves: devices, CPU models and labels, compared with the Nodes of Harvester.

KubeVirt places a VM by labels and resources of Nodes, and one that no host has leaves it unscheduled. A credential of a
namespace may not list Nodes; then nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windrow.harvester.problems import Problem
from windrow.kubernetes import requests
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound
from windrow.kubernetes.objects import nested, objects_at
from windrow.kubernetes.resources import NODE
from windrow.nodedriver.affinity import read_affinity
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.effects import Gather, Operation
from windrow.nodedriver.validate.host_labels import find_label_problems, requires_hosts

# KubeVirt's label of a host for each CPU model that VMs may have there.
CPU_MODEL_PREFIX = "cpu-model.node.kubevirt.io/"
# Those that every host has.
HOST_MODELS = ("", "host-model", "host-passthrough")


@dataclass(frozen=True, slots=True)
class HostOffer:
    """What one host gives VMs: resource names of its devices, and CPU models. Affinities choose it by name and labels."""

    devices: frozenset[str]
    cpu_models: frozenset[str]
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def read_offer(raw: Mapping[str, Any]) -> HostOffer:
    """A device of which the host has none now, since it is not enabled, is left out."""
    devices, labels = (_map(raw, *path) for path in (("status", "allocatable"), ("metadata", "labels")))
    models = [key for key, value in labels.items() if key.startswith(CPU_MODEL_PREFIX) and value == "true"]
    return HostOffer(
        frozenset(name for name, count in devices.items() if str(count) != "0"),
        frozenset(key.removeprefix(CPU_MODEL_PREFIX) for key in models),
        str(nested(raw, "metadata", "name", default="")),
        {str(key): str(value) for key, value in labels.items()},
    )


def _map(raw: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    found = nested(raw, *path)
    return found if isinstance(found, Mapping) else {}


def read_offers(configurations: Sequence[Configuration]) -> Operation[tuple[HostOffer, ...]]:
    """Those of all hosts, where anything is asked of them; none where they may not be listed. Raises every other KubeError."""
    if not any(_asks(configuration) for configuration in configurations):
        return ()
    (answer,) = yield Gather(
        (requests.list_(NODE),), "read which devices, CPU models and labels the hosts have"
    )
    if isinstance(answer, Forbidden | NotFound):
        return ()
    if isinstance(answer, KubeError):
        raise answer
    return tuple(read_offer(raw) for raw in objects_at(answer, "items"))


def _asks(configuration: Configuration) -> bool:
    return (
        bool(configuration.vgpu_info)
        or configuration.cpu_model not in HOST_MODELS
        or requires_hosts(read_affinity(configuration))
    )


def find_host_problems(
    configurations: Sequence[Configuration], hosts: Sequence[HostOffer]
) -> Iterator[Problem]:
    """A warning for each device and CPU model that no host has now, and for labels that none has as an affinity requires: a host
    that is added later may have them."""
    if not hosts:
        return
    devices = frozenset().union(*(host.devices for host in hosts))
    models = frozenset().union(*(host.cpu_models for host in hosts))
    labels = {host.name: host.labels for host in hosts}
    for configuration in configurations:
        yield from find_label_problems(read_affinity(configuration), labels)
        for place, request in enumerate(configuration.vgpu_info or ()):
            if request.device_name and request.device_name not in devices:
                yield Problem(
                    f"no host of Harvester has a device {request.device_name} "
                    f"(vgpuInfo.vGPURequests[{place}].deviceName), so the VM is not started",
                    "enable it on a host, under PCI Devices, vGPU Devices or USB Devices of Harvester, or correct its name",
                    "vgpuInfo",
                    "warning",
                )
        model = configuration.cpu_model
        # Where KubeVirt labels no host with any, nothing is known of them.
        if models and model not in HOST_MODELS and model not in models:
            yield Problem(
                f"no host of Harvester has the CPU model {model} (cpuModel), so the VM is not started",
                f"choose one that hosts have (labels {CPU_MODEL_PREFIX}… of its Nodes), host-model, or leave it out",
                "cpuModel",
                "warning",
            )
