"""Creations and updates of VirtualMachines, valid and broken: fields, devices, volumes, networks, resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.admission.asking import Question
from tests.conformance.admission.cases.edits import REMOVE, Edits, edited
from tests.conformance.admission.world import ClusterDump, a_claim_template, a_vm

from windrow.core.formats.json import dumps
from windrow.emulator import kinds

GROUP = "vm"
CLAIMS = "A/harvesterhci.io/volumeClaimTemplates"
RESERVED = "A/harvesterhci.io/reservedMemory"


def _disk(name: str, bus: str = "virtio", **more: Any) -> dict[str, Any]:
    return {"name": name, "disk": {"bus": bus}, **more}


def _container(name: str) -> dict[str, Any]:
    return {"name": name, "containerDisk": {"image": "registry.example/disk:1"}}


def _no_cloud(**fields: Any) -> dict[str, Any]:
    return {"name": "cloudinitdisk", "cloudInitNoCloud": fields}


def _claims(*templates: Any) -> str:
    return dumps(list(templates)).decode()


def _card(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "model": "virtio", "bridge": {}, **more}


def _net(name: str, network: str = "tenant/vlan60") -> dict[str, Any]:
    return {"name": name, "multus": {"networkName": network}}


def _two_cards(second: Any, network: Any) -> Edits:
    return {"V.interfaces.+": second, "T.networks.+": network}


def _one_of_each(names: str, path: str, label: str = "") -> dict[str, Edits]:
    return {f"{label or path} {name}": {path: name} for name in names.split()}


BASICS: Mapping[str, Edits] = {
    "as it is": {},
    "generated name": {"metadata.name": REMOVE, "metadata.generateName": "new-"},
    "name of 63": {"metadata.name": "n" * 63},
    "name of 64": {"metadata.name": "n" * 64},
    "name of 64 with hostname": {"metadata.name": "n" * 64, "T.hostname": "short"},
    "name of 253": {"metadata.name": "n" * 253},
    "name with dots": {"metadata.name": "new.example.com"},
    "name with capitals": {"metadata.name": "New"},
    "name with underscore": {"metadata.name": "a_b"},
    "no annotations": {"metadata.annotations": REMOVE},
    "null annotations": {"metadata.annotations": None},
    "no labels": {"metadata.labels": REMOVE},
    "bad label": {"L/a": "no spaces please"},
    "running": {"spec.runStrategy": REMOVE, "spec.running": True},
    "not running": {"spec.runStrategy": REMOVE, "spec.running": False},
    "running and strategy": {"spec.running": True},
    "neither running nor strategy": {"spec.runStrategy": REMOVE},
    **_one_of_each("Always RerunOnFailure Manual Halted Once WaitAsReceiver Sometimes", "spec.runStrategy"),
    "no template": {"spec.template": REMOVE},
    "empty template": {"spec.template": {}},
    "no spec": {"spec": REMOVE},
    "no domain": {"spec.template.spec.domain": REMOVE},
    "empty domain": {"spec.template.spec.domain": {}},
    "no devices": {"D.devices": {}},
    "unknown field": {"T.nonsense": True},
    "text for a number": {"D.cpu.cores": "two"},
    "number for a text": {"T.hostname": 7},
    "negative cores": {"D.cpu.cores": -1},
    "image ids": {"A/harvesterhci.io/imageId": "default/jammy"},
    "run strategy annotation": {"A/harvesterhci.io/vmRunStrategy": "RerunOnFailure"},
    "finalizer": {"metadata.finalizers": ["a.b/c"]},
    "bad finalizer": {"metadata.finalizers": ["no good"]},
    "unknown namespace": {"metadata.namespace": "nowhere"},
    "template labels": {"spec.template.metadata.labels": {"a": "b"}},
    "bad template label": {"spec.template.metadata.labels": {"a": "b c"}},
    "bad template annotation": {"spec.template.metadata.annotations": {"a b": "c"}},
    "data volume template": {
        "spec.dataVolumeTemplates": [
            {"metadata": {"name": "dv"}, "spec": {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}}}
        ]
    },
    "data volume template unnamed": {"spec.dataVolumeTemplates": [{"metadata": {}, "spec": {"source": {"blank": {}}}}]},
    "instance type": {"spec.instancetype": {"name": "u1.small"}},
    "preference": {"spec.preference": {"name": "linux"}},
    "update volumes strategy": {"spec.updateVolumesStrategy": "Migration"},
    "unknown update volumes strategy": {"spec.updateVolumesStrategy": "Sideways"},
}  # fmt: skip

HARDWARE: Mapping[str, Edits] = {
    "no cpu": {"D.cpu": REMOVE},
    "empty cpu": {"D.cpu": {}},
    "cores only": {"D.cpu": {"cores": 2}},
    "sockets only": {"D.cpu": {"sockets": 2}},
    "threads": {"D.cpu": {"cores": 1, "threads": 2, "sockets": 1}},
    "sockets above the maximum": {"D.cpu": {"cores": 1, "sockets": 4, "maxSockets": 2}},
    "maximum of sockets": {"D.cpu": {"cores": 1, "sockets": 1, "maxSockets": 4}},
    "more cores than the limit": {"D.cpu.cores": 8},
    "fewer cores than the limit": {"D.cpu.cores": 1},
    "cpu limit in millis": {"D.resources.limits.cpu": "2500m"},
    "cpu limit tiny": {"D.resources.limits.cpu": "1m"},
    "cpu limit zero": {"D.resources.limits.cpu": "0"},
    "cpu limit negative": {"D.resources.limits.cpu": "-1"},
    "cpu limit a word": {"D.resources.limits.cpu": "two"},
    "cpu limit a number": {"D.resources.limits.cpu": 2},
    "cpu request": {"D.resources.requests": {"cpu": "2"}},
    "cpu request over the limit": {"D.resources.requests": {"cpu": "4"}, "D.resources.limits": {"cpu": "2", "memory": "4Gi"}},
    "no cpu limit": {"D.resources.limits.cpu": REMOVE},
    "no limits": {"D.resources.limits": REMOVE},
    "no limits, memory requested": {"D.resources.limits": REMOVE, "D.resources.requests": {"memory": "2Gi"}},
    "no limits, guest memory": {"D.resources": REMOVE, "D.memory": {"guest": "2Gi"}},
    "no memory at all": {"D.resources": REMOVE},
    "memory limit under 10 Mi": {"D.resources.limits.memory": "5Mi"},
    "memory limit 10 Mi": {"D.resources.limits.memory": "10Mi"},
    "memory limit 100 Mi": {"D.resources.limits.memory": "100Mi"},
    "memory limit 109 Mi": {"D.resources.limits.memory": "109Mi"},
    "memory limit 110 Mi": {"D.resources.limits.memory": "110Mi"},
    "memory limit 256 Mi": {"D.resources.limits.memory": "256Mi"},
    "memory limit odd": {"D.resources.limits.memory": "4000000000"},
    "memory limit in G": {"D.resources.limits.memory": "4G"},
    "memory limit fractional": {"D.resources.limits.memory": "1.5Gi"},
    "memory limit zero": {"D.resources.limits.memory": "0"},
    "memory limit negative": {"D.resources.limits.memory": "-4Gi"},
    "memory limit a word": {"D.resources.limits.memory": "much"},
    "no memory limit": {"D.resources.limits.memory": REMOVE},
    "guest memory": {"D.memory": {"guest": "2Gi"}},
    "guest memory over the limit": {"D.memory": {"guest": "8Gi"}},
    "guest memory zero": {"D.memory": {"guest": "0"}},
    "maximum of guest memory": {"D.memory": {"guest": "2Gi", "maxGuest": "4Gi"}},
    "maximum of guest memory below it": {"D.memory": {"guest": "4Gi", "maxGuest": "2Gi"}},
    "huge pages": {"D.memory": {"hugepages": {"pageSize": "2Mi"}}},
    "huge pages of a bad size": {"D.memory": {"hugepages": {"pageSize": "2bi"}}},
    "huge pages that do not divide": {"D.memory": {"hugepages": {"pageSize": "3Mi"}}},
    "reserved memory": {RESERVED: "256Mi"},
    "reserved memory of all": {RESERVED: "4Gi"},
    "reserved memory above all": {RESERVED: "5Gi"},
    "reserved memory a word": {RESERVED: "some"},
    "reserved memory empty": {RESERVED: ""},
    "reserved memory zero": {RESERVED: "0"},
    "reserved memory negative": {RESERVED: "-1Gi"},
    "requests of memory": {"D.resources.requests": {"memory": "2Gi"}},
    "requests of memory above the limit": {"D.resources.requests": {"memory": "8Gi"}},
    "pinned": {"D.cpu.dedicatedCpuPlacement": True},
    "pinned without limits": {"D.cpu.dedicatedCpuPlacement": True, "D.resources.limits": {"memory": "4Gi"}},
    "pinned with fractions": {"D.cpu.dedicatedCpuPlacement": True, "D.resources.limits.cpu": "2500m"},
    "pinned, other limit": {"D.cpu.dedicatedCpuPlacement": True, "D.resources.limits.cpu": "4"},
    "pinned and isolated": {"D.cpu.dedicatedCpuPlacement": True, "D.cpu.isolateEmulatorThread": True},
    "isolated without pinning": {"D.cpu.isolateEmulatorThread": True},
    "numa without huge pages": {"D.cpu.numa": {"guestMappingPassthrough": {}}},
    "realtime": {"D.cpu.realtime": {}},
    "cpu model": {"D.cpu.model": "host-passthrough"},
    "cpu model unknown": {"D.cpu.model": "cray"},
    "cpu feature": {"D.cpu.features": [{"name": "vmx", "policy": "require"}]},
    "cpu feature of a bad policy": {"D.cpu.features": [{"name": "vmx", "policy": "maybe"}]},
    "machine type": {"D.machine": {"type": "q35"}},
    "machine type of a version": {"D.machine": {"type": "pc-q35-rhel8.6.0"}},
    "machine type i440fx": {"D.machine": {"type": "pc"}},
    "machine type unknown": {"D.machine": {"type": "toaster"}},
    "machine type empty": {"D.machine": {"type": ""}},
    "architecture": {"T.architecture": "amd64"},
    "architecture arm64": {"T.architecture": "arm64"},
    "architecture unknown": {"T.architecture": "mips"},
    "bios": {"D.firmware": {"bootloader": {"bios": {}}}},
    "bios with serial": {"D.firmware": {"bootloader": {"bios": {"useSerial": True}}}},
    "efi": {"D.firmware": {"bootloader": {"efi": {"secureBoot": False}}}},
    "secure boot by default without smm": {"D.firmware": {"bootloader": {"efi": {}}}},
    "secure boot without smm": {"D.firmware": {"bootloader": {"efi": {"secureBoot": True}}}},
    "secure boot with smm": {"D.firmware": {"bootloader": {"efi": {"secureBoot": True}}}, "D.features": {"smm": {"enabled": True}}},
    "secure boot with smm off": {"D.firmware": {"bootloader": {"efi": {"secureBoot": True}}}, "D.features": {"smm": {"enabled": False}}},
    "bios and efi": {"D.firmware": {"bootloader": {"bios": {}, "efi": {"secureBoot": False}}}},
    "firmware ids": {"D.firmware": {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "serial": "abc"}},
    "firmware uuid a word": {"D.firmware": {"uuid": "none"}},
    "firmware serial of 257": {"D.firmware": {"serial": "s" * 257}},
    "firmware serial with a slash": {"D.firmware": {"serial": "a/b!"}},
    "kernel boot without image": {"D.firmware": {"kernelBoot": {"container": {}}}},
    "tpm": {"V.tpm": {}},
    "tpm that persists": {"V.tpm": {"persistent": True}},
    "efi that persists": {"D.firmware": {"bootloader": {"efi": {"secureBoot": False, "persistent": True}}}},
    "acpi": {"D.features": {"acpi": {"enabled": True}}},
    "hyperv": {"D.features": {"hyperv": {"relaxed": {}, "spinlocks": {"spinlocks": 8191}}}},
    "hyperv spinlocks too few": {"D.features": {"hyperv": {"spinlocks": {"spinlocks": 2}}}},
    "hyperv vendor id of 13": {"D.features": {"hyperv": {"vendorid": {"vendorid": "n" * 13}}}},
    "hyperv and its passthrough": {"D.features": {"hyperv": {"relaxed": {}}, "hypervPassthrough": {"enabled": True}}},
    "clock": {"D.clock": {"timezone": "Europe/Berlin", "timer": {}}},
    "clock in two ways": {"D.clock": {"timezone": "Europe/Berlin", "utc": {}}},
    "clock of an unknown place": {"D.clock": {"timezone": "Nowhere/None"}},
    "io threads": {"D.ioThreadsPolicy": "auto"},
    "io threads unknown": {"D.ioThreadsPolicy": "many"},
    "launch security": {"D.launchSecurity": {"sev": {}}},
    "gpu": {"V.gpus": [{"name": "gpu", "deviceName": "nvidia.com/A2"}]},
    "gpu without a name": {"V.gpus": [{"deviceName": "nvidia.com/A2"}]},
    "two gpus of one name": {"V.gpus": [{"name": "gpu", "deviceName": "nvidia.com/A2"}] * 2},
    "host device": {"V.hostDevices": [{"name": "nic", "deviceName": "intel.com/nic"}]},
    "host device and gpu": {"V.hostDevices": [{"name": "nic", "deviceName": "intel.com/nic"}], "V.gpus": [{"name": "gpu", "deviceName": "nvidia.com/A2"}]},
    "usb device": {"V.clientPassthrough": {}},
    "inputs": {"V.inputs": [{"name": "tablet", "type": "tablet", "bus": "usb"}]},
    "input of a bad bus": {"V.inputs": [{"name": "tablet", "type": "tablet", "bus": "ps2"}]},
    "input of a bad type": {"V.inputs": [{"name": "mouse", "type": "mouse", "bus": "usb"}]},
    "sound": {"V.sound": {"name": "s", "model": "ich9"}},
    "sound unknown": {"V.sound": {"name": "s", "model": "gramophone"}},
    "sound without a name": {"V.sound": {"model": "ich9"}},
    "watchdog": {"V.watchdog": {"name": "w", "i6300esb": {"action": "reset"}}},
    "watchdog without a name": {"V.watchdog": {"i6300esb": {"action": "reset"}}},
    "watchdog of nothing": {"V.watchdog": {"name": "w"}},
    "serial console off": {"V.autoattachSerialConsole": False},
    "serial log without console": {"V.autoattachSerialConsole": False, "V.logSerialConsole": True},
    "graphics off": {"V.autoattachGraphicsDevice": False},
    "video": {"V.video": {"type": "vga"}},
    "rng": {"V.rng": {}},
    "filesystem": {"V.filesystems": [{"name": "disk-0", "virtiofs": {}}]},
    "block multi queue": {"V.blockMultiQueue": True},
    "network multi queue": {"V.networkInterfaceMultiqueue": True},
    "downward metrics": {"V.downwardMetrics": {}},
}  # fmt: skip

DISKS: Mapping[str, Edits] = {
    **_one_of_each("virtio sata scsi usb ide floppy SATA nvme", "V.disks.0.disk.bus", "bus"),
    "bus empty": {"V.disks.0.disk.bus": ""},
    "no bus": {"V.disks.0.disk": {}},
    **{f"cd-rom on {bus}": {"V.disks.0": {"name": "disk-0", "cdrom": {"bus": bus}}} for bus in ["sata", "scsi", "virtio", "usb", "ide"]},
    **{f"lun on {bus}": {"V.disks.0": {"name": "disk-0", "lun": {"bus": bus}}} for bus in ["scsi", "sata", "virtio"]},
    "lun with reservation": {"V.disks.0": {"name": "disk-0", "lun": {"bus": "scsi", "reservation": True}}},
    "disk and cd-rom": {"V.disks.0.cdrom": {"bus": "sata"}},
    "neither disk nor cd-rom": {"V.disks.0.disk": REMOVE},
    "empty cd-rom": {"V.disks.+": {"name": "tray", "cdrom": {"bus": "sata"}}},
    "empty scsi cd-rom": {"V.disks.+": {"name": "tray", "cdrom": {"bus": "scsi"}}},
    "disk without volume": {"V.disks.+": _disk("lost")},
    "volume without disk": {"T.volumes.+": _container("lost")},
    "disk without name": {"V.disks.0.name": ""},
    "volume without name": {"T.volumes.0.name": ""},
    "two disks of one name": {"V.disks.+": _disk("disk-0")},
    "two volumes of one name": {"T.volumes.+": _container("disk-0")},
    "volume of two sources": {"T.volumes.0.containerDisk": {"image": "a"}},
    "volume of no source": {"T.volumes.0.persistentVolumeClaim": REMOVE},
    "volume name with capitals": {"T.volumes.0.name": "Disk", "V.disks.0.name": "Disk"},
    "boot order zero": {"V.disks.0.bootOrder": 0},
    "boot order negative": {"V.disks.0.bootOrder": -1},
    "boot orders equal": {"V.disks.1.bootOrder": 1},
    "boot orders of disk and card equal": {"V.interfaces.0.bootOrder": 1},
    "boot order of a card": {"V.interfaces.0.bootOrder": 2},
    "boot order of a card zero": {"V.interfaces.0.bootOrder": 0},
    "no boot order": {"V.disks.0.bootOrder": REMOVE},
    **_one_of_each("none writethrough writeback directsync", "V.disks.0.cache", "cache"),
    **_one_of_each("native threads default", "V.disks.0.io", "io"),
    "io native with cache": {"V.disks.0.io": "native", "V.disks.0.cache": "writeback"},
    "disk serial": {"V.disks.0.serial": "ABC-123"},
    "disk serial of 257": {"V.disks.0.serial": "s" * 257},
    "disk serial with spaces": {"V.disks.0.serial": "a b"},
    "disk serial with a semicolon": {"V.disks.0.serial": "a;b"},
    "shareable": {"V.disks.0.shareable": True},
    "shareable with cache": {"V.disks.0.shareable": True, "V.disks.0.cache": "writeback"},
    "error policy": {"V.disks.0.errorPolicy": "report"},
    "error policy unknown": {"V.disks.0.errorPolicy": "shrug"},
    "io thread on sata": {"V.disks.0.disk.bus": "sata", "V.disks.0.dedicatedIOThread": True},
    "pci address": {"V.disks.0.disk.pciAddress": "0000:81:11.1"},
    "pci address a word": {"V.disks.0.disk.pciAddress": "there"},
    "pci address on sata": {"V.disks.0.disk": {"bus": "sata", "pciAddress": "0000:81:11.1"}},
    "block size": {"V.disks.0.blockSize": {"custom": {"logical": 512, "physical": 4096}}},
    "block size odd": {"V.disks.0.blockSize": {"custom": {"logical": 513, "physical": 4096}}},
    "block size reversed": {"V.disks.0.blockSize": {"custom": {"logical": 4096, "physical": 512}}},
    "disk tag": {"V.disks.0.tag": "root"},
    "container disk": {"V.disks.+": _disk("c"), "T.volumes.+": _container("c")},
    "container disk without image": {"V.disks.+": _disk("c"), "T.volumes.+": {"name": "c", "containerDisk": {}}},
    "empty disk": {"V.disks.+": _disk("e"), "T.volumes.+": {"name": "e", "emptyDisk": {"capacity": "1Gi"}}},
    "host disk": {"V.disks.+": _disk("h"), "T.volumes.+": {"name": "h", "hostDisk": {"path": "/data/a.img", "type": "Disk"}}},
    "secret volume": {"V.disks.+": _disk("s"), "T.volumes.+": {"name": "s", "secret": {"secretName": "cloud-init"}}},
    "secret volume without name": {"V.disks.+": _disk("s"), "T.volumes.+": {"name": "s", "secret": {}}},
    "config map volume": {"V.disks.+": _disk("m"), "T.volumes.+": {"name": "m", "configMap": {"name": "m"}}},
    "sysprep": {"V.disks.+": _disk("p", "sata"), "T.volumes.+": {"name": "p", "sysprep": {"secret": {"name": "p"}}}},
    "service account": {"V.disks.+": _disk("a"), "T.volumes.+": {"name": "a", "serviceAccount": {"serviceAccountName": "default"}}},
    "two service accounts": {
        "V.disks": [_disk("a"), _disk("b")],
        "T.volumes": [{"name": name, "serviceAccount": {"serviceAccountName": "default"}} for name in "ab"],
    },
    "data volume": {"V.disks.+": _disk("d"), "T.volumes.+": {"name": "d", "dataVolume": {"name": "dv"}}},
    "claim without a name": {"T.volumes.0.persistentVolumeClaim": {}},
    "claim that is not there": {"T.volumes.0.persistentVolumeClaim.claimName": "missing"},
    "claim that is free": {"T.volumes.0.persistentVolumeClaim.claimName": "free"},
    "claim of another VM": {"T.volumes.0.persistentVolumeClaim.claimName": "running-disk-0"},
    "claim of another VM, shareable": {"T.volumes.0.persistentVolumeClaim.claimName": "running-disk-0", "V.disks.0.shareable": True},
    "claim of a stopped VM": {"T.volumes.0.persistentVolumeClaim.claimName": "stopped-disk-0"},
    "one claim twice": {"V.disks.+": _disk("again"), "T.volumes.+": {"name": "again", "persistentVolumeClaim": {"claimName": "new-disk-0"}}},
    "hot-pluggable": {"T.volumes.0.persistentVolumeClaim.hotpluggable": True, "V.disks.0.disk.bus": "scsi"},
    "hot-pluggable on virtio": {"T.volumes.0.persistentVolumeClaim.hotpluggable": True},
    "no volumes": {"V.disks": [], "T.volumes": []},
    "many disks": {
        "V.disks": [_disk(f"d{n}") for n in range(30)],
        "T.volumes": [_container(f"d{n}") for n in range(30)],
    },
}  # fmt: skip

CLOUD_INIT: Mapping[str, Edits] = {
    "cloud-init from a secret": {"T.volumes.1": _no_cloud(secretRef={"name": "cloud-init"})},
    "cloud-init from a missing secret": {"T.volumes.1": _no_cloud(secretRef={"name": "missing"})},
    "cloud-init empty": {"T.volumes.1": _no_cloud()},
    "cloud-init of two sources": {"T.volumes.1": _no_cloud(secretRef={"name": "cloud-init"}, userData="#cloud-config\n")},
    "cloud-init in base64": {"T.volumes.1": _no_cloud(userDataBase64="I2Nsb3VkLWNvbmZpZwo=")},
    "cloud-init not in base64": {"T.volumes.1": _no_cloud(userDataBase64="#cloud-config")},
    "cloud-init base64 of 2049": {"T.volumes.1": _no_cloud(userDataBase64="QUFB" * 683)},
    "cloud-init base64 text over 2048": {"T.volumes.1": _no_cloud(userDataBase64="QUFB" * 600)},
    "cloud-init text and base64": {"T.volumes.1": _no_cloud(userData="#cloud-config\n", userDataBase64="I2Nsb3VkLWNvbmZpZwo=")},
    "cloud-init of 2048": {"T.volumes.1": _no_cloud(userData="x" * 2048)},
    "cloud-init of 2049": {"T.volumes.1": _no_cloud(userData="x" * 2049)},
    "cloud-init of 2048 letters of two bytes": {"T.volumes.1": _no_cloud(userData="ä" * 1025)},
    "network data": {"T.volumes.1": _no_cloud(userData="#cloud-config\n", networkData="version: 2\n")},
    "network data alone": {"T.volumes.1": _no_cloud(networkData="version: 2\n")},
    "network data of 2049": {"T.volumes.1": _no_cloud(userData="#cloud-config\n", networkData="x" * 2049)},
    "network data from a secret": {"T.volumes.1": _no_cloud(secretRef={"name": "a"}, networkDataSecretRef={"name": "a"})},
    "network data of two sources": {"T.volumes.1": _no_cloud(secretRef={"name": "a"}, networkDataSecretRef={"name": "a"}, networkData="b")},
    "network data not in base64": {"T.volumes.1": _no_cloud(userData="a", networkDataBase64="%%%")},
    "config drive": {"T.volumes.1": {"name": "cloudinitdisk", "cloudInitConfigDrive": {"userData": "#cloud-config\n"}}},
    "config drive empty": {"T.volumes.1": {"name": "cloudinitdisk", "cloudInitConfigDrive": {}}},
    "two cloud-inits": {
        "V.disks.+": _disk("second"),
        "T.volumes.+": {"name": "second", "cloudInitNoCloud": {"userData": "#cloud-config\n"}},
    },
    "access credentials": {
        "T.accessCredentials": [{"sshPublicKey": {"source": {"secret": {"secretName": "a"}}, "propagationMethod": {"noCloud": {}}}}]
    },
    "access credentials without method": {
        "T.accessCredentials": [{"sshPublicKey": {"source": {"secret": {"secretName": "a"}}, "propagationMethod": {}}}]
    },
    "access credentials without source": {
        "T.accessCredentials": [{"sshPublicKey": {"source": {}, "propagationMethod": {"noCloud": {}}}}]
    },
}  # fmt: skip

NETWORKS: Mapping[str, Edits] = {
    "no cards": {"V.interfaces": REMOVE, "T.networks": REMOVE},
    "two cards": _two_cards(_card("nic-1"), _net("nic-1")),
    "two cards on one network": _two_cards(_card("nic-1"), _net("nic-1", "default/vlan50")),
    "two cards of one name": _two_cards(_card("nic-0"), _net("nic-1")),
    "two networks of one name": {"T.networks.+": _net("nic-0")},
    "card without network": {"V.interfaces.+": _card("nic-1")},
    "network without card": {"T.networks.+": _net("nic-1")},
    "card without name": {"V.interfaces.0.name": ""},
    "card name with a dot": {"V.interfaces.0.name": "eth0.1", "T.networks.0.name": "eth0.1"},
    "card name of 64": {"V.interfaces.0.name": "n" * 64, "T.networks.0.name": "n" * 64},
    "network unknown": {"T.networks.0.multus.networkName": "default/missing"},
    "network in an unknown namespace": {"T.networks.0.multus.networkName": "nowhere/vlan50"},
    "network by short name": {"T.networks.0.multus.networkName": "vlan50"},
    "network name with two slashes": {"T.networks.0.multus.networkName": "a/b/c"},
    "network name empty": {"T.networks.0.multus.networkName": ""},
    "network of no sort": {"T.networks.0": {"name": "nic-0"}},
    "network of two sorts": {"T.networks.0.pod": {}},
    "pod network with bridge": {"T.networks.0": {"name": "nic-0", "pod": {}}},
    "pod network with masquerade": {"T.networks.0": {"name": "nic-0", "pod": {}}, "V.interfaces.0": {"name": "nic-0", "masquerade": {}}},
    "pod network twice": {
        "T.networks": [{"name": "a", "pod": {}}, {"name": "b", "pod": {}}],
        "V.interfaces": [{"name": "a", "masquerade": {}}, {"name": "b", "masquerade": {}}],
    },
    "pod network of a bad range": {
        "T.networks.0": {"name": "nic-0", "pod": {"vmNetworkCIDR": "10.0.2"}},
        "V.interfaces.0": {"name": "nic-0", "masquerade": {}},
    },
    "masquerade on multus": {"V.interfaces.0": {"name": "nic-0", "model": "virtio", "masquerade": {}}},
    "slirp": {"V.interfaces.0": {"name": "nic-0", "slirp": {}}},
    "macvtap": {"V.interfaces.0": {"name": "nic-0", "macvtap": {}}},
    "sr-iov": {"V.interfaces.0": {"name": "nic-0", "sriov": {}}},
    "bridge and masquerade": {"V.interfaces.0.masquerade": {}},
    "no binding": {"V.interfaces.0.bridge": REMOVE},
    "managed tap": {"V.interfaces.0": {"name": "nic-0", "binding": {"name": "managedtap"}}},
    "binding unknown": {"V.interfaces.0": {"name": "nic-0", "binding": {"name": "glue"}}},
    **_one_of_each("virtio e1000 e1000e ne2k_pci pcnet rtl8139 vmxnet3 Virtio", "V.interfaces.0.model", "model"),
    "no model": {"V.interfaces.0.model": REMOVE},
    "mac": {"V.interfaces.0.macAddress": "52:54:00:12:34:56"},
    "mac with dashes": {"V.interfaces.0.macAddress": "52-54-00-12-34-56"},
    "mac in capitals": {"V.interfaces.0.macAddress": "52:54:00:AB:CD:EF"},
    "mac short": {"V.interfaces.0.macAddress": "52:54:00:12:34"},
    "mac long": {"V.interfaces.0.macAddress": "52:54:00:12:34:56:78:9a"},
    "mac a word": {"V.interfaces.0.macAddress": "mac"},
    "mac zero": {"V.interfaces.0.macAddress": "00:00:00:00:00:00"},
    "mac multicast": {"V.interfaces.0.macAddress": "01:00:5e:00:00:01"},
    "mac twice": {
        "V.interfaces": [_card("nic-0", macAddress="52:54:00:12:34:56"), _card("nic-1", macAddress="52:54:00:12:34:56")],
        "T.networks.+": _net("nic-1"),
    },
    "card state down": {"V.interfaces.0.state": "down"},
    "card state absent": {"V.interfaces.0.state": "absent"},
    "card state unknown": {"V.interfaces.0.state": "asleep"},
    "card pci address": {"V.interfaces.0.pciAddress": "0000:81:01.0"},
    "card pci address a word": {"V.interfaces.0.pciAddress": "there"},
    "card acpi index": {"V.interfaces.0.acpiIndex": 7},
    "card ports": {"V.interfaces.0.ports": [{"port": 80, "protocol": "TCP"}]},
    "card port twice": {"V.interfaces.0.ports": [{"name": "a", "port": 80}, {"name": "a", "port": 81}]},
    "card port of a bad protocol": {"V.interfaces.0.ports": [{"port": 80, "protocol": "SMOKE"}]},
    "card port zero": {"V.interfaces.0.ports": [{"port": 0}]},
    "card port above all": {"V.interfaces.0.ports": [{"port": 70000}]},
    "card dhcp options": {"V.interfaces.0.dhcpOptions": {"ntpServers": ["10.0.0.1"]}},
    "card dhcp options of a bad server": {"V.interfaces.0.dhcpOptions": {"ntpServers": ["ntp"]}},
    "card dhcp private option": {"V.interfaces.0.dhcpOptions": {"privateOptions": [{"option": 224, "value": "a"}]}},
    "card dhcp private option too low": {"V.interfaces.0.dhcpOptions": {"privateOptions": [{"option": 100, "value": "a"}]}},
    "card tag": {"V.interfaces.0.tag": "lan"},
    "default of two multus networks": {
        **_two_cards(_card("nic-1"), {"name": "nic-1", "multus": {"networkName": "tenant/vlan60", "default": True}}),
        "T.networks.0.multus.default": True,
    },
    "default multus network and pod": {
        "T.networks": [{"name": "a", "pod": {}}, {"name": "b", "multus": {"networkName": "default/vlan50", "default": True}}],
        "V.interfaces": [{"name": "a", "masquerade": {}}, {"name": "b", "bridge": {}}],
    },
    "dns policy None": {"T.dnsPolicy": "None"},
    "dns policy None with servers": {"T.dnsPolicy": "None", "T.dnsConfig": {"nameservers": ["10.0.0.1"]}},
    "dns policy unknown": {"T.dnsPolicy": "Guess"},
    "dns config of four servers": {"T.dnsConfig": {"nameservers": ["10.0.0.1"] * 4}},
    "dns config of a bad server": {"T.dnsConfig": {"nameservers": ["dns"]}},
}  # fmt: skip

SCHEDULING: Mapping[str, Edits] = {
    "hostname": {"T.hostname": "new"},
    "hostname with dots": {"T.hostname": "new.example.com"},
    "hostname of 63": {"T.hostname": "h" * 63},
    "hostname of 64": {"T.hostname": "h" * 64},
    "hostname with capitals": {"T.hostname": "New"},
    "hostname with underscore": {"T.hostname": "a_b"},
    "subdomain": {"T.subdomain": "lab"},
    "subdomain with dots": {"T.subdomain": "lab.example"},
    "subdomain bad": {"T.subdomain": "Lab!"},
    "grace": {"T.terminationGracePeriodSeconds": 30},
    "grace zero": {"T.terminationGracePeriodSeconds": 0},
    "grace negative": {"T.terminationGracePeriodSeconds": -1},
    "grace null": {"T.terminationGracePeriodSeconds": None},
    "eviction live": {"T.evictionStrategy": "LiveMigrate"},
    "eviction if possible": {"T.evictionStrategy": "LiveMigrateIfPossible"},
    "eviction none": {"T.evictionStrategy": "None"},
    "eviction external": {"T.evictionStrategy": "External"},
    "eviction unknown": {"T.evictionStrategy": "Throw"},
    "node selector": {"T.nodeSelector": {"kubernetes.io/hostname": "node-1"}},
    "node selector of a bad value": {"T.nodeSelector": {"a": "b c"}},
    "node selector of a bad key": {"T.nodeSelector": {"a b": "c"}},
    "tolerations": {"T.tolerations": [{"key": "a", "operator": "Exists"}]},
    "toleration of an unknown operator": {"T.tolerations": [{"key": "a", "operator": "Maybe"}]},
    "toleration with value though exists": {"T.tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
    "toleration of an unknown effect": {"T.tolerations": [{"key": "a", "operator": "Exists", "effect": "Rest"}]},
    "affinity to a zone": {
        "T.affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]}]}}}
    },
    "affinity to two zones": {
        "T.affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "12"]}}}
    },
    "affinity without terms": {
        "T.affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    },
    "affinity of an unknown operator": {
        "T.affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["1"]}]}]}}}
    },
    "affinity preferred": {
        "T.affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]}}]}}
    },
    "affinity preferred of weight zero": {
        "T.affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 0, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]}}]}}
    },
    "anti-affinity": {
        "T.affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}]}}
    },
    "anti-affinity without topology": {
        "T.affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"a": "b"}}}]}}
    },
    "affinity of our networks kept": {
        "T.affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "network.harvesterhci.io/mgmt", "operator": "In", "values": ["true"]},
                {"key": "network.harvesterhci.io/other", "operator": "In", "values": ["true"]}]}]}}}
    },
    "priority class": {"T.priorityClassName": "high"},
    "scheduler": {"T.schedulerName": "mine"},
    "topology spread": {
        "T.topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "b"}}}]
    },
    "topology spread of skew zero": {
        "T.topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    },
    "readiness probe": {"T.readinessProbe": {"tcpSocket": {"port": 22}}},
    "probe of two sorts": {"T.readinessProbe": {"tcpSocket": {"port": 22}, "httpGet": {"port": 80}}},
    "probe of no sort": {"T.livenessProbe": {"initialDelaySeconds": 5}},
    "probe of the agent": {"T.readinessProbe": {"guestAgentPing": {}}},
    "start strategy": {"T.startStrategy": "Paused"},
    "start strategy unknown": {"T.startStrategy": "Slow"},
}  # fmt: skip

TEMPLATES: Mapping[str, Edits] = {
    "claims not JSON": {CLAIMS: "[{"},
    "claims no list": {CLAIMS: "{}"},
    "claims empty": {CLAIMS: ""},
    "claims empty list": {CLAIMS: "[]"},
    "claim unnamed": {CLAIMS: '[{"metadata":{}}]'},
    "claim without spec": {CLAIMS: '[{"metadata":{"name":"new-disk-0"}}]'},
    "claim of an unknown class": {CLAIMS: _claims(a_claim_template("new-disk-0", "missing"))},
    "claim of a fast class": {CLAIMS: _claims(a_claim_template("new-disk-0", "fast"))},
    "claim of a reserved class": {CLAIMS: _claims(a_claim_template("new-disk-0", "vmstate-persistence"))},
    "claim of longhorn-static": {CLAIMS: _claims(a_claim_template("new-disk-0", "longhorn-static"))},
    "claim of an image": {CLAIMS: _claims(a_claim_template("new-disk-0", annotations={"harvesterhci.io/imageId": "default/jammy"}))},
    "claim of a missing image": {CLAIMS: _claims(a_claim_template("new-disk-0", annotations={"harvesterhci.io/imageId": "default/gone"}))},
    "claim that exists": {CLAIMS: _claims(a_claim_template("free")), "T.volumes.0.persistentVolumeClaim.claimName": "free"},
    "claims twice": {CLAIMS: _claims(a_claim_template("new-disk-0"), a_claim_template("new-disk-0"))},
    "claim not mounted": {CLAIMS: _claims(a_claim_template("other"))},
}  # fmt: skip

CREATIONS: Mapping[str, Mapping[str, Edits]] = {
    "basics": BASICS,
    "hardware": HARDWARE,
    "disks": DISKS,
    "cloud-init": CLOUD_INIT,
    "networks": NETWORKS,
    "scheduling": SCHEDULING,
    "templates": TEMPLATES,
}

# Of the machine that runs and of the one that is stopped.
UPDATES: Mapping[str, Edits] = {
    "nothing": {},
    "label": {"L/a": "b"},
    "annotation": {"A/a": "b"},
    "description": {"A/field.cattle.io/description": "mine"},
    "annotation null": {"A/a": None},
    "halted": {"spec.runStrategy": "Halted"},
    "always": {"spec.runStrategy": "Always"},
    "rerun": {"spec.runStrategy": "RerunOnFailure"},
    "manual": {"spec.runStrategy": "Manual"},
    "running instead of strategy": {"spec.runStrategy": REMOVE, "spec.running": True},
    "not running instead of strategy": {"spec.runStrategy": REMOVE, "spec.running": False},
    "started by annotation": {"spec.runStrategy": REMOVE, "spec.running": True, "A/harvesterhci.io/vmRunStrategy": "Always"},
    "memory": {"D.resources.limits.memory": "8Gi"},
    "less memory": {"D.resources.limits.memory": "2Gi"},
    "memory under 10 Mi": {"D.resources.limits.memory": "9Mi"},
    "guest memory": {"D.memory.guest": "3Gi"},
    "cores": {"D.cpu.cores": 4, "D.resources.limits.cpu": "4"},
    "cores only": {"D.cpu.cores": 4},
    "sockets": {"D.cpu.sockets": 2},
    "sockets above the maximum": {"D.cpu.sockets": 9},
    "sockets and their maximum": {"D.cpu.sockets": 2, "D.cpu.maxSockets": 4},
    "maximum of sockets removed": {"D.cpu.maxSockets": REMOVE},
    "cpu removed": {"D.cpu": REMOVE},
    "limits removed": {"D.resources.limits": REMOVE},
    "requests changed": {"D.resources.requests": {"cpu": "1", "memory": "1Gi"}},
    "pinned": {"D.cpu.dedicatedCpuPlacement": True},
    "isolated": {"D.cpu.isolateEmulatorThread": True},
    "disk removed": {"V.disks": [_disk("cloudinitdisk")], "T.volumes.0": REMOVE},
    "disk added": {"V.disks.+": _disk("more", "scsi"), "T.volumes.+": {"name": "more", "persistentVolumeClaim": {"claimName": "free"}}},
    "disk hot-plugged": {
        "V.disks.+": _disk("more", "scsi"),
        "T.volumes.+": {"name": "more", "persistentVolumeClaim": {"claimName": "free", "hotpluggable": True}},
    },
    "disk of another VM": {"V.disks.+": _disk("more"), "T.volumes.+": {"name": "more", "persistentVolumeClaim": {"claimName": "stopped-disk-0"}}},
    "disk of the other VM": {"V.disks.+": _disk("more"), "T.volumes.+": {"name": "more", "persistentVolumeClaim": {"claimName": "running-disk-0"}}},
    "empty cd-rom added": {"V.disks.+": {"name": "tray", "cdrom": {"bus": "sata"}}},
    "empty scsi cd-rom added": {"V.disks.+": {"name": "tray", "cdrom": {"bus": "scsi"}}},
    "bus": {"V.disks.0.disk.bus": "sata"},
    "boot order": {"V.disks.0.bootOrder": 3},
    "boot orders equal": {"V.disks.1.bootOrder": 1},
    "claims changed": {CLAIMS: _claims(a_claim_template("other"))},
    "claims removed": {CLAIMS: REMOVE},
    "claims not JSON": {CLAIMS: "["},
    "cloud-init": {"T.volumes.1": _no_cloud(userData="#cloud-config\nhostname: a\n")},
    "cloud-init of 2049": {"T.volumes.1": _no_cloud(userData="x" * 2049)},
    "card added": _two_cards(_card("nic-1"), _net("nic-1")),
    "card removed": {"V.interfaces": [], "T.networks": []},
    "network": {"T.networks.0.multus.networkName": "tenant/vlan60"},
    "network unknown": {"T.networks.0.multus.networkName": "default/missing"},
    "model": {"V.interfaces.0.model": "e1000"},
    "mac": {"V.interfaces.0.macAddress": "52:54:00:12:34:56"},
    "mac removed": {"V.interfaces.0.macAddress": REMOVE},
    "masquerade": {"V.interfaces.0.bridge": REMOVE, "V.interfaces.0.masquerade": {}},
    "hostname": {"T.hostname": "other"},
    "hostname with dots": {"T.hostname": "a.b"},
    "grace negative": {"T.terminationGracePeriodSeconds": -1},
    "grace": {"T.terminationGracePeriodSeconds": 5},
    "affinity": {"T.affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]}]}}}},
    "affinity removed": {"T.affinity": REMOVE},
    "node selector": {"T.nodeSelector": {"kubernetes.io/hostname": "node-2"}},
    "reserved memory": {RESERVED: "512Mi"},
    "reserved memory a word": {RESERVED: "some"},
    "firmware": {"D.firmware.bootloader": {"efi": {"secureBoot": False}}},
    "secure boot": {"D.firmware.bootloader": {"efi": {"secureBoot": True}}},
    "machine type": {"D.machine": {"type": "pc-q35-6.2"}},
    "template labels": {"spec.template.metadata.labels": {"a": "b"}},
    "finalizers": {"metadata.finalizers": []},
    "status": {"status.printableStatus": "Lost"},
    "name of the label": {"L/harvesterhci.io/vmName": "other"},
    "volumes and claims": {
        CLAIMS: _claims(a_claim_template("bigger")),
        "T.volumes.0.persistentVolumeClaim.claimName": "bigger",
    },
    "stop requested": {"A/harvesterhci.io/stop-requested": "true"},
}  # fmt: skip


def questions(world: ClusterDump) -> Iterator[Question]:
    base = a_vm("new")
    for part, table in CREATIONS.items():
        for name, edits in table.items():
            yield Question(f"create: {part}: {name}", GROUP, kinds.VM, edited(base, edits))
    for which in ("running", "stopped"):
        old = world.get(kinds.VM, which)
        for name, edits in UPDATES.items():
            yield Question(f"update {which}: {name}", GROUP, kinds.VM, edited(old, edits), old)
        yield Question(f"delete {which}", GROUP, kinds.VM, None, old)
