"""Machines made with every option of the node driver, and what must be machine of each: on Harvester, and from within the guest."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.core.formats.json import dumps
from windrow.emulator import kinds
from windrow.emulator.guest_os.kernel_files import SECURE_BOOT
from windrow.emulator.harvester import Harvester
from windrow.emulator.host.nodes import CPU_MODELS, HostSpec
from windrow.emulator.kit.vm_readings import claims_of
from windrow.kubernetes.objects import Raw, nested, uid_of
from windrow.kubernetes.resources import PVC

GPU = "nvidia.com/NVIDIA_A2-4Q"
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
OLD_MODELS, ALL_MODELS = ("Penryn", "Nehalem"), CPU_MODELS
HOSTS = (
    HostSpec("host-1", "eu-west", "zone-1", cpu_models=OLD_MODELS, labels={"cpumanager": "false"}),
    HostSpec("host-2", "eu-west", "zone-2", cpu_models=OLD_MODELS, devices={GPU: 1}),
    HostSpec(
        "host-3", "eu-north", "zone-3", cpu_models=ALL_MODELS, labels={"cpumanager": "false", "room": "7"}
    ),
)
MACS = ("02:00:00:00:00:0a", "02:00:00:00:00:0b")
KEY_PAIR = "default/me"
NETWORKS = ("default/vlan-50", "default/vlan-60")

# What each machine writes of its hardware, from within.
SHOWN = (
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/class/net/enp1s0/address",
    "/sys/class/net/enp2s0/address",
    "/sys/class/net/enp1s0/device/uevent",
    "/sys/class/net/enp2s0/device/uevent",
    "/sys/block/sda/size",
    "/sys/block/sdb/size",
    "/sys/block/vda/size",
    "/sys/block/vdb/size",
    "/sys/class/tpm/tpm0/tpm_version_major",
    "/sys/firmware/efi/fw_platform_size",
    SECURE_BOOT,
)
# The image has no guest agent.
USER_DATA = (
    "#cloud-config\npackages: [qemu-guest-agent]\nruncmd:\n- systemctl enable --now qemu-guest-agent\n"
    + "".join(f"- cp {path} /root/shown-{place}\n" for place, path in enumerate(SHOWN))
)


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def required(key: str, *values: str) -> Raw:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def apart(key: str, **labels: str) -> Raw:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


NETWORK_DATA = f"""\
version: 2
ethernets:
  first: {{match: {{macaddress: "{MACS[0]}"}}, dhcp4: true}}
  second: {{match: {{macaddress: "{MACS[1]}"}}, addresses: [192.168.77.7/24]}}
"""
DISKS = [
    {"storageClassName": "harvester-longhorn", "size": 11, "bus": "scsi", "bootOrder": 2},
    {"imageName": "default/jammy", "size": 41, "bus": "sata", "bootOrder": 1},
    {"storageClassName": "harvester-longhorn", "size": 13, "bus": "virtio"},
    {"storageClassName": "harvester-longhorn", "size": 12, "bus": "scsi", "hotPlugAble": True},
]
CARDS = [
    {"networkName": "default/vlan-50", "model": "e1000", "macAddress": MACS[0], "type": "bridge"},
    {"networkName": "default/vlan-60", "model": "virtio", "macAddress": MACS[1]},
]

# The options of each pool, beside the usual ones. None takes an option out.
POOLS: Mapping[str, Mapping[str, Any]] = {
    # The fields of older manifests: one disk, one card; text as it is.
    "legacy": {
        "diskInfo": None,
        "networkInfo": None,
        "imageName": "default/jammy",
        "diskSize": "40",
        "diskBus": "sata",
        "networkName": "default/vlan-50",
        "networkModel": "e1000e",
        "userData": USER_DATA,
    },
    "many": {
        "diskInfo": dumps({"disks": DISKS}).decode(),
        "networkInfo": dumps({"interfaces": CARDS}).decode(),
        "userData": encoded(USER_DATA),
        "networkData": encoded(NETWORK_DATA),
        "vmAffinity": encoded(dumps(required("room", "7")).decode()),
    },
    "secure": {
        "enableEfi": True,
        "enableSecureBoot": True,
        "enableTpm": True,
        "cpuModel": "Haswell-noTSX",
        "cpuCount": "3",
        "memorySize": "6",
        "reservedMemorySize": "512",
        "keyPairName": KEY_PAIR,
        "sshUser": "me",
        "sshPassword": "correct horse",
        "vmAffinity": dumps(required(ZONE, "zone-3")).decode(),
        "userData": USER_DATA,
    },
    "gpu": {
        "enableEfi": True,
        "cpuPinning": True,
        "isolateEmulatorThread": True,
        "vgpuInfo": dumps({"vGPURequests": [{"name": "gpu1", "deviceName": GPU}]}).decode(),
        "networkData": "version: 2\nethernets: {enp1s0: {dhcp4: true}}\n",
        "userData": USER_DATA,
    },
}


@dataclass(frozen=True)
class MachineState:
    """A machine, from outside and from within."""

    vm: Raw
    vmi: Raw
    files: Mapping[str, bytes] = field(repr=False)
    console: str = field(repr=False)
    root_gib: int
    users: frozenset[str]

    def shown(self, path: str) -> bytes:
        """What the guest read of a file of its kernel, b"" where there was none."""
        return self.files.get(f"/root/shown-{SHOWN.index(path)}", b"")

    def size_gib(self, disk: str) -> float:
        return int(self.shown(f"/sys/block/{disk}/size") or 0) * 512 / (1 << 30)

    @property
    def host(self) -> str:
        return str(nested(self.vmi, "status", "nodeName"))

    @property
    def addresses(self) -> list[list[str]]:
        return [one.get("ipAddresses", []) for one in nested(self.vmi, "status", "interfaces")]

    def volume(self, name: str) -> Raw:
        return next(one for one in nested(self.vmi, "status", "volumeStatus") if one["name"] == name)

    def condition(self, type: str) -> Raw:
        return next((one for one in nested(self.vmi, "status", "conditions") if one["type"] == type), {})


async def observe(harvester: Harvester, name: str, namespace: str = "default") -> MachineState:
    client = harvester.api.local()
    vm = await client.get(kinds.VM.ref(name, namespace))
    vmi = await client.get(kinds.VMI.ref(name, namespace))
    session = harvester.hypervisor.find(uid_of(vmi))
    assert session is not None
    root = session.hardware.root
    claims = [await client.get(PVC.ref(claim, namespace)) for claim in claims_of(vmi["spec"])]
    booted = next(claim for claim in claims if harvester.hypervisor.disk(uid_of(claim)) is root)
    return MachineState(
        vm,
        vmi,
        {path: found.content for path, found in root.files.items()},
        "\n".join(harvester.console(namespace, name)),
        int(nested(booted, "status", "capacity", "storage").removesuffix("Gi")),
        frozenset(root.state.get("users", ())),
    )


def keys(machine: MachineState, user: str) -> str:
    return machine.files.get(f"/home/{user}/.ssh/authorized_keys", b"").decode()


CPUS = "/proc/cpuinfo"
# What each option of a pool does: the pool, the option, and what must be machine.
EFFECTS: list[tuple[str, str, Callable[[MachineState], Any]]] = [
    ("legacy", "imageName, diskSize", lambda machine: machine.root_gib == 40),
    ("legacy", "diskBus", lambda machine: machine.size_gib("sda") == 40),
    ("legacy", "networkName", lambda machine: machine.addresses[0][0].startswith("192.168.50.")),
    (
        "legacy",
        "networkModel",
        lambda machine: machine.shown("/sys/class/net/enp1s0/device/uevent") == b"DRIVER=e1000e\n",
    ),
    ("legacy", "cpuCount", lambda machine: machine.shown(CPUS).count(b"processor") == 2),
    (
        "legacy",
        "no firmware",
        lambda machine: not machine.shown(SECURE_BOOT) and "secureboot" not in machine.console,
    ),
    # The disk with bootOrder 1 is booted, though it is the second; buses name the disks.
    ("many", "diskInfo.bootOrder", lambda machine: machine.root_gib == 41),
    (
        "many",
        "diskInfo.bus",
        lambda machine: [machine.size_gib(one) for one in ("sda", "sdb", "vdb")] == [11, 41, 13],
    ),
    ("many", "diskInfo.hotPlugAble", lambda machine: machine.volume("disk-3").get("phase") == "Ready"),
    ("many", "diskInfo, not hot-pluggable", lambda machine: "phase" not in machine.volume("disk-2")),
    (
        "many",
        "networkInfo.macAddress",
        lambda machine: machine.shown("/sys/class/net/enp2s0/address").decode() == f"{MACS[1]}\n",
    ),
    (
        "many",
        "networkInfo.model",
        lambda machine: machine.shown("/sys/class/net/enp1s0/device/uevent") == b"DRIVER=e1000\n",
    ),
    ("many", "networkInfo", lambda machine: len(machine.addresses) >= 2),
    ("many", "networkData", lambda machine: ["192.168.77.7"] in machine.addresses),
    ("many", "vmAffinity in base64, by a label of hosts", lambda machine: machine.host == "host-3"),
    ("secure", "enableEfi", lambda machine: machine.shown("/sys/firmware/efi/fw_platform_size") == b"64\n"),
    ("secure", "enableSecureBoot", lambda machine: machine.shown(SECURE_BOOT)[-1:] == b"\x01"),
    ("secure", "enableTpm", lambda machine: machine.shown("/sys/class/tpm/tpm0/tpm_version_major") == b"2\n"),
    (
        "secure",
        "cpuModel",
        lambda machine: b"Haswell-noTSX" in machine.shown(CPUS) and machine.host == "host-3",
    ),
    ("secure", "cpuCount", lambda machine: machine.shown(CPUS).count(b"processor") == 3),
    (
        "secure",
        "memorySize less reservedMemorySize",
        lambda machine: f"{(6 * 1024 - 512) * 1024} kB".encode() in machine.shown("/proc/meminfo"),
    ),
    ("secure", "keyPairName", lambda machine: "placeholder@windrow" in keys(machine, "me")),
    ("secure", "sshUser", lambda machine: "me" in machine.users),
    (
        "secure",
        "vmAffinity by zone",
        lambda machine: nested(machine.vmi, "metadata", "annotations")[ZONE] == "zone-3",
    ),
    ("gpu", "vgpuInfo", lambda machine: f"device {GPU}" in machine.console and machine.host == "host-2"),
    (
        "gpu",
        "vgpuInfo, bound to its host",
        lambda machine: machine.condition("LiveMigratable")["reason"] == "HostDeviceNotLiveMigratable",
    ),
    (
        "gpu",
        "cpuPinning",
        lambda machine: (
            nested(machine.vmi, "spec", "domain", "cpu", "dedicatedCpuPlacement") and machine.host == "host-2"
        ),
    ),
    ("gpu", "enableEfi without enableSecureBoot", lambda machine: machine.shown(SECURE_BOOT)[-1:] == b"\x00"),
    ("gpu", "networkData as it is", lambda machine: machine.addresses[0][0].startswith("192.168.50.")),
]


def list_missing(pool: str, machine: MachineState) -> list[str]:
    """The options of the pool that had no effect."""
    return [
        f"{pool}: {option}" for of_pool, option, holds in EFFECTS if of_pool == pool and not holds(machine)
    ]
