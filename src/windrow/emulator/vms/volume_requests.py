"""Volumes added to and removed from a VirtualMachine: `addvolume` and `removevolume` of KubeVirt 1.7 with
DeclarativeHotplugVolumes, which change the template of the VM.

Pure functions of the options and the VM; they raise the denial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from windrow.kubernetes.errors import BadRequest
from windrow.kubernetes.objects import Raw, nested

# The kinds of source, and the field that names what is plugged in.
SOURCES = {"persistentVolumeClaim": "claimName", "dataVolume": "name"}


def check_added(options: Raw) -> None:
    for field, why in (
        ("name", "AddVolumeOptions requires name to be set"),
        ("disk", "AddVolumeOptions requires disk to not be nil"),
        ("volumeSource", "AddVolumeOptions requires VolumeSource to not be nil"),
    ):
        if options.get(field) in (None, ""):
            raise BadRequest(why, status=400, reason="BadRequest")


def check_removed(options: Raw) -> None:
    if not options.get("name"):
        raise BadRequest("RemoveVolumeOptions requires name to be set", status=400, reason="BadRequest")


def _source(volume: Raw) -> tuple[str, Raw]:
    """The kind of source of a volume that can be plugged in and the source; ("", {}) of another volume."""
    found = ((kind, volume[kind]) for kind in SOURCES if isinstance(volume.get(kind), dict))
    return next(found, ("", {}))


def _source_name(volume: Raw) -> str:
    kind, source = _source(volume)
    return str(source.get(SOURCES[kind], "")) if kind else ""


def find_conflict_of_added(vm: Raw, options: Raw) -> str:
    """Why the volume cannot be added, or ""."""
    name, source = options["name"], _source_name(options["volumeSource"])
    for volume in _volumes(vm):
        if volume.get("name") == name:
            return f"Unable to add volume [{name}] because volume with that name already exists"
        if _source(volume)[0] and _source_name(volume) == source:
            return f"Unable to add volume source [{source}] because it already exists"
    return ""


def find_conflict_of_removed(vm: Raw, options: Raw) -> str:
    """Why the volume cannot be removed, or ""."""
    name = options["name"]
    for volume in _volumes(vm):
        kind, source = _source(volume)
        if name == volume.get("name") or (kind and name == _source_name(volume)):
            if source.get("hotpluggable") is True:
                return ""
            return f"Unable to remove volume [{volume['name']}] because it is not hotpluggable"
    return f"Unable to remove volume [{name}] because it does not exist"


def add_volume(vm: Raw, options: Raw) -> None:
    kind, source = _source(options["volumeSource"])
    volume = {"name": options["name"], **({kind: {**source, "hotpluggable": True}} if kind else {})}
    spec = vm["spec"]["template"]["spec"]
    spec["volumes"] = [*_volumes(vm), volume]
    devices = spec["domain"].setdefault("devices", {})
    devices["disks"] = [*(devices.get("disks") or ()), {**options["disk"], "name": options["name"]}]


def remove_volume(vm: Raw, options: Raw) -> None:
    """Of the name alone: a volume that is named by its source stays, as in KubeVirt."""
    spec = vm["spec"]["template"]["spec"]
    spec["volumes"] = [one for one in _volumes(vm) if one.get("name") != options["name"]]
    devices = spec["domain"].setdefault("devices", {})
    devices["disks"] = [one for one in devices.get("disks") or () if one.get("name") != options["name"]]


def _volumes(vm: Raw) -> list[Raw]:
    return list(nested(vm, "spec", "template", "spec", "volumes") or ())


@dataclass(frozen=True, slots=True)
class VolumeChange:
    """One of the two subresources: the name of its options, and its three steps in order."""

    options: str
    check: Callable[[Raw], None]
    find_conflict: Callable[[Raw, Raw], str]
    edit: Callable[[Raw, Raw], None]


ADDING = VolumeChange("AddVolumeOptions", check_added, find_conflict_of_added, add_volume)
REMOVING = VolumeChange("RemoveVolumeOptions", check_removed, find_conflict_of_removed, remove_volume)
