"""What a change of a machine's options means for the machine that exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.nodedriver.config import KEYS, read_fields
from windrow.nodedriver.options import OPTIONS, Change
from windrow.nodedriver.vm.edit import are_grown

_DISKS = frozenset({"diskInfo", "diskSize"})


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
