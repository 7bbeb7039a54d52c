"""Harvester's mutator and validator of StorageClasses (v1.8.1)."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode

from windrow.apiserver.types.go_syntax import syntax_error
from windrow.core.formats.json import NotJson, loads
from windrow.emulator import names
from windrow.emulator.admission.denials import invalid
from windrow.emulator.admission.kubevirt.causes import section, text
from windrow.emulator.kit.listers import Listers
from windrow.emulator.storage.classes import find_default
from windrow.kubernetes.objects import Raw, annotations_of, name_of

CDI = "cdi.harvesterhci.io"
OVERHEAD, CLONE_STRATEGY = f"{CDI}/filesystemOverhead", f"{CDI}/storageProfileCloneStrategy"
SNAPSHOT_CLASS = f"{CDI}/storageProfileVolumeSnapshotClass"
MODES = f"{CDI}/storageProfileVolumeModeAccessModes"
CLONE_STRATEGIES = ("copy", "snapshot", "csi-clone")
ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
LONGHORN, LVM = "driver.longhorn.io", "lvm.driver.harvesterhci.io"
# Of the provisioners whose volumes the containerized data importer knows, those one meets on Harvester.
KNOWN_PROVISIONERS = (
    LONGHORN, "nfs.csi.k8s.io", "rook-ceph.rbd.csi.ceph.com", "rook-ceph.cephfs.csi.ceph.com", "rbd.csi.ceph.com",
    "cephfs.csi.ceph.com", "ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com", "csi.vsphere.vmware.com",
    "linstor.csi.linbit.com", "csi.hpe.com", "topolvm.io", "topolvm.cybozu.com", "kubernetes.io/rbd",
)  # fmt: skip
SECRETS = ("provisioner", "node-stage", "node-publish")
# The fields of a Secret with a key, and what may stand in each; an empty list: anything but nothing.
KEY_FIELDS: dict[str, tuple[str, ...]] = {
    "CRYPTO_KEY_CIPHER": (
        "aes-xts-plain", "aes-xts-plain64", "aes-cbc-plain", "aes-cbc-plain64", "aes-cbc-essiv:sha256",
    ),
    "CRYPTO_KEY_HASH": ("sha256", "sha384", "sha512"),
    "CRYPTO_KEY_SIZE": ("256", "384", "512"),
    "CRYPTO_PBKDF": ("argon2i", "argon2id", "pbkdf2"),
    "CRYPTO_KEY_PROVIDER": ("secret",),
    "CRYPTO_KEY_VALUE": (),
}  # fmt: skip


def mutate_class(raw: Raw) -> None:
    """What the containerized data importer needs to know of provisioners that do not tell. May be repeated."""
    added: dict[str, str] = {}
    if text(raw, "provisioner") == LONGHORN and text(raw, "parameters", "dataEngine") == "v2":
        added = {CLONE_STRATEGY: "copy", SNAPSHOT_CLASS: "longhorn-snapshot"}
    if text(raw, "provisioner") == LVM:
        added = {
            MODES: '{"Block":["ReadWriteOnce"]}',
            CLONE_STRATEGY: "snapshot",
            SNAPSHOT_CLASS: "lvm-snapshot",
        }
    if added:
        raw["metadata"]["annotations"] = {**added, **annotations_of(raw)}


def default_class(listers: Listers) -> Raw | None:
    return find_default(listers.classes.values())


def check_class(raw: Raw, old: Raw | None, listers: Listers) -> None:
    _check_default(raw, listers)
    if old is None:
        _check_locality(raw)
        _check_encryption(raw, listers)
    _check_importer(raw)


def _check_default(raw: Raw, listers: Listers) -> None:
    if annotations_of(raw).get(names.DEFAULT_CLASS, "false") == "false":
        return
    for other in listers.classes.values():
        if name_of(other) != name_of(raw) and annotations_of(other).get(names.DEFAULT_CLASS) == "true":
            why = f"please reset it first before set {name_of(raw)} as default"
            raise invalid(f"default storage class {name_of(other)} already exists, {why}", "")


def _check_locality(raw: Raw) -> None:
    locality = section(raw, "parameters").get("dataLocality")
    if locality == "strict-local":
        raise invalid("storage class with strict-local data locality is not allowed", "")
    if locality is not None and locality not in ("disabled", "best-effort"):
        valid = '"disabled", "best-effort"'
        raise invalid(f"storage class with invalid data locality {locality}, valid values: {valid}", "")


_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


def _check_encryption(raw: Raw, listers: Listers) -> None:
    parameters = section(raw, "parameters")
    encrypted = parameters.get("encrypted")
    if encrypted is None or encrypted in _FALSE:
        return
    if encrypted not in _TRUE:
        raise invalid("invalid value for `encrypted`", "spec.parameters")
    keys = [
        [f"csi.storage.k8s.io/{kind}-secret-{part}" for part in ("name", "namespace")] for kind in SECRETS
    ]
    if missing := [key for pair in keys for key in pair if key not in parameters]:
        raise invalid(f"storage class must contain {', '.join(missing)}", "spec.parameters")
    first = [parameters[key] for key in keys[0]]
    for pair in keys[1:]:
        if [parameters[key] for key in pair] != first:
            why = f"secret names and namespaces in {pair[0]} and {pair[1]} are different from others"
            raise invalid(why, "")
    if not all(first):
        raise invalid("storage class must contain secret name and namespace", "spec.parameters")
    _check_key(first[1], first[0], listers)


def _check_key(namespace: str, name: str, listers: Listers) -> None:
    secret = listers.secrets.get((namespace, name))
    if secret is None:
        raise invalid(f"secret {namespace}/{name} not found", "")
    data = section(secret, "data")
    for field, allowed in KEY_FIELDS.items():
        if field not in data:
            why = f"secret {namespace}/{name} is not a valid encryption secret, missing field: {field}"
            raise invalid(why, "")
        value = _decoded(data[field])
        if (allowed and value not in allowed) or (not allowed and not value):
            why = f"secret {namespace}/{name} is not a valid encryption secret, invalid field: {field}"
            raise invalid(why, "")


def _decoded(written: object) -> str:
    try:
        return b64decode(str(written)).decode(errors="replace")
    except binascii.Error:
        return ""


def _check_importer(raw: Raw) -> None:
    notes = {
        key: value
        for key, value in annotations_of(raw).items()
        if key in (OVERHEAD, CLONE_STRATEGY, SNAPSHOT_CLASS, MODES)
    }
    provisioner = text(raw, "provisioner")
    if not notes:
        if provisioner not in KNOWN_PROVISIONERS:
            needed = (
                "volume access modes are required for CDI integration to work with storage class provisioner"
            )
            raise invalid(f"missing annotation {MODES}. {needed} {provisioner}.", "")
        return
    if provisioner == LONGHORN and text(raw, "parameters", "dataEngine") == "v1":
        raise invalid("longhorn v1 does not support CDI annotations", "")
    overhead, strategy = notes.get(OVERHEAD), notes.get(CLONE_STRATEGY)
    if overhead is not None and not re.fullmatch(r"0(?:\.\d{1,3})?|1", overhead):
        why = f"invalid filesystem overhead {overhead} in annotation {OVERHEAD}"
        raise invalid(f"{why}, must be in the range [0.00, 1.00] (up to 3 decimal places)", "")
    if strategy is not None and strategy not in CLONE_STRATEGIES:
        valid = ", ".join(CLONE_STRATEGIES)
        why = f"invalid clone strategy {strategy} in annotation {CLONE_STRATEGY}, valid values: {valid}"
        raise invalid(why, "")
    if notes.get(SNAPSHOT_CLASS) == "":
        raise invalid(f"snapshot class cannot be empty in annotation {SNAPSHOT_CLASS}", "")
    if strategy == "snapshot" and SNAPSHOT_CLASS not in notes:
        why = f"snapshot class must be set in annotation {SNAPSHOT_CLASS} when clone strategy is snapshot"
        raise invalid(why, "")
    if MODES in notes and (fault := _modes_fault(notes[MODES])):
        why = f"invalid volume mode access modes {notes[MODES]} in annotation {MODES}, error: {fault}"
        raise invalid(why, "")


def _modes_fault(written: str) -> str:
    try:
        modes = loads(written)
    except NotJson:
        return syntax_error(written)
    if not isinstance(modes, dict):
        return "json: cannot unmarshal value into Go value of type map[string][]string"
    for mode, access in modes.items():
        if mode not in ("Block", "Filesystem"):
            return f"invalid volume mode {mode}"
        for one in access if isinstance(access, list) else ():
            if one not in ACCESS_MODES:
                return f"invalid access mode {one}"
    return ""


def check_class_removal(raw: Raw, listers: Listers) -> None:
    """Reserved classes stay, and those that images were made from. The class of copies of an image goes with the image."""
    name, notes = name_of(raw), annotations_of(raw)
    reserved = notes.get("harvesterhci.io/is-reserved-storageclass")
    by_chart = name == "harvester-longhorn" and (
        notes.get("meta.helm.sh/release-namespace"),
        notes.get("meta.helm.sh/release-name"),
    ) == ("harvester-system", "harvester")
    if reserved == "true" or (reserved != "false" and by_chart):
        raise invalid(f"storage class {name} is reserved by Harvester and can't be deleted", "")
    used = sorted(
        name_of(image)
        for image in listers.images.values()
        if annotations_of(image).get(names.IMAGE_CLASS) == name
    )
    if used:
        raise invalid(f"storage class {name} is used by virtual machine images: [{' '.join(used)}]", "")
