"""Harvester's mutator and validator of VirtualMachineImages (v1.8.2; reference 05 §3.3)."""

from __future__ import annotations

import re

from windrow.emulator import names
from windrow.emulator.admission.denials import MUTATOR, conflict, internal, invalid, patch_failed
from windrow.emulator.admission.kubevirt.causes import objects, section, text
from windrow.emulator.admission.storage_classes import default_class
from windrow.emulator.kit.listers import Listers, key_of
from windrow.emulator.release import Release
from windrow.emulator.system import LONGHORN_PARAMETERS
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, namespace_of, nested

LONGHORN = "driver.longhorn.io"
CLONE, EXPORT = "clone", "export-from-volume"
# What an image takes from the parameters of the class that it is made with.
INHERITED = (
    "nodeSelector", "diskSelector", "numberOfReplicas", "staleReplicaTimeout", "dataLocality", "encrypted",
    "csi.storage.k8s.io/provisioner-secret-name", "csi.storage.k8s.io/provisioner-secret-namespace",
    "csi.storage.k8s.io/node-stage-secret-name", "csi.storage.k8s.io/node-stage-secret-namespace",
    "csi.storage.k8s.io/node-publish-secret-name", "csi.storage.k8s.io/node-publish-secret-namespace",
)  # fmt: skip


# --- the mutator ---------------------------------------------------------------------------------------------------


def mutate_image(image: Raw, old: Raw | None, listers: Listers, release: Release) -> None:
    """The class that the image is made with, and at creation the parameters of its own class. May be repeated."""
    spec: Raw = image.get("spec", {})
    if old is None:
        spec["backend"] = text(spec, "backend") or "backingimage"
        if release.labels_images_at_creation:
            _label(image, text(spec, "displayName"))
        if spec["backend"] == "backingimage":
            spec["storageClassParameters"] = _parameters(image, listers)
    _name_class(image, spec, listers)
    if old is None and "spec" not in image:
        raise patch_failed("/spec/backend")


def _label(image: Raw, display: str) -> None:
    image["metadata"]["labels"] = {**labels_of(image), names.IMAGE_DISPLAY_NAME: display}


def _parameters(image: Raw, listers: Listers) -> Raw:
    template = _template_class(annotations_of(image).get(names.IMAGE_CLASS, ""), listers)
    given = (
        section(image, "spec", "storageClassParameters")
        if template is None
        else section(template, "parameters")
    )
    return {**LONGHORN_PARAMETERS, **{key: value for key, value in given.items() if key in INHERITED}}


def _template_class(name: str, listers: Listers) -> Raw | None:
    """The class whose parameters are taken; None for one of another provisioner."""
    if not name:
        default = default_class(listers)
        if default is None:
            raise internal("no default storageClass found for backingImage", MUTATOR)
        return default if text(default, "provisioner") == LONGHORN else None
    found = listers.classes.get(("", name))
    if found is None:
        raise internal(f'storageclasses.storage.k8s.io "{name}" not found', MUTATOR)
    if text(found, "provisioner") != LONGHORN:
        return None
    if nested(found, "parameters", "backingImage"):
        why = "can not use a backing image storageClass as the base storageClass template"
        raise internal(why, MUTATOR)
    return found


def _name_class(image: Raw, spec: Raw, listers: Listers) -> None:
    annotated, target = annotations_of(image).get(names.IMAGE_CLASS), text(spec, "targetStorageClassName")
    if annotated is not None and target:
        return
    wanted = annotated if annotated is not None else target
    if not wanted:
        default = default_class(listers)
        if default is None:
            raise internal("missing default storage class", MUTATOR)
        wanted = name_of(default)
    if not annotated:
        image["metadata"]["annotations"] = {**annotations_of(image), names.IMAGE_CLASS: wanted}
    if not target:
        spec["targetStorageClassName"] = wanted


# --- the validator ---------------------------------------------------------------------------------------------------


def check_image(image: Raw, old: Raw | None, listers: Listers) -> None:
    if old is not None:
        _check_change(image, old, listers)
        return
    _check_display_name(image, listers)
    annotated, target = (
        annotations_of(image).get(names.IMAGE_CLASS, ""),
        _spec_text(image, "targetStorageClassName"),
    )
    if annotated and target and annotated != target:
        raise invalid("storageClassName should keep the consistency", "spec.targetStorageClassName")
    _check_url(image)
    if _spec_text(image, "backend") == "backingimage":
        _check_clone(image, listers)
    _check_export(image, listers)


def _spec_text(image: Raw, field: str) -> str:
    return text(image, "spec", field)


def _check_display_name(image: Raw, listers: Listers) -> None:
    name = _spec_text(image, "displayName")
    if not name:
        raise invalid("displayName is required", "spec.displayName")
    for key, other in listers.images.items():
        is_other = key[0] == namespace_of(image) and key != key_of(image)
        if is_other and labels_of(other).get(names.IMAGE_DISPLAY_NAME) == name:
            raise conflict("A resource with the same name exists")


def _check_url(image: Raw) -> None:
    url, source = _spec_text(image, "url"), _spec_text(image, "sourceType")
    if source in ("download", "restore"):
        if not url:
            raise invalid("url is required", "spec.url")
        if why := url_fault(url):
            raise invalid(f"url is invalid: {why}", "spec.url")
    elif url:
        raise invalid(f'url should be empty when image source type is "{source}"', "spec.url")


_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_PORT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*@)?(\[[^\]]*\]|[^:/?#]*):(?P<port>[^/?#]*)")


def url_fault(url: str) -> str:
    """What Go's net/url says of a text that it cannot parse; "" for any other, which is nearly every text."""
    quoted = '"' + url.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if any(ord(sign) < 0x20 or ord(sign) == 0x7F for sign in url):
        return f"parse {quoted}: net/url: invalid control character in URL"
    if url.startswith(":"):
        return f"parse {quoted}: missing protocol scheme"
    if wrong := _ESCAPE.search(url.partition("#")[0].partition("?")[0]):
        return f'parse {quoted}: invalid URL escape "{wrong.group()}"'
    first = url.partition("/")[0]
    if ":" in first and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url):
        return f"parse {quoted}: first path segment in URL cannot contain colon"
    port = _PORT.match(url)
    if port and not re.fullmatch(r"\d*", port["port"]):
        return f'parse {quoted}: invalid port ":{port["port"]}" after host'
    return ""


def _check_clone(image: Raw, listers: Listers) -> None:
    if _spec_text(image, "sourceType") != CLONE:
        return
    asked = nested(image, "spec", "securityParameters")
    if asked is None:
        why = 'sourceParameters is required when image source type is "clone"'
        raise invalid(why, "spec.sourceParameters")
    operation = text(asked, "cryptoOperation")
    namespace, name = text(asked, "sourceImageNamespace"), text(asked, "sourceImageName")
    for value, word, field in (
        (operation, "encryption", "spec.cryptoOperation"),
        (name, "SourceImageName", "spec.security.sourceImageName"),
        (namespace, "SourceImageNamespace", "spec.security.sourceImageName"),
    ):
        if not value:
            raise invalid(f'{word} is required when image source type is "clone"', field)
    source = listers.images.get((namespace, name))
    if source is None:
        why = f"source image {namespace}/{name} not found"
        raise invalid(why, "spec.securityParameters.sourceImageName")
    called = f"source image {namespace}/{name} ({_spec_text(source, 'displayName')})"
    before = text(source, "spec", "securityParameters", "cryptoOperation")
    if operation == before == "encrypt":
        raise invalid(f"can not re-encrypt, {called} is already encrypted", "")
    if operation == "decrypt" and before != "encrypt":
        raise invalid(f"can not re-decrypt, {called} is not encrypted", "")
    imported = find_condition(nested(source, "status", "conditions"), "Imported")
    if imported is None or imported.status != "True":
        raise invalid(f"{called} is not ready", "")
    if operation != "decrypt":
        _check_encrypted_class(image, listers)


def _check_encrypted_class(image: Raw, listers: Listers) -> None:
    name, field = annotations_of(image).get(names.IMAGE_CLASS), f"metadata.annotations[{names.IMAGE_CLASS}]"
    if name is None:
        raise invalid("storageClassName is required when using security params", field)
    found = listers.classes.get(("", name))
    if found is None:
        raise invalid(f"storage class {name} not found", field)
    if nested(found, "parameters", "encrypted") != "true":
        why = f"storage class {name} is not for encryption or decryption"
        raise invalid(why, "spec.parameters[encrypted] must be true")


def _check_export(image: Raw, listers: Listers) -> None:
    if _spec_text(image, "sourceType") != EXPORT:
        return
    for field in ("pvcNamespace", "pvcName"):
        if not _spec_text(image, field):
            why = f'{field} is required when image source type is "{EXPORT}"'
            raise invalid(why, f"spec.{field}")
    namespace, name = _spec_text(image, "pvcNamespace"), _spec_text(image, "pvcName")
    if (namespace, name) not in listers.claims:
        why = f'persistentvolumeclaims "{name}" not found'
        raise invalid(f"failed to get pvc {name}/{namespace}, error: {why}", "")


def _check_change(image: Raw, old: Raw, listers: Listers) -> None:
    is_longhorns = _spec_text(old, "backend") == "backingimage"
    if is_longhorns and _differs(image, old, "storageClassParameters"):
        why = "storageClassParameters of the VM Image cannot be modified"
        raise invalid(why, "spec.storageClassParameters")
    if is_longhorns:
        _check_class_change(image, old)
        _check_fixed(image, old, "sourceType")
    else:
        _check_fixed(image, old, "sourceType")
        _check_class_change(image, old)
    if _spec_text(image, "sourceType") == EXPORT:
        _check_fixed(image, old, "pvcNamespace", "pvcName")
    _check_fixed(image, old, "url")
    if is_longhorns:
        _check_fixed(image, old, "securityParameters")
    _check_fixed(image, old, "displayName")
    _check_display_name(image, listers)
    if is_longhorns:
        _check_url(image)


def _differs(image: Raw, old: Raw, field: str) -> bool:
    return (nested(image, "spec", field) or None) != (nested(old, "spec", field) or None)


def _check_fixed(image: Raw, old: Raw, *fields: str) -> None:
    for field in fields:
        if _differs(image, old, field):
            raise invalid(f"{field} cannot be modified", f"spec.{field}")


def _check_class_change(image: Raw, old: Raw) -> None:
    """A class that was empty may be added."""
    before, target_before = (
        annotations_of(old).get(names.IMAGE_CLASS, ""),
        _spec_text(old, "targetStorageClassName"),
    )
    target = _spec_text(image, "targetStorageClassName")
    why = "storageClassName cannot be modified"
    if before and annotations_of(image).get(names.IMAGE_CLASS) != before:
        raise invalid(why, f"metadata.annotations[{names.IMAGE_CLASS}]")
    if target_before and target != target_before:
        raise invalid(why, "spec.targetStorageClassName")
    if before and target and target != before:
        raise invalid(why, "spec.targetStorageClassName")


def check_image_removal(image: Raw, listers: Listers) -> None:
    """Denies deletion while a template version owns the image, or a volume has its class."""
    storage_class = text(image, "status", "storageClassName")
    if _spec_text(image, "backend") != "backingimage" or not storage_class:
        return
    called = f"Cannot delete image {namespace_of(image)}/{_spec_text(image, 'displayName')}: being used by"
    for owner in objects(image, "metadata", "ownerReferences"):
        key = (namespace_of(image), text(owner, "name"))
        if text(owner, "kind") == "VirtualMachineTemplateVersion" and key in listers.template_versions:
            raise invalid(f"{called} VMTemplateVersion {key[1]}", "")
    for (where, claim), raw in sorted(listers.claims.items()):
        if text(raw, "spec", "storageClassName") == storage_class:
            raise invalid(f"{called} volume {where}/{claim}", "")
