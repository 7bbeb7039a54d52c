"""A cluster is deleted that has volumes on Harvester: exactly those go whose reclaim policy says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.stories.cluster_rig import SERVERS, Transcript, a_pool, gone, machines_of
from tests.stories.test_cluster_life import Story, a_story, check_story
from tests.support.clock import run_driven

from windrow.client.client import Client
from windrow.clusters.api.guest_volumes import (
    GuestVolumes,
    describe_deletion,
    render_recorded_volumes,
)
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE
from windrow.clusters.api.names import REPLACE_NOW, SKIP_CLEANUP
from windrow.emulator import kinds
from windrow.harvester.names import REMOVED_CLAIMS
from windrow.harvester.resources import (
    NETWORK_FILESYSTEM,
    VM,
    VM_ACTIONS,
    VOLUME_SNAPSHOT,
    VOLUME_SNAPSHOT_CONTENT,
)
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested, new_object
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import PERSISTENT_VOLUME, PVC, SERVICE

DRIVER = "driver.harvesterhci.io"


def pvc(number: int) -> str:
    return f"pvc-6f7c7c8e-0b3f-4b5e-9a43-{number:012}"


ATTACHED, DETACHED, RETAINED, STATIC, MARKED, MADE_BY_GO, COPIED = map(pvc, range(1, 8))
BACKUP = "admin-backup-disk"
KEPT = sorted([RETAINED, STATIC, MARKED, MADE_BY_GO, COPIED, BACKUP])
ALL = sorted([ATTACHED, DETACHED, *KEPT])


async def make_claim(host: Client, name: str, guest_uid: str = "") -> None:
    """As the CSI driver makes it; without `guest_uid`, as the Go driver does."""
    labels = {"windrow.io/csi-driver": DRIVER} if guest_uid else None
    annotations = {"windrow.io/guest-uid": guest_uid} if guest_uid else None
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "resources": resources}
    await host.create(
        PVC, new_object(PVC, name, "default", labels=labels, annotations=annotations, spec=spec)
    )


async def make_volume(
    guest: Client, name: str, policy: str = "Delete", *, handle: str = "", provisioned: bool = True
) -> None:
    annotations = {"pv.kubernetes.io/provisioned-by": DRIVER} if provisioned else None
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": DRIVER, "volumeHandle": handle or name},
        "persistentVolumeReclaimPolicy": policy,
    }
    await guest.create(
        PERSISTENT_VOLUME, new_object(PERSISTENT_VOLUME, name, annotations=annotations, spec=spec)
    )


async def plug(host: Client, vm: str, claim: str) -> None:
    source = {"persistentVolumeClaim": {"claimName": claim, "hotpluggable": True}}
    steps = [
        {"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": claim, **source}},
        {
            "op": "add",
            "path": "/spec/template/spec/domain/devices/disks/-",
            "value": {"name": claim, "disk": {"bus": "scsi"}, "serial": claim.removeprefix("pvc-")},
        },
    ]
    await host.json_patch(VM.ref(vm, "default"), steps)


async def with_volumes(it: Story) -> Client:
    """Claims: two to delete, one of them plugged into a machine; one to retain, plugged in too; one of a volume that was
    made by hand; one of which the guest says nothing. And three that the guest says are to be deleted: one of the Go driver, one
    of another guest in the namespace, and a disk that no driver made."""
    machines = await it.stage.wait_for_settled()
    guest, host = await it.stage.guest_client(), it.sim.harvester_client
    guest_uid = (await guest.get(SERVICE.ref("kubernetes", "default")))["metadata"]["uid"]
    for name in (RETAINED, MADE_BY_GO, BACKUP):
        await make_claim(host, name)
    for name in (ATTACHED, DETACHED, STATIC, MARKED):
        await make_claim(host, name, guest_uid)
    await make_claim(host, COPIED, "6f7c7c8e-0000-0000-0000-000000000000")
    for name in (ATTACHED, DETACHED, MADE_BY_GO, COPIED, BACKUP):
        await make_volume(guest, name)
    await make_volume(guest, RETAINED, "Retain")
    await make_volume(guest, "by-hand", handle=STATIC, provisioned=False)
    for name in (ATTACHED, RETAINED):
        await plug(host, name_of(machines[-1]), name)
    await it.sim.advance(seconds=30)
    it.transcript.lines.clear()
    return host


async def claims_left(host: Client) -> list[str]:
    return sorted(name_of(raw) for raw in await host.list(PVC, "default"))


async def delete(it: Story) -> None:
    it.transcript.say("kubectl delete cluster")
    await it.sim.management_client.delete(it.ref)
    await gone(it.sim, it.ref)


def one_machine() -> Any:
    return a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 1))


def test_a_deleted_cluster_deletes_the_volumes_whose_policy_is_delete_and_keeps_the_others() -> None:
    async def story() -> Transcript:
        async with one_machine() as it:
            host = await with_volumes(it)
            await delete(it)
            assert await claims_left(host) == KEPT
            return it.transcript

    check_story("delete-cluster-with-volumes", story)


def outcome(prepare: Callable[[Story], Any]) -> tuple[list[str], list[str]]:
    """What is left of a cluster that is deleted after `prepare`, and what was told of it."""

    async def story() -> tuple[list[str], list[str]]:
        async with one_machine() as it:
            host = await with_volumes(it)
            await prepare(it)
            await delete(it)
            told = [line for line in it.transcript.lines if "PersistentVolume" in line]
            return await claims_left(host), told

    return run_driven(story())


def test_rancher_s_annotation_keeps_all_volumes() -> None:
    async def opt_out(it: Story) -> None:
        change = {"metadata": {"annotations": {SKIP_CLEANUP: "true"}}}
        await it.sim.management_client.patch(it.ref, change)

    left, told = outcome(opt_out)

    assert left == ALL
    assert any(
        "skipHarvesterMachineProvisionCleanup keeps all volumes" in line and ATTACHED in line for line in told
    )


def test_a_cluster_whose_api_does_not_answer_keeps_its_volumes_and_names_those_that_are_marked() -> None:
    async def stop_servers(it: Story) -> None:
        for raw in await it.sim.harvester_client.list(VM, "default"):
            if "servers" in name_of(raw):
                await it.sim.harvester_client.call(
                    put_subresource(VM_ACTIONS.ref(name_of(raw), "default"), "stop")
                )
        change = {"metadata": {"annotations": {"windrow.io/remediation": "off"}}}
        await it.sim.management_client.patch(it.ref, change)
        await it.sim.advance(seconds=90)

    left, told = outcome(stop_servers)

    assert left == ALL
    assert any("the guest API server to list PersistentVolumes" in line for line in told)
    assert "the guest did not say that it is to be deleted" in told[-1]
    assert DETACHED in told[-1]


def test_a_cluster_whose_guest_has_a_twin_keeps_all_volumes() -> None:
    """A guest that was started from another's etcd snapshot has that one's uid, and names its volumes as its own."""

    async def restore_elsewhere(it: Story) -> None:
        management = it.sim.management_client
        recorded = (await management.get(it.ref))["status"]["guestUID"]
        twin = await management.create(CLUSTER, new_object(CLUSTER, "twin", it.ref.namespace, spec={}))
        await management.patch(
            CLUSTER.ref(name_of(twin), it.ref.namespace), {"status": {"guestUID": recorded}}, "status"
        )
        await it.sim.advance(seconds=5)

    left, told = outcome(restore_elsewhere)

    assert left == ALL
    assert any("Cluster fleet-default/twin has a guest of the same uid" in line for line in told)


def test_a_record_that_a_restored_status_has_is_not_used() -> None:
    async def restore(it: Story) -> None:
        volumes = {
            "delete": [RETAINED, STATIC, MARKED],
            "retain": [],
            "deletion": "of-another/2026-01-01T12:00:00Z",
        }
        await it.sim.management_client.patch(it.ref, {"status": {"volumes": volumes}}, "status")
        await it.sim.advance(seconds=5)

    left, _ = outcome(restore)

    assert left == KEPT


def test_a_volume_that_another_vm_uses_by_now_is_kept() -> None:
    async def use_elsewhere(it: Story) -> None:
        host = it.sim.harvester_client
        disk = {"name": "data", "disk": {"bus": "virtio"}}
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": DETACHED}}
        domain = {"devices": {"disks": [disk]}, "memory": {"guest": "1Gi"}}
        template = {"spec": {"domain": domain, "volumes": [volume]}}
        spec = {"runStrategy": "Halted", "template": template}
        await host.create(kinds.VM, new_object(kinds.VM, "rescue", "default", spec=spec))

    left, told = outcome(use_elsewhere)

    assert left == sorted([DETACHED, *KEPT])
    assert any("VirtualMachine default/rescue uses it" in line for line in told)


@pytest.mark.parametrize("moment", ["recorded", "machines gone"])
def test_a_manager_that_is_replaced_meanwhile_deletes_the_same(moment: str) -> None:
    async def story() -> list[str]:
        async with one_machine() as it:
            host = await with_volumes(it)
            await it.sim.management_client.delete(it.ref)

            def is_there(raw: Raw | None) -> bool:
                if moment == "recorded":
                    return raw is None or nested(raw, "status", "volumes") is not None
                return raw is None

            while not is_there(await it.sim.management_client.find(it.ref)):
                await it.sim.advance(seconds=0.1)
                if moment == "machines gone" and await host.list(VM, "default") == []:
                    break
            await it.sim.kill_manager()
            await it.sim.advance(seconds=20)
            it.sim.start_manager()
            await gone(it.sim, it.ref)
            return await claims_left(host)

    assert run_driven(story()) == KEPT


def test_a_pool_that_is_edited_and_a_machine_that_is_replaced_touch_no_volume() -> None:
    """harvester#3272: the driver named every claim in the VM's spec for deletion, also those that the CSI driver had plugged in."""

    async def story() -> Transcript:
        async with one_machine() as it:
            host = await with_volumes(it)
            volumes = set(await claims_left(host)) & {ATTACHED, DETACHED, RETAINED, STATIC, MARKED}
            [worker] = await machines_of(it.sim, it.ref, "workers")
            it.transcript.say("the disks of pool workers become larger")
            config = HARVESTER_CONFIG.ref("nc-workers", it.ref.namespace)
            disks = '{"disks":[{"imageName":"default/jammy","size":60,"bootOrder":1}]}'
            await it.sim.management_client.patch(config, {"diskInfo": disks})
            await it.sim.advance(minutes=5)
            assert volumes <= set(await claims_left(host))
            it.transcript.say("its machine is replaced, with two volumes plugged in")
            order = {"metadata": {"annotations": {REPLACE_NOW: "true"}}}
            await it.sim.management_client.patch(MACHINE.ref(name_of(worker), it.ref.namespace), order)
            named = ""
            while (vm := await host.find(VM.ref(name_of(worker), "default"))) is not None:
                named = annotations_of(vm).get(REMOVED_CLAIMS, named)
                await it.sim.advance(seconds=0.2)
            await it.stage.wait_for_settled(without=name_of(worker))
            left = set(await claims_left(host))
            assert volumes <= left
            assert [name_of(worker) in one for one in named.split(",")] == [True]
            assert not any(name_of(worker) in one for one in left)
            it.transcript.say("both are plugged into its successor")
            [successor] = await machines_of(it.sim, it.ref, "workers")
            for name in (ATTACHED, RETAINED):
                await plug(host, name_of(successor), name)
            await it.sim.advance(seconds=30)
            return it.transcript

    check_story("replaced-machine-with-volumes", story)


def test_what_a_guest_says_last_counts_also_where_the_manager_was_away_meanwhile() -> None:
    """The volumes were recorded; before a machine was deleted the manager ended, and a person made one of them Retain."""

    async def story() -> list[str]:
        async with one_machine() as it:
            host = await with_volumes(it)
            guest, management = await it.stage.guest_client(), it.sim.management_client
            await it.sim.kill_manager()
            await management.delete(it.ref)
            deletion = describe_deletion(await management.get(it.ref))
            said = GuestVolumes((ATTACHED, DETACHED), (RETAINED,))
            volumes = render_recorded_volumes(said, deletion, it.sim.clock.now())
            await management.patch(it.ref, {"status": {"volumes": volumes}}, "status")
            await it.sim.advance(minutes=30)
            change = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
            await guest.patch(PERSISTENT_VOLUME.ref(DETACHED), change)
            it.sim.start_manager()
            await gone(it.sim, it.ref)
            return await claims_left(host)

    assert run_driven(story()) == sorted([DETACHED, *KEPT])


SHARED, LENT = pvc(8), pvc(9)
SNAPPED = pvc(14)


async def make_snapshot(guest: Client, number: int, claim: str, policy: str) -> str:
    """As a snapshot controller asks for it in the guest; the side-car there has the driver make it. Its name on Harvester."""
    name = f"snapshot-{pvc(number).removeprefix('pvc-')}"
    content: Raw = {
        "driver": DRIVER,
        "deletionPolicy": policy,
        "volumeSnapshotClassName": "harvester-snapshot",
        "source": {"volumeHandle": claim},
        "volumeSnapshotRef": {"name": name, "namespace": "default", "uid": name.removeprefix("snapshot-")},
    }
    made = new_object(VOLUME_SNAPSHOT_CONTENT, f"snapcontent-{number}", spec=content)
    await guest.create(VOLUME_SNAPSHOT_CONTENT, made)
    return name


async def snapshots_of(host: Client) -> list[str]:
    return sorted(name_of(raw) for raw in await host.list(VOLUME_SNAPSHOT, "default"))


async def make_export(host: Client, claim: str, **marks: Any) -> str:
    volume = nested(await host.get(PVC.ref(claim, "default")), "spec", "volumeName")
    spec = {"networkFSName": volume, "desiredState": "Enabled", "provisioner": "Longhorn"}
    made = new_object(NETWORK_FILESYSTEM, volume, "harvester-system", spec=spec, **marks)
    await host.create(NETWORK_FILESYSTEM, made)
    return str(volume)


async def make_shared_claim(host: Client, name: str, guest_uid: str) -> None:
    spec = {
        "accessModes": ["ReadWriteMany"],
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    labels, annotations = {"windrow.io/csi-driver": DRIVER}, {"windrow.io/guest-uid": guest_uid}
    made = new_object(PVC, name, "default", labels=labels, annotations=annotations, spec=spec)
    await host.create(PVC, made)


def test_snapshots_and_exports_go_with_their_volumes_or_are_named() -> None:
    async def story() -> Transcript:
        async with one_machine() as it:
            host = await with_volumes(it)
            guest = await it.stage.guest_client()
            uid = (await guest.get(SERVICE.ref("kubernetes", "default")))["metadata"]["uid"]
            marks = {
                "labels": {"windrow.io/csi-driver": DRIVER},
                "annotations": {"windrow.io/guest-uid": uid},
            }
            for name in (SHARED, LENT):
                await make_shared_claim(host, name, uid)
                await make_volume(guest, name)
            await it.sim.advance(seconds=30)
            await make_claim(host, SNAPPED, uid)
            await make_volume(guest, SNAPPED)
            goes = await make_snapshot(guest, 11, ATTACHED, "Delete")
            retained = await make_snapshot(guest, 12, DETACHED, "Retain")
            of_retained = await make_snapshot(guest, 13, STATIC, "Delete")
            by_hand = "before-the-migration"
            spec = {
                "source": {"persistentVolumeClaimName": SNAPPED},
                "volumeSnapshotClassName": "longhorn-snapshot",
            }
            made = new_object(VOLUME_SNAPSHOT, by_hand, "default", spec=spec)
            await host.create(VOLUME_SNAPSHOT, made)  # a person makes it, on Harvester
            await make_export(host, SHARED, **marks)
            lent = await make_export(host, LENT)  # a person shares it with machines of another cluster
            await it.sim.advance(seconds=60)
            it.transcript.lines.clear()
            assert await snapshots_of(host) == [by_hand, goes, retained, of_retained]
            await delete(it)
            # What the snapshots that stay hold is stored in the volumes that they were made of.
            assert await claims_left(host) == sorted([*KEPT, LENT, DETACHED, SNAPPED])
            assert await snapshots_of(host) == [by_hand, retained, of_retained]
            exports = [name_of(raw) for raw in await host.list(NETWORK_FILESYSTEM, "harvester-system")]
            assert exports == [lent]
            return it.transcript

    check_story("delete-cluster-with-snapshots", story)
