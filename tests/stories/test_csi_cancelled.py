"""Calls of the CSI controller that end before the write that they sent: what the next call finds, and leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from tests.support.clock import run_driven

from windrow.core.clock import sleep
from windrow.emulator import kinds
from windrow.emulator.faults import WRITES, Fault, Slow
from windrow.kubernetes.requests import put_subresource

from .csi_rig import CsiRig, a_csi_rig, cancel, create, publish, unpublish
from .harvester_rig import NAMESPACE, eventually, is_gone, vm_ref, vmi_ref

DATA = "data-1"


def on_a_rig(story: Callable[[CsiRig], Awaitable[None]], **options: object) -> None:
    async def live() -> None:
        async with a_csi_rig(nodes=("node-1",), **options) as rig:  # type: ignore[arg-type]
            await story(rig)

    run_driven(live())


@pytest.mark.parametrize("version", ["v1.7.1", "v1.8.2"])
def test_an_attachment_that_its_caller_gave_up_does_not_overtake_the_detachment(version: str):
    async def story(rig: CsiRig) -> None:
        await rig.until_done("CreateVolume", create(DATA))
        writes = WRITES if version == "v1.8.2" else frozenset()
        rig.harvester.faults.add(
            Fault(Slow(3), writes, where=lambda one: one.method in ("PATCH", "PUT"), times=1)
        )
        attaching = asyncio.create_task(rig.call("ControllerPublishVolume", publish(DATA, "node-1")))
        await sleep(rig.clock, timedelta(seconds=1))
        await cancel(attaching)
        answers = await rig.until_done("ControllerUnpublishVolume", unpublish(DATA, "node-1"))

        assert answers[-1].is_ok
        await sleep(rig.clock, timedelta(seconds=30))
        assert (await rig.vm_claims())["node-1"] == []

    on_a_rig(story, version=version)


def test_an_attachment_to_a_vm_that_is_deleted_meanwhile_is_not_waited_for():
    async def story(rig: CsiRig) -> None:
        await rig.until_done("CreateVolume", create(DATA))
        attaching = asyncio.create_task(rig.call("ControllerPublishVolume", publish(DATA, "node-1")))
        await sleep(rig.clock, timedelta(seconds=1))
        await rig.client.delete(vm_ref("node-1"))
        answer = await attaching

        assert answer.code == "ABORTED"
        assert answer.text == (
            "VirtualMachine default/node-1 is being deleted, and volume data-1 was being attached to it; "
            "the call is repeated, and finds it gone"
        )
        assert answer.took_s < 10
        await eventually(rig.harvester, vmi_ref("node-1"), is_gone)
        again = await rig.call("ControllerPublishVolume", publish(DATA, "node-1"))
        assert again.code == "NOT_FOUND"

    on_a_rig(story)


def test_an_attachment_whose_disk_is_removed_by_hand_is_not_waited_for():
    async def story(rig: CsiRig) -> None:
        await rig.until_done("CreateVolume", create(DATA))
        attaching = asyncio.create_task(rig.call("ControllerPublishVolume", publish(DATA, "node-1")))
        await sleep(rig.clock, timedelta(seconds=1))
        subresources = kinds.VM_SUBRESOURCES.ref("node-1", NAMESPACE)
        removal = await rig.client.send(put_subresource(subresources, "removevolume", {"name": DATA}))
        assert removal.status == 202
        answer = await attaching

        assert (answer.code, answer.text) == (
            "ABORTED",
            "volume 'data-1' left VirtualMachine node-1; repeat the same call",
        )
        assert answer.took_s < 10
        assert (await rig.until_done("ControllerPublishVolume", publish(DATA, "node-1")))[-1].is_ok

    on_a_rig(story)
