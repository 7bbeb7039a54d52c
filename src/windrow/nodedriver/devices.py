"""Disks, network cards and devices as a user specifies them, in the Go driver's JSON shapes.

Go matches keys without regard to case and ignores unknown ones; so do we. A list may stand for the object around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from windrow.core.quantity import NotQuantity, Quantity
from windrow.harvester.problems import Problem
from windrow.nodedriver.options import GIB, valid_unicode


@dataclass(frozen=True, slots=True)
class DiskSpec:
    image: str = ""
    storage_class: str = ""
    size_gib: int = 0
    boot_order: int = 0
    bus: str = ""
    type: str = ""
    hotpluggable: bool = False

    @property
    def is_cdrom(self) -> bool:
        return self.type == "cd-rom"


@dataclass(frozen=True, slots=True)
class NicSpec:
    network: str = ""
    mac: str = ""
    model: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    name: str = ""
    device_name: str = ""


def read_disks(info: Any, problems: list[Problem]) -> tuple[DiskSpec, ...] | None:
    """The disks of `diskInfo`; None where it is not given. What is wrong is added to `problems`."""
    return _read(info, "disks", "diskInfo", _disk, problems)


def read_nics(info: Any, problems: list[Problem]) -> tuple[NicSpec, ...] | None:
    """The interfaces of `networkInfo`; None where it is not given."""
    return _read(info, "interfaces", "networkInfo", _nic, problems)


def read_devices(info: Any, problems: list[Problem]) -> tuple[DeviceSpec, ...] | None:
    """The requests of `vgpuInfo`; None where it is not given."""
    return _read(info, "vGPURequests", "vgpuInfo", _device, problems)


def write_disks(specs: tuple[DiskSpec, ...] | None) -> Any:
    """The structure that `read_disks` reads, as config.json keeps it."""
    if specs is None:
        return None
    return {
        "disks": [
            {
                "imageName": spec.image,
                "storageClassName": spec.storage_class,
                "size": spec.size_gib,
                "bootOrder": spec.boot_order,
                "bus": spec.bus,
                "type": spec.type,
                "hotPlugAble": spec.hotpluggable,
            }
            for spec in specs
        ]
    }


def write_nics(specs: tuple[NicSpec, ...] | None) -> Any:
    if specs is None:
        return None
    return {
        "interfaces": [
            {"networkName": spec.network, "macAddress": spec.mac, "model": spec.model, "type": spec.type}
            for spec in specs
        ]
    }


def write_devices(specs: tuple[DeviceSpec, ...] | None) -> Any:
    if specs is None:
        return None
    return {"vGPURequests": [{"name": spec.name, "deviceName": spec.device_name} for spec in specs]}


W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of a list, with its keys in lower case, and the place that sentences name."""

    raw: Mapping[str, Any]
    path: str
    field: str
    problems: list[Problem]

    def text(self, key: str) -> str:
        value = self._value(key)
        if value is None or isinstance(value, str):
            return valid_unicode(value or "")
        self._add_problem(key, value, "text", "quote it")
        return ""

    def number(self, key: str) -> int:
        value = self._value(key)
        if isinstance(value, str) and value.isdigit():
            return int(value)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value or 0
        self._add_problem(key, value, "a whole number", "write it as a whole number")
        return 0

    def gib(self, key: str) -> int:
        """A size: a bare number is GiB; a quantity such as 40Gi is understood too."""
        value = self._value(key)
        if not isinstance(value, str) or value.isdigit():
            return self.number(key)
        try:
            count, rest = divmod(Quantity.parse(value).bytes, GIB)
        except NotQuantity:
            count, rest = 0, 1
        if rest:
            self._add_problem(key, value, "a whole number of GiB", "write it as 40 or 40Gi")
        return count

    def boolean(self, key: str) -> bool:
        value = self._value(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        self._add_problem(key, value, "true or false", "write true or false without quotes")
        return False

    def _value(self, key: str) -> Any:
        return self.raw.get(key.lower())

    def _add_problem(self, key: str, value: Any, wanted: str, hint: str) -> None:
        self.problems.append(Problem(f"{self.path}.{key} is {value!r}, not {wanted}", hint, self.field))


def _read(
    info: Any, key: str, field: str, make: Callable[[_Entry], W], problems: list[Problem]
) -> tuple[W, ...] | None:
    if info is None:
        return None
    listed = info
    if isinstance(info, dict):
        listed = next((value for name, value in info.items() if name.lower() == key.lower()), None)
    if listed is None:
        return ()
    if not isinstance(listed, list):
        problems.append(Problem(f"{field}.{key} is not a list", f'write it as {{"{key}":[...]}}', field))
        return ()
    made = []
    for index, raw in enumerate(listed):
        if raw is None:
            made.append(make(_Entry({}, f"{field}.{key}[{index}]", field, problems)))
        elif isinstance(raw, dict):
            lowered = {str(name).lower(): value for name, value in raw.items()}
            made.append(make(_Entry(lowered, f"{field}.{key}[{index}]", field, problems)))
        else:
            problems.append(Problem(f"{field}.{key}[{index}] is not an object", "write it as {...}", field))
    return tuple(made)


def _disk(entry: _Entry) -> DiskSpec:
    return DiskSpec(
        image=entry.text("imageName"),
        storage_class=entry.text("storageClassName"),
        size_gib=entry.gib("size"),
        boot_order=entry.number("bootOrder"),
        bus=entry.text("bus"),
        type=entry.text("type"),
        hotpluggable=entry.boolean("hotPlugAble"),
    )


def _nic(entry: _Entry) -> NicSpec:
    return NicSpec(
        entry.text("networkName"), entry.text("macAddress"), entry.text("model"), entry.text("type")
    )


def _device(entry: _Entry) -> DeviceSpec:
    return DeviceSpec(entry.text("name"), entry.text("deviceName"))
