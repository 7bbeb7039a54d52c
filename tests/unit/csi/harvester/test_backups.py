"""Backups of volumes on Harvester, and the volumes that are made of them. Harvester's controllers are the emulator's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.volumes_rig import GUEST, VolumesRig, volumes_rig
from tests.support.clock import run_driven

from windrow.core.clock import sleep
from windrow.core.formats.json import loads
from windrow.csi.errors import FailedPrecondition, Unavailable
from windrow.csi.harvester.backups.objects import read_backup, read_restore, render_backup, render_restore
from windrow.csi.harvester.backups.restores import require_mode
from windrow.csi.harvester.claims import read_claim
from windrow.csi.harvester.snapshots import BACKUP_CLASS, snapshot_class_of
from windrow.csi.idempotency import IdempotentVolumes
from windrow.csi.sizes import SizeRange
from windrow.csi.volumes import (
    NameTaken,
    PermissionMissing,
    SnapshotExists,
    SnapshotNotFound,
    SnapshotRequest,
    SnapshotSource,
    Unfinished,
    UnknownParameter,
    VolumeExists,
    VolumeInUse,
    VolumeNotFound,
    VolumeRequest,
)
from windrow.emulator.faults import Fault, Refuse
from windrow.harvester.resources import REMOTE_BACKUP, REMOTE_RESTORE
from windrow.kubernetes.resources import NAMESPACE, PVC

GIB = 2**30
ONE = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001"
TWO = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0002"
HANDLE = "backup:default/b-1"
BACKUP = SnapshotRequest("b-1", ONE, {"type": "backup"})
RESTORED = VolumeRequest(TWO, source=SnapshotSource(HANDLE))
FORBIDDEN = Refuse(403, "Forbidden", "no")
RESTORE, CLAIM = REMOTE_RESTORE.ref(TWO, "default"), PVC.ref(TWO, "default")


def live(story: Callable[[VolumesRig], Awaitable[None]]) -> None:
    async def alive() -> None:
        async with volumes_rig() as rig:
            await rig.volumes.create(VolumeRequest(ONE, SizeRange(GIB)))
            await pause(rig, 20)
            await story(rig)

    run_driven(alive())


async def pause(rig: VolumesRig, seconds: float) -> None:
    await sleep(rig.harvester.clock.base, timedelta(seconds=seconds))


async def back_up(rig: VolumesRig) -> None:
    await rig.volumes.create_snapshot(BACKUP)
    await pause(rig, 30)


def a_backup(**status: Any) -> dict[str, Any]:
    raw = render_backup("b-1", "default", BACKUP, GUEST)
    raw["metadata"] |= {"uid": "2", "creationTimestamp": "2026-01-31T12:00:00Z"}
    return {**raw, "status": status} if status else raw


def test_a_backup_is_what_the_go_driver_makes_with_marks_of_ours():
    raw = a_backup()

    assert raw["spec"] == {"type": "lh", "source": ONE}
    assert raw["metadata"]["labels"] == {
        "windrow.io/csi-driver": "driver.harvesterhci.io",
        "harvesterhci.io/backupSourceVolume": ONE,
    }
    assert raw["metadata"]["annotations"] == {
        "windrow.io/csi-volume-name": "b-1",
        "windrow.io/guest-uid": GUEST,
    }
    unmarked = render_backup("b-1", "default", replace(BACKUP, volume_id="a.b"), "")
    assert unmarked["metadata"]["labels"] == {"windrow.io/csi-driver": "driver.harvesterhci.io"}
    assert "windrow.io/guest-uid" not in unmarked["metadata"]["annotations"]


def test_a_backup_is_read_as_the_snapshot_that_it_is():
    spec = {
        "resources": {"requests": {"storage": "2Gi"}},
        "storageClassName": "fast",
        "volumeMode": "Block",
    }
    found = read_backup(a_backup(success=True, sourceSpec=spec))

    assert found.snapshot.id == HANDLE
    assert (found.snapshot.volume_id, found.snapshot.size, found.snapshot.is_ready) == (ONE, 2 * GIB, True)
    assert (found.storage_class, found.volume_mode) == ("fast", "Block")
    assert (found.is_listed, found.is_deleting, found.problem, found.guest_uid) == (True, False, "", GUEST)


@pytest.mark.parametrize(
    ("labels", "listed"),
    [
        ({}, False),
        ({"harvesterhci.io/backupSourceVolume": ONE}, True),
        ({"windrow.io/csi-driver": "driver.harvesterhci.io"}, True),
        ({"windrow.io/csi-driver": "another"}, False),
    ],
)
def test_a_backup_of_either_driver_is_told_from_one_of_another_program(labels: dict[str, str], listed: bool):
    raw = a_backup()
    raw["metadata"]["labels"] = labels

    assert read_backup(raw).is_listed is listed


def test_what_harvester_says_of_its_last_attempt_is_the_problem():
    failed = {"type": "Ready", "status": "False", "message": "no backup target"}
    done = {"type": "Ready", "status": "True", "message": "Operation complete"}

    assert read_backup(a_backup(conditions=[failed])).problem == "no backup target"
    assert read_backup(a_backup(conditions=[done])).problem == ""
    assert read_backup(a_backup(conditions=[failed])).snapshot.is_ready is False


def test_a_restore_carries_the_marks_of_its_volume():
    raw = render_restore(TWO, "default", RESTORED, "default/b-1", GUEST)

    assert raw["spec"] == {"type": "lh", "from": "default/b-1"}
    assert raw["metadata"]["annotations"]["windrow.io/csi-source"] == f"snapshot/{HANDLE}"
    found = read_restore(raw)
    assert (found.backup, found.is_ours, found.guest_uid) == ("default/b-1", True, GUEST)
    other = {**raw, "metadata": {**raw["metadata"], "labels": {"windrow.io/csi-driver": "another"}}}
    assert read_restore(other).is_ours is False
    del raw["metadata"]["annotations"]["windrow.io/csi-source"]
    assert read_restore(raw).is_ours is False
    del raw["spec"]["from"]
    assert read_restore(raw).backup == ""


def test_the_class_of_backups_is_another_than_that_of_snapshots():
    text = '{"driver.longhorn.io":{"volumeSnapshotClassName":"a","backupVolumeSnapshotClassName":"b"}}'

    assert snapshot_class_of({"value": text}, "driver.longhorn.io", BACKUP_CLASS) == "b"
    assert snapshot_class_of({}, "driver.longhorn.io", BACKUP_CLASS) == "longhorn"
    assert snapshot_class_of({}, "lvm", BACKUP_CLASS) == ""
    unnamed = {"value": '{"driver.longhorn.io":{"backupVolumeSnapshotClassName":""}}'}
    assert snapshot_class_of(unnamed, "driver.longhorn.io", BACKUP_CLASS) == snapshot_class_of(
        {}, "driver.longhorn.io", BACKUP_CLASS
    )


def test_a_backup_is_made_awaited_listed_and_deleted():
    async def story(rig: VolumesRig) -> None:
        made = await rig.volumes.create_snapshot(BACKUP)
        assert (made.id, made.volume_id, made.size, made.is_ready) == (HANDLE, ONE, GIB, False)
        with pytest.raises(SnapshotExists) as error:
            await rig.volumes.create_snapshot(BACKUP)
        assert error.value.snapshot == made
        with pytest.raises(Unfinished, match="VolumeRemoteBackup default/b-1 on Harvester is not done"):
            await rig.volumes.create(RESTORED)
        await pause(rig, 30)
        assert (await rig.volumes.get_snapshot(HANDLE)).is_ready
        assert [one.id for one in await rig.volumes.list_snapshots()] == [HANDLE]

        await rig.volumes.delete_snapshot(HANDLE)
        await pause(rig, 10)
        assert await rig.line.list(REMOTE_BACKUP, "default") == []
        with pytest.raises(SnapshotNotFound):
            await rig.volumes.delete_snapshot(HANDLE)

    live(story)


def test_a_volume_of_a_backup_has_the_size_that_is_asked_for_and_goes_with_its_restore():
    async def story(rig: VolumesRig) -> None:
        await back_up(rig)
        wanted = replace(RESTORED, size=SizeRange(2 * GIB))
        made = await rig.volumes.create(wanted)
        assert (made.size, made.source) == (2 * GIB, wanted.source)
        assert made == await rig.volumes.get(TWO)
        assert read_claim(await rig.line.get(CLAIM)).guest_uid == GUEST
        assert await IdempotentVolumes(rig.volumes).create(wanted) == made
        with pytest.raises(VolumeExists):
            await IdempotentVolumes(rig.volumes).create(VolumeRequest(TWO, SizeRange(2 * GIB)))

        await rig.volumes.ensure_attached(TWO, rig.node, False)
        with pytest.raises(VolumeInUse):
            await rig.volumes.delete(TWO)
        assert await rig.line.find(RESTORE) is not None
        await rig.volumes.ensure_detached(TWO, rig.node)
        await rig.volumes.delete(TWO)
        await pause(rig, 10)
        assert (await rig.line.find(RESTORE), await rig.line.find(CLAIM)) == (None, None)

    live(story)


def test_a_claim_is_not_deleted_while_the_restore_is_there_that_would_make_it_again():
    async def story(rig: VolumesRig) -> None:
        await back_up(rig)
        await rig.volumes.create(RESTORED)
        refused = Fault(FORBIDDEN, frozenset({"delete"}), frozenset({"volumeremoterestores"}))
        rig.harvester.faults.add(refused)
        with pytest.raises(PermissionMissing):
            await rig.volumes.delete(TWO)
        await pause(rig, 60)
        claim = read_claim(await rig.line.get(CLAIM))
        assert (claim.is_deleting, claim.is_ours) == (False, True)

        rig.harvester.faults.script.clear()
        await rig.volumes.delete(TWO)
        await pause(rig, 60)
        assert (await rig.line.find(RESTORE), await rig.line.find(CLAIM)) == (None, None)

    live(story)


def test_a_restore_is_deleted_with_the_uid_that_it_was_read_with():
    async def story(rig: VolumesRig) -> None:
        await back_up(rig)
        await rig.volumes.create(RESTORED)
        uid = (await rig.line.get(RESTORE))["metadata"]["uid"]
        rig.requests.clear()
        await rig.volumes.delete(TWO)

        (request,) = [
            one for one in rig.requests if one.method == "DELETE" and "volumeremoterestores" in one.path
        ]
        assert loads(request.body or b"")["preconditions"] == {"uid": uid}

    live(story)


def test_a_restore_that_was_interrupted_is_finished_by_the_same_call():
    async def story(rig: VolumesRig) -> None:
        await back_up(rig)
        rig.harvester.faults.add(Fault(Refuse(500, "InternalError", "no"), frozenset({"patch"}), times=20))
        with pytest.raises(Exception, match="no"):
            await rig.volumes.create(RESTORED)
        rig.harvester.faults.script.clear()

        assert (await rig.volumes.create(RESTORED)).source == RESTORED.source
        assert (await rig.volumes.get(TWO)).parameters == {}

    live(story)


def test_a_restore_whose_claim_is_gone_goes_with_the_volume():
    async def story(rig: VolumesRig) -> None:
        await back_up(rig)
        await rig.volumes.create(RESTORED)
        await rig.volumes.delete_snapshot(HANDLE)  # while it is there, Harvester makes the claim again
        await rig.line.delete(CLAIM)
        await pause(rig, 10)
        assert await rig.line.find(CLAIM) is None
        await rig.volumes.delete(TWO)
        await pause(rig, 10)
        assert (await rig.line.find(RESTORE), await rig.line.find(CLAIM)) == (None, None)
        with pytest.raises(VolumeNotFound):
            await rig.volumes.delete(TWO)

    live(story)


def test_a_restore_of_the_go_driver_goes_with_its_volume_and_one_of_another_program_stays():
    async def story(rig: VolumesRig) -> None:
        await back_up(rig)
        for name in (TWO, "by-hand"):
            raw = {"metadata": {"name": name}, "spec": {"type": "lh", "from": "default/b-1"}}
            await rig.line.create(REMOTE_RESTORE, raw, "default")
        await pause(rig, 60)
        with pytest.raises(VolumeExists):
            await rig.volumes.create(RESTORED)
        await rig.volumes.delete(TWO)
        await rig.volumes.delete_snapshot(HANDLE)
        await rig.line.delete(PVC.ref("by-hand", "default"))
        await pause(rig, 10)
        with pytest.raises(VolumeNotFound):
            await rig.volumes.delete("by-hand")
        assert [one["metadata"]["name"] for one in await rig.line.list(REMOTE_RESTORE, "default")] == [
            "by-hand"
        ]

    live(story)


def test_another_guest_cluster_restores_a_backup_and_neither_lists_nor_deletes_it():
    async def story(rig: VolumesRig) -> None:
        await back_up(rig)
        rig.volumes.set_guest("another")
        assert (await rig.volumes.get_snapshot(HANDLE)).is_ready
        assert await rig.volumes.list_snapshots() == []
        assert (await rig.volumes.create(RESTORED)).id == TWO
        with pytest.raises(FailedPrecondition, match="was made by the guest cluster with uid 0f1e2d3c-guest"):
            await rig.volumes.delete_snapshot(HANDLE)
        with pytest.raises(FailedPrecondition, match="was made by the guest cluster with uid 0f1e2d3c-guest"):
            await rig.volumes.create_snapshot(replace(BACKUP, volume_id=TWO))
        rig.volumes.set_guest("a-third")
        await rig.line.delete(REMOTE_BACKUP.ref("b-1", "default"))
        await rig.line.delete(CLAIM)
        await pause(rig, 10)
        with pytest.raises(FailedPrecondition, match="was made by the guest cluster with uid another"):
            await rig.volumes.delete(TWO)

    live(story)


def test_a_backup_that_no_csi_driver_made_is_neither_taken_nor_restored_nor_deleted():
    async def story(rig: VolumesRig) -> None:
        raw = {"metadata": {"name": "b-1"}, "spec": {"type": "lh", "source": ONE}}
        await rig.line.create(REMOTE_BACKUP, raw, "default")
        await pause(rig, 30)
        for call in (
            rig.volumes.create_snapshot(BACKUP),
            rig.volumes.create(RESTORED),
            rig.volumes.delete_snapshot(HANDLE),
        ):
            with pytest.raises(
                FailedPrecondition, match="default/b-1 on Harvester was not made by a CSI driver"
            ):
                await call
        assert await rig.volumes.list_snapshots() == []

    live(story)


@pytest.mark.parametrize(("marks", "is_deleted"), [({}, False), ({"windrow.io/guest-uid": GUEST}, True)])
def test_a_backup_in_another_namespace_is_deleted_only_where_it_is_marked_as_this_guest_cluster_s(
    marks: dict[str, str], is_deleted: bool
):
    async def story(rig: VolumesRig) -> None:
        labels = {"harvesterhci.io/backupSourceVolume": ONE}  # the Go driver's, which marks nothing else
        metadata = {"name": "b-1", "labels": labels, "annotations": marks}
        raw = {"metadata": metadata, "spec": {"type": "lh", "source": ONE}}
        await rig.line.create(NAMESPACE, {"metadata": {"name": "other-team"}})
        claim = await rig.line.get(PVC.ref(ONE, "default"))
        claim["metadata"] = {"name": ONE}
        del claim["spec"]["volumeName"]
        await rig.line.create(PVC, claim, "other-team")
        await pause(rig, 20)
        await rig.line.create(REMOTE_BACKUP, raw, "other-team")
        call = rig.volumes.delete_snapshot("backup:other-team/b-1")
        if is_deleted:
            await call
        else:
            with pytest.raises(FailedPrecondition, match="is not in namespace default") as error:
                await call
            assert "deletionPolicy Retain" in str(error.value)

        assert bool(await rig.line.find(REMOTE_BACKUP.ref("b-1", "other-team"))) is not is_deleted
        with pytest.raises(SnapshotNotFound):
            await rig.volumes.delete_snapshot("backup:other-team/b-2")

    live(story)


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"hostStorageClass": "fast"}, "hostStorageClass"),
        ({"hostVolumeMode": "filesystem"}, "hostVolumeMode"),
    ],
)
def test_what_harvester_cannot_restore_is_refused_with_the_parameter(parameters: dict[str, str], field: str):
    async def story(rig: VolumesRig) -> None:
        await back_up(rig)
        with pytest.raises(UnknownParameter) as error:
            await rig.volumes.create(replace(RESTORED, parameters=parameters))
        assert error.value.field == f"parameters[{field}]"
        assert await rig.line.find(RESTORE) is None
        same = {"hostStorageClass": "harvester-longhorn", "hostVolumeMode": "block"}
        assert (await rig.volumes.create(replace(RESTORED, parameters=same))).parameters == same

    live(story)


def test_a_restore_of_the_name_from_another_backup_is_refused():
    async def story(rig: VolumesRig) -> None:
        await back_up(rig)
        raw = render_restore(TWO, "default", RESTORED, "default/b-2", GUEST)
        rig.harvester.faults.add(Fault(Refuse(409, "AlreadyExists", "x"), frozenset({"create"}), times=1))
        with pytest.raises(Unfinished, match="another call has made VolumeRemoteRestore"):
            await rig.volumes.create(RESTORED)
        await rig.volumes.create_snapshot(SnapshotRequest("b-2", ONE, {"type": "backup"}))
        await pause(rig, 30)
        await rig.line.create(REMOTE_RESTORE, raw, "default")
        with pytest.raises(FailedPrecondition, match="is from default/b-2, not from default/b-1"):
            await rig.volumes.create(RESTORED)

    live(story)


def test_a_restore_that_is_being_deleted_is_not_taken():
    async def story(rig: VolumesRig) -> None:
        await back_up(rig)
        raw = render_restore(TWO, "default", RESTORED, "default/b-1", GUEST)
        raw["metadata"]["finalizers"] = ["example.org/hold"]
        await rig.line.create(REMOTE_RESTORE, raw, "default")
        await rig.line.delete(REMOTE_RESTORE.ref(TWO, "default"))
        with pytest.raises(Unfinished, match="is being deleted"):
            await rig.volumes.create(RESTORED)

    live(story)


def test_where_the_role_knows_no_backups_all_else_goes_on():
    async def story(rig: VolumesRig) -> None:
        kinds = frozenset({"volumeremotebackups", "volumeremoterestores"})
        rig.harvester.faults.add(
            Fault(Refuse(403, "Forbidden", "volumeremotebackups is forbidden"), plurals=kinds, times=100)
        )
        assert await rig.volumes.list_snapshots() == []
        with pytest.raises(PermissionMissing, match="volumeremotebackups is forbidden"):
            await rig.volumes.create_snapshot(BACKUP)
        with pytest.raises(VolumeNotFound):
            await rig.volumes.delete(TWO)
        await rig.volumes.delete(ONE)

    live(story)


def test_a_parameter_is_not_compared_with_what_the_backup_does_not_tell():
    found = read_backup(a_backup())

    assert (found.storage_class, found.volume_mode, found.snapshot.size) == ("", "", 0)
    require_mode(replace(RESTORED, parameters={"hostVolumeMode": "block"}), "")


def test_a_restore_that_is_being_deleted_is_not_taken_for_a_new_one():
    async def story(rig: VolumesRig) -> None:
        await back_up(rig)
        await rig.volumes.create(RESTORED)
        await rig.line.patch(RESTORE, {"metadata": {"finalizers": ["windrow.test/stay"]}})
        await rig.line.delete(PVC.ref(TWO, "default"))
        await rig.line.delete(RESTORE)
        await pause(rig, 10)
        with pytest.raises(Unfinished, match=f"{TWO} on Harvester is being deleted"):
            await rig.volumes.create(RESTORED)
        await rig.volumes.delete(TWO)

    live(story)


def test_a_backup_of_another_name_with_the_same_handle_is_not_taken_for_it():
    async def story(rig: VolumesRig) -> None:
        made = await rig.volumes.create_snapshot(replace(BACKUP, name="Nightly"))
        name = made.id.rpartition("/")[2]
        with pytest.raises(NameTaken):
            await rig.volumes.create_snapshot(replace(BACKUP, name=name))
        ref = REMOTE_BACKUP.ref(name, "default")
        await rig.line.patch(ref, {"metadata": {"finalizers": ["windrow.test/stay"]}})
        await rig.volumes.delete_snapshot(made.id)
        await rig.volumes.delete_snapshot(made.id)
        assert await rig.volumes.list_snapshots() == []
        with pytest.raises(Unfinished, match="is being deleted"):
            await rig.volumes.create_snapshot(replace(BACKUP, name="Nightly"))

    live(story)


def test_a_harvester_without_backups_has_none_and_one_that_fails_is_not_taken_for_that():
    async def story(rig: VolumesRig) -> None:
        kinds = frozenset({"volumeremotebackups", "volumeremoterestores"})
        unknown = rig.harvester.faults.add(
            Fault(Refuse(404, "NotFound", "404 page not found"), plurals=kinds)
        )
        assert await rig.volumes.list_snapshots() == []
        with pytest.raises(VolumeNotFound):
            await rig.volumes.delete(TWO)
        rig.harvester.faults.end(unknown)
        rig.harvester.faults.add(Fault(Refuse(500, "InternalError", "no"), plurals=kinds))
        with pytest.raises(Unavailable):
            await rig.volumes.list_snapshots()
        with pytest.raises(Unavailable):
            await rig.volumes.delete(TWO)

    live(story)
