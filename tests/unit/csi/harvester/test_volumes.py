"""Volumes on an emulated Harvester, beyond what holds for all implementations: what is asked, what is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.volumes_rig import GUEST, LATENCY, VolumesRig, volumes_rig
from tests.stories.harvester_rig import vm_ref
from tests.support.clock import run_driven

from windrow.core.clock import sleep
from windrow.core.formats.json import loads
from windrow.csi import names
from windrow.csi.errors import FailedPrecondition
from windrow.csi.harvester.disks import Disk, DiskChange, InstanceDisks, VmDisks, plan_patch
from windrow.csi.sizes import SizeRange
from windrow.csi.volumes import (
    SnapshotSource,
    Unfinished,
    UnknownParameter,
    VolumeInUse,
    VolumeNotFound,
    VolumeRequest,
)
from windrow.emulator import kinds
from windrow.emulator.delays import Delays
from windrow.harvester.resources import VM, VMI, VOLUME_SNAPSHOT
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import PVC

GIB = 2**30
ONE = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001"

Story = Callable[[VolumesRig], Awaitable[None]]


def live(story: Story, **options: Any) -> None:
    async def alive() -> None:
        async with volumes_rig(**options) as rig:
            await story(rig)

    run_driven(alive())


async def volume_of(rig: VolumesRig, name: str = ONE, **rest: Any) -> None:
    await rig.volumes.create(VolumeRequest(name, SizeRange(GIB), **rest))


async def claim_of(rig: VolumesRig, name: str = ONE) -> dict[str, Any]:
    return await rig.line.get(PVC.ref(name, "default"))


def test_a_claim_says_what_it_was_made_with_and_arms_no_deletion():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig, parameters={"hostVolumeMode": "block"})
        claim = await claim_of(rig)

        assert claim["metadata"]["labels"] == {"windrow.io/csi-driver": "driver.harvesterhci.io"}
        annotations = claim["metadata"]["annotations"]
        assert annotations["windrow.io/guest-uid"] == GUEST
        assert annotations["windrow.io/csi-volume-name"] == ONE
        assert annotations["windrow.io/csi-parameters"] == '{"hostVolumeMode":"block"}'
        assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
        assert claim["spec"]["volumeMode"] == "Block"
        assert claim["spec"]["resources"] == {"requests": {"storage": "1Gi"}}, "as the Go driver writes it"

    live(story)


def test_a_class_that_harvester_lacks_is_named():
    async def story(rig: VolumesRig) -> None:
        with pytest.raises(UnknownParameter, match="Harvester has no StorageClass 'fast'") as error:
            await volume_of(rig, parameters={names.HOST_STORAGE_CLASS: "fast"})
        assert error.value.field == "parameters[hostStorageClass]"
        assert await rig.volumes.list_volumes() == []

    live(story)


def test_one_attachment_asks_for_no_more_than_it_needs():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        await rig.volumes.ensure_attached(ONE, rig.other_node, False)
        await rig.volumes.ensure_detached(ONE, rig.other_node)
        rig.requests.clear()
        await rig.volumes.ensure_attached(ONE, rig.node, False)

        assert rig.calls() == [
            f"PATCH persistentvolumeclaims/{ONE}",
            "PATCH virtualmachines/node-1",
            "GET virtualmachineinstances/node-1",
        ]

    live(story)


def test_volumes_that_are_attached_together_share_patches():
    async def story(rig: VolumesRig) -> None:
        volumes = [f"data-{number}" for number in range(10)]
        for name in volumes:
            await volume_of(rig, name)
        rig.requests.clear()
        clock = rig.harvester.clock.base
        began = clock.monotonic()
        found = await asyncio.gather(*(rig.volumes.ensure_attached(one, rig.node, False) for one in volumes))
        took = clock.monotonic() - began

        assert (
            took < timedelta(seconds=31.5) / 10
        )  # what the Go driver needs, with errors (reference/03 §4.2)
        assert len({one.context[names.PUBLISH_SERIAL] for one in found}) == 10
        patches = [one for one in rig.calls() if one.startswith("PATCH virtualmachines")]
        assert len(patches) == 1
        assert all(one.nodes == (rig.node,) for one in await rig.volumes.list_volumes())

        rig.requests.clear()
        await asyncio.gather(*(rig.volumes.ensure_detached(one, rig.node) for one in volumes))
        assert len([one for one in rig.calls() if one.startswith("PATCH")]) == 1
        assert all(one.nodes == () for one in await rig.volumes.list_volumes())

    live(story, delays=Delays(volume_bind=0, hotplug_attach=0.3, hotplug_mount=0.1, hotplug_ready=0.1))


def test_one_volume_that_is_refused_does_not_hold_the_others():
    async def story(rig: VolumesRig) -> None:
        for name in ("data-1", "data-2", "taken"):
            await volume_of(rig, name)
        # Another VM gets it in the moment between the look and the patch.
        rig.volumes.state.nodes_with = lambda claim: []  # type: ignore[method-assign]
        await rig.volumes.ensure_attached("taken", rig.other_node, False)
        results = await asyncio.gather(
            *(rig.volumes.ensure_attached(one, rig.node, False) for one in ("data-1", "taken", "data-2")),
            return_exceptions=True,
        )

        assert [isinstance(one, Exception) for one in results] == [False, True, False]
        assert isinstance(results[1], FailedPrecondition)
        assert "already used by other VM" in str(results[1])

    live(story)


def test_a_caller_that_gives_up_leaves_the_others_their_turn():
    async def story(rig: VolumesRig) -> None:
        for name in ("data-1", "data-2"):
            await volume_of(rig, name)
        first = asyncio.create_task(rig.volumes.ensure_attached("data-1", rig.node, False))
        second = asyncio.create_task(rig.volumes.ensure_attached("data-2", rig.node, False))
        await sleep(rig.harvester.clock.base, LATENCY * 3 / 2)  # the first reads the VM
        first.cancel()

        assert (await second).context[names.PUBLISH_SERIAL]
        await asyncio.gather(first, return_exceptions=True)
        await rig.volumes.ensure_attached("data-1", rig.node, False)

    live(story)


def test_a_harvester_before_1_8_is_asked_by_its_subresources():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        attachment = await rig.volumes.ensure_attached(ONE, rig.node, False)

        assert "PUT node-1/addvolume" in rig.calls()
        assert not any(one.startswith("PATCH virtualmachines") for one in rig.calls())
        assert attachment.context[names.PUBLISH_SERIAL] == ONE.removeprefix("pvc-")
        await rig.volumes.ensure_detached(ONE, rig.node)
        assert "PUT node-1/removevolume" in rig.calls()
        assert (await rig.volumes.get(ONE)).nodes == ()

    live(story, version="v1.7.1")


def test_a_volume_that_the_go_driver_made_and_attached_is_used():
    async def story(rig: VolumesRig) -> None:
        spec = {
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Block",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        await rig.line.create(PVC, {"metadata": {"name": ONE, "namespace": "default"}, "spec": spec})
        steps = [
            {
                "op": "add",
                "path": "/spec/template/spec/volumes/-",
                "value": {"name": ONE, "persistentVolumeClaim": {"claimName": ONE, "hotpluggable": True}},
            },
            {
                "op": "add",
                "path": "/spec/template/spec/domain/devices/disks/-",
                "value": {"name": ONE, "disk": {"bus": "scsi"}},
            },
        ]
        await rig.line.json_patch(vm_ref(rig.node), steps)
        attachment = await rig.volumes.ensure_attached(ONE, rig.node, False)

        assert attachment.context == {names.PUBLISH_BUS: "scsi", names.PUBLISH_CAPACITY: str(GIB)}
        (found,) = await rig.volumes.list_volumes()
        assert (found.id, found.nodes, found.parameters) == (ONE, (rig.node,), None)
        await rig.volumes.ensure_detached(ONE, rig.node)
        await rig.volumes.delete(ONE)

    live(story)


def test_a_machine_s_own_disk_is_neither_attached_nor_detached():
    async def story(rig: VolumesRig) -> None:
        own = "node-1-disk-0-abcde"
        with pytest.raises(VolumeInUse, match="one of the machine's own disks"):
            await rig.volumes.ensure_attached(own, rig.node, False)
        await rig.volumes.ensure_detached(own, rig.node)
        await rig.volumes.ensure_detached(own, "")

        raw = await rig.line.get(vm_ref(rig.node))
        claims = [
            one["persistentVolumeClaim"]["claimName"]
            for one in raw["spec"]["template"]["spec"]["volumes"][1:]
        ]
        assert claims == [own]
        assert await rig.volumes.list_volumes() == []
        with pytest.raises(FailedPrecondition, match="was not made by a CSI driver"):
            await rig.volumes.delete(own)

    live(story)


def test_a_volume_of_a_node_whose_vm_was_deleted_is_free():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        await rig.volumes.ensure_attached(ONE, rig.node, False)
        await rig.line.delete(kinds.VM.ref(rig.node, "default"))
        await rig.volumes.ensure_detached(ONE, rig.node)
        await rig.volumes.ensure_attached(ONE, rig.other_node, False)

        assert (await rig.volumes.get(ONE)).nodes == (rig.other_node,)

    live(story)


def test_a_volume_of_another_guest_cluster_is_not_listed_and_not_deleted():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        mark = {"metadata": {"annotations": {"windrow.io/guest-uid": "another"}}}
        await rig.line.patch(PVC.ref(ONE, "default"), mark)
        with pytest.raises(FailedPrecondition, match="was made by the guest cluster with uid another"):
            await rig.volumes.delete(ONE)
        await sleep(rig.harvester.clock.base, LATENCY)

        assert await rig.volumes.list_volumes() == []

    live(story)


def test_an_instance_that_outlives_its_vm_still_has_the_volume():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        ghost = InstanceDisks("ghost", True, "Running", frozenset({ONE}), ())
        rig.volumes.state.instances.put(VMI.ref("ghost", "default"), ghost)

        with pytest.raises(VolumeInUse) as error:
            await rig.volumes.ensure_attached(ONE, rig.node, False)
        assert error.value.nodes == ("ghost",)

    live(story)


def test_a_vm_that_only_the_cache_has_keeps_no_volume():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        disks = (Disk(ONE, ONE, True),)
        rig.volumes.state.vms.put(VM.ref("gone", "default"), VmDisks("gone", "1", False, disks, 1))

        await rig.volumes.ensure_attached(ONE, rig.node, False)

    live(story)


def test_what_is_attached_is_not_sent_again():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        await rig.volumes.ensure_attached(ONE, rig.node, False)
        rig.requests.clear()
        await rig.volumes.ensure_attached(ONE, rig.node, False)

        assert rig.calls() == [
            f"GET persistentvolumeclaims/{ONE}",
            "GET virtualmachines/node-1",
            "GET virtualmachineinstances/node-1",
        ]

    live(story)


def test_ids_that_no_object_can_have_are_not_asked_for():
    async def story(rig: VolumesRig) -> None:
        await rig.volumes.ensure_detached("../x", rig.node)
        await rig.volumes.ensure_detached(ONE, "../y")

        assert rig.requests == []

    live(story)


def test_a_volume_that_is_deleted_while_it_is_to_grow_is_not_found():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        await sleep(rig.harvester.clock.base, timedelta(seconds=10))
        inner = rig.volumes._client.transport
        send = inner.send

        async def after_a_deletion(request: Request) -> Reply:
            if request.method == "PATCH":
                await rig.line.delete(PVC.ref(ONE, "default"))
            return await send(request)

        inner.send = after_a_deletion  # type: ignore[method-assign]
        with pytest.raises(VolumeNotFound):
            await rig.volumes.ensure_expanded(ONE, SizeRange(2 * GIB))

    live(story)


def test_a_volume_that_is_not_bound_grows_once_it_is():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        assert (await claim_of(rig))["status"]["phase"] == "Pending"
        grown = await rig.volumes.ensure_expanded(ONE, SizeRange(2 * GIB))

        assert grown.size == 2 * GIB

    live(story, delays=Delays(volume_bind=30))


def test_a_volume_that_has_the_most_that_is_wanted_stays():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)

        assert (await rig.volumes.ensure_expanded(ONE, SizeRange(GIB, GIB))).size == GIB

    live(story)


def test_an_instance_that_does_not_tell_of_the_volume_yet_is_waited_for():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        await rig.volumes.ensure_attached(ONE, rig.node, False)
        instances, ref = rig.volumes.state.instances, VMI.ref(rig.node, "default")
        told = instances.get(ref)
        assert told is not None
        instances.put(ref, replace(told, plugged=()))
        attaching = asyncio.create_task(rig.volumes.ensure_attached(ONE, rig.node, False))
        await sleep(rig.harvester.clock.base, timedelta(seconds=5))
        assert not attaching.done()
        attaching.cancel()

    live(story)


def test_an_attachment_ends_when_its_disk_is_removed_by_another():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        attaching = asyncio.create_task(rig.volumes.ensure_attached(ONE, rig.node, False))
        await sleep(rig.harvester.clock.base, timedelta(seconds=5))
        raw = await rig.line.get(vm_ref(rig.node))
        await rig.line.json_patch(vm_ref(rig.node), plan_patch(raw, [DiskChange(ONE, "detach")]))
        with pytest.raises(Unfinished, match="left VirtualMachine"):
            await attaching

    live(story, delays=Delays(hotplug_attach=60))


def test_an_attachment_to_a_vm_that_is_being_deleted_is_unfinished():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        attaching = asyncio.create_task(rig.volumes.ensure_attached(ONE, rig.node, False))
        await sleep(rig.harvester.clock.base, timedelta(seconds=5))
        await rig.line.patch(vm_ref(rig.node), {"metadata": {"finalizers": ["example.org/hold"]}})
        await rig.line.delete(vm_ref(rig.node))
        with pytest.raises(Unfinished, match="is being deleted, and volume"):
            await attaching

    live(story, delays=Delays(hotplug_attach=60))


def test_a_claim_is_deleted_with_the_uid_that_it_was_read_with():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        uid = (await claim_of(rig))["metadata"]["uid"]
        rig.requests.clear()
        await rig.volumes.delete(ONE)

        (request,) = [one for one in rig.requests if one.method == "DELETE"]
        assert loads(request.body or b"")["preconditions"] == {"uid": uid}

    live(story)


def test_a_volume_of_the_size_that_is_wanted_is_read_once():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        await sleep(rig.harvester.clock.base, timedelta(seconds=30))
        rig.requests.clear()
        found = await rig.volumes.ensure_expanded(ONE, SizeRange(GIB))

        assert found.size == GIB
        assert rig.calls() == [f"GET persistentvolumeclaims/{ONE}"]

    live(story)


def test_a_snapshot_that_is_not_ready_is_restored_by_a_later_call():
    async def story(rig: VolumesRig) -> None:
        await volume_of(rig)
        await sleep(rig.harvester.clock.base, timedelta(seconds=30))
        labels = {
            "harvesterhci.io/snapHostSC": "harvester-longhorn",
            "harvesterhci.io/snapHostVolumeMode": "Block",
        }
        spec = {
            "volumeSnapshotClassName": "longhorn-snapshot",
            "source": {"persistentVolumeClaimName": ONE},
        }
        made = new_object(VOLUME_SNAPSHOT, "snap-1", "default", labels=labels, spec=spec)
        await rig.line.create(VOLUME_SNAPSHOT, made)

        with pytest.raises(Unfinished, match="VolumeSnapshot snap-1 on Harvester is not ready"):
            await volume_of(rig, "copy", source=SnapshotSource("snap-1"))
        await sleep(rig.harvester.clock.base, timedelta(seconds=60))
        await volume_of(rig, "copy", source=SnapshotSource("snap-1"))

    live(story)
