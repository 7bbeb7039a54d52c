"""Disks, network cards and devices as a user wishes for them, in Go's JSON shapes.

Go matches keys without regard to case and ignores unknown ones; so do we. A list may stand for the object around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from windrow.core.quantity import NotQuantity, Quantity
from windrow.nodedriver.options import GIB
from windrow.nodedriver.problems import Problem


@dataclass(frozen=True, slots=True)
class DiskWish:
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
class CardWish:
    network: str = ""
    mac: str = ""
    model: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True)
class DeviceWish:
    name: str = ""
    device_name: str = ""


def read_disks(info: Any, problems: list[Problem]) -> tuple[DiskWish, ...] | None:
    """The disks of `diskInfo`; None where it is not given. What is wrong is added to `problems`."""
    return _read(info, "disks", "diskInfo", _disk, problems)


def read_cards(info: Any, problems: list[Problem]) -> tuple[CardWish, ...] | None:
    """The interfaces of `networkInfo`; None where it is not given."""
    return _read(info, "interfaces", "networkInfo", _card, problems)


def read_devices(info: Any, problems: list[Problem]) -> tuple[DeviceWish, ...] | None:
    """The requests of `vgpuInfo`; None where it is not given."""
    return _read(info, "vGPURequests", "vgpuInfo", _device, problems)


def write_disks(wishes: tuple[DiskWish, ...] | None) -> Any:
    """The structure that `read_disks` reads, as config.json keeps it."""
    if wishes is None:
        return None
    return {
        "disks": [
            {
                "imageName": wish.image,
                "storageClassName": wish.storage_class,
                "size": wish.size_gib,
                "bootOrder": wish.boot_order,
                "bus": wish.bus,
                "type": wish.type,
                "hotPlugAble": wish.hotpluggable,
            }
            for wish in wishes
        ]
    }


def write_cards(wishes: tuple[CardWish, ...] | None) -> Any:
    if wishes is None:
        return None
    return {
        "interfaces": [
            {"networkName": wish.network, "macAddress": wish.mac, "model": wish.model, "type": wish.type}
            for wish in wishes
        ]
    }


def write_devices(wishes: tuple[DeviceWish, ...] | None) -> Any:
    if wishes is None:
        return None
    return {"vGPURequests": [{"name": wish.name, "deviceName": wish.device_name} for wish in wishes]}


W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of a list, with its keys in lower case, and the place that sentences name."""

    raw: Mapping[str, Any]
    place: str
    field: str
    problems: list[Problem]

    def text(self, key: str) -> str:
        value = self._value(key)
        if value is None or isinstance(value, str):
            return value or ""
        self._complain(key, value, "text", "quote it")
        return ""

    def number(self, key: str) -> int:
        value = self._value(key)
        if isinstance(value, str) and value.isdigit():
            return int(value)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value or 0
        self._complain(key, value, "a whole number", "write it as a whole number")
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
            self._complain(key, value, "a whole number of GiB", "write it as 40 or 40Gi")
        return count

    def truth(self, key: str) -> bool:
        value = self._value(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        self._complain(key, value, "true or false", "write true or false without quotes")
        return False

    def _value(self, key: str) -> Any:
        return self.raw.get(key.lower())

    def _complain(self, key: str, value: Any, wanted: str, hint: str) -> None:
        self.problems.append(Problem(f"{self.place}.{key} is {value!r}, not {wanted}", hint, self.field))


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
    for place, raw in enumerate(listed):
        if isinstance(raw, dict):
            lowered = {str(name).lower(): value for name, value in raw.items()}
            made.append(make(_Entry(lowered, f"{field}.{key}[{place}]", field, problems)))
        else:
            problems.append(Problem(f"{field}.{key}[{place}] is not an object", "write it as {...}", field))
    return tuple(made)


def _disk(entry: _Entry) -> DiskWish:
    return DiskWish(
        image=entry.text("imageName"),
        storage_class=entry.text("storageClassName"),
        size_gib=entry.gib("size"),
        boot_order=entry.number("bootOrder"),
        bus=entry.text("bus"),
        type=entry.text("type"),
        hotpluggable=entry.truth("hotPlugAble"),
    )


def _card(entry: _Entry) -> CardWish:
    return CardWish(
        entry.text("networkName"), entry.text("macAddress"), entry.text("model"), entry.text("type")
    )


def _device(entry: _Entry) -> DeviceWish:
    return DeviceWish(entry.text("name"), entry.text("deviceName"))
