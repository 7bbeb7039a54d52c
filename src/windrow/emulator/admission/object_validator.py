"""Validators of volumes, images, key pairs and networks (reference 05 §3.3), and VM quotas (§2.5 K)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from windrow.emulator import names
from windrow.emulator.admission.denials import bad_request, conflict, internal, invalid, not_allowed
from windrow.emulator.host.keypairs import InvalidPublicKey, fingerprint
from windrow.emulator.host.networks import BadNetwork, read_config
from windrow.emulator.kit.listers import Listers, key_of
from windrow.emulator.kit.vm_readings import networks_of
from windrow.emulator.system import LONGHORN_PARAMETERS
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
)

NETWORK_WEBHOOK = "validator.harvester-system.harvester-network-webhook"


# --- volumes ------------------------------------------------------------------------------------------------------

RESERVED_CLASSES = ("vmstate-persistence",)


def check_claim(claim: Raw, listers: Listers) -> None:
    name = nested(claim, "spec", "storageClassName", default=None)
    if name is None or nested(claim, "spec", "volumeName"):
        return
    if name in RESERVED_CLASSES:
        raise invalid(
            f"can not create volume with the reserved storage class {name}", "spec.storageClassName"
        )
    if ("", name) not in listers.classes:
        raise internal(
            f'failed to get storage class {name}: storageclasses.storage.k8s.io "{name}" not found'
        )


def check_claim_removal(claim: Raw, listers: Listers) -> None:
    """Denies deletion while a VM that is not being deleted uses the claim."""
    name, namespace = name_of(claim), namespace_of(claim)
    if annotations_of(claim).get(names.GOLDEN_IMAGE) == "true":
        raise bad_request(f"can not delete golden image PVC {namespace}/{name}")
    owners = sorted(listers.vms_by_claim.get((namespace, name), frozenset()))
    living = [key for key in owners if key in listers.vms and not is_deleting(listers.vms[key])]
    for where, vm in living:
        if (where, vm) in listers.instances:
            raise conflict(
                f"can not delete the volume {name} which is currently attached to VM: {where}/{vm}"
            )
    if living:
        listed = ", ".join(f"{where}/{vm}" for where, vm in living)
        raise conflict(f"can not delete the volume {name} which is currently owned by these VMs: {listed}")


# --- images -------------------------------------------------------------------------------------------------------

_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_FIXED = ("sourceType", "url", "pvcName", "pvcNamespace", "storageClassParameters", "securityParameters")


def label_image(image: Raw) -> None:
    """The image mutator. May be repeated."""
    display = nested(image, "spec", "displayName", default="")
    if display and len(display) <= 63 and _LABEL_VALUE.match(display):
        image["metadata"].setdefault("labels", {})[names.IMAGE_DISPLAY_NAME] = display
    if "storageClassParameters" not in image["spec"] and image["spec"].get("backend") != "cdi":
        image["spec"]["storageClassParameters"] = dict(LONGHORN_PARAMETERS)


def check_image(image: Raw, old: Raw | None, listers: Listers) -> None:
    spec = image["spec"]
    display = spec.get("displayName", "")
    if not display:
        raise invalid("displayName is required", "spec.displayName")
    if old is not None:
        _check_image_change(spec, old["spec"])
        return
    if len(display) > 63 or not _LABEL_VALUE.match(display):
        why = (
            "must be no more than 63 characters"
            if len(display) > 63
            else "a valid label must consist of alphanumeric characters, '-', '_' or '.'"
        )
        raise invalid(f"displayName is not a valid Kubernetes label value: {why}", "spec.displayName")
    for (namespace, name), other in listers.images.items():
        same = nested(other, "spec", "displayName") == display and namespace == namespace_of(image)
        if same and name != image["metadata"].get("name"):
            raise conflict("A resource with the same name exists")
    source, url = spec.get("sourceType"), spec.get("url", "")
    if source == "download":
        if not url:
            raise invalid("url is required", "spec.url")
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise invalid(f"url is invalid: {url}", "spec.url")
    elif url:
        raise invalid(f'url should be empty when image source type is "{source}"', "spec.url")


def _check_image_change(spec: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    if spec.get("displayName") != old.get("displayName"):
        raise invalid("displayName cannot be modified", "spec.displayName")
    for field in _FIXED:
        if (spec.get(field) or None) != (old.get(field) or None):
            raise invalid(f"{field} cannot be modified", f"spec.{field}")


def check_image_removal(image: Raw, listers: Listers) -> None:
    namespace, name = key_of(image)
    for (where, claim), raw in sorted(listers.claims.items()):
        if annotations_of(raw).get(names.IMAGE_ID) == f"{namespace}/{name}":
            display = nested(image, "spec", "displayName", default=name)
            raise bad_request(
                f"Cannot delete image {namespace}/{display}: being used by volume {where}/{claim}"
            )


# --- key pairs, networks, templates -----------------------------------------------------------------------------


def check_key_pair(pair: Raw) -> None:
    key = nested(pair, "spec", "publicKey", default="")
    if not key:
        raise invalid("public key is required", "spec.publicKey")
    try:
        fingerprint(key)
    except InvalidPublicKey as error:
        raise invalid(str(error), "spec.publicKey") from error


def check_network(nad: Raw) -> None:
    where = f"{namespace_of(nad)}/{nad['metadata'].get('name', '')}"

    def refuse(why: str) -> KubeError:
        return internal(f"Internal error occurred: can't create nad {where} because {why}", NETWORK_WEBHOOK)

    try:
        config = read_config(nad)
    except BadNetwork as error:
        raise refuse(f"the config can't be read: {error}") from error
    if not config:
        raise refuse("config is empty")
    vlan = config.get("vlan") or 0
    if not 0 <= int(vlan) <= 4094:
        raise refuse(f"vlan {vlan} is out of range [0..4094]")
    label = labels_of(nad).get(names.CLUSTER_NETWORK)
    bridge = str(config.get("bridge", "")).removesuffix("-br")
    if label and bridge and label != bridge:
        raise refuse(f"the nad label {label} does not match bridge name {bridge}")


def check_network_removal(nad: Raw, listers: Listers) -> None:
    name = f"{namespace_of(nad)}/{name_of(nad)}"
    users = sorted(
        f"{namespace_of(vm)}/{name_of(vm)}"
        for vm in listers.vms.values()
        if name in networks_of(nested(vm, "spec", "template", "spec", default={}), namespace_of(vm)).values()
    )
    if users:
        why = f"because it's still used by VM(s) {', '.join(users)} which must be stopped at first"
        raise internal(f"Internal error occurred: can't delete nad {name} {why}", NETWORK_WEBHOOK)


def check_template_version(verb: str, new: Raw | None, old: Raw | None) -> None:
    if verb == "update" and old is not None and new is not None and old.get("spec") != new.get("spec"):
        raise not_allowed("Update templateVersion is not supported")
