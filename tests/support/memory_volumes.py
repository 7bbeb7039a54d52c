"""`MemoryVolumes`: the port Volumes in memory, as a Harvester whose work takes no time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from windrow.csi import names
from windrow.csi.handles import backup_handle, serial_of, volume_id_for
from windrow.csi.sizes import MIN_BYTES, SizeRange, choose_size
from windrow.csi.volumes import (
    AttachedDifferently,
    Attachment,
    CannotShrink,
    NameTaken,
    NodeFull,
    NodeNotFound,
    Snapshot,
    SnapshotExists,
    SnapshotNotFound,
    SnapshotRequest,
    SnapshotSource,
    Volume,
    VolumeExists,
    VolumeInUse,
    VolumeKind,
    VolumeNotFound,
    VolumeRequest,
    WrongKind,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class MemoryVolumes:
    """Keeps volumes, snapshots and which node has what; refuses what a Harvester refuses.

    `nodes` are the VMs that exist, each with room for `disks_per_node`. `refuse` raises in a verb by its name.
    """

    def __init__(self, nodes: Sequence[str] = ("node-1", "node-2"), disks_per_node: int = 200) -> None:
        self.nodes = set(nodes)
        self.disks_per_node = disks_per_node
        self.refuse: dict[str, Exception] = {}
        self._volumes: dict[str, Volume] = {}
        # By volume, the nodes that have it, and whether read-only: of a disk there is one at most.
        self._attached: dict[str, dict[str, bool]] = {}
        self._snapshots: dict[str, Snapshot] = {}
        # By handle, the name that it was made for.
        self._made_for: dict[tuple[str, str], str] = {}
        self._seconds = itertools.count()

    async def create(self, wanted: VolumeRequest) -> Volume:
        self._may("create")
        volume_id = volume_id_for(wanted.name)
        if volume_id in self._volumes:
            self._require_made_for("volume", volume_id, wanted.name)
            raise VolumeExists(self._seen(volume_id))
        source, least = wanted.source, MIN_BYTES
        if source is not None:
            least = (
                self._snapshot(source.snapshot_id).size
                if isinstance(source, SnapshotSource)
                else self._volume(source.volume_id).size
            )
        size = choose_size(wanted.size, least)
        self._volumes[volume_id] = Volume(volume_id, size, wanted.kind, dict(wanted.parameters), source)
        self._made_for["volume", volume_id] = wanted.name
        return self._volumes[volume_id]

    async def delete(self, volume_id: str) -> None:
        self._may("delete")
        self._volume(volume_id)
        if volume_id in self._attached:
            raise VolumeInUse(volume_id, sorted(self._attached[volume_id]), "deleted")
        del self._volumes[volume_id]

    async def get(self, volume_id: str) -> Volume:
        self._may("get")
        return self._seen(volume_id)

    async def list_volumes(self) -> Sequence[Volume]:
        self._may("list_volumes")
        return [self._seen(volume_id) for volume_id in sorted(self._volumes)]

    async def ensure_expanded(self, volume_id: str, wanted: SizeRange) -> Volume:
        self._may("ensure_expanded")
        volume = self._volume(volume_id)
        if wanted.limit and volume.size > wanted.limit:
            raise CannotShrink(f"volume {volume_id!r} has {volume.size} bytes", "volumes do not shrink")
        if volume.size < wanted.required:
            if volume.kind == "shared" and volume_id in self._attached:
                raise VolumeInUse(volume_id, sorted(self._attached[volume_id]), "expanded")
            self._volumes[volume_id] = replace(volume, size=choose_size(wanted))
        return self._seen(volume_id)

    async def ensure_attached(
        self, volume_id: str, node_id: str, read_only: bool, kind: VolumeKind = "disk"
    ) -> Attachment:
        self._may("ensure_attached")
        volume = self._volume(volume_id)
        if kind != volume.kind:
            raise WrongKind(volume_id, volume.kind)
        if node_id not in self.nodes:
            raise NodeNotFound(node_id)
        has = self._attached.get(volume_id, {})
        others = sorted(has.keys() - {node_id})
        if others and kind == "disk":
            raise VolumeInUse(volume_id, others, f"attached to {node_id}")
        if has.get(node_id, read_only) != read_only:
            raise AttachedDifferently(volume_id, node_id, has[node_id])
        used = sum(
            node_id in nodes for one, nodes in self._attached.items() if self._volumes[one].kind == "disk"
        )
        if kind == "disk" and node_id not in has and used >= self.disks_per_node:
            raise NodeFull(f"VirtualMachine {node_id} has {used} disks", "detach one, or choose another node")
        self._attached.setdefault(volume_id, {})[node_id] = read_only
        if kind == "shared":
            return Attachment(read_only, _share_context(volume))
        context = {
            names.PUBLISH_SERIAL: serial_of(volume_id),
            names.PUBLISH_BUS: "scsi",
            names.PUBLISH_CAPACITY: str(volume.size),
        }
        return Attachment(read_only, context)

    async def ensure_detached(self, volume_id: str, node_id: str) -> None:
        self._may("ensure_detached")
        has = self._attached.pop(volume_id, {})
        left = {node: mode for node, mode in has.items() if node_id not in ("", node)}
        if left:
            self._attached[volume_id] = left

    async def create_snapshot(self, wanted: SnapshotRequest) -> Snapshot:
        self._may("create_snapshot")
        snapshot_id = volume_id_for(wanted.name)
        if wanted.parameters.get(names.SNAPSHOT_TYPE) == "backup":
            snapshot_id = backup_handle("default", snapshot_id)
        if snapshot_id in self._snapshots:
            self._require_made_for("snapshot", snapshot_id, wanted.name)
            raise SnapshotExists(self._snapshots[snapshot_id])
        volume = self._volume(wanted.volume_id)
        created = NOON + timedelta(seconds=next(self._seconds))
        self._snapshots[snapshot_id] = Snapshot(snapshot_id, volume.id, volume.size, created)
        self._made_for["snapshot", snapshot_id] = wanted.name
        return self._snapshots[snapshot_id]

    async def delete_snapshot(self, snapshot_id: str) -> None:
        self._may("delete_snapshot")
        self._snapshot(snapshot_id)
        del self._snapshots[snapshot_id]

    async def get_snapshot(self, snapshot_id: str) -> Snapshot:
        self._may("get_snapshot")
        return self._snapshot(snapshot_id)

    async def list_snapshots(self) -> Sequence[Snapshot]:
        self._may("list_snapshots")
        return [self._snapshots[snapshot_id] for snapshot_id in sorted(self._snapshots)]

    def _require_made_for(self, kind: str, handle: str, name: str) -> None:
        if (made_for := self._made_for[kind, handle]) != name:
            raise NameTaken(name, handle, made_for)

    def _may(self, verb: str) -> None:
        if verb in self.refuse:
            raise self.refuse[verb]

    def _volume(self, volume_id: str) -> Volume:
        if volume_id not in self._volumes:
            raise VolumeNotFound(volume_id)
        return self._volumes[volume_id]

    def _seen(self, volume_id: str) -> Volume:
        return replace(self._volume(volume_id), nodes=tuple(sorted(self._attached.get(volume_id, ()))))

    def _snapshot(self, snapshot_id: str) -> Snapshot:
        if snapshot_id not in self._snapshots:
            raise SnapshotNotFound(snapshot_id)
        return self._snapshots[snapshot_id]


def _share_context(volume: Volume) -> dict[str, str]:
    return {
        names.PUBLISH_SHARE_SERVER: "10.53.200.10",
        names.PUBLISH_SHARE_EXPORT: f"/{volume.id}",
        names.PUBLISH_SHARE_OPTIONS: "vers=4.1",
        names.PUBLISH_CAPACITY: str(volume.size),
    }
