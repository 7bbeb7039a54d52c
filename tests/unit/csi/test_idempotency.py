"""One call at a time works on a volume."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.memory_volumes import MemoryVolumes

from windrow.csi.idempotency import IdempotentVolumes, require_same
from windrow.csi.volumes import (
    Attachment,
    Snapshot,
    SnapshotRequest,
    Unfinished,
    Volume,
    VolumeExists,
    VolumeKind,
    VolumeRequest,
    VolumeSource,
)


class SlowVolumes(MemoryVolumes):
    """Attaches, and takes snapshots, when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()

    async def ensure_attached(
        self, volume_id: str, node_id: str, read_only: bool, kind: VolumeKind = "disk"
    ) -> Attachment:
        await self.let.wait()
        return await super().ensure_attached(volume_id, node_id, read_only, kind)

    async def create_snapshot(self, wanted: SnapshotRequest) -> Snapshot:
        await self.let.wait()
        return await super().create_snapshot(wanted)


async def test_a_second_call_for_a_volume_is_told_to_come_again():
    inner = SlowVolumes()
    volumes = IdempotentVolumes(inner)
    for name in ("a", "b"):
        await volumes.create(VolumeRequest(name))
    first = asyncio.create_task(volumes.ensure_attached("a", "node-1", False))
    await asyncio.sleep(0)

    with pytest.raises(Unfinished):
        await volumes.ensure_attached("a", "node-1", False)
    with pytest.raises(Unfinished):
        await volumes.delete("a")
    await volumes.delete("b")
    inner.let.set()
    await first
    await volumes.ensure_attached("a", "node-1", False)


@pytest.mark.parametrize("handle", ["snap-1", "backup:default/snap-1"])
async def test_a_snapshot_or_backup_is_not_deleted_while_it_is_made(handle: str):
    inner = SlowVolumes()
    volumes = IdempotentVolumes(inner)
    await volumes.create(VolumeRequest("a"))
    first = asyncio.create_task(volumes.create_snapshot(SnapshotRequest("snap-1", "a")))
    await asyncio.sleep(0)

    with pytest.raises(Unfinished):
        await volumes.delete_snapshot(handle)
    await volumes.delete_snapshot("backup:default/snap-2")
    inner.let.set()
    await first
    await volumes.delete_snapshot(handle)


async def test_a_call_that_was_given_up_holds_nothing():
    inner = SlowVolumes()
    volumes = IdempotentVolumes(inner)
    await volumes.create(VolumeRequest("a"))
    first = asyncio.create_task(volumes.ensure_attached("a", "node-1", False))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    inner.let.set()

    await volumes.ensure_attached("a", "node-1", False)


async def test_several_nodes_attach_and_detach_a_shared_volume_at_once_and_each_node_once():
    inner = SlowVolumes()
    volumes = IdempotentVolumes(inner)
    await volumes.create(VolumeRequest("a", kind="shared"))
    attaching = [
        asyncio.create_task(volumes.ensure_attached("a", node, False, "shared"))
        for node in ("node-1", "node-2")
    ]
    await asyncio.sleep(0)

    for call in (
        volumes.ensure_attached("a", "node-1", False, "shared"),
        volumes.ensure_detached("a", "node-2"),
        volumes.ensure_detached("a", ""),
        volumes.delete("a"),
        volumes.ensure_attached("a", "node-3", False),
    ):
        with pytest.raises(Unfinished, match="another call works on volume 'a'"):
            await call
    await volumes.ensure_detached("a", "node-3")
    inner.let.set()
    await asyncio.gather(*attaching)
    assert (await volumes.get("a")).nodes == ("node-1", "node-2")
    await volumes.ensure_detached("a", "node-1")
    await volumes.ensure_detached("a", "")
    await volumes.delete("a")


async def test_a_detachment_waits_for_a_call_for_the_whole_volume():
    inner = SlowVolumes()
    volumes = IdempotentVolumes(inner)
    await volumes.create(VolumeRequest("a"))
    attaching = asyncio.create_task(volumes.ensure_attached("a", "node-1", False))
    await asyncio.sleep(0)

    with pytest.raises(Unfinished):
        await volumes.ensure_detached("a", "node-2")
    inner.let.set()
    await attaching


async def test_a_detachment_reaches_the_volumes():
    volumes = IdempotentVolumes(MemoryVolumes())
    await volumes.create(VolumeRequest("a"))
    await volumes.ensure_attached("a", "node-1", False)
    await volumes.ensure_detached("a", "node-1")

    assert (await volumes.get("a")).nodes == ()


def test_a_volume_of_another_kind_is_another_volume():
    with pytest.raises(VolumeExists, match="it is a shared volume"):
        require_same(Volume("a", 1, "shared", {}), VolumeRequest("a"))


def test_what_the_go_driver_did_not_record_is_not_compared():
    require_same(Volume("a", 1), VolumeRequest("a", parameters={"a": "b"}, source=VolumeSource("c")))
