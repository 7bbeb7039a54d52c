"""StorageClass, with Harvester's marks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.core.json import NotJson, loads
from windrow.harvester.names import CLAIM_MODES, DEFAULT_CLASS
from windrow.kubernetes.objects import annotations_of, name_of

# Harvester keeps these for itself and refuses claims with them.
RESERVED = frozenset({"vmstate-persistence", "longhorn-static"})


@dataclass(frozen=True, slots=True)
class ClaimModes:
    """How a machine's disk is claimed: as Longhorn's are, unless its class can do less."""

    access: str = "ReadWriteMany"
    volume: str = "Block"


LONGHORN = ClaimModes()


@dataclass(frozen=True, slots=True)
class StorageClass:
    name: str
    provisioner: str
    is_default: bool
    is_reserved: bool
    modes: ClaimModes


def read_storage_class(raw: Mapping[str, Any]) -> StorageClass:
    name = name_of(raw)
    return StorageClass(
        name=name,
        provisioner=str(raw.get("provisioner") or ""),
        is_default=annotations_of(raw).get(DEFAULT_CLASS) == "true",
        is_reserved=name in RESERVED,
        modes=_best_modes(annotations_of(raw).get(CLAIM_MODES, "")),
    )


def _best_modes(text: str) -> ClaimModes:
    """The best of what a class offers: a block device before a file, many hosts (for migration) before one."""
    try:
        offered = loads(text) if text else {}
    except NotJson:
        offered = {}
    if not isinstance(offered, dict):
        return LONGHORN
    for volume in ("Block", "Filesystem"):
        modes = [str(mode) for mode in offered.get(volume) or ()]
        if modes:
            return ClaimModes("ReadWriteMany" if "ReadWriteMany" in modes else modes[0], volume)
    return LONGHORN
