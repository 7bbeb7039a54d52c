"""Snapshots on Harvester. The test is the controller of snapshots: it says when one is ready."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.volumes_rig import GUEST, VolumesRig, volumes_rig
from tests.support.clock import run_driven

from windrow.csi.errors import FailedPrecondition
from windrow.csi.harvester.claims import read_claim, render_claim
from windrow.csi.harvester.snapshots import read_snapshot, render_snapshot, snapshot_class_of
from windrow.csi.sizes import SizeRange
from windrow.csi.volumes import (
    SnapshotExists,
    SnapshotNotFound,
    SnapshotRequest,
    SnapshotSource,
    Unfinished,
    VolumeRequest,
    VolumeSource,
)
from windrow.harvester.resources import VOLUME_SNAPSHOT
from windrow.harvester.volumes import LONGHORN
from windrow.kubernetes.resources import PVC as CLAIM

GIB = 2**30
PVC = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001"
LONGHORN_DRIVER = "driver.longhorn.io"


def a_claim(**annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": PVC, "uid": "1", "annotations": annotations},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Block",
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def a_snapshot(**status: Any) -> dict[str, Any]:
    request = SnapshotRequest("snapshot-1", PVC)
    raw = render_snapshot("snapshot-1", request, read_claim(a_claim()), "longhorn-snapshot", GUEST)
    raw["metadata"] |= {"uid": "2", "creationTimestamp": "2026-01-31T12:00:00Z"}
    return {**raw, "status": status} if status else raw


def test_a_snapshot_carries_what_its_restore_needs_as_the_go_driver_writes_it():
    raw = a_snapshot()

    assert raw["metadata"]["labels"] == {
        "windrow.io/csi-driver": "driver.harvesterhci.io",
        "harvesterhci.io/snapHostSC": "fast",
        "harvesterhci.io/snapHostVolumeMode": "Block",
    }
    assert raw["metadata"]["annotations"]["windrow.io/guest-uid"] == GUEST
    assert raw["spec"] == {
        "volumeSnapshotClassName": "longhorn-snapshot",
        "source": {"persistentVolumeClaimName": PVC},
    }


def test_a_snapshot_without_a_status_is_not_ready():
    found = read_snapshot(a_snapshot())

    assert (found.snapshot.is_ready, found.snapshot.size, found.snapshot.volume_id) == (False, 0, PVC)
    assert (found.is_listed, found.is_deleting, found.problem) == (True, False, "")


def test_a_snapshot_that_is_ready_has_its_size_and_time():
    found = read_snapshot(
        a_snapshot(readyToUse=True, restoreSize="2Gi", creationTime="2026-01-31T13:00:00Z")
    ).snapshot

    assert (found.is_ready, found.size, found.created.hour) == (True, 2 * GIB, 13)


def test_a_snapshot_that_failed_says_why():
    found = read_snapshot(a_snapshot(readyToUse=False, error={"message": "no space"}))

    assert found.problem == "no space"
    assert read_snapshot(a_snapshot(error={})).problem == ""


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ({}, "longhorn-snapshot"),
        ({"default": '{"driver.longhorn.io":{"volumeSnapshotClassName":"a"}}'}, "a"),
        (
            {
                "default": '{"driver.longhorn.io":{"volumeSnapshotClassName":"a"}}',
                "value": '{"driver.longhorn.io":{"volumeSnapshotClassName":"b"}}',
            },
            "b",
        ),
        ({"value": "", "default": '{"driver.longhorn.io":{"volumeSnapshotClassName":"a"}}'}, "a"),
        ({"value": "no json"}, "longhorn-snapshot"),
        ({"value": '{"driver.longhorn.io":{"volumeSnapshotClassName":7}}'}, "longhorn-snapshot"),
    ],
)
def test_the_class_of_snapshots(setting: dict[str, str], found: str):
    assert snapshot_class_of(setting, LONGHORN_DRIVER) == found


def test_a_provisioner_that_the_setting_lacks_has_no_class():
    assert snapshot_class_of({}, "lvm.driver.harvesterhci.io") == ""


@pytest.mark.parametrize(
    ("source", "data_source"),
    [
        (
            SnapshotSource("snapshot-1"),
            {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snapshot-1"},
        ),
        (VolumeSource("pvc-2"), {"kind": "PersistentVolumeClaim", "name": "pvc-2"}),
        (None, None),
    ],
)
def test_a_claim_says_what_it_is_made_of_and_is_read_as_that(source: Any, data_source: Any):
    raw = render_claim(PVC, VolumeRequest(PVC, source=source), GIB, "fast", LONGHORN, "")

    assert raw["spec"].get("dataSource") == data_source
    assert "windrow.io/guest-uid" not in raw["metadata"]["annotations"]
    assert read_claim(raw).volume.source == source


@pytest.mark.parametrize(
    ("mode", "provisioner", "kind"),
    [
        ("Filesystem", LONGHORN_DRIVER, "shared"),
        ("Block", LONGHORN_DRIVER, "disk"),
        ("Filesystem", "lvm", "disk"),
    ],
)
def test_shared_volumes_of_the_go_driver_are_told_apart(mode: str, provisioner: str, kind: str):
    raw = a_claim(**{"volume.kubernetes.io/storage-provisioner": provisioner})
    raw["spec"]["volumeMode"] = mode

    assert read_claim(raw).volume.kind == kind


def test_a_claim_that_lost_its_volume_has_a_problem():
    raw = {**a_claim(), "status": {"phase": "Lost"}}

    assert "its volume is gone" in read_claim(raw).volume.problem
    assert read_claim(a_claim()).volume.problem == ""


# What a Harvester has of the CSI snapshotter, as far as these tests need it.
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "volumesnapshots.snapshot.storage.k8s.io"},
    "spec": {
        "group": "snapshot.storage.k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "VolumeSnapshot", "plural": "volumesnapshots", "singular": "volumesnapshot"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


async def finish(rig: VolumesRig, name: str, size: str = "2Gi") -> None:
    """The controller of snapshots says that it is ready."""
    status = {"status": {"readyToUse": True, "restoreSize": size}}
    await rig.line.patch(VOLUME_SNAPSHOT.ref(name, "default"), status, "status")


def test_a_snapshot_is_made_awaited_restored_and_deleted():
    async def story() -> None:
        async with volumes_rig() as rig:
            rig.harvester.api.install_crd(DEFINITION)
            volumes = rig.volumes
            await volumes.create(VolumeRequest(PVC, SizeRange(GIB)))
            provisioner = {"volume.kubernetes.io/storage-provisioner": LONGHORN_DRIVER}
            await rig.line.patch(CLAIM.ref(PVC, "default"), {"metadata": {"annotations": provisioner}})
            for name in ("snapshot-b", "snapshot-a"):
                made = await volumes.create_snapshot(SnapshotRequest(name, PVC))
                assert (made.is_ready, made.size, made.volume_id) == (False, GIB, PVC)
            wanted = VolumeRequest("restored", source=SnapshotSource("snapshot-a"))
            with pytest.raises(Unfinished):
                await volumes.create(wanted)
            with pytest.raises(SnapshotExists) as error:
                await volumes.create_snapshot(SnapshotRequest("snapshot-a", PVC))
            assert error.value.snapshot.size == GIB

            await finish(rig, "snapshot-a")
            with pytest.raises(SnapshotExists) as error:
                await volumes.create_snapshot(SnapshotRequest("snapshot-a", PVC))
            assert error.value.snapshot.size == 2 * GIB
            restored = await volumes.create(wanted)
            claim = await rig.line.get(CLAIM.ref("restored", "default"))
            source = await rig.line.get(CLAIM.ref(PVC, "default"))
            assert restored.size == 2 * GIB
            assert claim["spec"]["dataSource"]["name"] == "snapshot-a"
            assert claim["spec"].get("storageClassName") == source["spec"].get("storageClassName")

            assert [one.id for one in await volumes.list_snapshots()] == ["snapshot-a", "snapshot-b"]
            await volumes.delete_snapshot("snapshot-a")
            with pytest.raises(SnapshotNotFound):
                await volumes.delete_snapshot("snapshot-a")
            assert [one.id for one in await volumes.list_snapshots()] == ["snapshot-b"]

    run_driven(story())


def test_a_snapshot_that_is_being_deleted_is_neither_taken_nor_restored_nor_listed():
    async def story() -> None:
        async with volumes_rig() as rig:
            rig.harvester.api.install_crd(DEFINITION)
            volumes, ref = rig.volumes, VOLUME_SNAPSHOT.ref("snapshot-1", "default")
            await volumes.create(VolumeRequest(PVC, SizeRange(GIB)))
            provisioner = {"volume.kubernetes.io/storage-provisioner": LONGHORN_DRIVER}
            await rig.line.patch(CLAIM.ref(PVC, "default"), {"metadata": {"annotations": provisioner}})
            await volumes.create_snapshot(SnapshotRequest("snapshot-1", PVC))
            await finish(rig, "snapshot-1")
            await rig.line.patch(ref, {"metadata": {"finalizers": ["example.org/hold"]}})
            await volumes.delete_snapshot("snapshot-1")

            with pytest.raises(Unfinished, match="snapshot-1 on Harvester is being deleted"):
                await volumes.create_snapshot(SnapshotRequest("snapshot-1", PVC))
            with pytest.raises(FailedPrecondition, match="is being deleted, so it is not restored"):
                await volumes.create(VolumeRequest("restored", source=SnapshotSource("snapshot-1")))
            assert await volumes.list_snapshots() == []
            await volumes.delete_snapshot("snapshot-1")

    run_driven(story())


def test_a_volume_that_is_being_deleted_is_not_cloned():
    async def story() -> None:
        async with volumes_rig() as rig:
            ref = CLAIM.ref(PVC, "default")
            await rig.volumes.create(VolumeRequest(PVC, SizeRange(GIB)))
            await rig.line.patch(ref, {"metadata": {"finalizers": ["example.org/hold"]}})
            await rig.line.delete(ref)

            with pytest.raises(FailedPrecondition, match="is being deleted, so it is not cloned"):
                await rig.volumes.create(VolumeRequest("copy", source=VolumeSource(PVC)))

    run_driven(story())
