"""StorageClass, with Harvester's marks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.harvester.names import DEFAULT_CLASS
from windrow.kube.objects import annotations_of, name_of

# Harvester keeps these for itself and refuses claims with them.
RESERVED = frozenset({"vmstate-persistence", "longhorn-static"})


@dataclass(frozen=True, slots=True)
class StorageClass:
    name: str
    provisioner: str
    is_default: bool
    is_reserved: bool


def read_storage_class(raw: Mapping[str, Any]) -> StorageClass:
    name = name_of(raw)
    return StorageClass(
        name=name,
        provisioner=str(raw.get("provisioner") or ""),
        is_default=annotations_of(raw).get(DEFAULT_CLASS) == "true",
        is_reserved=name in RESERVED,
    )
