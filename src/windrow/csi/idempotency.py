"""What makes calls repeatable, as a wrapper over any `Volumes`: the same call again finishes, or finds it done.

* To create what is there answers what is there, where it is what is asked for; else AlreadyExists.
* To delete what is not there is done.
* One call at a time works on a volume or snapshot; another is Aborted meanwhile, and its caller repeats it. So a call that its
  caller has given up, and the repetition, never work on one object together. Detachments from several nodes do, and so do
  attachments of a shared volume.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from windrow.csi.handles import parse_backup_handle, volume_id_for
from windrow.csi.sizes import SizeRange
from windrow.csi.volumes import (
    Attachment,
    Snapshot,
    SnapshotExists,
    SnapshotNotFound,
    SnapshotRequest,
    Unfinished,
    Volume,
    VolumeExists,
    VolumeKind,
    VolumeNotFound,
    VolumeRequest,
    Volumes,
)


class IdempotentVolumes:
    """Implements Volumes; the verbs that make and delete may be repeated."""

    def __init__(self, inner: Volumes) -> None:
        self._inner = inner
        self._held: set[tuple[str, str]] = set()
        # By volume, the nodes for which calls work on it.
        self._nodes: dict[str, set[str]] = defaultdict(set)

    async def create(self, wanted: VolumeRequest) -> Volume:
        with self._alone("volume", volume_id_for(wanted.name)):
            try:
                return await self._inner.create(wanted)
            except VolumeExists as error:
                require_same(error.volume, wanted)
                return error.volume

    async def delete(self, volume_id: str) -> None:
        with self._alone("volume", volume_id):
            try:
                await self._inner.delete(volume_id)
            except VolumeNotFound:
                return

    async def get(self, volume_id: str) -> Volume:
        return await self._inner.get(volume_id)

    async def list_volumes(self) -> Sequence[Volume]:
        return await self._inner.list_volumes()

    async def ensure_expanded(self, volume_id: str, wanted: SizeRange) -> Volume:
        with self._alone("volume", volume_id):
            return await self._inner.ensure_expanded(volume_id, wanted)

    async def ensure_attached(
        self, volume_id: str, node_id: str, read_only: bool, kind: VolumeKind = "disk"
    ) -> Attachment:
        with self._on_node(volume_id, node_id if kind == "shared" else ""):
            return await self._inner.ensure_attached(volume_id, node_id, read_only, kind)

    async def ensure_detached(self, volume_id: str, node_id: str) -> None:
        with self._on_node(volume_id, node_id):
            await self._inner.ensure_detached(volume_id, node_id)

    async def create_snapshot(self, wanted: SnapshotRequest) -> Snapshot:
        with self._alone("snapshot", volume_id_for(wanted.name)):
            try:
                return await self._inner.create_snapshot(wanted)
            except SnapshotExists as error:
                found = error.snapshot
                if found.volume_id != wanted.volume_id:
                    raise SnapshotExists(
                        found, f"it is of volume {found.volume_id!r}, not of {wanted.volume_id!r}"
                    ) from None
                return found

    async def delete_snapshot(self, snapshot_id: str) -> None:
        with self._alone("snapshot", _snapshot_key(snapshot_id)):
            try:
                await self._inner.delete_snapshot(snapshot_id)
            except SnapshotNotFound:
                return

    async def get_snapshot(self, snapshot_id: str) -> Snapshot:
        return await self._inner.get_snapshot(snapshot_id)

    async def list_snapshots(self) -> Sequence[Snapshot]:
        return await self._inner.list_snapshots()

    @contextmanager
    def _alone(self, kind: str, name: str) -> Iterator[None]:
        key = kind, name
        if key in self._held or (kind == "volume" and name in self._nodes):
            raise Unfinished(
                f"another call works on {kind} {name[:128]!r}", "repeat the same call after a moment"
            )
        self._held.add(key)
        try:
            yield
        finally:
            self._held.discard(key)

    @contextmanager
    def _on_node(self, volume_id: str, node_id: str) -> Iterator[None]:
        """Alone on the volume for the node, while calls for other nodes may work on it; wholly alone where `node_id` is ""."""
        if not node_id:
            with self._alone("volume", volume_id):
                yield
            return
        if ("volume", volume_id) in self._held or node_id in self._nodes.get(volume_id, ()):
            raise Unfinished(
                f"another call works on volume {volume_id[:128]!r}", "repeat the same call after a moment"
            )
        self._nodes[volume_id].add(node_id)
        try:
            yield
        finally:
            self._nodes[volume_id].discard(node_id)
            if not self._nodes[volume_id]:
                del self._nodes[volume_id]


def _snapshot_key(snapshot_id: str) -> str:
    """What a creation of the snapshot is known by: the handle of a backup has its namespace, too."""
    backup = parse_backup_handle(snapshot_id)
    return backup[1] if backup else snapshot_id


def require_same(found: Volume, wanted: VolumeRequest) -> None:
    """Raises VolumeExists unless the volume is what is asked for. What the Go driver did not record is not compared."""
    if not wanted.size.includes(found.size):
        raise VolumeExists(found, f"it has {found.size} bytes, and {wanted.size} are asked for")
    if found.kind != wanted.kind:
        raise VolumeExists(found, f"it is a {found.kind} volume, and a {wanted.kind} one is asked for")
    if found.parameters is None:
        return
    if dict(found.parameters) != dict(wanted.parameters):
        raise VolumeExists(found, "it was made with other parameters")
    if found.source != wanted.source:
        raise VolumeExists(found, f"it was made of {_source(found)}, not of {_source(wanted)}")


def _source(one: Volume | VolumeRequest) -> str:
    return str(one.source) if one.source else "nothing"
