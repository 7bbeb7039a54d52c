"""Disks, network cards and devices as a user specifies them, in the Go driver's JSON shapes.

Go matches keys without regard to case and ignores unknown ones; so do we. A list may stand for the object around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from windrow.core.formats.bounds import abbreviate, is_too_long
from windrow.core.formats.quantity import NotQuantity, Quantity
from windrow.harvester.problems import Problem
from windrow.nodedriver.options import GIB, valid_unicode


class _WrongType(Exception):
    """A value is not what its key wants; `hint` is the cure."""

    def __init__(self, wanted: str, hint: str) -> None:
        super().__init__(wanted)
        self.hint = hint


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _WrongType("text", "quote it")
    return valid_unicode(value)


def _number(value: Any) -> int:
    if isinstance(value, str) and not is_too_long(value) and value.isascii() and value.isdigit():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _WrongType("a whole number", "write it as a whole number")
    return value


def _gib(value: Any) -> int:
    """A size: a bare number is GiB; a quantity such as 40Gi is understood too."""
    if not isinstance(value, str) or value.isdigit():
        return _number(value)
    try:
        count, rest = divmod(Quantity.parse(value).bytes, GIB)
    except NotQuantity:
        rest = 1
    if rest:
        raise _WrongType("a whole number of GiB", "write it as 40 or 40Gi")
    return count


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _WrongType("true or false", "write true or false without quotes")
    return value


def _key(name: str, read: Callable[[Any], Any] = _text, default: Any = "") -> Any:
    return field(default=default, metadata={"key": name, "read": read})


@dataclass(frozen=True, slots=True)
class DiskSpec:
    image: str = _key("imageName")
    storage_class: str = _key("storageClassName")
    size_gib: int = _key("size", _gib, 0)
    boot_order: int = _key("bootOrder", _number, 0)
    bus: str = _key("bus")
    type: str = _key("type")
    hotpluggable: bool = _key("hotPlugAble", _boolean, default=False)

    @property
    def is_cdrom(self) -> bool:
        return self.type == "cd-rom"


@dataclass(frozen=True, slots=True)
class NicSpec:
    network: str = _key("networkName")
    mac: str = _key("macAddress")
    model: str = _key("model")
    type: str = _key("type")


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    name: str = _key("name")
    device_name: str = _key("deviceName")


MAX_UNKNOWN = 20


def _is(name: Any, key: str) -> bool:
    return str(name).lower() == key.lower()


@dataclass(frozen=True, slots=True)
class Structure:
    """An option whose value is a JSON object with one list: `key` is the list's, `spec` the class of its entries."""

    option: str
    key: str
    spec: type[Any]

    def read(self, info: Any, problems: list[Problem]) -> tuple[Any, ...] | None:
        """The entries, None where `info` is. What is wrong is added to `problems`."""
        if info is None:
            return None
        listed = info
        if isinstance(info, dict):
            listed = next((value for name, value in info.items() if name.lower() == self.key.lower()), None)
        path = f"{self.option}.{self.key}"
        if listed is None:
            return ()
        if not isinstance(listed, list):
            hint = f'write it as {{"{self.key}":[...]}}'
            problems.append(Problem(f"{path} is not a list", hint, self.option))
            return ()
        made = []
        for index, raw in enumerate(listed):
            if raw is None or isinstance(raw, dict):
                made.append(self._read_entry(raw or {}, f"{path}[{index}]", problems))
            else:
                problems.append(
                    Problem(f"{path}[{index}] is not an object", "write it as {...}", self.option)
                )
        return tuple(made)

    def _read_entry(self, raw: Mapping[str, Any], path: str, problems: list[Problem]) -> Any:
        lowered = {str(name).lower(): value for name, value in raw.items()}
        values = {}
        for each in fields(self.spec):
            key = each.metadata["key"]
            value = lowered.get(key.lower())
            if value is None:
                continue
            try:
                values[each.name] = each.metadata["read"](value)
            except _WrongType as wrong:
                problems.append(Problem(f"{path}.{key} is {value!r}, not {wrong}", wrong.hint, self.option))
        return self.spec(**values)

    def find_unknown_keys(self, info: Any) -> list[Problem]:
        """A warning for each key that has no effect, with the one that may be meant."""
        found = []
        if isinstance(info, dict):
            found += [
                self._unknown(self.option, name, (self.key,)) for name in info if not _is(name, self.key)
            ]
            info = next((value for name, value in info.items() if _is(name, self.key)), None)
        keys = [each.metadata["key"] for each in fields(self.spec)]
        for index, entry in enumerate(info if isinstance(info, list) else ()):
            path = f"{self.option}.{self.key}[{index}]"
            if not isinstance(entry, dict):
                continue
            # A key that the entry has already is not the one that was meant.
            left = [key for key in keys if not any(_is(name, key) for name in entry)]
            unknown = [name for name in entry if not any(_is(name, key) for key in keys)]
            found += [self._unknown(path, name, left) for name in unknown]
        return found[:MAX_UNKNOWN]

    def _unknown(self, path: str, name: Any, keys: Sequence[str]) -> Problem:
        near = get_close_matches(str(name), keys)
        hint = f"did you mean {near[0]}?" if near else f"remove it; the keys are {', '.join(keys)}"
        message = f"{path} has key {abbreviate(name)}, which has no effect"
        return Problem(message, hint, self.option, "warning")

    def write(self, specs: tuple[Any, ...] | None) -> Any:
        """The structure that `read` reads, as config.json keeps it."""
        if specs is None:
            return None
        keys = [(each.metadata["key"], each.name) for each in fields(self.spec)]
        return {self.key: [{key: getattr(spec, name) for key, name in keys} for spec in specs]}


# By their key in config.json.
STRUCTURES: Mapping[str, Structure] = {
    "DiskInfo": Structure("diskInfo", "disks", DiskSpec),
    "NetworkInfo": Structure("networkInfo", "interfaces", NicSpec),
    "VGPUInfo": Structure("vgpuInfo", "vGPURequests", DeviceSpec),
}
