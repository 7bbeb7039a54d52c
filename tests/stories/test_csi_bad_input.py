"""What the CSI controller answers where Harvester lacks, refuses or loses something: the code, and that the retry finishes.

Nothing that was half made is unrecorded: what is there in between is a claim with the driver's marks, or the record on one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.message import Message
from tests.support.clock import run_driven

from windrow.core.clock import sleep
from windrow.emulator import kinds
from windrow.emulator.faults import (
    CONFLICT,
    UNAUTHORIZED,
    UNAVAILABLE,
    WRITES,
    Effect,
    Fault,
    Slow,
)
from windrow.kubernetes.objects import annotations_of, labels_of, new_object
from windrow.kubernetes.resources import PVC

from .csi_rig import (
    METHODS,
    CsiRig,
    a_csi_rig,
    cancel,
    create,
    create_snapshot,
    delete,
    delete_snapshot,
    expand,
    publish,
    unpublish,
)
from .harvester_rig import NAMESPACE, eventually, is_gone, order, vmi_ref

DATA, NODE = "data-1", "node-1"
GIB = 2**30


def on_a_rig(story: Callable[[CsiRig], Awaitable[None]], *nodes: str, **options: Any) -> None:
    async def live() -> None:
        async with a_csi_rig(nodes=nodes or (NODE,), **options) as rig:
            await story(rig)

    run_driven(live())


async def done(rig: CsiRig, *requests: Message) -> list[str]:
    """The codes of each call, repeated as a side-car does until it is done."""
    codes = []
    for request in requests:
        answers = await rig.until_done(METHODS[type(request)], request)
        assert answers[-1].is_ok, answers[-1].text
        codes += [one.code for one in answers]
    return codes


async def volumes_of(rig: CsiRig) -> list[str]:
    """The claims but for root disks."""
    return [name for name in await rig.claims() if "-disk-0" not in name]


LIFE = (
    create(DATA),
    publish(DATA, NODE),
    expand(DATA, 2),
    create_snapshot("snapshot-1", DATA),
    unpublish(DATA, NODE),
    delete_snapshot("snapshot-1"),
    delete(DATA),
)


@pytest.mark.parametrize(
    ("effect", "codes"),
    [
        (CONFLICT, {"ABORTED"}),
        (UNAVAILABLE, {"UNAVAILABLE"}),
        (UNAUTHORIZED, {"UNAVAILABLE"}),
    ],
    ids=["409", "503", "401"],
)
def test_a_volume_lives_through_a_storm_at_each_of_its_writes(effect: Effect, codes: set[str]) -> None:
    """Before each call Harvester refuses every write for two minutes."""

    async def story(rig: CsiRig) -> None:
        for request in LIFE:
            storm = rig.harvester.faults.add(Fault(effect, WRITES))

            async def abate(storm: Fault = storm) -> None:
                await sleep(rig.clock, timedelta(minutes=2))
                rig.harvester.faults.end(storm)

            abating = asyncio.create_task(abate())
            found = await done(rig, request)
            await abating
            assert found[-1] == "OK"
            assert set(found[:-1]) <= {*codes, "ABORTED"}, found
            assert len(found) > 1, f"{METHODS[type(request)]} wrote nothing"
        assert await volumes_of(rig) == []
        assert await rig.snapshots() == {}
        assert (await rig.vm_claims())[NODE] == []

    on_a_rig(story)


def test_a_node_has_no_more_disks_than_harvester_gives_a_vm() -> None:
    async def story(rig: CsiRig) -> None:
        await done(rig, create(DATA))
        vm = kinds.VM.ref(NODE, NAMESPACE)
        own = len((await rig.client.get(vm))["spec"]["template"]["spec"]["volumes"])
        more = [{"name": f"e-{number}", "emptyDisk": {"capacity": "1Gi"}} for number in range(256 - own)]
        disks = [{"name": one["name"], "disk": {"bus": "scsi"}} for one in more]
        steps = [
            {"op": "add", "path": f"/spec/template/spec/{path}/-", "value": value}
            for path, values in (("volumes", more), ("domain/devices/disks", disks))
            for value in values
        ]
        await rig.client.json_patch(vm, steps)
        answer = await rig.call("ControllerPublishVolume", publish(DATA, NODE))

        assert answer.code == "RESOURCE_EXHAUSTED"
        assert f"VirtualMachine {NODE} has 256 volumes, and can have 256" in answer.text

    on_a_rig(story)


def test_a_stopped_vm_gets_the_volume_once_it_runs() -> None:
    async def story(rig: CsiRig) -> None:
        await done(rig, create(DATA))
        assert await order(rig.harvester, "stop", NODE) < 300
        await eventually(rig.harvester, vmi_ref(NODE), is_gone)
        answer = await rig.call("ControllerPublishVolume", publish(DATA, NODE))

        assert answer.code == "ABORTED"
        assert f"VirtualMachine default/{NODE} to run, so that volume {DATA} can be plugged in" in answer.text
        assert annotations_of((await rig.claims())[DATA])[f"attach.csi.windrow.io/{NODE}"]
        assert await order(rig.harvester, "start", NODE) < 300
        assert (await done(rig, publish(DATA, NODE)))[-1] == "OK"

    on_a_rig(story)


def test_a_volume_is_attached_to_a_vm_that_migrates_meanwhile_and_to_one_node_only() -> None:
    async def story(rig: CsiRig) -> None:
        await done(rig, create(DATA))
        assert await order(rig.harvester, "migrate", NODE) == 202
        await sleep(rig.clock, timedelta(seconds=3))
        assert (await done(rig, publish(DATA, NODE)))[-1] == "OK"
        await sleep(rig.clock, timedelta(minutes=2))

        assert await rig.vm_claims() == {NODE: [DATA]}
        assert (await done(rig, unpublish(DATA, NODE), delete(DATA)))[-1] == "OK"

    on_a_rig(story)


def test_a_claim_that_vanished_is_not_attached_and_holds_neither_detachment_nor_deletion() -> None:
    async def story(rig: CsiRig) -> None:
        await done(rig, create(DATA))
        await rig.client.delete(PVC.ref(DATA, NAMESPACE))
        await eventually(rig.harvester, PVC.ref(DATA, NAMESPACE), is_gone)
        answer = await rig.call("ControllerPublishVolume", publish(DATA, NODE))

        assert answer.code == "NOT_FOUND"
        assert (await rig.vm_claims())[NODE] == []
        assert await done(rig, unpublish(DATA, NODE), delete(DATA)) == ["OK", "OK"]
        grown = await rig.call("ControllerExpandVolume", expand(DATA, 2))
        assert grown.code == "NOT_FOUND"

    on_a_rig(story)


@pytest.mark.parametrize("request_", LIFE, ids=lambda one: METHODS[type(one)])
def test_a_call_that_is_cancelled_at_its_write_is_finished_by_the_next(request_: Message) -> None:
    async def story(rig: CsiRig) -> None:
        await done(rig, *LIFE[: LIFE.index(request_)])
        rig.harvester.faults.add(Fault(Slow(3), WRITES, times=1))
        calling = asyncio.create_task(rig.call(METHODS[type(request_)], request_))
        await sleep(rig.clock, timedelta(seconds=1))
        await cancel(calling)
        claims = await rig.claims()
        assert all("windrow.io/csi-driver" in labels_of(claims[name]) for name in await volumes_of(rig))

        assert (await done(rig, request_, *LIFE[LIFE.index(request_) + 1 :]))[-1] == "OK"
        await sleep(rig.clock, timedelta(seconds=30))
        assert await volumes_of(rig) == []

    on_a_rig(story)


def test_what_is_refused_for_lack_of_a_class_or_of_quota_leaves_nothing_and_succeeds_once_there_is() -> None:
    async def story(rig: CsiRig) -> None:
        answer = await rig.call("CreateVolume", create(DATA, host_class="fast"))
        assert answer.code == "INVALID_ARGUMENT"
        quota = new_object(kinds.QUOTA, "storage", NAMESPACE, spec={"hard": {"requests.storage": "41Gi"}})
        await rig.client.create(kinds.QUOTA, quota)
        answer = await rig.call("CreateVolume", create(DATA, 500))
        assert answer.code == "RESOURCE_EXHAUSTED"
        assert DATA not in await rig.claims()

        await rig.client.delete(kinds.QUOTA.ref("storage", NAMESPACE))
        assert await done(rig, create(DATA, 500)) == ["OK"]

    on_a_rig(story)
