"""Harvester's own VM builder, beside ours: the same virtual machine of the same spec, field by field.

The program is `vmbuilder`, a few lines of Go on `github.com/harvester/harvester/pkg/builder` at the release that its go.mod
pins. What the node driver sets without the builder (firmware, processor model) is not compared here.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from windrow.harvester import names
from windrow.harvester.vms import CloudInit, HostDevice, Nic, VmSpec, build_vm
from windrow.harvester.volumes import Disk

pytestmark = pytest.mark.go

ROOT = Disk(
    "disk-0", "c1-pool1-abcde-fghij-disk-0-x7k2p", 40, "longhorn-image-1", "default/image-1", boot_order=1
)
DATA = Disk("disk-1", "c1-pool1-abcde-fghij-disk-1-q5m9z", 10, "fast")
NIC = Nic("nic-0", "default/vlan50")
BASE = VmSpec(
    "c1-pool1-abcde-fghij", "default", disks=(ROOT,), nics=(NIC,), cloud_init=CloudInit(user_data_in_secret=True)
)  # fmt: skip
TERM = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}

CASES: Mapping[str, VmSpec] = {
    "one disk, one card": BASE,
    "another namespace": replace(BASE, namespace="ns-1"),
    "size": replace(BASE, cores=16, memory="64Gi"),
    "two disks": replace(BASE, disks=(ROOT, DATA)),
    "boot order on the second disk": replace(BASE, disks=(replace(ROOT, boot_order=0), replace(DATA, boot_order=1))),
    "buses": replace(BASE, disks=(replace(ROOT, bus="sata"), replace(DATA, bus="scsi"))),
    "cd-rom": replace(BASE, disks=(ROOT, replace(DATA, bus="sata", is_cdrom=True))),
    "hot-plugged disk": replace(BASE, disks=(ROOT, replace(DATA, bus="scsi", hotpluggable=True))),
    "two cards": replace(BASE, nics=(NIC, Nic("nic-1", "default/vlan60", "52:54:00:12:34:56", "e1000"))),
    "guest cluster": replace(BASE, guest_cluster="c1"),
    "reserved memory": replace(BASE, reserved_memory="256Mi"),
    "pinned CPUs": replace(BASE, cpus="dedicated and isolated"),
    "TPM": replace(BASE, tpm=True),
    "vGPUs": replace(BASE, devices=(HostDevice("gpu-0", "nvidia.com/A2"), HostDevice("gpu-1", "nvidia.com/A2"))),
    "key pair": replace(BASE, ssh_names=("default/key",)),
    "user data in the VM": replace(BASE, cloud_init=CloudInit("#cloud-config\n", "version: 2\n")),
    "both documents in the Secret": replace(
        BASE, cloud_init=CloudInit(user_data_in_secret=True, network_data_in_secret=True)
    ),
    "node affinity": replace(
        BASE,
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]}]
                }
            }
        },
    ),
    "anti-affinity": replace(
        BASE, affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
    ),
}  # fmt: skip


def builder_spec(spec: VmSpec) -> dict[str, Any]:
    """What the builder is asked for, in the order of its methods; labels, annotations and affinity are its callers' own."""
    vm = build_vm(spec)
    secret = f"{spec.name}-cloudinit"
    affinity = vm["spec"]["template"]["spec"]["affinity"] if spec.affinity is not None else None
    own = {key: text for key, text in vm["metadata"]["annotations"].items() if key != names.CLAIM_TEMPLATES}
    return {
        "Creator": names.CREATOR_NODE_DRIVER,
        "Namespace": spec.namespace,
        "Name": spec.name,
        "Memory": spec.memory,
        "CPU": spec.cores,
        "Labels": vm["metadata"]["labels"],
        "Annotations": own,
        "Affinity": affinity,
        "Disks": [
            {
                "Name": disk.name,
                "Bus": disk.bus,
                "Claim": disk.claim,
                "Size": f"{disk.size_gib}Gi",
                "Class": disk.storage_class,
                "Image": disk.image,
                "CDRom": disk.is_cdrom,
                "Hotpluggable": disk.hotpluggable,
                "BootOrder": disk.boot_order,
            }
            for disk in spec.disks
        ],
        "Cards": [
            {
                "Name": nic.name,
                "Model": nic.model,
                "MAC": nic.mac,
                "Type": "bridge",
                "Network": nic.network,
            }
            for nic in spec.nics
        ],
        "VGPUs": [{"Name": device.name, "Device": device.device_name} for device in spec.devices],
        "TPM": spec.tpm,
        "Pinned": spec.cpus != "shared",
        "Isolated": spec.cpus == "dedicated and isolated",
        "SSHNames": list(spec.ssh_names),
        "CloudInit": {
            "CloudInitType": "noCloud",
            "UserDataSecretName": secret if spec.cloud_init.user_data_in_secret else "",
            "UserData": spec.cloud_init.user_data,
            "NetworkDataSecretName": secret if spec.cloud_init.network_data_in_secret else "",
            "NetworkData": spec.cloud_init.network_data,
        },
    }


def compared(raw: Mapping[str, Any]) -> Any:
    """The VM without what Go writes of every object (empty status, null time of creation) and with its claims readable."""
    vm = json.loads(json.dumps(raw))
    annotations = vm["metadata"]["annotations"]
    annotations[names.CLAIM_TEMPLATES] = json.loads(annotations[names.CLAIM_TEMPLATES])
    return _without_go_defaults({key: vm[key] for key in ("metadata", "spec")})


def _without_go_defaults(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_go_defaults(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_go_defaults(inner)
        for key, inner in value.items()
        if (key, inner) not in (("creationTimestamp", None), ("status", {}))
    }


def test_harvester_s_own_builder_makes_the_same_vms(reference_program: Callable[[str], str]) -> None:
    specs = json.dumps([builder_spec(spec) for spec in CASES.values()])
    built = subprocess.run(
        [reference_program("vmbuilder")], input=specs, capture_output=True, text=True, check=True, timeout=60
    )
    theirs = dict(zip(CASES, json.loads(built.stdout), strict=True))
    for name, spec in CASES.items():
        assert compared(build_vm(spec)) == compared(theirs[name]), name
