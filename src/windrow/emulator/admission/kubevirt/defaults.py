"""Defaults that KubeVirt assumes while it checks a template's spec. What is stored does not have them."""

from __future__ import annotations

import copy

from windrow.emulator.admission.kubevirt.causes import objects, quantity, section, text, whole
from windrow.kubernetes.objects import Raw, nested

DEFAULT_MACHINE = {"arm64": "virt", "s390x": "s390-ccw-virtio"}


def with_defaults(spec: Raw) -> Raw:
    """A copy of `spec` as an instance would have it."""
    made: Raw = copy.deepcopy(spec)
    made["architecture"] = text(made, "architecture") or "amd64"
    domain = made["domain"] = section(made, "domain")
    if not text(domain, "machine", "type"):
        domain["machine"] = {"type": DEFAULT_MACHINE.get(made["architecture"], "q35")}
    _requests(domain)
    _guest_memory(domain)
    _topology(domain)
    _network(made)
    _disks(made)
    return made


def _requests(domain: Raw) -> None:
    """A limit of CPU is requested too."""
    limit = nested(domain, "resources", "limits", "cpu")
    if (
        quantity(domain, "resources", "limits", "cpu").number
        and not quantity(domain, "resources", "requests", "cpu").number
    ):
        domain["resources"]["requests"] = {**section(domain, "resources", "requests"), "cpu": limit}


def _guest_memory(domain: Raw) -> None:
    if nested(domain, "memory", "guest") is not None:
        return
    memory = section(domain, "memory")
    for kind in ("requests", "limits"):
        if quantity(domain, "resources", kind, "memory").number:
            domain["memory"] = {**memory, "guest": domain["resources"][kind]["memory"]}
            return
    pages = nested(memory, "hugepages", "pageSize")
    domain["memory"] = {**memory, "guest": pages} if pages else memory


def _topology(domain: Raw) -> None:
    cpu = section(domain, "cpu")
    if any(whole(cpu, key) for key in ("cores", "sockets", "threads")):
        return
    sockets = 1
    for kind in ("limits", "requests"):
        if nested(domain, "resources", kind, "cpu") is not None:
            sockets = quantity(domain, "resources", kind, "cpu").whole
            break
    domain["cpu"] = {**cpu, "sockets": sockets, "cores": 1, "threads": 1}


def _network(spec: Raw) -> None:
    devices = section(spec, "domain", "devices")
    if nested(devices, "autoattachPodInterface") is False:
        return
    if not objects(spec, "networks") and not objects(devices, "interfaces"):
        spec["networks"] = [{"name": "default", "pod": {}}]
        spec["domain"]["devices"] = {**devices, "interfaces": [{"name": "default", "bridge": {}}]}


def _disks(spec: Raw) -> None:
    """A volume that no disk names gets a disk at the end."""
    devices = section(spec, "domain", "devices")
    named = {text(one, "name") for kind in ("disks", "filesystems") for one in objects(devices, kind)}
    missing = [
        {"name": text(one, "name")} for one in objects(spec, "volumes") if text(one, "name") not in named
    ]
    if missing:
        spec["domain"]["devices"] = {**devices, "disks": [*objects(devices, "disks"), *missing]}
