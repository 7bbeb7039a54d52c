"""What holds for every implementation of the port Volumes. Each brings a rig: the volumes, and the names of two nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Protocol

import pytest
from tests.contract.volumes_rig import volumes_rig
from tests.support.clock import run_driven
from tests.support.memory_volumes import MemoryVolumes

from windrow.csi import names
from windrow.csi.sizes import SizeRange
from windrow.csi.volumes import (
    AttachedDifferently,
    CannotShrink,
    NameTaken,
    NodeNotFound,
    Snapshot,
    SnapshotExists,
    SnapshotNotFound,
    SnapshotRequest,
    SnapshotSource,
    VolumeExists,
    VolumeInUse,
    VolumeNotFound,
    VolumeRequest,
    Volumes,
    VolumeSource,
    WrongKind,
)

GIB = 2**30
ONE = SizeRange(GIB)
PVC = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001"
OTHER = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0002"


class Rig(Protocol):
    """Volumes, and the names of two nodes."""

    @property
    def volumes(self) -> Volumes: ...

    node: str
    other_node: str


@dataclass
class MemoryRig:
    volumes: Volumes = field(default_factory=lambda: MemoryVolumes(["node-1", "node-2"]))
    node: str = "node-1"
    other_node: str = "node-2"


@asynccontextmanager
async def memory_rig() -> AsyncIterator[Rig]:
    yield MemoryRig()


@dataclass(frozen=True)
class RigKind:
    """How a rig is made, and what cannot be asked of it yet, with the reason."""

    rig: Callable[[], AbstractAsyncContextManager[Rig]]
    cannot: dict[str, str] = field(default_factory=dict)


RIGS = {"memory": RigKind(memory_rig), "harvester": RigKind(volumes_rig)}
Check = Callable[..., Coroutine[Any, Any, None]]


def holds_for_all(check: Check) -> Callable[..., None]:
    """A test that runs `check` on a fresh rig of each kind, on a driven clock."""

    async def on_a_rig(kind: RigKind, **rest: Any) -> None:
        async with kind.rig() as rig:
            await check(rig, **rest)

    @pytest.mark.parametrize("kind", sorted(RIGS))
    @wraps(check)
    def test(kind: str, **rest: Any) -> None:
        if why := RIGS[kind].cannot.get(check.__name__):
            pytest.skip(why)
        run_driven(on_a_rig(RIGS[kind], **rest))

    found = signature(check)
    others = [one for name, one in found.parameters.items() if name != "rig"]
    test.__signature__ = found.replace(  # type: ignore[attr-defined]
        parameters=[Parameter("kind", Parameter.POSITIONAL_OR_KEYWORD), *others], return_annotation=None
    )
    return test


@holds_for_all
async def test_a_volume_is_there_after_it_was_created(rig: Rig):
    made = await rig.volumes.create(VolumeRequest(PVC, ONE))

    assert made.id == PVC
    assert made.size == GIB
    assert made.nodes == ()
    assert await rig.volumes.get(PVC) == made
    assert [one.id for one in await rig.volumes.list_volumes()] == [PVC]


@holds_for_all
async def test_a_volume_keeps_the_parameters_that_it_was_made_with(rig: Rig):
    made = await rig.volumes.create(VolumeRequest(PVC, ONE, parameters={names.HOST_VOLUME_MODE: "block"}))

    assert made.parameters == {names.HOST_VOLUME_MODE: "block"}
    assert (await rig.volumes.get(PVC)).parameters == made.parameters


@holds_for_all
async def test_a_name_that_no_object_can_have_gets_a_handle_that_is_always_the_same(rig: Rig):
    name = "sanity-controller-10542C0A-7BDF505B" + "x" * 90
    made = await rig.volumes.create(VolumeRequest(name, ONE))

    with pytest.raises(VolumeExists) as error:
        await rig.volumes.create(VolumeRequest(name, ONE))
    assert error.value.volume.id == made.id


@holds_for_all
async def test_two_names_do_not_share_a_volume_or_a_snapshot(rig: Rig):
    volume = await rig.volumes.create(VolumeRequest("Foo", ONE))
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    snapshot = await rig.volumes.create_snapshot(SnapshotRequest("Foo", PVC))

    with pytest.raises(
        NameTaken, match=f"the handle of '{volume.id}' is '{volume.id}', which was made for the name 'Foo'"
    ):
        await rig.volumes.create(VolumeRequest(volume.id, ONE))
    with pytest.raises(NameTaken, match="which was made for the name 'Foo'"):
        await rig.volumes.create_snapshot(SnapshotRequest(snapshot.id, PVC))
    with pytest.raises(SnapshotExists):
        await rig.volumes.create_snapshot(SnapshotRequest("Foo", PVC))


@holds_for_all
async def test_a_name_is_taken_once(rig: Rig):
    made = await rig.volumes.create(VolumeRequest(PVC, ONE))

    with pytest.raises(VolumeExists) as error:
        await rig.volumes.create(VolumeRequest(PVC, SizeRange(2 * GIB)))
    assert error.value.volume == made


@holds_for_all
async def test_a_size_is_rounded_up_to_what_can_be_made(rig: Rig):
    assert (await rig.volumes.create(VolumeRequest(PVC, SizeRange(GIB + 1)))).size == GIB + 2 * 2**20
    assert (await rig.volumes.create(VolumeRequest(OTHER))).size == 10 * 2**20


@holds_for_all
async def test_a_deleted_volume_is_gone(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    await rig.volumes.delete(PVC)

    with pytest.raises(VolumeNotFound):
        await rig.volumes.get(PVC)
    with pytest.raises(VolumeNotFound):
        await rig.volumes.delete(PVC)


@pytest.mark.parametrize("volume_id", [PVC, "../secrets/x", "No-Label", "a" * 300])
@holds_for_all
async def test_a_volume_that_was_never_there_is_not_found(rig: Rig, volume_id: str):
    with pytest.raises(VolumeNotFound):
        await rig.volumes.get(volume_id)
    with pytest.raises(VolumeNotFound):
        await rig.volumes.delete(volume_id)
    with pytest.raises(VolumeNotFound):
        await rig.volumes.ensure_attached(volume_id, rig.node, False)
    with pytest.raises(VolumeNotFound):
        await rig.volumes.ensure_expanded(volume_id, ONE)


@holds_for_all
async def test_an_attached_volume_names_its_node_and_tells_its_serial(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    attachment = await rig.volumes.ensure_attached(PVC, rig.node, False)

    assert attachment.context == {
        names.PUBLISH_SERIAL: "6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001",
        names.PUBLISH_BUS: "scsi",
        names.PUBLISH_CAPACITY: str(GIB),
    }
    assert (await rig.volumes.get(PVC)).nodes == (rig.node,)
    assert (await rig.volumes.list_volumes())[0].nodes == (rig.node,)


@holds_for_all
async def test_attaching_again_changes_nothing(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    first = await rig.volumes.ensure_attached(PVC, rig.node, False)

    assert await rig.volumes.ensure_attached(PVC, rig.node, False) == first


@holds_for_all
async def test_an_attached_volume_does_not_become_read_only(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    await rig.volumes.ensure_attached(PVC, rig.node, False)

    with pytest.raises(AttachedDifferently):
        await rig.volumes.ensure_attached(PVC, rig.node, True)


@holds_for_all
async def test_a_volume_is_on_one_node_at_a_time(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    await rig.volumes.ensure_attached(PVC, rig.node, False)

    with pytest.raises(VolumeInUse) as error:
        await rig.volumes.ensure_attached(PVC, rig.other_node, False)
    assert error.value.nodes == (rig.node,)


@holds_for_all
async def test_a_detached_volume_can_move(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    await rig.volumes.ensure_attached(PVC, rig.node, False)
    await rig.volumes.ensure_detached(PVC, rig.node)
    await rig.volumes.ensure_attached(PVC, rig.other_node, False)

    assert (await rig.volumes.get(PVC)).nodes == (rig.other_node,)


@holds_for_all
async def test_detaching_from_another_node_changes_nothing(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    await rig.volumes.ensure_attached(PVC, rig.node, False)
    await rig.volumes.ensure_detached(PVC, rig.other_node)

    assert (await rig.volumes.get(PVC)).nodes == (rig.node,)


@holds_for_all
async def test_without_a_node_a_volume_is_detached_from_where_it_is(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    await rig.volumes.ensure_attached(PVC, rig.node, False)
    await rig.volumes.ensure_detached(PVC, "")

    assert (await rig.volumes.get(PVC)).nodes == ()


@holds_for_all
async def test_what_is_not_there_is_detached(rig: Rig):
    await rig.volumes.ensure_detached(PVC, rig.node)
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    await rig.volumes.ensure_detached(PVC, rig.node)
    await rig.volumes.ensure_detached(PVC, "no-such-node")
    await rig.volumes.ensure_detached("../x", "../y")


@pytest.mark.parametrize("node", ["no-such-node", "../x", "a" * 300])
@holds_for_all
async def test_a_node_without_a_vm_is_not_found(rig: Rig, node: str):
    await rig.volumes.create(VolumeRequest(PVC, ONE))

    with pytest.raises(NodeNotFound):
        await rig.volumes.ensure_attached(PVC, node, False)


@holds_for_all
async def test_an_attached_volume_is_not_deleted(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    await rig.volumes.ensure_attached(PVC, rig.node, False)

    with pytest.raises(VolumeInUse) as error:
        await rig.volumes.delete(PVC)
    assert error.value.nodes == (rig.node,)


@holds_for_all
async def test_a_volume_grows(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))

    assert (await rig.volumes.ensure_expanded(PVC, SizeRange(2 * GIB))).size == 2 * GIB
    assert (await rig.volumes.get(PVC)).size == 2 * GIB


@holds_for_all
async def test_a_volume_that_is_large_enough_stays(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, SizeRange(2 * GIB)))

    assert (await rig.volumes.ensure_expanded(PVC, ONE)).size == 2 * GIB
    with pytest.raises(CannotShrink):
        await rig.volumes.ensure_expanded(PVC, SizeRange(GIB, GIB))


async def ready_snapshot(rig: Rig, name: str) -> Snapshot:
    """A snapshot of PVC, once it can be restored."""
    found = await rig.volumes.create_snapshot(SnapshotRequest(name, PVC))
    for _ in range(120):
        if found.is_ready:
            break
        await asyncio.sleep(1)  # of the driven clock
        found = await rig.volumes.get_snapshot(name)
    return found


@holds_for_all
async def test_a_snapshot_is_there_after_it_was_created(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    made = await ready_snapshot(rig, "snapshot-1")

    assert (made.id, made.volume_id) == ("snapshot-1", PVC)
    assert made.size == GIB
    assert [one.id for one in await rig.volumes.list_snapshots()] == ["snapshot-1"]


@holds_for_all
async def test_a_name_of_a_snapshot_is_taken_once(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    await rig.volumes.create(VolumeRequest(OTHER, ONE))
    made = await rig.volumes.create_snapshot(SnapshotRequest("snapshot-1", PVC))

    with pytest.raises(SnapshotExists) as error:
        await rig.volumes.create_snapshot(SnapshotRequest("snapshot-1", OTHER))
    assert error.value.snapshot.volume_id == made.volume_id


@holds_for_all
async def test_a_snapshot_of_nothing_is_refused(rig: Rig):
    with pytest.raises(VolumeNotFound):
        await rig.volumes.create_snapshot(SnapshotRequest("snapshot-1", PVC))


@holds_for_all
async def test_a_deleted_snapshot_is_gone(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    await rig.volumes.create_snapshot(SnapshotRequest("snapshot-1", PVC))
    await rig.volumes.delete_snapshot("snapshot-1")

    for snapshot_id in ("snapshot-1", "../x"):
        with pytest.raises(SnapshotNotFound):
            await rig.volumes.get_snapshot(snapshot_id)
        with pytest.raises(SnapshotNotFound):
            await rig.volumes.delete_snapshot(snapshot_id)


@holds_for_all
async def test_a_backup_has_a_handle_of_its_own_and_is_deleted_by_it(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    wanted = SnapshotRequest("snapshot-1", PVC, {names.SNAPSHOT_TYPE: "backup"})
    handle = "backup:default/snapshot-1"

    with pytest.raises(SnapshotNotFound):
        await rig.volumes.get_snapshot(handle)
    made = await rig.volumes.create_snapshot(wanted)
    assert (made.id, made.volume_id, made.size) == (handle, PVC, GIB)
    with pytest.raises(SnapshotExists):
        await rig.volumes.create_snapshot(wanted)
    assert [one.id for one in await rig.volumes.list_snapshots()] == [handle]
    await rig.volumes.delete_snapshot(handle)
    with pytest.raises(SnapshotNotFound):
        await rig.volumes.delete_snapshot(handle)


@holds_for_all
async def test_a_volume_of_a_snapshot_has_at_least_its_size(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    await ready_snapshot(rig, "snapshot-1")
    source = SnapshotSource("snapshot-1")
    made = await rig.volumes.create(VolumeRequest(OTHER, source=source))

    assert (made.size, made.source) == (GIB, source)


@holds_for_all
async def test_a_clone_has_at_least_the_size_of_its_source(rig: Rig):
    await rig.volumes.create(VolumeRequest(PVC, ONE))
    made = await rig.volumes.create(VolumeRequest(OTHER, source=VolumeSource(PVC)))

    assert (made.size, made.source) == (GIB, VolumeSource(PVC))


@holds_for_all
async def test_a_source_that_is_not_there_is_not_found(rig: Rig):
    with pytest.raises(SnapshotNotFound):
        await rig.volumes.create(VolumeRequest(PVC, source=SnapshotSource("none")))
    with pytest.raises(VolumeNotFound):
        await rig.volumes.create(VolumeRequest(PVC, source=VolumeSource("none")))


# Its class on the emulated Harvester: Longhorn's default one makes volumes that migrate, which are not shared.
RWX = "longhorn-rwx"
SHARED = VolumeRequest(PVC, ONE, "shared", {names.HOST_STORAGE_CLASS: RWX})


@holds_for_all
async def test_a_shared_volume_is_on_several_nodes_at_once(rig: Rig):
    made = await rig.volumes.create(SHARED)
    first, second = await asyncio.gather(
        rig.volumes.ensure_attached(PVC, rig.node, False, "shared"),
        rig.volumes.ensure_attached(PVC, rig.other_node, True, "shared"),
    )

    assert made.kind == "shared"
    assert (await rig.volumes.get(PVC)).nodes == (rig.node, rig.other_node)
    assert [one.nodes for one in await rig.volumes.list_volumes()] == [(rig.node, rig.other_node)]
    assert (first.read_only, second.read_only) == (False, True)
    assert first.context == second.context
    assert first.context[names.PUBLISH_SHARE_SERVER] == "10.53.200.10"
    assert first.context[names.PUBLISH_SHARE_EXPORT].startswith("/pvc-")
    assert first.context[names.PUBLISH_SHARE_OPTIONS].startswith("vers=4.1")
    assert names.PUBLISH_SERIAL not in first.context


@holds_for_all
async def test_a_shared_volume_leaves_its_nodes_one_by_one(rig: Rig):
    await rig.volumes.create(SHARED)
    for node in (rig.node, rig.other_node):
        await rig.volumes.ensure_attached(PVC, node, False, "shared")
    with pytest.raises(VolumeInUse) as error:
        await rig.volumes.delete(PVC)
    assert error.value.nodes == (rig.node, rig.other_node)
    with pytest.raises(VolumeInUse):
        await rig.volumes.ensure_expanded(PVC, SizeRange(2 * GIB))
    assert (await rig.volumes.ensure_expanded(PVC, ONE)).size == GIB

    await rig.volumes.ensure_detached(PVC, rig.node)
    assert (await rig.volumes.get(PVC)).nodes == (rig.other_node,)
    with pytest.raises(VolumeInUse):
        await rig.volumes.delete(PVC)
    await rig.volumes.ensure_detached(PVC, rig.node)
    await rig.volumes.ensure_detached(PVC, "")
    assert (await rig.volumes.get(PVC)).nodes == ()
    assert (await rig.volumes.ensure_expanded(PVC, SizeRange(2 * GIB))).size == 2 * GIB
    await rig.volumes.delete(PVC)
    with pytest.raises(VolumeNotFound):
        await rig.volumes.get(PVC)


@holds_for_all
async def test_a_shared_volume_is_attached_again_as_it_was_and_not_otherwise(rig: Rig):
    await rig.volumes.create(SHARED)
    first = await rig.volumes.ensure_attached(PVC, rig.node, True, "shared")

    assert await rig.volumes.ensure_attached(PVC, rig.node, True, "shared") == first
    with pytest.raises(AttachedDifferently, match="read-only"):
        await rig.volumes.ensure_attached(PVC, rig.node, False, "shared")
    with pytest.raises(NodeNotFound):
        await rig.volumes.ensure_attached(PVC, "no-such-node", False, "shared")


@holds_for_all
async def test_a_disk_is_not_shared_and_a_shared_volume_is_no_disk(rig: Rig):
    await rig.volumes.create(SHARED)
    await rig.volumes.create(VolumeRequest(OTHER, ONE))

    for volume_id, kind in ((PVC, "disk"), (OTHER, "shared")):
        with pytest.raises(WrongKind) as error:
            await rig.volumes.ensure_attached(volume_id, rig.node, False, kind)
        assert error.value.field == "volume_capability.access_mode"
