"""Harvester's mutator and validator of PersistentVolumeClaims (v1.8.1; reference 05 §3.3)."""

from __future__ import annotations

from windrow.emulator import names
from windrow.emulator.admission.claim_expansion import check_expansion
from windrow.emulator.admission.denials import conflict, invalid, patch_failed
from windrow.emulator.admission.kubevirt.causes import objects, quantity, text
from windrow.emulator.kit.listers import Key, Listers, key_of
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
)

INTERNAL_CLASS = "longhorn-static"
STATE_CLASS = "vmstate-persistence"


def mark_golden_image(claim: Raw, listers: Listers) -> None:
    """The claim of an image outside Longhorn bears the image's name."""
    name = claim["metadata"].get("name", "")
    image = listers.images.get((namespace_of(claim), name))
    if image is None or text(image, "spec", "backend") == "backingimage":
        return
    annotations = claim["metadata"].get("annotations")
    if annotations is None:
        raise patch_failed(f"/metadata/annotations/{names.GOLDEN_IMAGE.replace('/', '~1')}")
    annotations[names.GOLDEN_IMAGE] = "true"


def check_claim(claim: Raw, listers: Listers) -> None:
    """Of a creation: two classes are Harvester's own."""
    name = text(claim, "spec", "storageClassName")
    if name == INTERNAL_CLASS and not _is_of_upgrade_image(claim, listers):
        reserved = True
    else:
        reserved = name == STATE_CLASS and not _is_state_of_a_vm(claim)
    if reserved:
        raise invalid(
            f"can not create volume with the reserved storage class {name}", "spec.storageClassName"
        )


def _owners(claim: Raw, *kinds: str) -> list[str]:
    owners = objects(claim, "metadata", "ownerReferences")
    return [text(one, "name") for one in owners if text(one, "kind") in kinds]


def _is_of_upgrade_image(claim: Raw, listers: Listers) -> bool:
    for owner in _owners(claim, "DataVolume", "PersistentVolumeClaim"):
        image = listers.images.get((key_of(claim)[0], owner), {})
        if annotations_of(image).get(names.UPGRADE_IMAGE) == "True":
            return True
    return False


def _is_state_of_a_vm(claim: Raw) -> bool:
    vm = labels_of(claim).get("persistent-state-for", "")
    return bool(vm) and vm in _owners(claim, "VirtualMachine", "VirtualMachineInstance")


def check_claim_update(claim: Raw, old: Raw, listers: Listers) -> None:
    namespace, name = key_of(claim)
    before, after = (annotations_of(one).get(names.GOLDEN_IMAGE) for one in (old, claim))
    if before is not None and after != before:
        verb = "remove" if after is None else "change"
        raise invalid(f"can not {verb} golden image annotation from PVC {namespace}/{name}", "")
    sizes = [quantity(one, "spec", "resources", "requests", "storage").number for one in (old, claim)]
    if sizes[0] != sizes[1]:
        check_expansion(claim, listers)


def check_claim_removal(claim: Raw, listers: Listers) -> None:
    """Denies deletion while an image is exported from the claim, or a VM that is not being deleted uses or owns it."""
    namespace, name = key_of(claim)
    if _is_golden(claim, listers):
        raise invalid("can not delete golden image PVC", "")
    for (where, image), raw in sorted(listers.images.items()):
        source = (text(raw, "spec", "pvcNamespace"), text(raw, "spec", "pvcName"))
        imported = find_condition(nested(raw, "status", "conditions"), "Imported")
        is_export = text(raw, "spec", "sourceType") == "export-from-volume"
        if is_export and source == (namespace, name) and (imported is None or imported.status != "True"):
            why = f"can not delete volume {name} which is exporting for image {where}/{image}"
            raise invalid(why, "value")
    for where, vm in sorted(listers.vms_by_claim.get((namespace, name), frozenset())):
        if _lives((where, vm), listers):
            why = f"can not delete the volume {name} which is currently attached to VM: {where}/{vm}"
            raise conflict(why)
    owners = [one for one in _owners(claim, "VirtualMachine") if _lives((namespace, one), listers)]
    if owners:
        listed = ",".join(owners)
        raise invalid(f"can not delete the volume {name} which is currently owned by these VMs: {listed}", "")


def _lives(key: Key, listers: Listers) -> bool:
    return key in listers.vms and not is_deleting(listers.vms[key])


def _is_golden(claim: Raw, listers: Listers) -> bool:
    """While its image exists; a claim that is lost may go."""
    if annotations_of(claim).get(names.GOLDEN_IMAGE) != "true" or key_of(claim) not in listers.images:
        return False
    return text(claim, "status", "phase") not in ("Lost", "Terminating")


def check_secret_removal(secret: Raw, listers: Listers) -> None:
    """A Secret with the key of an encrypted class stays."""
    wanted = key_of(secret)
    used = [
        name_of(one)
        for one in listers.classes.values()
        if nested(one, "parameters", "encrypted") == "true"
        and wanted
        == tuple(
            nested(one, "parameters", f"csi.storage.k8s.io/provisioner-secret-{part}")
            for part in ("namespace", "name")
        )
    ]
    if used:
        raise invalid(f"Secret is used by encrypted storage classes: [{' '.join(sorted(used))}]", "")
