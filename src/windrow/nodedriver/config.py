"""A machine's configuration: what the driver persists as config.json, the DriverConfig of the port Machines.

The keys, their order and their types are those of the Go driver, every key always present, so a machine may change
between drivers. Our own keys start with `Windrow`; Go ignores them. A bootstrap document is never part of it:
`CloudConfig` holds a file path under rancher-machine, and nothing under the manager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from windrow.core.formats.json import dumps
from windrow.harvester.problems import Problem
from windrow.harvester.resources import VM
from windrow.kubernetes.resources import ObjectRef
from windrow.nodedriver.devices import STRUCTURES, DeviceSpec, DiskSpec, NicSpec
from windrow.nodedriver.options import read_values


def _key(name: str, **rest: Any) -> Any:
    return field(metadata={"key": name}, **rest)


@dataclass(frozen=True, slots=True)
class Configuration:
    """In the order in which Go writes the keys. `memory_size` is `4Gi`; `disk_size` is text, as since v0.6.1."""

    ip_address: str = _key("IPAddress", default="")
    ipv6_address: str = _key("IPv6Address", default="")
    machine_name: str = _key("MachineName", default="")
    ssh_user: str = _key("SSHUser", default="root")
    ssh_port: int = _key("SSHPort", default=22)
    ssh_key_path: str = _key("SSHKeyPath", default="")
    store_path: str = _key("StorePath", default="")
    swarm_master: bool = _key("SwarmMaster", default=False)
    swarm_host: str = _key("SwarmHost", default="")
    swarm_discovery: str = _key("SwarmDiscovery", default="")
    kubeconfig_content: str = _key("KubeConfigContent", default="", repr=False)
    vm_namespace: str = _key("VMNamespace", default="default")
    vm_affinity: str = _key("VMAffinity", default="")
    cluster_type: str = _key("ClusterType", default="")
    cluster_id: str = _key("ClusterID", default="")
    cluster_name: str = _key("ClusterName", default="")
    server_version: str = _key("ServerVersion", default="")
    cpu: int = _key("CPU", default=2)
    cpu_model: str = _key("CPUModel", default="")
    memory_size: str = _key("MemorySize", default="4Gi")
    reserved_memory_size: str = _key("ReservedMemorySize", default="")
    disk_size: str = _key("DiskSize", default="0")
    disk_bus: str = _key("DiskBus", default="")
    image_name: str = _key("ImageName", default="")
    disk_info: tuple[DiskSpec, ...] | None = _key("DiskInfo", default=None)
    key_pair_name: str = _key("KeyPairName", default="")
    ssh_private_key_path: str = _key("SSHPrivateKeyPath", default="")
    ssh_public_key: str = _key("SSHPublicKey", default="")
    ssh_password: str = _key("SSHPassword", default="", repr=False)
    add_user_to_docker_group: bool = _key("AddUserToDockerGroup", default=False)
    network_type: str = _key("NetworkType", default="")
    network_name: str = _key("NetworkName", default="")
    network_model: str = _key("NetworkModel", default="")
    network_info: tuple[NicSpec, ...] | None = _key("NetworkInfo", default=None)
    cloud_config: str = _key("CloudConfig", default="", repr=False)
    user_data: str = _key("UserData", default="", repr=False)
    network_data: str = _key("NetworkData", default="", repr=False)
    enable_efi: bool = _key("EnableEFI", default=False)
    enable_secure_boot: bool = _key("EnableSecureBoot", default=False)
    vgpu_info: tuple[DeviceSpec, ...] | None = _key("VGPUInfo", default=None)
    cpu_pinning: bool = _key("CPUPinning", default=False)
    isolate_emulator_thread: bool = _key("IsolateEmulatorThread", default=False)
    enable_tpm: bool = _key("EnableTPM", default=False)
    # Ours.
    machine_uid: str = _key("WindrowMachineUID", default="")
    cluster_uid: str = _key("WindrowClusterUID", default="")
    harvester_uid: str = _key("WindrowHarvesterUID", default="")
    vm_uid: str = _key("WindrowVMUID", default="")
    credential: str = _key("WindrowCredential", default="")
    claims: tuple[str, ...] = _key("WindrowClaims", default=())
    volumes: tuple[str, ...] = _key(
        "WindrowVolumes", default=()
    )  # claims of others that the removal is to delete too

    @property
    def ref(self) -> ObjectRef:
        """The VM."""
        return VM.ref(self.machine_name, self.vm_namespace)

    @property
    def memory_gib(self) -> int:
        return _number_before(self.memory_size, "Gi")

    @property
    def reserved_mib(self) -> int:
        return _number_before(self.reserved_memory_size, "Mi")

    @property
    def disks(self) -> tuple[DiskSpec, ...]:
        """The disks, in the one form: the older single disk counts as a list of one."""
        if self.disk_info is not None:
            return self.disk_info
        size = _number_before(self.disk_size)
        return (DiskSpec(image=self.image_name, size_gib=size, boot_order=1, bus=self.disk_bus),)

    @property
    def disk_names(self) -> tuple[str, ...]:
        """`disk-0`, `disk-1`, …; the single disk of the older form is called `disk-1`."""
        if self.disk_info is None:
            return ("disk-1",)
        return tuple(f"disk-{place}" for place in range(len(self.disk_info)))

    @property
    def nics(self) -> tuple[NicSpec, ...]:
        if self.network_info is not None:
            return self.network_info
        return (NicSpec(network=self.network_name, model=self.network_model),)

    def qualified(self, name: str) -> tuple[str, str]:
        """Namespace and name of an image, network or key pair; a bare name is in the VM's namespace."""
        namespace, slash, rest = name.partition("/")
        return (namespace, rest) if slash else (self.vm_namespace, name)


def _number_before(text: str, unit: str = "") -> int:
    """The whole number in front of `unit`; 0 for any other text that a stored configuration may hold."""
    number = text.removesuffix(unit)
    return int(number) if number.isascii() and number.removeprefix("-").isdigit() and len(number) < 20 else 0


# What the Go driver holds before anything is loaded: its zero values, and a name.
UNSET = Configuration(
    machine_name="machine", ssh_user="", ssh_port=0, vm_namespace="", cpu=0, memory_size="", disk_size=""
)

KEYS: Mapping[str, str] = {each.metadata["key"]: each.name for each in fields(Configuration)}


def read_fields(given: Mapping[str, Any]) -> tuple[Configuration, list[Problem]]:
    """The configuration that HarvesterConfig fields ask for, and everything that could not be read."""
    values, problems = read_values(given)
    changes: dict[str, Any] = {}
    for key, value in values.items():
        if key in STRUCTURES:
            value = STRUCTURES[key].read(value, problems)
        changes[KEYS[key]] = value
    changes |= size_texts(changes)
    changes["vm_affinity"] = _affinity_text(changes["vm_affinity"])
    return Configuration(**changes), problems


def find_unknown_keys(given: Mapping[str, Any]) -> list[Problem]:
    """Warnings about keys within the structures of a HarvesterConfig, which Go ignores, and so do we."""
    values, _ = read_values(given)
    return [
        problem
        for key, structure in STRUCTURES.items()
        for problem in structure.find_unknown_keys(values[key])
    ]


def size_texts(numbers: Mapping[str, Any]) -> dict[str, str]:
    """The sizes among a configuration's values, as it holds them, from the numbers that flags and fields give."""
    reserved = numbers["reserved_memory_size"]
    return {
        "memory_size": f"{numbers['memory_size']}Gi",
        "disk_size": str(numbers["disk_size"]),
        "reserved_memory_size": f"{reserved}Mi" if reserved > 0 else "",
    }


def dump_driver_config(configuration: Configuration) -> dict[str, Any]:
    """Every key in Go's order, then the `Windrow` keys; JSON values only."""
    driver_config: dict[str, Any] = {}
    for key, name in KEYS.items():
        value = getattr(configuration, name)
        if key in STRUCTURES:
            value = STRUCTURES[key].write(value)
        driver_config[key] = list(value) if isinstance(value, tuple) else value
    return driver_config


class InvalidDriverConfig(ValueError):
    """A stored configuration holds a value of the wrong type, or is no JSON at all."""


def _affinity_text(value: Any) -> str:
    return "" if value is None else dumps(value).decode()
