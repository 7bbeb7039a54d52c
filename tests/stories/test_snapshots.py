"""Snapshots, copies and backups of volumes on the emulated Harvester."""

from __future__ import annotations

import pytest
from tests.support.clock import run_driven

from windrow.emulator import kinds
from windrow.emulator.guest_os.hardware import File
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, nested, new_object, uid_of
from windrow.kubernetes.requests import merge_patch
from windrow.kubernetes.resources import PVC

from .harvester_rig import NAMESPACE, a_harvester, eventually, is_gone
from .test_host_volumes import DATA, is_bound
from .test_hotplug import a_claim

SNAPSHOT = kinds.SNAPSHOT.ref("s", NAMESPACE)


def a_snapshot(claim: str = "data", **spec: object) -> Raw:
    source = {"persistentVolumeClaimName": claim}
    wanted = {"source": source, "volumeSnapshotClassName": "longhorn-snapshot", **spec}
    return new_object(kinds.SNAPSHOT, "s", NAMESPACE, spec=wanted)


def from_snapshot(name: str = "s") -> Raw:
    return {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name}


def is_ready(snapshot: Raw | None) -> bool:
    return nested(snapshot, "status", "readyToUse") is True


def succeeded(raw: Raw | None) -> bool:
    return nested(raw, "status", "success") is True


async def with_data(harvester) -> Raw:
    """A bound claim with a file on its volume."""
    await harvester.api.local().create(PVC, a_claim("data"))
    claim = await eventually(harvester, DATA, is_bound, 10)
    harvester.hypervisor.disk(uid_of(claim)).files["/f"] = File(b"then")
    return claim


def read(harvester, claim: Raw) -> bytes:
    return harvester.hypervisor.disk(uid_of(claim)).files["/f"].content


def test_a_snapshot_keeps_what_was_there_and_a_claim_is_made_from_it():
    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            source = await with_data(harvester)
            await client.create(kinds.SNAPSHOT, a_snapshot())
            early = await eventually(
                harvester, SNAPSHOT, lambda raw: nested(raw, "status", "boundVolumeSnapshotContentName"), 5
            )
            assert early["status"]["readyToUse"] is False
            harvester.hypervisor.disk(uid_of(source)).files["/f"] = File(b"now")
            snapshot = await eventually(harvester, SNAPSHOT, is_ready, 10)
            content = await client.get(
                kinds.SNAPSHOT_CONTENT.ref(snapshot["status"]["boundVolumeSnapshotContentName"])
            )

            assert snapshot["status"]["restoreSize"] == "5Gi"
            assert content["status"]["restoreSize"] == 5 << 30
            assert content["spec"]["driver"] == "driver.longhorn.io"
            assert content["spec"]["source"] == {"volumeHandle": source["spec"]["volumeName"]}
            assert content["spec"]["volumeSnapshotRef"]["uid"] == uid_of(snapshot)

            await client.create(PVC, a_claim("copy", dataSource=from_snapshot()))
            copy = await eventually(harvester, PVC.ref("copy", NAMESPACE), is_bound, 10)
            assert read(harvester, copy) == b"then"

            await client.delete(SNAPSHOT)
            await eventually(harvester, SNAPSHOT, is_gone, 10)
            assert await client.list(kinds.SNAPSHOT_CONTENT) == []
            assert read(harvester, copy) == b"then"

    run_driven(story())


def test_a_copy_waits_for_its_source_and_is_not_smaller():
    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            await client.create(PVC, a_claim("copy", dataSource=from_snapshot()))
            await client.create(PVC, a_claim("small", "1Gi", dataSource=from_snapshot()))
            await with_data(harvester)
            assert not is_bound(await client.get(PVC.ref("copy", NAMESPACE)))
            await client.create(kinds.SNAPSHOT, a_snapshot())

            await eventually(harvester, PVC.ref("copy", NAMESPACE), is_bound, 30)
            await harvester.clock.sleep(30)
            assert not is_bound(await client.get(PVC.ref("small", NAMESPACE)))

    run_driven(story())


def test_a_claim_is_copied_from_another():
    async def story():
        async with a_harvester() as harvester:
            await with_data(harvester)
            source = {"kind": "PersistentVolumeClaim", "name": "data"}
            await harvester.api.local().create(PVC, a_claim("copy", dataSource=source))
            copy = await eventually(harvester, PVC.ref("copy", NAMESPACE), is_bound, 10)
            assert read(harvester, copy) == b"then"

    run_driven(story())


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (a_snapshot("gone"), 'persistentvolumeclaim "gone" not found'),
        (a_snapshot(volumeSnapshotClassName="gone"), '"gone" not found'),
        (a_snapshot(volumeSnapshotClassName=None), "cannot find default snapshot class"),
    ],
)
def test_what_a_snapshot_lacks_is_in_its_status(snapshot, words):
    async def story():
        async with a_harvester() as harvester:
            await with_data(harvester)
            snapshot["spec"] = {key: value for key, value in snapshot["spec"].items() if value}
            await harvester.api.local().create(kinds.SNAPSHOT, snapshot)
            failed = await eventually(harvester, SNAPSHOT, lambda raw: nested(raw, "status", "error"), 10)
            assert failed["status"]["readyToUse"] is False
            return failed["status"]["error"]["message"]

    assert words in run_driven(story())


def a_backup(source: str = "data") -> Raw:
    return new_object(kinds.REMOTE_BACKUP, "b", NAMESPACE, spec={"type": "lh", "source": source})


def a_restore(source: str = f"{NAMESPACE}/b", name: str = "r") -> Raw:
    return new_object(kinds.REMOTE_RESTORE, name, NAMESPACE, spec={"type": "lh", "from": source})


def test_a_backup_is_restored_under_the_name_of_the_restore_and_goes_with_it():
    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            await with_data(harvester)
            await client.create(kinds.REMOTE_BACKUP, a_backup())
            backup = await eventually(harvester, kinds.REMOTE_BACKUP.ref("b", NAMESPACE), succeeded, 20)
            assert backup["status"]["csiProvider"] == "driver.longhorn.io"
            assert backup["status"]["sourceSpec"]["resources"]["requests"]["storage"] == "5Gi"
            assert backup["status"]["handle"].startswith("snap://pvc-")
            await harvester.clock.sleep(1)

            await client.create(kinds.REMOTE_RESTORE, a_restore())
            await eventually(harvester, kinds.REMOTE_RESTORE.ref("r", NAMESPACE), succeeded, 60)
            claim = await client.get(PVC.ref("r", NAMESPACE))
            assert read(harvester, claim) == b"then"
            assert claim["metadata"]["ownerReferences"][0]["kind"] == "VolumeRemoteRestore"

            await client.delete(kinds.REMOTE_RESTORE.ref("r", NAMESPACE))
            await eventually(harvester, PVC.ref("r", NAMESPACE), is_gone, 60)

    run_driven(story())


def test_backups_and_restores_are_refused_in_harvesters_words():
    async def refused(harvester, kind, raw) -> str:
        with pytest.raises(KubeError) as caught:
            await harvester.api.local().create(kind, raw)
        return caught.value.message.partition("denied the request: ")[2]

    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            backups, restores = kinds.REMOTE_BACKUP, kinds.REMOTE_RESTORE
            assert await refused(harvester, backups, a_backup("")) == "spec.source is required"
            assert await refused(harvester, backups, a_backup("no")) == (
                'failed to get PVC default/no: persistentvolumeclaims "no" not found'
            )
            assert await refused(harvester, restores, a_restore("")) == "spec.from is required"
            assert await refused(harvester, restores, a_restore("b")) == (
                'failed to get PVCBackup default/b: volumeremotebackups.harvesterhci.io "b" not found'
            )
            await with_data(harvester)
            await client.create(backups, a_backup())
            await harvester.clock.sleep(0.5)
            assert await refused(harvester, restores, a_restore()) == "PVCBackup default/b is not ready"
            await eventually(harvester, backups.ref("b", NAMESPACE), succeeded, 20)
            await harvester.clock.sleep(1)
            assert await refused(harvester, restores, a_restore(name="b")) == (
                "a RemoteBackup with name b already exists in namespace default"
            )
            changed = await client.send(merge_patch(backups.ref("b", NAMESPACE), {"spec": {"source": "x"}}))
            assert b"spec.source cannot be changed" in changed.body

    run_driven(story())
