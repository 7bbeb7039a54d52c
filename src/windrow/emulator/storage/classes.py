"""What kube-apiserver's own plugins and the volume controller read of StorageClasses: the default one, and whether claims grow."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.emulator import names
from windrow.emulator.quantities import quantity_or_zero
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested

CANNOT_GROW = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"


def is_default(storage_class: Raw) -> bool:
    marks = annotations_of(storage_class)
    return "true" in (marks.get(names.DEFAULT_CLASS), marks.get(names.BETA_DEFAULT_CLASS))


def find_default(classes: Iterable[Raw]) -> Raw | None:
    """The default StorageClass: of several the newest, and of those made in one second the first by name."""
    marked = sorted(filter(is_default, classes), key=name_of)
    # RFC 3339 in UTC sorts as text.
    return max(marked, key=lambda one: str(nested(one, "metadata", "creationTimestamp")), default=None)


def class_of(claim: Raw) -> str | None:
    """The name of the class that the claim asks for, also in the way of old; None for none, "" for no class at all."""
    old = annotations_of(claim).get(names.BETA_CLASS)
    found: str | None = nested(claim, "spec", "storageClassName", default=None)
    return found if old is None else old


def set_default(claim: Raw, classes: Iterable[Raw]) -> None:
    """The plugin DefaultStorageClass: a claim that names no class, not even the empty one, gets the default class."""
    if class_of(claim) is None and (default := find_default(classes)) is not None:
        claim.setdefault("spec", {})["storageClassName"] = name_of(default)


def is_growing(claim: Raw, old: Raw) -> bool:
    """Whether the claim asks for more than before."""
    before, after = (
        quantity_or_zero(nested(one, "spec", "resources", "requests", "storage")) for one in (old, claim)
    )
    return after > before


def check_resize(claim: Raw, old: Raw, storage_class: Raw | None) -> None:
    """The plugin PersistentVolumeClaimResize: a claim grows where its class allows it. Raises Forbidden.

    One that is not bound is refused before, by the rules of its fields.
    """
    if not is_growing(claim, old) or nested(storage_class, "allowVolumeExpansion"):
        return
    details = {"name": name_of(claim), "kind": "persistentvolumeclaims"}
    message = f'persistentvolumeclaims "{name_of(claim)}" is forbidden: {CANNOT_GROW}'
    raise Forbidden(message, status=403, reason="Forbidden", details=details)
