"""What a change of a machine's options means for the machine that exists."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from windrow.harvester.problems import Problem, only_errors
from windrow.nodedriver.config import KEYS, read_fields
from windrow.nodedriver.options import OPTIONS, Change
from windrow.nodedriver.validate.rules import find_problems
from windrow.nodedriver.vm.edit import are_grown

_DISKS = frozenset({"diskInfo", "diskSize"})
# Of the sizes, by the field that a fault is told of, those that it may be in.
_TOGETHER: Mapping[str, Set[str]] = {
    "cpuCount": frozenset({"cpuCount"}),
    "memorySize": frozenset({"memorySize"}),
    "diskSize": _DISKS,
    "diskInfo": _DISKS,
    "reservedMemorySize": frozenset({"reservedMemorySize", "memorySize"}),
}


def find_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Change]:
    """By field the options that say something else now, with what that takes. Values are compared as they are read: `4`, "4"
    and "4Gi" are one memory. Disks that only become larger are a restart. Fields that are no options are left out."""
    old, new = read_fields(before)[0], read_fields(after)[0]
    found: dict[str, Change] = {
        option.field: option.change
        for option in OPTIONS
        if getattr(old, KEYS[option.key]) != getattr(new, KEYS[option.key])
    }
    if _DISKS & found.keys() and are_grown(old.disks, new.disks):
        found |= dict.fromkeys(_DISKS & found.keys(), "restart")
    return found


def find_refusals(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Problem]:
    """Why no VM can have the sizes that `after` has otherwise than `before`: what shows without a request,
    so that no VM stops for it."""
    had = set(_find_faults(before))
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    found = (one for one in _find_faults(after) if one not in had)
    return [one for one in found if changed & _TOGETHER.get(one.field, frozenset())]


def _find_faults(options: Mapping[str, Any]) -> list[Problem]:
    configuration, unreadable = read_fields(options)
    fields = {one.field for one in unreadable}
    return only_errors([*unreadable, *find_problems(configuration, must_boot=True, unreadable=fields)])
