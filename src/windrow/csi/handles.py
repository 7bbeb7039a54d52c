"""Handles of volumes and snapshots: the names of objects on Harvester, and the serials of disks.

A name that can be the name of an object, and of a volume of a VM, is kept as it is: what the provisioner sends, `pvc-<uid>`,
always is, and the Go driver kept every name. Any other is replaced by a digest of it. So the handle follows from the name
alone, and a creation that is repeated finds what the first one made.
"""

from __future__ import annotations

import hashlib
import re

from windrow.csi.names import BACKUP_HANDLE

# Names of volumes of a VM are DNS labels (KubeVirt).
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# Names of objects on Harvester.
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_UUID_AT_END = re.compile(r"(?:[a-z]+-)?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
_DIGEST_PREFIX = "csi-"
_DIGEST_LENGTH = 32


def volume_id_for(name: str) -> str:
    """The handle of the volume, or snapshot, with the name."""
    if _LABEL.fullmatch(name):
        return name
    return f"{_DIGEST_PREFIX}{_digest(name)}"


def is_volume_id(volume_id: str) -> bool:
    """Whether it can be a handle; a text that cannot is that of no volume, and never becomes a part of a path."""
    return _LABEL.fullmatch(volume_id) is not None


def is_object_name(name: str) -> bool:
    """Whether it can be the name of an object."""
    return _SUBDOMAIN.fullmatch(name) is not None


def serial_of(volume_id: str) -> str:
    """The serial of the volume's disk: the uid of `pvc-<uid>`, else a digest. At most 36 characters, as QEMU keeps of one."""
    match = _UUID_AT_END.fullmatch(volume_id)
    return match[1] if match else _digest(volume_id)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]


def backup_handle(namespace: str, name: str) -> str:
    """The handle of a backup, as the Go driver writes it."""
    return f"{BACKUP_HANDLE}{namespace}/{name}"


def parse_backup_handle(handle: str) -> tuple[str, str] | None:
    """Namespace and name of a backup; None for what is no handle of one."""
    namespace, slash, name = handle.removeprefix(BACKUP_HANDLE).partition("/")
    if not handle.startswith(BACKUP_HANDLE) or not slash:
        return None
    if not (_LABEL.fullmatch(namespace) and is_object_name(name)):
        return None
    return namespace, name


def is_pvc_name(volume_id: str) -> bool:
    """Whether it is what a provisioner names volumes: `pvc-<uid>`."""
    return volume_id.startswith("pvc-") and _UUID_AT_END.fullmatch(volume_id) is not None
