"""Editing a VM that exists: its processor, memory and affinity, and larger disks. They count from its next start.

The change is the difference between the VMs that would be made of the two configurations, so that what a person has set on the VM
by other ways stays. One patch carries it: Harvester computes the requests and the guest's memory anew from the limits, and
grows the claims to the sizes of their templates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windrow.core.formats.json import dumps
from windrow.core.formats.quantity import NotQuantity, Quantity
from windrow.harvester.names import CLAIM_TEMPLATES
from windrow.harvester.problems import Problem
from windrow.harvester.vms import build_vm
from windrow.harvester.volumes import read_claim_templates
from windrow.kubernetes import requests
from windrow.kubernetes.errors import KubeError, NotFound
from windrow.kubernetes.objects import Raw, name_of, nested, resource_version_of, text_at, uid_of
from windrow.kubernetes.patches import make_merge_patch
from windrow.kubernetes.resources import STORAGE_CLASS
from windrow.nodedriver.config import KEYS, Configuration
from windrow.nodedriver.devices import DiskSpec
from windrow.nodedriver.effects import Call, Operation
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.options import GIB, OPTIONS
from windrow.nodedriver.vm.create import raise_if_rejected
from windrow.nodedriver.vm.observe import find_object
from windrow.nodedriver.vm.ownership import require_owner
from windrow.nodedriver.vm.plan import plan_vm, planned_claims

# The fields of a configuration that the options of this change have.
EDITABLE = tuple(KEYS[option.key] for option in OPTIONS if option.change == "restart")
_DISKS = ("disk_info", "disk_size")


def with_edits(before: Configuration, wanted: Configuration) -> Configuration:
    """`before` with what `wanted` asks for and an edit can give; disks only where none becomes smaller or another one."""
    edited = replace(before, **{name: getattr(wanted, name) for name in EDITABLE})
    if are_grown(before.disks, wanted.disks):
        edited = replace(edited, **{name: getattr(wanted, name) for name in _DISKS})
    return edited


def are_grown(before: tuple[DiskSpec, ...], after: tuple[DiskSpec, ...]) -> bool:
    """Whether these are the same disks, some of them larger."""
    if before == after or len(before) != len(after):
        return False
    return all(
        replace(new, size_gib=old.size_gib) == old and new.size_gib >= old.size_gib
        for old, new in zip(before, after, strict=True)
    )


def edit(before: Configuration, after: Configuration) -> Operation[Configuration]:
    """Give the VM of `before` what `after` has otherwise; returns `after`. May be repeated.

    Raises Refused where the VM is gone or another's, where Harvester rejects it, and where the class of a disk that is to grow
    does not let claims grow.
    """
    raw = yield from find_object(before.ref, "see what of the VM is to be edited")
    if raw is None:
        raise Refused(
            Problem(
                f"VirtualMachine {before.vm_namespace}/{before.machine_name} not found, so it cannot be edited",
                "delete the Machine; its pool creates another",
            )
        )
    require_owner(before, raw)
    change = make_merge_patch(_build(before), _build(after))
    templates = _grow_templates(before, after, raw)
    if templates is not None:
        yield from _require_expansion(before, raw, templates)
        annotations = change.setdefault("metadata", {}).setdefault("annotations", {})
        annotations[CLAIM_TEMPLATES] = dumps(templates).decode()
    if change:
        change.setdefault("metadata", {}).update(uid=uid_of(raw), resourceVersion=resource_version_of(raw))
        try:
            yield Call(requests.merge_patch(before.ref, change), f"edit VM {before.machine_name}")
        except KubeError as error:
            raise_if_rejected(error, f"the edit of {before.ref}")
            raise
    return after


def _build(configuration: Configuration) -> Raw:
    """The VM but for its disks."""
    classes = dict.fromkeys((disk.image for disk in configuration.disks), "")
    return build_vm(replace(plan_vm(configuration, classes), disks=()))


def _grow_templates(before: Configuration, after: Configuration, raw: Mapping[str, Any]) -> list[Raw] | None:
    """The claim templates with the new sizes; None where all claims have them."""
    claims = before.claims or planned_claims(before)
    wanted = {
        claim: new.size_gib
        for claim, old, new in zip(claims, before.disks, after.disks, strict=False)
        if new.size_gib > old.size_gib
    }
    templates, found = read_claim_templates(raw), False
    for template in templates:
        size = wanted.pop(name_of(template), 0)
        if size * GIB > _size_of(template):
            template["spec"]["resources"]["requests"]["storage"] = f"{size}Gi"
            found = True
    if wanted:
        missing = ", ".join(sorted(wanted))
        raise Refused(
            Problem(
                f"claim {missing} is not among the {CLAIM_TEMPLATES} of VM {before.machine_name}, so it cannot grow",
                "replace the machine, or set the size back",
                "diskInfo",
            )
        )
    return templates if found else None


def _size_of(template: Mapping[str, Any]) -> int:
    """In bytes; more than any size where it cannot be read, so that it is left alone."""
    try:
        return Quantity.parse(text_at(template, "spec", "resources", "requests", "storage")).bytes
    except NotQuantity:
        return GIB << 32


def _require_expansion(
    before: Configuration, raw: Mapping[str, Any], templates: list[Raw]
) -> Operation[None]:
    """Harvester would take the edit and never grow the claim. Raises Refused."""
    sizes = {name_of(one): _size_of(one) for one in read_claim_templates(raw)}
    growing = {
        text_at(one, "spec", "storageClassName") for one in templates if _size_of(one) > sizes[name_of(one)]
    }
    for name in sorted(growing):
        try:
            found = yield Call(requests.get(STORAGE_CLASS.ref(name)), "see whether its claims may grow")
        except NotFound:
            found = {}
        if nested(found, "allowVolumeExpansion") is not True:
            raise Refused(
                Problem(
                    f"StorageClass {name} does not allow its volumes to grow, and disks of {before.machine_name} are of it",
                    "set allowVolumeExpansion: true on that class, replace the machine, or set the size back",
                    "diskInfo",
                )
            )
