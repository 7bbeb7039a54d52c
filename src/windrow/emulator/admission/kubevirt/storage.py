"""KubeVirt's rules of disks, volumes, boot orders and cloud-init (v1.7.0, as Harvester 1.8 configures it).

Some fields repeat a part of their path (`disks.domain.devices.disks`); they are so in KubeVirt.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator
from posixpath import normpath

from windrow.apiserver.types.registry import name_errors
from windrow.emulator.admission.kubevirt.causes import (
    INVALID,
    NOT_FOUND,
    NOT_SUPPORTED,
    REQUIRED,
    Cause,
    Rule,
    flag,
    has,
    objects,
    section,
    text,
    whole,
)
from windrow.emulator.admission.kubevirt.network import PCI_ADDRESS, interfaces
from windrow.kubernetes.objects import Raw, nested

BUSES = ("virtio", "scsi", "sata", "usb")
TARGETS = ("disk", "lun", "cdrom")
CACHES = ("", "none", "writethrough", "writeback")
IO_MODES = ("", "native", "threads")
ERROR_POLICIES = ("stop", "ignore", "report", "enospace")
MOST_INLINE_BYTES = 2048
LONGEST_SERIAL = 256
LEAST_BLOCK, MOST_BLOCK = 512, 2097152
SOURCES = (
    "persistentVolumeClaim", "sysprep", "cloudInitNoCloud", "cloudInitConfigDrive", "containerDisk", "ephemeral",
    "emptyDisk", "hostDisk", "dataVolume", "configMap", "secret", "downwardAPI", "serviceAccount", "downwardMetrics",
    "memoryDump",
)  # fmt: skip
_SERIAL = re.compile(r"[A-Za-z0-9_.+-]+\Z")


def disks_of(spec: Raw) -> list[Raw]:
    return objects(spec, "domain", "devices", "disks")


def target_of(disk: Raw) -> str:
    """The kind of device; "" where none is named, which means a disk."""
    return next((kind for kind in TARGETS if disk.get(kind) is not None), "")


def bus_of(disk: Raw) -> str:
    kind = target_of(disk)
    return text(disk, kind, "bus") if kind else ""


# --- boot order, and volumes of disks -----------------------------------------------------------------------------


def boot_orders(spec: Raw, at: str) -> Iterator[Cause]:
    volumes = {text(one, "name"): one for one in objects(spec, "volumes")}
    devices = f"{at}.domain.devices"
    taken: set[int] = set()
    for place, disk in enumerate(disks_of(spec)):
        field, name = f"{devices}.disks[{place}]", text(disk, "name")
        volume = volumes.get(name)
        if volume is None and "cdrom" not in has(disk, "cdrom"):
            yield Cause(f"{field}.Name '{name}' not found.", f"{field}.name")
        if has(disk, "lun") and volume is not None and not has(volume, "persistentVolumeClaim", "dataVolume"):
            why = f"{field}.lun can only be mapped to a DataVolume or PersistentVolumeClaim volume."
            yield Cause(why, f"{field}.lun")
        if disk.get("bootOrder") is not None:
            if whole(disk, "bootOrder") in taken:
                why = f"Boot order for {field}.bootOrder already set for a different device."
                yield Cause(why, f"{field}.bootOrder")
            taken.add(whole(disk, "bootOrder"))
    for place, one in enumerate(interfaces(spec)):
        if one.get("bootOrder") is None:
            continue
        order, field = whole(one, "bootOrder"), f"{devices}.interfaces[{place}].bootOrder"
        if order < 1:
            why = f"{at}[{place}] must have a boot order > 0, if supplied"
            yield Cause(why, f"{at}[{place}].bootOrder")
            continue
        if order in taken:
            yield Cause(f"Boot order for {field} already set for a different device.", field)
        taken.add(order)


# --- disks ------------------------------------------------------------------------------------------------------


def disk_causes(domain: Raw, at: str) -> Iterator[Cause]:
    """Of the domain, whose path `at` is."""
    field = f"{at}.devices.disks"
    disks = objects(domain, "devices", "disks")
    for place, disk in enumerate(disks):
        for other in range(place):
            if text(disks[other], "name") == text(disk, "name"):
                why = f"{field}[{place}] and {field}[{other}] must not have the same Name."
                yield Cause(why, f"{field}[{place}].name")
        yield from _disk(disk, field, place)


def _disk(disk: Raw, field: str, place: int) -> Iterator[Cause]:
    this, again = f"{field}[{place}]", f"{field}.domain.devices.disks[{place}]"
    if len(has(disk, *TARGETS)) > 1:
        yield Cause(f"{this} can only have a single target type defined", this)
    yield from _disk_pci(disk, field, place)
    if disk.get("bootOrder") is not None and whole(disk, "bootOrder") < 1:
        yield Cause(f"{this} must have a boot order > 0, if supplied", f"{this}.bootOrder")
    yield from _bus(disk, this, again)
    serial = text(disk, "serial")
    if serial and not _SERIAL.match(serial):
        why = f"{this} must be made up of the following characters [A-Za-z0-9_.+-], if specified"
        yield Cause(why, f"{this}.serial")
    if len(serial) > LONGEST_SERIAL:
        why = f"{this} must be less than or equal to {LONGEST_SERIAL} in length, if specified"
        yield Cause(why, f"{this}.serial")
    if text(disk, "cache") not in CACHES:
        yield Cause(f"{this}.cache has invalid value {text(disk, 'cache')}", f"{this}.cache")
    if text(disk, "io") not in IO_MODES:
        why = f"Disk IO mode for {field} is not supported. Supported modes are: native, threads."
        yield Cause(why, f"{again}.io", NOT_SUPPORTED)
    policy = disk.get("errorPolicy")
    if policy is not None and policy not in ERROR_POLICIES:
        yield Cause(f'{this}.errorPolicy has invalid value "{policy}"', f"{this}.errorPolicy")
    for fault in label_faults(text(disk, "name")):
        yield Cause(fault, f"{again}.name")
    yield from _block_size(disk, this)


def label_faults(name: str) -> list[str]:
    """Of a DNS label, in the words of KubeVirt's client."""
    faults = [as_of_go_client(fault) for fault in name_errors("label", name)]
    if "." in name and len(name) <= 63 and not name_errors("subdomain", name):
        return ["must not contain dots"]
    return faults


def as_of_go_client(fault: str) -> str:
    """The API server of the emulator counts in bytes, as Kubernetes 1.34 does; KubeVirt's client is older."""
    return fault.replace(" bytes", " characters")


def _disk_pci(disk: Raw, field: str, place: int) -> Iterator[Cause]:
    address = text(disk, "disk", "pciAddress")
    name = f"{field}.domain.devices.disks.disk[{place}]"
    if address and text(disk, "disk", "bus") != "virtio":
        why = f"disk {name}.name - setting a PCI address is only possible with bus type virtio."
        yield Cause(why, f"{name}.pciAddress")
    if address and not PCI_ADDRESS.match(address):
        yield Cause(f"disk {name}.name has malformed PCI address ({address}).", f"{name}.pciAddress")


def _bus(disk: Raw, this: str, again: str) -> Iterator[Cause]:
    bus, kind = bus_of(disk), target_of(disk)
    if not bus:
        return
    if bus == "ide":
        yield Cause("IDE bus is not supported", f"{this}.{kind}.bus")
    elif bus == "virtio" and kind == "cdrom":
        yield Cause(f"Bus type {bus} is invalid for CD-ROM device", f"{this}.cdrom.bus")
    elif bus == "sata" and flag(disk, "disk", "readonly"):
        yield Cause(f"{bus} hard-disks do not support read-only.", f"{this}.disk.bus")
    elif bus not in BUSES:
        known = " ".join(BUSES)
        why = f"{this} is set with an unrecognized bus {bus}, must be one of: [{known}]"
        yield Cause(why, f"{this}.{kind}.bus")
    if flag(disk, "dedicatedIOThread") and bus != "virtio":
        yield Cause(f"IOThreads are not supported for disks on a {bus} bus", again, NOT_SUPPORTED)


def _block_size(disk: Raw, this: str) -> Iterator[Cause]:
    custom = nested(disk, "blockSize", "custom")
    if not isinstance(custom, dict):
        return
    match = nested(disk, "blockSize", "matchVolume")
    if match is not None and nested(match, "enabled") is not False:
        yield Cause("Block size matching can't be enabled together with a custom value", f"{this}.blockSize")
        return
    field = f"{this}.blockSize.custom"
    logical, physical = whole(custom, "logical"), whole(custom, "physical")
    granularity = custom.get("discardGranularity")
    if logical > physical:
        why = f"Logical size {logical} must be the same or less than the physical size of {physical}"
        yield Cause(why, f"{field}.logical")
    elif bus_of(disk) == "sata" and logical != LEAST_BLOCK:
        yield Cause(f"Logical size {logical} must be {LEAST_BLOCK} for SATA devices", f"{field}.logical")
    elif isinstance(granularity, int) and logical and granularity % logical:
        why = f"Discard granularity {granularity} must be multiples of logical size {logical}"
        yield Cause(why, f"{field}.discardGranularity")
    else:
        for key, size in (("logical", logical), ("physical", physical)):
            if size < LEAST_BLOCK:
                why = f"less than the supported minimum size of {LEAST_BLOCK}"
            elif size > MOST_BLOCK:
                why = f"greater than the supported maximum size of {MOST_BLOCK}"
            elif size & (size - 1):
                why = "not a power of 2"
            else:
                continue
            yield Cause(f"Provided size of {size} is {why}", f"{field}.{key}")


# --- volumes ----------------------------------------------------------------------------------------------------


def volumes(spec: Raw, at: str) -> Iterator[Cause]:
    field = f"{at}.volumes"
    seen: dict[str, int] = {}
    asked = objects(spec, "volumes")
    for place, volume in enumerate(asked):
        this, name = f"{field}[{place}]", text(volume, "name")
        if name in seen:
            why = f"{this} and {field}[{seen[name]}] must not have the same Name."
            yield Cause(why, f"{this}.name")
        seen.setdefault(name, place)
        if has(volume, "dataVolume") and not text(volume, "dataVolume", "name"):
            yield Cause("DataVolume 'name' must be set", f"{this}.name", REQUIRED)
        if len(has(volume, *SOURCES)) != 1:
            yield Cause(f"{this} must have exactly one source type set", this)
        for kind in ("cloudInitNoCloud", "cloudInitConfigDrive"):
            if has(volume, kind):
                yield from _cloud_init(section(volume, kind), f"{this}.{kind}", kind)
                break
        if has(volume, "downwardMetrics"):
            why = "downwardMetrics disks are not allowed: DownwardMetrics feature gate is not enabled."
            yield Cause(why, this)
        if has(volume, "hostDisk"):
            yield from _host_disk(section(volume, "hostDisk"), this)
        for kind, key in (
            ("configMap", "name"),
            ("secret", "secretName"),
            ("serviceAccount", "serviceAccountName"),
        ):
            if has(volume, kind) and not text(volume, kind, key):
                yield Cause(f"{this}.{kind}.{key} is a required field", f"{this}.{kind}.{key}")
    for kind, words in (
        ("serviceAccount", "serviceAccount volume"),
        ("downwardMetrics", "downwardMetric volume"),
        ("memoryDump", "memory dump volume"),
    ):
        if sum(bool(has(volume, kind)) for volume in asked) > 1:
            yield Cause(f"{field} must have max one {words} set", field)


def _host_disk(disk: Raw, this: str) -> Iterator[Cause]:
    yield Cause("HostDisk feature gate is not enabled", this)
    field = f"{this}.hostDisk"
    if not text(disk, "path"):
        yield Cause(f"{field}.path is required for hostDisk volume", f"{field}.path", NOT_FOUND)
    if text(disk, "type") not in ("Disk", "DiskOrCreate"):
        why = f"{field}.type has invalid value '{text(disk, 'type')}', allowed are 'Disk' or 'DiskOrCreate'"
        yield Cause(why, f"{field}.type")


# Of user data and network data: the words of the messages, and the key of the reference to a Secret. The API has
# "secretRef" for that of user data.
_DOCUMENTS = (
    ("userData", "secretRef", "userdata", "userdatasource", "UserDataSecretRef"),
    ("networkData", "networkDataSecretRef", "networkdata", "networkdata source", "NetworkDataSecretRef"),
)


def _cloud_init(source: Raw, field: str, kind: str) -> Iterator[Cause]:
    sources = 0
    for key, reference, word, counted, hint in _DOCUMENTS:
        inline, encoded = text(source, key), text(source, f"{key}Base64")
        given = [bool(text(source, reference, "name")), bool(encoded), bool(inline)]
        size = 0
        if encoded:
            try:
                size = len(b64decode(encoded.replace("\n", "").replace("\r", ""), validate=True))
            except (binascii.Error, ValueError):
                why = f"{field}.{key}Base64.{kind}.{key}Base64 is not a valid base64 value."
                yield Cause(why, f"{field}.{key}Base64")
        if inline:
            size = len(inline.encode())
        if sum(given) > 1:
            yield Cause(f"{field} must have only one {counted} set.", field)
        if size > MOST_INLINE_BYTES:
            why = f"{word} exceeds {MOST_INLINE_BYTES} byte limit. Should use {hint} for larger data."
            yield Cause(f"{field} {why}", field)
        sources += sum(given)
    if not sources:
        why = "must have at least one userdatasource or one networkdatasource set."
        yield Cause(f"{field} {why}", field, INVALID)


def container_disks(spec: Raw, at: str) -> Iterator[Cause]:
    for place, volume in enumerate(objects(spec, "volumes")):
        path, field = text(volume, "containerDisk", "path"), f"{at}.volumes[{place}].containerDisk"
        if path == "/":
            yield Cause(f"{field} must not point to root", field)
        elif path and normpath("/" + path) != path.removesuffix("/"):
            why = f"{field} must be an absolute path to a file without relative components"
            yield Cause(why, field)


STORAGE_RULES: tuple[Rule, ...] = (volumes, container_disks)
