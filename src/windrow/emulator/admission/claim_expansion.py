"""Whether a claim may grow while VMs use it, for the validators of claims and of VMs' claim templates."""

from __future__ import annotations

from windrow.core.formats.json import NotJson, loads
from windrow.emulator import names
from windrow.emulator.admission.denials import internal, invalid
from windrow.emulator.admission.kubevirt.causes import flag, objects, text
from windrow.emulator.kit.listers import Listers, key_of
from windrow.kubernetes.objects import Raw, annotations_of, nested


def check_expansion(claim: Raw, listers: Listers) -> None:
    """Raises the denial. A claim whose VMs are stopped, or that no VM uses, is left to Kubernetes."""
    namespace, name = key_of(claim)
    vms = [listers.vms[key] for key in listers.vms_by_claim.get((namespace, name), ()) if key in listers.vms]
    if all(text(vm, "status", "printableStatus") == "Stopped" for vm in vms):
        return
    if text(claim, "spec", "volumeMode") == "Filesystem" and any(_is_hotplugged(vm, name) for vm in vms):
        why = f"Expansion of hotplugged PVC '{namespace}/{name}' in filesystem mode is not supported"
        raise invalid(f"PVC_EXPAND: {why}", "")
    provisioner = provisioner_of(claim, listers)
    if not provisioner:
        why = f"failed to determine provisioner for PVC {namespace}/{name}"
        raise internal(f"error determining provisioner for PVC {namespace}/{name}: {why}")
    if not _is_expandable_online(provisioner, listers):
        raise invalid(f"PVC_EXPAND: pvc {namespace}/{name} is not online expandable with its provider", "")


def _is_hotplugged(vm: Raw, claim: str) -> bool:
    return any(
        text(one, "persistentVolumeClaim", "claimName") == claim
        and flag(one, "persistentVolumeClaim", "hotpluggable")
        for one in objects(vm, "spec", "template", "spec", "volumes")
    )


def provisioner_of(claim: Raw, listers: Listers) -> str:
    """By the claim's annotation, else by its class; "" where neither tells."""
    noted = annotations_of(claim)
    named = noted.get(names.PROVISIONERS[0], noted.get(names.PROVISIONERS[1], ""))
    return named or text(listers.classes.get(("", text(claim, "spec", "storageClassName"))), "provisioner")


def _is_expandable_online(provisioner: str, listers: Listers) -> bool:
    """By the setting csi-online-expand-validation: a JSON object of provisioners."""
    try:
        allowed = loads(listers.setting("csi-online-expand-validation") or "{}")
    except NotJson as error:
        raise internal(str(error)) from error
    return nested(allowed, provisioner) is True
