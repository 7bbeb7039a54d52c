"""Checks of a configuration without a request: one small rule each, all of them always applied.

Messages name the field as people write it. Where the Go driver has a text of its own, `Problem.go` keeps that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from windrow.cloudinit.document import BadUserData, parse
from windrow.cloudinit.keys import find_unknown_keys as find_unknown_cloud_config_keys
from windrow.harvester.problems import Problem, Severity
from windrow.kubernetes.objects import is_dns_label, is_dns_subdomain
from windrow.nodedriver.affinity import AFFINITIES, find_unknown_keys, read_affinity
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.user_data import render_user_data
from windrow.nodedriver.validate.affinity import find_affinity_problems
from windrow.nodedriver.validate.network_data import find_network_problems

_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MAC = re.compile(r"([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}")
_DISK_BUSES = ("virtio", "sata", "scsi", "usb")
_CDROM_BUSES = ("sata", "scsi", "usb")
_DISK_TYPES = ("", "disk", "cd-rom")
_NIC_MODELS = ("", "virtio", "e1000", "e1000e", "ne2k_pci", "pcnet", "rtl8139")
_NIC_TYPES = ("", "bridge")
_LEAST_GUEST_MIB = 10

Rule = Callable[[Configuration], Iterator[Problem]]


def find_problems(
    configuration: Configuration,
    bootstrap: str = "",
    *,
    needs_private_key: bool = False,
    must_boot: bool = False,
    unreadable: Collection[str] = (),
) -> list[Problem]:
    """Everything that is wrong without regard to Harvester. `needs_private_key` where the host logs in by SSH; `must_boot`
    for a machine of a cluster, which has its operating system from a disk. The Go driver makes others too: they may boot
    from the network.

    `unreadable` are fields that could not be parsed; problems of their default values are left out.
    """
    problems = [problem for rule in RULES for problem in rule(configuration)]
    problems += _blank_boot_disk(configuration, "error" if must_boot else "warning")
    problems += _small_machine(configuration) if must_boot else []
    if needs_private_key:
        problems += _private_key(configuration)
    try:
        render_user_data(configuration, bootstrap, agent=True)
    except BadUserData as bad:
        problems.append(Problem(bad.message, bad.hint, "userData"))
    else:
        problems += _several_documents(configuration)
        problems += _unknown_keys(configuration)
    return [problem for problem in problems if problem.field not in unreadable]


def _blank_boot_disk(configuration: Configuration, severity: Severity) -> Iterator[Problem]:
    """Without an image on a disk that boots, a VM finds no operating system. Disks without bootOrder are not tried where
    another has one, and the driver gives it to the first where none has."""
    disks = list(zip(configuration.disk_names, configuration.disk_info or (), strict=False))
    boot = [(name, disk) for name, disk in disks if disk.boot_order > 0] or disks[:1]
    if not boot or any(disk.image or not disk.storage_class for _, disk in boot):
        return
    if any(disk.image for _, disk in disks):
        name, hint = boot[0][0], "give bootOrder 1 to the disk that has an imageName"
        message = f"{name} in diskInfo, from which the machine boots, has no image, so there is nothing to boot from"
    else:
        message = "no disk in diskInfo has an image, so there is nothing to boot from"
        hint = "give the disk with bootOrder 1 an imageName"
    yield Problem(message, hint, "diskInfo", severity)


# What RKE2's documentation asks for at least; below it a node may join, and then be killed for want of memory.
_LEAST_CPUS, _LEAST_MEMORY_GIB = 2, 4


def _small_machine(configuration: Configuration) -> Iterator[Problem]:
    if 0 < configuration.cpu < _LEAST_CPUS:
        yield Problem(
            f"cpuCount is {configuration.cpu}, and a node of a cluster wants {_LEAST_CPUS}",
            f"write {_LEAST_CPUS} or more",
            "cpuCount",
            "warning",
        )
    if 0 < configuration.memory_gib < _LEAST_MEMORY_GIB:
        yield Problem(
            f"memorySize is {configuration.memory_gib} GiB, and a node of a cluster wants {_LEAST_MEMORY_GIB} GiB",
            f"write {_LEAST_MEMORY_GIB} or more",
            "memorySize",
            "warning",
        )


def _several_documents(configuration: Configuration) -> Iterator[Problem]:
    if parse(configuration.user_data).has_more:
        yield Problem(
            "userData holds several YAML documents, and only the first has an effect",
            "put all keys into one document; a line --- begins another",
            "userData",
            "warning",
        )


def _unknown_keys(configuration: Configuration) -> Iterator[Problem]:
    for key, near in find_unknown_cloud_config_keys(parse(configuration.user_data).data).items():
        yield Problem(
            f"userData has the key {key!r}, which cloud-init does not know, so it has no effect",
            f"did you mean {near!r}?" if near else "correct its spelling, or leave it out",
            "userData",
            "warning",
        )


def _names(configuration: Configuration) -> Iterator[Problem]:
    name = configuration.machine_name
    if len(name) > 63:
        yield Problem(
            f"the machine name {name} has {len(name)} characters; a VM, its labels and its host name take at most 63",
            "shorten the cluster or pool name",
            "name",
        )
    if not is_dns_subdomain(name):
        yield Problem(
            f"the machine name {name!r} is not a DNS name",
            "use small letters, digits and dashes, with a letter or digit at both ends",
            "name",
        )
    elif "." in name:
        host = name.partition(".")[0]
        yield Problem(
            f"the guest of machine {name} has the host name {host}, as KubeVirt takes the part before the first dot",
            f"name no other machine of its cluster {host}.…, since nodes are named after their hosts",
            "name",
            "warning",
        )
    if not is_dns_label(configuration.vm_namespace, max_length=None):
        yield Problem(
            f"{configuration.vm_namespace!r} is not a namespace name",
            "name a namespace of Harvester",
            "vmNamespace",
        )


# Beyond them a number was meant in MiB: more than the hosts have that Harvester is made for.
_MOST_MEMORY_GIB = 4096
_MOST_DISK_GIB = 65536


def _meant_mib(what: str, gib: int, field: str) -> Problem:
    message = f"{what} is {gib} GiB, which is {gib // 1024} TiB"
    return Problem(message, f"write {gib // 1024}, or {gib}Mi, if MiB is meant", field, "warning")


def _size(configuration: Configuration) -> Iterator[Problem]:
    if configuration.cpu < 1:
        yield Problem(
            f"cpuCount is {configuration.cpu}",
            "ask for at least 1",
            "cpuCount",
            go=f"invalid number of CPU cores: {configuration.cpu}",
        )
    if configuration.memory_gib < 1:
        yield Problem(f"memorySize is {configuration.memory_gib} GiB", "ask for at least 1 GiB", "memorySize")
    if configuration.memory_gib > _MOST_MEMORY_GIB:
        yield _meant_mib("memorySize", configuration.memory_gib, "memorySize")
    reserved = configuration.reserved_mib
    left = configuration.memory_gib * 1024 - reserved
    if reserved and left < _LEAST_GUEST_MIB:
        rest = "nothing is" if left <= 0 else f"{left} MiB are"
        yield Problem(
            f"reservedMemorySize is {reserved} MiB of {configuration.memory_gib} GiB; {rest} left for the guest, and "
            f"Harvester wants {_LEAST_GUEST_MIB} MiB",
            "reserve less, or ask for more memory",
            "reservedMemorySize",
        )


def _cpu_model(configuration: Configuration) -> Iterator[Problem]:
    """KubeVirt makes a node label of it, so that the VM is placed on a host that has this CPU."""
    model = configuration.cpu_model
    if model and not (_LABEL_NAME.fullmatch(model) and len(model) <= 63):
        yield Problem(
            f"cpuModel is {model!r}, which is no name of a CPU model",
            "use host-model, host-passthrough or a model that a host of Harvester has, or leave it out",
            "cpuModel",
        )


def _switches(configuration: Configuration) -> Iterator[Problem]:
    if configuration.enable_secure_boot and not configuration.enable_efi:
        yield Problem(
            "enableSecureBoot is on without enableEfi",
            "set enableEfi: true",
            "enableSecureBoot",
            go="enable secure boot requires enable EFI",
        )
    if configuration.isolate_emulator_thread and not configuration.cpu_pinning:
        yield Problem(
            "isolateEmulatorThread needs dedicated CPUs", "set cpuPinning: true", "isolateEmulatorThread"
        )


def _disks(configuration: Configuration) -> Iterator[Problem]:
    if configuration.disk_info is None:
        yield from _single_disk(configuration)
        return
    if not configuration.disk_info:
        yield Problem("diskInfo lists no disk", "list one disk with an image", "diskInfo")
    for name, disk in zip(configuration.disk_names, configuration.disk_info, strict=True):
        if not disk.image and not disk.storage_class:
            yield Problem(
                f"{name} in diskInfo has neither an imageName nor a storageClassName",
                "give it one of them",
                "diskInfo",
                go="must specify image name or storageClass name in harvester disk info",
            )
        if disk.size_gib <= 0:
            yield Problem(
                f"{name} in diskInfo has no size above 0",
                "give it a size in GiB",
                "diskInfo",
                go="must specify disk size in harvester disk info",
            )
        elif disk.size_gib > _MOST_DISK_GIB:
            yield _meant_mib(f"the size of {name} in diskInfo", disk.size_gib, "diskInfo")
        if disk.image and disk.storage_class:
            yield Problem(
                f"{name} has an image and a storage class; the image's own class is used",
                "leave storageClassName out",
                "diskInfo",
                "warning",
            )
        yield from _one_of(disk.type, _DISK_TYPES, f"the type of {name}", "diskInfo")
        buses = _CDROM_BUSES if disk.is_cdrom else _DISK_BUSES
        yield from _one_of(disk.bus, ("", *buses), f"the bus of {name}", "diskInfo")
        if disk.is_cdrom and disk.hotpluggable and disk.bus in buses and disk.bus != "sata":
            yield Problem(
                f"{name} is a cd-rom on {disk.bus} that can be hot-plugged, and Harvester takes such on sata only",
                "leave its bus out, or hotPlugAble",
                "diskInfo",
            )
    orders = Counter(disk.boot_order for disk in configuration.disk_info if disk.boot_order)
    for order, count in orders.items():
        if count > 1:
            yield Problem(
                f"bootOrder {order} is given to {count} disks",
                "number the disks 1, 2, … once each",
                "diskInfo",
            )
        if order < 0:
            yield Problem(f"bootOrder {order} is below 1", "number the disks 1, 2, … once each", "diskInfo")


def _single_disk(configuration: Configuration) -> Iterator[Problem]:
    hint = "list the disks in diskInfo, the first with an imageName and a size"
    if not configuration.image_name:
        message = "diskInfo and imageName are not set, so there is nothing to boot from"
        yield Problem(message, hint, "diskInfo", go="must specify harvester image name")
    elif configuration.disk_size == "0":
        message = "diskInfo and diskSize are not set"
        yield Problem(message, hint, "diskInfo", go="must specify harvester disk size")
    if configuration.disk_size != "0" and not configuration.disk_size.isdigit():
        yield Problem(f"the disk size is {configuration.disk_size} GiB", "give a size above 0", "diskSize")
    elif int(configuration.disk_size) > _MOST_DISK_GIB:
        yield _meant_mib("diskSize", int(configuration.disk_size), "diskSize")
    yield from _one_of(configuration.disk_bus, ("", *_DISK_BUSES), "diskBus", "diskBus")


def _older_forms(configuration: Configuration) -> Iterator[Problem]:
    """A disk or a network in the older form, which the list hides; one that the list has, too, hides nothing."""
    disks, nics = configuration.disk_info, configuration.network_info
    hidden = (
        ("imageName", configuration.image_name, "diskInfo", disks and [disk.image for disk in disks]),
        ("networkName", configuration.network_name, "networkInfo", nics and [nic.network for nic in nics]),
    )
    for field, value, list_field, listed in hidden:
        if value and listed and value not in listed:
            yield Problem(
                f"{field} is {value}, and has no effect beside {list_field}",
                f"remove it, or write it into {list_field}",
                field,
                "warning",
            )


def _nics(configuration: Configuration) -> Iterator[Problem]:
    if configuration.network_info is None:
        if not configuration.network_name:
            yield Problem(
                "networkInfo is not set",
                "list the interfaces in it, each with a networkName",
                "networkInfo",
                go="must specify harvester network name",
            )
        yield from _one_of(configuration.network_model, _NIC_MODELS, "networkModel", "networkModel")
        return
    if not configuration.network_info:
        yield Problem("networkInfo lists no interface", "list one interface with a network", "networkInfo")
    for index, nic in enumerate(configuration.network_info):
        if not nic.network:
            yield Problem(
                f"interface {index} in networkInfo has no networkName",
                "give it the name of a network",
                "networkInfo",
                go="must specify network name in harvester network info",
            )
        if nic.mac and not _MAC.fullmatch(nic.mac):
            yield Problem(
                f"macAddress {nic.mac!r} of interface {index} is not a MAC address",
                "write it as 02:00:00:00:00:01, or leave it out",
                "networkInfo",
            )
        yield from _one_of(nic.model, _NIC_MODELS, f"the model of interface {index}", "networkInfo")
        if nic.type == "masquerade":
            yield Problem(
                f"the type of interface {index} is masquerade, which KubeVirt has on the pod network only, and "
                f"networkName {nic.network!r} is a network of Harvester",
                "leave type out: the interface is then bridged",
                "networkInfo",
            )
        else:
            yield from _one_of(nic.type, _NIC_TYPES, f"the type of interface {index}", "networkInfo")


def _devices(configuration: Configuration) -> Iterator[Problem]:
    for index, device in enumerate(configuration.vgpu_info or ()):
        if not device.device_name:
            yield Problem(
                f"vGPU request {index} has no deviceName", "give it a deviceName of Harvester", "vgpuInfo"
            )


def _affinity(configuration: Configuration) -> Iterator[Problem]:
    affinity = read_affinity(configuration)
    if affinity is None:
        return
    if not isinstance(affinity, dict):
        yield Problem(
            "vmAffinity is not an affinity object",
            f"write an object with {', '.join(AFFINITIES)}",
            "vmAffinity",
        )
        return
    if unknown := find_unknown_keys(configuration):
        yield Problem(
            f"vmAffinity has keys that Kubernetes does not know, and that have no effect: {', '.join(unknown)}",
            "correct their spelling, or leave them out",
            "vmAffinity",
            "warning",
        )
    yield from find_affinity_problems(affinity)


def _references(configuration: Configuration) -> Iterator[Problem]:
    """Names of images, networks and the key pair: `namespace/name` or `name`."""
    wanted = [(disk.image, "diskInfo") for disk in configuration.disks]
    wanted += [(nic.network, "networkInfo") for nic in configuration.nics]
    wanted.append((configuration.key_pair_name, "keyPairName"))
    for name, field in wanted:
        if name.count("/") > 1 or name.startswith("/") or name.endswith("/"):
            yield Problem(
                f"{field} has the name {name!r}, which is neither NAME nor NAMESPACE/NAME",
                "correct the name",
                field,
                go=f'unexpected namespacedName format ("{name}"), expected "namespace/name" or "name"',
            )


def _network_data(configuration: Configuration) -> Iterator[Problem]:
    yield from find_network_problems(configuration.network_data)


def _private_key(configuration: Configuration) -> Iterator[Problem]:
    if configuration.key_pair_name and not configuration.ssh_private_key_path:
        yield Problem(
            "keyPairName is set without sshPrivateKeyPath",
            "set sshPrivateKeyPath, or leave keyPairName out",
            "sshPrivateKeyPath",
            go="must specify the ssh private key path of the harvester key pair",
        )


RULES: tuple[Rule, ...] = (
    _names,
    _size,
    _cpu_model,
    _switches,
    _disks,
    _nics,
    _older_forms,
    _devices,
    _affinity,
    _references,
    _network_data,
)


def _one_of(value: str, allowed: tuple[str, ...], what: str, field: str) -> Iterator[Problem]:
    if value not in allowed:
        words = ", ".join(word for word in allowed if word)
        yield Problem(f"{what} is {value!r}", f"use one of {words}, or leave it out", field)
