"""The volumes of a guest as they are on Harvester now: claims, with all that uses them, and what was made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from windrow.client.client import Client
from windrow.clusters.api.guest_volumes import GuestVolumes
from windrow.clusters.sources.volumes.dependents import (
    EXPORTS,
    Dependent,
    find_snapshots_of,
    is_enabled_for_others,
    read_exports,
    read_snapshot_handles,
    read_snapshots,
)
from windrow.clusters.sources.volumes.guest_volumes import (
    Guest,
    VolumeClaim,
    read_guest_volumes,
    read_volume_claims,
)
from windrow.harvester.resources import (
    NETWORK_FILESYSTEM,
    REMOTE_BACKUP,
    VM,
    VMI,
    VOLUME_SNAPSHOT,
    VOLUME_SNAPSHOT_CONTENT,
)
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound
from windrow.kubernetes.objects import Raw, name_of
from windrow.kubernetes.resources import PERSISTENT_VOLUME, ApiResource


@dataclass(frozen=True, slots=True)
class HostVolumes:
    """`unknown` says of which kinds of dependents it is not known whether there are any, and why; "" for none."""

    claims: tuple[VolumeClaim, ...] = ()
    dependents: tuple[Dependent, ...] = ()
    unknown: str = ""


async def list_guest_volumes(guest: Client) -> GuestVolumes | None:
    """What the guest says of its volumes; None where it does not answer. Snapshots of which it does not say so are kept."""
    try:
        volumes = await guest.list(PERSISTENT_VOLUME)
    except KubeError:
        return None
    try:
        contents = await guest.list(VOLUME_SNAPSHOT_CONTENT)
    except KubeError:
        contents = []
    return read_guest_volumes(volumes, read_snapshot_handles(contents))


async def list_host_volumes(
    client: Client, raw_claims: Sequence[Raw], namespace: str, recorded: GuestVolumes | None, guest: Guest
) -> HostVolumes:
    """Raises KubeError where VMs or their instances cannot be listed; of what else is forbidden nothing is known."""
    to_delete = recorded is not None and bool(recorded.delete)
    users = [*await client.list(VM, namespace), *await client.list(VMI, namespace)] if to_delete else []
    claims = read_volume_claims(raw_claims, users, recorded, guest)
    if not claims and not guest.uid:
        return HostVolumes()
    exports, why = await _list_or_why(client, NETWORK_FILESYSTEM, EXPORTS)
    names = {name_of(raw) for raw in raw_claims}
    dependents = read_exports(exports, claims, raw_claims, guest)
    snapshots, why_no_snapshots = await _list_or_why(client, VOLUME_SNAPSHOT, namespace)
    backups, why_no_backups = await _list_or_why(client, REMOTE_BACKUP, namespace)
    dependents += read_snapshots(snapshots, VOLUME_SNAPSHOT, names, recorded, guest)
    dependents += read_snapshots(backups, REMOTE_BACKUP, names, recorded, guest)
    claims = tuple(_with_exports(one, exports, why, guest) for one in claims)
    claims = tuple(_with_snapshots(one, snapshots, why_no_snapshots) for one in claims)
    unknown = "; ".join(filter(None, (why, why_no_snapshots, why_no_backups)))
    return HostVolumes(claims, tuple(sorted(dependents, key=str)), unknown)


def _with_exports(claim: VolumeClaim, exports: Sequence[Raw], why: str, guest: Guest) -> VolumeClaim:
    """The claim with the NetworkFilesystem that others have turned on for it."""
    others = tuple(
        f"{NETWORK_FILESYSTEM.kind} {EXPORTS}/{name_of(raw)}"
        for raw in exports
        if name_of(raw) == claim.volume_name and is_enabled_for_others(raw, guest)
    )
    unknown = f"whether a NetworkFilesystem exports it ({why})" if why and claim.can_be_shared else ""
    return replace(claim, users=(*claim.users, *others), unknown=unknown)


def _with_snapshots(claim: VolumeClaim, snapshots: Sequence[Raw], why: str) -> VolumeClaim:
    """The claim with the VolumeSnapshots of it, or with why they are not known."""
    unknown = claim.unknown or (f"whether a VolumeSnapshot of it stays ({why})" if why else "")
    return replace(claim, snapshots=find_snapshots_of(claim, snapshots), unknown=unknown)


async def _list_or_why(client: Client, kind: ApiResource, namespace: str) -> tuple[list[Raw], str]:
    """What there is, and why that is not known; nothing where the kind itself is not served."""
    try:
        return await client.list(kind, namespace), ""
    except NotFound:
        return [], ""
    except Forbidden as error:
        return [], str(error)
