"""VirtualMachineImage: is it ready, is it a disk, and which storage class clones it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from windrow.harvester.names import IMAGE_TYPE
from windrow.harvester.resources import IMAGE
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import labels_of, nested
from windrow.kubernetes.resources import ObjectRef, ref_of

_TYPES = {"iso": True, "raw_qcow2": False}
_ENDINGS = {".iso": True, ".qcow2": False, ".qcow": False, ".img": False, ".raw": False}


@dataclass(frozen=True, slots=True)
class Image:
    """One image. `is_iso` is None where it is unknown; `failure` is Harvester's text about a failed import."""

    ref: ObjectRef
    display_name: str
    storage_class: str
    progress: int
    imported: bool
    import_failed: bool
    failure: str
    virtual_size: int
    is_iso: bool | None
    is_cdi: bool = False  # kept by CDI in a storage class of the user's choice, instead of by Longhorn

    @property
    def is_ready(self) -> bool:
        """Whether a disk made from it will bind: imported, whole, and with a class to clone it."""
        return self.imported and self.progress == 100 and bool(self.storage_class)


def read_image(raw: Mapping[str, Any]) -> Image:
    conditions = nested(raw, "status", "conditions")
    imported = find_condition(conditions, "Imported")
    limit = find_condition(conditions, "RetryLimitExceeded")
    return Image(
        ref=ref_of(IMAGE, dict(raw)),
        display_name=nested(raw, "spec", "displayName", default=""),
        storage_class=nested(raw, "status", "storageClassName", default=""),
        progress=int(nested(raw, "status", "progress", default=0)),
        imported=imported is not None and imported.status == "True",
        import_failed=(limit is not None and limit.status == "True")
        or (imported is not None and imported.status == "False"),
        failure=next((found.message for found in (limit, imported) if found and found.message), ""),
        virtual_size=int(nested(raw, "status", "virtualSize", default=0)),
        is_iso=is_iso(raw),
        is_cdi=nested(raw, "spec", "backend", default="") == "cdi",
    )


def is_iso(raw: Mapping[str, Any]) -> bool | None:
    """Whether the image is an installer disc; None where it is unknown (the status never has it).

    The label that Harvester's screens set comes first, then the ending of the URL without its query, then
    that of the display name; upper and lower case are the same.
    """
    label = str(labels_of(raw).get(IMAGE_TYPE) or "").lower()
    if label in _TYPES:
        return _TYPES[label]
    url, name = nested(raw, "spec", "url", default=""), nested(raw, "spec", "displayName", default="")
    for text in (urlsplit(url).path, name):
        for ending, iso in _ENDINGS.items():
            if text.lower().endswith(ending):
                return iso
    return None
