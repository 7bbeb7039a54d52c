"""What a CSI driver has made of a guest's volumes beside their claims on Harvester: VolumeSnapshots, backups, and the
NetworkFilesystems that export shared ones.

As of a claim, the guest's word alone proves nothing: what counts are the marks on Harvester.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windrow.clusters.api.guest_volumes import GuestVolumes
from windrow.clusters.sources.volumes.guest_volumes import Guest, VolumeClaim, find_doubt_of_marks, is_marked
from windrow.harvester.names import CSI_DRIVER
from windrow.harvester.resources import NETWORK_FILESYSTEM, VOLUME_SNAPSHOT
from windrow.kubernetes.objects import (
    is_deleting,
    is_dns_subdomain,
    name_of,
    namespace_of,
    nested,
    text_at,
    uid_of,
)
from windrow.kubernetes.resources import ApiResource, ObjectRef

# Where all NetworkFilesystems are, whatever the namespace of their claims.
EXPORTS = "harvester-system"
# What begins the handle of a backup: backup:<namespace>/<name>. Any other snapshot handle is a VolumeSnapshot's name.
_BACKUP_HANDLE = "backup:"


@dataclass(frozen=True, slots=True)
class Dependent:
    """An object on Harvester that is, or may be, of a volume of the guest.

    `claim` is the name of the volume's claim, "" where that is not there any more; `goes_with_claim` whether it is to be deleted with
    it; `unproven` what the proof lacks that a CSI driver made it for this guest.
    """

    ref: ObjectRef
    uid: str
    claim: str = ""
    goes_with_claim: bool = False
    unproven: str = ""
    is_deleting: bool = False

    @property
    def is_export(self) -> bool:
        return self.ref.kind == NETWORK_FILESYSTEM

    def __str__(self) -> str:
        return f"{self.ref.kind.kind} {self.ref.namespace}/{self.ref.name}"


def read_snapshot_handles(contents: Iterable[Mapping[str, Any]]) -> list[str]:
    """The snapshots that the VolumeSnapshotContents of a guest say are to be deleted, in order: those that a snapshotter made. One that
    a person made is kept, as a PersistentVolume is."""
    found = set()
    for raw in contents:
        handle = nested(raw, "status", "snapshotHandle")
        is_to_go = nested(raw, "spec", "deletionPolicy") == "Delete"
        is_provisioned = bool(nested(raw, "spec", "source", "volumeHandle"))
        if nested(raw, "spec", "driver") == CSI_DRIVER and is_to_go and is_provisioned and _is_handle(handle):
            found.add(handle)
    return sorted(found)


def _is_handle(handle: object) -> bool:
    """Whether it can be the name of an object."""
    if not isinstance(handle, str):
        return False
    namespace, slash, name = handle.removeprefix(_BACKUP_HANDLE).rpartition("/")
    if handle.startswith(_BACKUP_HANDLE):
        return is_dns_subdomain(namespace) and is_dns_subdomain(name)
    return not slash and is_dns_subdomain(handle)


def read_snapshots(
    raws: Iterable[Mapping[str, Any]],
    kind: ApiResource,
    claims: Collection[str],
    recorded: GuestVolumes | None,
    guest: Guest,
) -> list[Dependent]:
    """Those VolumeSnapshots, or VolumeRemoteBackups, that the guest named or that are marked as its own. `claims` are the names of those
    that are there."""
    to_delete = frozenset(recorded.snapshots if recorded else ())
    found = []
    for raw in raws:
        name, namespace = name_of(raw), namespace_of(raw)
        handle = name if kind == VOLUME_SNAPSHOT else f"{_BACKUP_HANDLE}{namespace}/{name}"
        if handle not in to_delete and not is_marked(raw, guest):
            continue
        path = (
            ("spec", "source", "persistentVolumeClaimName") if kind == VOLUME_SNAPSHOT else ("spec", "source")
        )
        claim = text_at(raw, *path)
        found.append(
            Dependent(
                kind.ref(name, namespace),
                uid_of(raw),
                claim if claim in claims else "",
                handle in to_delete,
                find_doubt_of_marks(raw, guest),
                is_deleting(raw),
            )
        )
    return found


def find_snapshots_of(claim: VolumeClaim, raws: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names of those VolumeSnapshots whose source is the claim, also those of others, in order: what they hold may be stored in its
    volume, as with the class longhorn-snapshot, and would go with it."""
    path = "spec", "source", "persistentVolumeClaimName"
    return tuple(sorted(name_of(raw) for raw in raws if text_at(raw, *path) == claim.name))


def read_exports(
    raws: Iterable[Mapping[str, Any]],
    claims: Iterable[VolumeClaim],
    raw_claims: Iterable[Mapping[str, Any]],
    guest: Guest,
) -> list[Dependent]:
    """The NetworkFilesystems that our driver has made for the guest, and those of others that export one of its volumes, `claims`.
    `raw_claims` are all that are there."""
    own = {one.volume_name for one in claims} - {""}
    claim_of = {text_at(raw, "spec", "volumeName"): name_of(raw) for raw in raw_claims}
    found = []
    for raw in raws:
        name = name_of(raw)
        if name in own or is_marked(raw, guest):
            doubt = find_doubt_of_marks(raw, guest)
            ref = NETWORK_FILESYSTEM.ref(name, namespace_of(raw))
            found.append(Dependent(ref, uid_of(raw), claim_of.get(name, ""), True, doubt, is_deleting(raw)))
    return found


def is_enabled_for_others(raw: Mapping[str, Any], guest: Guest) -> bool:
    """Whether a NetworkFilesystem is turned on, and not by our driver in this guest, none of whose nodes is left."""
    return nested(raw, "spec", "desiredState") == "Enabled" and not is_marked(raw, guest)
