"""What the two drivers are asked to make, to be compared: one wish each, as flags of `create`."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from tests.conformance.node_driver_rig import IMAGE, KEY_PAIR, NETWORK, OTHER_NETWORK, STORAGE

IMAGE_DISK = {"imageName": IMAGE, "size": 10, "bootOrder": 1}
NIC = {"networkName": NETWORK}


def flags(disks: list[Any] | None = None, nics: list[Any] | None = None, **more: Any) -> list[str]:
    """The flags of a machine with one image disk and one card, unless told otherwise; `True` is a bare flag."""
    given: dict[str, Any] = {
        "disk_info": {"disks": [IMAGE_DISK] if disks is None else disks},
        "network_info": {"interfaces": [NIC] if nics is None else nics},
        **more,
    }
    found: list[str] = []
    for name, value in given.items():
        flag = f"--harvester-{name.replace('_', '-')}"
        if value is True:
            found.append(flag)
        elif value is not None:
            found += [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
    return found


def _anti_affinity(kind: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


NODE_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]}]
        }
    }
}
DHCP = {"version": 1, "config": [{"type": "physical", "name": "enp1s0", "subnets": [{"type": "dhcp"}]}]}
NOISE = "x" * 2100
PERMISSIONS = "write_files:\n- path: /a\n  permissions: 0644\n  content: a\n"
RUNCMD = "package_update: true\npackages: [vim]\nruncmd:\n- [echo, user]\n"
AGENT = "packages: [qemu-guest-agent]\nruncmd:\n- [systemctl, enable, --now, qemu-guest-agent]\n"
COMMENTED = "# mine\nhostname: 'own'\nfinal_message: \"done\"\n"
PRIVATE_KEY = "install.sh"  # any file will do: both drivers copy it unread

INPUTS: Mapping[str, list[str]] = {
    "minimal": flags(),
    "cluster name": flags(cluster_name="c1"),
    "no boot order": flags([{"imageName": IMAGE, "size": 10}]),
    "multi disk": flags(
        [IMAGE_DISK, {"storageClassName": STORAGE, "size": 5}, {"storageClassName": STORAGE, "size": 6, "bus": "sata"}]
    ),
    "boot order on the second disk": flags(
        [{"imageName": IMAGE, "size": 10}, {"storageClassName": STORAGE, "size": 5, "bootOrder": 1}]
    ),
    "hot-plugged disk": flags(
        [IMAGE_DISK, {"storageClassName": STORAGE, "size": 5, "bus": "scsi", "hotPlugAble": True}]
    ),
    "storage class disk": flags([{"storageClassName": STORAGE, "size": 5, "bootOrder": 1}]),
    "storage class beside an image": flags([{**IMAGE_DISK, "storageClassName": STORAGE}]),
    "cd-rom": flags([IMAGE_DISK, {"storageClassName": STORAGE, "size": 5, "type": "cd-rom", "bus": "sata"}]),
    "cd-rom without bus": flags([IMAGE_DISK, {"storageClassName": STORAGE, "size": 5, "type": "cd-rom"}]),
    "two cards": flags(
        nics=[NIC, {"networkName": OTHER_NETWORK, "model": "e1000", "macAddress": "52:54:00:12:34:56"}]
    ),
    "short names": flags([{**IMAGE_DISK, "imageName": "ubuntu"}], [{"networkName": "vlan50"}]),
    "single disk": [
        *("--harvester-image-name", IMAGE, "--harvester-disk-size", "10", "--harvester-network-name", NETWORK)
    ],
    "user data": flags(user_data=RUNCMD),
    "user data with agent": flags(user_data=AGENT),
    "user data in base64": flags(user_data=base64.b64encode(RUNCMD.encode()).decode()),
    "user data with jinja": flags(user_data="## template: jinja\n#cloud-config\nfinal_message: '{{ ds }}'\n"),
    "user data with permissions": flags(user_data=PERMISSIONS),
    "user data with comments": flags(user_data=COMMENTED),
    "long user data": flags(user_data=f"bootcmd: ['echo {NOISE}']\n"),
    "network data": flags(network_data=json.dumps(DHCP)),
    "long network data": flags(network_data=f"# {NOISE}\n{json.dumps(DHCP)}"),
    "long user data and network data": flags(
        user_data=f"bootcmd: ['echo {NOISE}']\n", network_data=json.dumps(DHCP)
    ),
    "affinity": flags(vm_affinity=_anti_affinity("podAffinity")),
    "anti-affinity": flags(vm_affinity=_anti_affinity("podAntiAffinity")),
    "node affinity": flags(vm_affinity=NODE_AFFINITY),
    "EFI": flags(enable_efi=True),
    "EFI with secure boot": flags(enable_efi=True, enable_secure_boot=True),
    "TPM": flags(enable_tpm=True),
    "vGPU": flags(vgpu_info={"vGPURequests": [{"name": "gpu1", "deviceName": "nvidia.com/A2"}]}),
    "vGPU without name": flags(vgpu_info={"vGPURequests": [{"deviceName": "nvidia.com/A2"}]}),
    "CPU pinning": flags(cpu_pinning=True, isolate_emulator_thread=True),
    "reserved memory": flags(reserved_memory_size=256),
    "CPU model": flags(cpu_model="host-passthrough"),
    "size": flags(cpu_count=8, memory_size=16),
    "key pair": flags(key_pair_name=KEY_PAIR, ssh_private_key_path=PRIVATE_KEY),
    "SSH password": flags(ssh_user="ops", ssh_password="secret"),
}  # fmt: skip
