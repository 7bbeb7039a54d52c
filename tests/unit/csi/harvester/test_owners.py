"""Whose an object on Harvester is: another guest cluster's, a CSI driver's, or made there for another purpose."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.volumes_rig import VolumesRig, volumes_rig
from tests.support.clock import run_driven

from windrow.core.clock import sleep
from windrow.core.rng import Rng
from windrow.csi.errors import CsiError, FailedPrecondition, Internal
from windrow.csi.harvester.volumes import HarvesterVolumes, HostOptions
from windrow.csi.idempotency import IdempotentVolumes
from windrow.csi.sizes import SizeRange
from windrow.csi.volumes import (
    SnapshotRequest,
    SnapshotSource,
    UnknownParameter,
    VolumeExists,
    VolumeNotFound,
    VolumeRequest,
    VolumeSource,
)
from windrow.harvester.resources import VOLUME_SNAPSHOT
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import PVC, STORAGE_CLASS

GIB = 2**30
ONE = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001"
TWO = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0002"
SPEC = {
    "accessModes": ["ReadWriteMany"],
    "volumeMode": "Block",
    "resources": {"requests": {"storage": "1Gi"}},
    "storageClassName": "harvester-longhorn",
}


def live(story: Callable[[VolumesRig], Awaitable[None]]) -> None:
    async def alive() -> None:
        async with volumes_rig() as rig:
            await story(rig)

    run_driven(alive())


async def pause(rig: VolumesRig, seconds: float) -> None:
    await sleep(rig.harvester.clock.base, timedelta(seconds=seconds))


async def claim_by_hand(rig: VolumesRig, name: str) -> None:
    await rig.line.create(PVC, {"metadata": {"name": name, "namespace": "default"}, "spec": SPEC})
    await pause(rig, 20)


async def volume(rig: VolumesRig, name: str = ONE, **rest: Any) -> None:
    await rig.volumes.create(VolumeRequest(name, SizeRange(GIB), **rest))


async def snapshot(rig: VolumesRig, name: str = "snap-1", volume_id: str = ONE) -> None:
    await rig.volumes.create_snapshot(SnapshotRequest(name, volume_id))
    await pause(rig, 30)


async def claims(rig: VolumesRig) -> set[str]:
    found = {one["metadata"]["name"] for one in await rig.line.list(PVC, "default")}
    return {one for one in found if not one.startswith("node-")}


async def refusals(calls: dict[str, Coroutine[Any, Any, Any]], match: str) -> list[str]:
    """The calls that are not refused with these words."""
    found = []
    for name, call in calls.items():
        try:
            await call
        except FailedPrecondition as error:
            if match in str(error):
                continue
        except CsiError:
            pass
        found.append(name)
    return found


@pytest.mark.parametrize("guest", ["another", ""])
def test_nothing_is_done_with_a_volume_of_another_guest_cluster(guest: str):
    """Nor where the own uid may not be read, so that the volume may be another's."""

    async def story(rig: VolumesRig) -> None:
        await volume(rig)
        await snapshot(rig)
        await rig.volumes.ensure_attached(ONE, rig.node, False)
        rig.volumes.set_guest(guest)
        copy = VolumeRequest(TWO, SizeRange(GIB), source=VolumeSource(ONE))
        restored = VolumeRequest(TWO, SizeRange(GIB), source=SnapshotSource("snap-1"))
        volumes = IdempotentVolumes(rig.volumes)
        calls = {
            "get": volumes.get(ONE),
            "create": volumes.create(VolumeRequest(ONE, SizeRange(GIB))),
            "expand": volumes.ensure_expanded(ONE, SizeRange(2 * GIB)),
            "attach": volumes.ensure_attached(ONE, rig.node, False),
            "detach": volumes.ensure_detached(ONE, rig.node),
            "delete": volumes.delete(ONE),
            "clone": volumes.create(copy),
            "restore": volumes.create(restored),
            "snapshot": volumes.create_snapshot(SnapshotRequest("snap-2", ONE)),
            "same snapshot": volumes.create_snapshot(SnapshotRequest("snap-1", ONE)),
            "get snapshot": volumes.get_snapshot("snap-1"),
            "delete snapshot": volumes.delete_snapshot("snap-1"),
        }

        assert await refusals(calls, "was made by the guest cluster with uid 0f1e2d3c-guest") == []
        assert await claims(rig) == {ONE}
        assert await volumes.list_volumes() == []
        assert await volumes.list_snapshots() == []
        rig.volumes.set_guest("0f1e2d3c-guest")
        assert (await rig.volumes.get(ONE)).nodes == (rig.node,)

    live(story)


def test_where_the_own_uid_is_not_known_the_right_that_is_missing_is_named_and_unmarked_volumes_are_served():
    async def story(rig: VolumesRig) -> None:
        await volume(rig)
        rig.volumes.set_guest("")
        await volume(rig, TWO)

        with pytest.raises(FailedPrecondition, match="the uid of this one is not known") as error:
            await rig.volumes.delete(ONE)
        assert "Service default/kubernetes" in str(error.value)
        await rig.volumes.delete(TWO)
        assert await claims(rig) == {ONE}

    live(story)


def test_nothing_is_answered_about_volumes_before_the_guest_cluster_is_known():
    async def story(rig: VolumesRig) -> None:
        clock = rig.harvester.clock.base
        options = HostOptions("default", awaits_guest=True)
        volumes = HarvesterVolumes(rig.line, options, clock, Rng(7), logging.getLogger("csi-test"))
        running = asyncio.create_task(volumes.run())
        calls = {
            "create": volumes.create(VolumeRequest(ONE, SizeRange(GIB))),
            "get": volumes.get(ONE),
            "detach": volumes.ensure_detached(ONE, rig.node),
            "list": volumes.list_volumes(),
            "snapshots": volumes.list_snapshots(),
            "delete snapshot": volumes.delete_snapshot("snap-1"),
        }
        tasks = {name: asyncio.create_task(call) for name, call in calls.items()}
        await pause(rig, 60)

        assert [name for name, task in tasks.items() if task.done()] == []
        volumes.set_guest("this-one")
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        claim = await rig.line.get(PVC.ref(ONE, "default"))
        assert claim["metadata"]["annotations"]["windrow.io/guest-uid"] == "this-one"
        running.cancel()

    live(story)


def test_a_claim_that_no_csi_driver_made_is_neither_taken_nor_copied_nor_deleted():
    async def story(rig: VolumesRig) -> None:
        await claim_by_hand(rig, "payroll-db")
        copy = VolumeRequest(TWO, SizeRange(GIB), source=VolumeSource("payroll-db"))
        volumes = IdempotentVolumes(rig.volumes)
        calls = {
            "create": volumes.create(VolumeRequest("payroll-db", SizeRange(GIB))),
            "clone": volumes.create(copy),
            "delete": volumes.delete("payroll-db"),
        }

        assert await refusals(calls, "payroll-db on Harvester was not made by a CSI driver") == []
        assert await claims(rig) == {"payroll-db"}

    live(story)


def test_a_claim_that_no_csi_driver_made_may_be_used_and_grown_by_a_persistent_volume_that_names_it():
    async def story(rig: VolumesRig) -> None:
        await claim_by_hand(rig, "payroll-db")
        volumes = IdempotentVolumes(rig.volumes)
        await volumes.ensure_attached("payroll-db", rig.node, False)
        await volumes.ensure_detached("payroll-db", rig.node)
        grown = await volumes.ensure_expanded("payroll-db", SizeRange(2 * GIB))

        assert grown.size == 2 * GIB
        assert grown.nodes == ()

    live(story)


def test_a_snapshot_that_no_csi_driver_made_is_neither_taken_nor_restored_nor_deleted():
    async def story(rig: VolumesRig) -> None:
        await volume(rig)
        await snapshot(rig, "nightly")
        labels = {"harvesterhci.io/snapHostSC": None}
        await rig.line.patch(VOLUME_SNAPSHOT.ref("nightly", "default"), {"metadata": {"labels": labels}})
        restored = VolumeRequest(TWO, SizeRange(GIB), source=SnapshotSource("nightly"))
        volumes = IdempotentVolumes(rig.volumes)
        calls = {
            "create": volumes.create_snapshot(SnapshotRequest("nightly", ONE)),
            "restore": volumes.create(restored),
            "delete": volumes.delete_snapshot("nightly"),
        }

        assert await refusals(calls, "default/nightly on Harvester was not made by a CSI driver") == []
        assert await rig.line.list(VOLUME_SNAPSHOT, "default")

    live(story)


@pytest.mark.parametrize("name", ["my.claim", "a" * 70])
def test_a_claim_whose_name_no_disk_can_have_is_not_said_to_be_deleted(name: str):
    async def story(rig: VolumesRig) -> None:
        await claim_by_hand(rig, name)
        volumes = IdempotentVolumes(rig.volumes)
        with pytest.raises(FailedPrecondition, match="was not made by a CSI driver"):
            await volumes.delete(name)
        with pytest.raises(FailedPrecondition, match="cannot be a disk"):
            await volumes.ensure_attached(name, rig.node, False)
        await volumes.delete("no.such.claim")

    live(story)


def test_a_volume_is_there_although_what_it_was_made_of_is_gone():
    async def story(rig: VolumesRig) -> None:
        await volume(rig)
        await snapshot(rig)
        gold = await rig.line.get(STORAGE_CLASS.ref("harvester-longhorn"))
        await rig.line.create(STORAGE_CLASS, {**gold, "metadata": {"name": "gold"}})
        wanted = [
            VolumeRequest("restored", SizeRange(GIB), source=SnapshotSource("snap-1")),
            VolumeRequest("clone", SizeRange(GIB), source=VolumeSource(ONE)),
            VolumeRequest("in-gold", SizeRange(GIB), parameters={"hostStorageClass": "gold"}),
        ]
        volumes = IdempotentVolumes(rig.volumes)
        made = [await volumes.create(one) for one in wanted]
        await pause(rig, 60)
        await volumes.delete_snapshot("snap-1")
        await pause(rig, 30)
        await volumes.delete(ONE)
        await rig.line.delete(STORAGE_CLASS.ref("gold"))

        assert [(await volumes.create(one)).id for one in wanted] == [one.id for one in made]
        with pytest.raises(VolumeExists):
            await volumes.create(VolumeRequest("clone", SizeRange(GIB)))
        with pytest.raises(VolumeNotFound):
            await volumes.create(VolumeRequest("another", SizeRange(GIB), source=VolumeSource(ONE)))

    live(story)


def test_a_404_that_is_not_the_object_s_deletes_nothing():
    async def story(rig: VolumesRig) -> None:
        await volume(rig)
        await snapshot(rig)
        inner = rig.volumes._client.transport
        send = inner.send

        async def through_a_proxy(request: Request) -> Reply:
            if request.method in ("DELETE", "PATCH"):
                raise NotFound("404 page not found", status=404)
            return await send(request)

        inner.send = through_a_proxy  # type: ignore[method-assign]
        volumes = IdempotentVolumes(rig.volumes)
        with pytest.raises(Internal, match="404 page not found"):
            await volumes.delete_snapshot("snap-1")
        with pytest.raises(Internal, match="404 page not found"):
            await volumes.delete(ONE)
        with pytest.raises(Internal, match="404 page not found"):
            await volumes.ensure_expanded(ONE, SizeRange(2 * GIB))

    live(story)


@pytest.mark.parametrize("source", [VolumeSource(ONE), SnapshotSource("snap-1")])
def test_a_copy_has_the_volume_mode_of_what_it_was_made_of(source: Any):
    async def story(rig: VolumesRig) -> None:
        await volume(rig, parameters={"hostVolumeMode": "filesystem"})
        await pause(rig, 20)
        await snapshot(rig)
        await volume(rig, TWO, source=source)

        assert (await rig.line.get(PVC.ref(TWO, "default")))["spec"]["volumeMode"] == "Filesystem"
        with pytest.raises(UnknownParameter, match="has volumeMode Filesystem on Harvester"):
            await volume(rig, "third", source=source, parameters={"hostVolumeMode": "block"})

    live(story)
