"""Attachments and detachments where watches are behind, requests have no answer, and two controllers run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.volumes_rig import GUEST, Distant, VolumesRig, volumes_rig
from tests.stories.harvester_rig import vm_ref
from tests.support.clock import run_driven

from windrow.client.in_process import InProcessTransport
from windrow.client.transport import Transport, TransportMiddleware
from windrow.core.clock import sleep
from windrow.core.rng import Rng
from windrow.csi.cmd.connection import host_transport
from windrow.csi.errors import FailedPrecondition, Unavailable
from windrow.csi.harvester.disks import DiskChange, plan_patch
from windrow.csi.harvester.volumes import HarvesterVolumes, HostOptions
from windrow.csi.idempotency import IdempotentVolumes
from windrow.csi.sizes import SizeRange
from windrow.csi.volumes import Unfinished, VolumeInUse, VolumeRequest
from windrow.emulator.delays import Delays
from windrow.emulator.faults import CONFLICT, Fault
from windrow.harvester.resources import VM, VMI
from windrow.harvester.unanswered import LATEST
from windrow.kubernetes.errors import OutcomeUnknown
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import PVC

GIB = 2**30
ONE = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001"


class Line(TransportMiddleware):
    """A way to Harvester whose watches can be `late`, all or those of one kind, and on which `unanswered` patches of VMs are lost,
    or come late. The next patch takes `patch_s` more until Harvester has it. `before` is awaited before each request."""

    def __init__(self, inner: Transport, rig: VolumesRig) -> None:
        super().__init__(inner)
        self._clock = rig.harvester.clock.base
        self.is_late = False
        self.late_kind = ""
        self.unanswered = 0
        self.patch_s = 0.0
        self.before: Callable[[Request], Awaitable[None]] | None = None
        self.lost: list[Request] = []

    async def send(self, request: Request) -> Reply:
        changes_vm = request.method == "PATCH" and "/virtualmachines/" in request.path
        if changes_vm and self.unanswered:
            self.unanswered -= 1
            self.lost.append(request)
            raise OutcomeUnknown("no answer within 30 s")
        if self.before is not None:
            await self.before(request)
        if changes_vm and self.patch_s:
            delay, self.patch_s = timedelta(seconds=self.patch_s), 0.0
            await sleep(self._clock, delay)
        return await self._inner.send(request)

    async def send_lost(self) -> None:
        """What was lost arrives."""
        for request in self.lost:
            await self._inner.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with self._inner.stream(request) as events:
            yield self._events(events, request.path.rpartition("/")[2])

    async def _events(self, events: AsyncIterator[WatchEvent], kind: str) -> AsyncIterator[WatchEvent]:
        async for event in events:
            while self.is_late or self.late_kind == kind:
                await sleep(self._clock, timedelta(seconds=0.5))
            yield event


class Controller:
    """Another driver on the same Harvester."""

    def __init__(self, rig: VolumesRig, *, as_process: bool = False) -> None:
        harvester, clock = rig.harvester, rig.harvester.clock.base
        access = parse_kubeconfig(harvester.token_kubeconfig(harvester.new_token(), ""))
        self.line = Line(InProcessTransport(access, harvester.network.find, clock), rig)
        self.requests: list[Request] = []
        self.host = HarvesterVolumes(
            host_transport(self.line, clock, Rng(7))
            if as_process
            else Distant(self.line, self.requests, clock),
            HostOptions("default", guest_uid=GUEST),
            clock,
            Rng(6),
            logging.getLogger("csi-test"),
        )
        self.volumes = IdempotentVolumes(self.host)


def live(
    story: Callable[[VolumesRig, Controller], Awaitable[None]], *, as_process: bool = False, **options: Any
) -> None:
    """`as_process`: the controller asks through what a process asks through."""

    async def alive() -> None:
        async with volumes_rig(**options) as rig, asyncio.TaskGroup() as tasks:
            other = Controller(rig, as_process=as_process)
            running = tasks.create_task(other.host.run())
            await other.host.state.wait_for_sync()
            await rig.volumes.create(VolumeRequest(ONE, SizeRange(GIB)))
            await pause(rig, 20)
            await story(rig, other)
            running.cancel()

    run_driven(alive())


async def pause(rig: VolumesRig, seconds: float) -> None:
    await sleep(rig.harvester.clock.base, timedelta(seconds=seconds))


async def give_up(call: asyncio.Task[Any]) -> None:
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call


async def nodes_with_disk(rig: VolumesRig) -> list[str]:
    """The VMs that have the volume, in their template or in their instance, as Harvester has it now."""
    found = []
    for vm in await rig.line.list(VM, "default"):
        if any(one["name"] == ONE for one in vm["spec"]["template"]["spec"]["volumes"]):
            found.append(vm["metadata"]["name"])
    for instance in await rig.line.list(VMI, "default"):
        if any(one["name"] == ONE for one in instance["status"].get("volumeStatus", [])):
            found.append("instance of " + instance["metadata"]["name"])
    return found


def test_a_vm_that_was_changed_behind_the_watch_is_read_and_keeps_what_it_got():
    async def story(rig: VolumesRig, other: Controller) -> None:
        await rig.volumes.create(VolumeRequest("theirs", SizeRange(GIB)))
        await pause(rig, 5)
        other.line.is_late = True
        await rig.volumes.ensure_attached("theirs", "node-1", False)
        other.requests.clear()
        attaching = asyncio.create_task(other.volumes.ensure_attached(ONE, "node-1", False))
        await pause(rig, 2)
        other.line.is_late = False
        await attaching

        asked = [one for one in other.requests if not one.path.endswith("server-version")]
        ways = [f"{one.method} {'/'.join(one.path.split('/')[-2:])}" for one in asked]
        assert ways == [
            f"PATCH persistentvolumeclaims/{ONE}",
            "PATCH virtualmachines/node-1",
            "GET virtualmachines/node-1",
            "PATCH virtualmachines/node-1",
            "GET virtualmachineinstances/node-1",
        ]
        assert (await rig.volumes.get("theirs")).nodes == ("node-1",)
        assert (await rig.volumes.get(ONE)).nodes == ("node-1",)

    live(story)


def test_volumes_that_come_one_after_the_other_are_each_added_to_the_vm_that_the_last_patch_left():
    async def story(rig: VolumesRig, other: Controller) -> None:
        volumes = [f"data-{number}" for number in range(3)]
        for name in volumes:
            await other.volumes.create(VolumeRequest(name, SizeRange(GIB)))
        other.line.late_kind = "virtualmachines"
        other.requests.clear()
        attaching = []
        for name in volumes:
            attaching.append(asyncio.create_task(other.volumes.ensure_attached(name, "node-1", False)))
            await pause(rig, 2)
        other.line.late_kind = ""
        await asyncio.gather(*attaching)

        asked = [one.method for one in other.requests if one.path.endswith("/virtualmachines/node-1")]
        assert asked == ["PATCH"] * 3

    live(story)


def test_a_detachment_is_not_judged_by_a_watch_that_has_not_told_of_the_attachment():
    async def story(rig: VolumesRig, other: Controller) -> None:
        other.line.is_late = True
        attaching = asyncio.create_task(other.volumes.ensure_attached(ONE, "node-1", False))
        await pause(rig, 8)
        await give_up(attaching)
        assert await nodes_with_disk(rig) == ["node-1", "instance of node-1"]
        detaching = asyncio.create_task(other.volumes.ensure_detached(ONE, "node-1"))
        await pause(rig, 0.3)
        other.line.is_late = False
        await detaching

        assert await nodes_with_disk(rig) == []

    live(story)


def test_an_attachment_is_not_judged_by_a_watch_that_has_not_told_of_a_removal():
    async def story(rig: VolumesRig, other: Controller) -> None:
        await other.volumes.ensure_attached(ONE, "node-1", False)
        await pause(rig, 3)
        other.line.is_late = True
        raw = await rig.line.get(vm_ref("node-1"))
        await rig.line.json_patch(vm_ref("node-1"), plan_patch(raw, [DiskChange(ONE, "detach")]))
        await pause(rig, 15)
        assert await nodes_with_disk(rig) == []
        attaching = asyncio.create_task(other.volumes.ensure_attached(ONE, "node-1", False))
        await pause(rig, 0.3)
        other.line.is_late = False
        await attaching

        (instance,) = [
            one for one in await rig.line.list(VMI, "default") if one["metadata"]["name"] == "node-1"
        ]
        phases = {one["name"]: one.get("phase") for one in instance["status"]["volumeStatus"]}
        assert phases[ONE] == "Ready"

    live(story)


def test_of_two_controllers_at_most_one_attaches_a_volume():
    async def story(rig: VolumesRig, other: Controller) -> None:
        one = IdempotentVolumes(rig.volumes)
        found = await asyncio.gather(
            one.ensure_attached(ONE, "node-1", False),
            other.volumes.ensure_attached(ONE, "node-2", False),
            return_exceptions=True,
        )
        await pause(rig, 20)

        refused = [isinstance(result, VolumeInUse | FailedPrecondition) for result in found]
        assert any(refused), found
        having = await nodes_with_disk(rig)
        assert len(having) == 2 * (len(found) - sum(refused)), having

    live(story)


def test_an_attachment_without_an_answer_keeps_a_detachment_waiting():
    async def story(rig: VolumesRig, other: Controller) -> None:
        other.line.unanswered = 1
        with pytest.raises(Unavailable):
            await other.volumes.ensure_attached(ONE, "node-1", False)
        with pytest.raises(
            Unfinished, match=f"to attach volume {ONE} to VirtualMachine default/node-1 had no answer"
        ):
            await other.volumes.ensure_detached(ONE, "node-1")
        await other.volumes.ensure_detached(ONE, "node-2")
        await other.line.send_lost()
        await pause(rig, 5)
        await other.volumes.ensure_detached(ONE, "node-1")
        await other.volumes.ensure_detached(ONE, "node-1")

        assert await nodes_with_disk(rig) == []

    live(story)


def test_an_attachment_that_was_never_carried_out_ends_the_wait_of_its_detachment():
    async def story(rig: VolumesRig, other: Controller) -> None:
        other.line.unanswered = 1
        with pytest.raises(Unavailable):
            await other.volumes.ensure_attached(ONE, "node-1", False)
        await pause(rig, LATEST.total_seconds() - 1)
        with pytest.raises(Unfinished):
            await other.volumes.ensure_detached(ONE, "node-1")
        await pause(rig, 1)
        await other.volumes.ensure_detached(ONE, "node-1")

    live(story)


def test_of_two_attachments_the_one_without_an_answer_may_come_after_the_detachment():
    async def story(rig: VolumesRig, other: Controller) -> None:
        other.line.unanswered = 1
        with pytest.raises(Unavailable):
            await other.volumes.ensure_attached(ONE, "node-1", False)
        await other.volumes.ensure_attached(ONE, "node-1", False)
        with pytest.raises(Unfinished):
            await other.volumes.ensure_detached(ONE, "node-1")
        await other.line.send_lost()
        await pause(rig, LATEST.total_seconds())
        await other.volumes.ensure_detached(ONE, "node-1")

        assert await nodes_with_disk(rig) == []

    live(story)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_volume_that_was_made_is_in_the_next_list_although_the_watch_is_behind(is_there: bool):
    async def story(rig: VolumesRig, other: Controller) -> None:
        two = VolumeRequest("pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0002", SizeRange(GIB))

        async def list_after_creation() -> list[str]:
            await other.volumes.create(two)
            return [one.id for one in await other.volumes.list_volumes()]

        other.line.is_late = True
        if is_there:
            await rig.volumes.create(two)
        listing = asyncio.create_task(list_after_creation())
        await pause(rig, 5)
        assert not listing.done()
        other.line.is_late = False

        assert await listing == [ONE, two.name]

    live(story)


# --- patches that are carried out late --------------------------------------------------------------------------------


async def give_up_attachment(rig: VolumesRig, other: Controller, node: str) -> asyncio.Task[None]:
    """The patch takes 3 s; its caller gives up after one. What is returned ends with the call."""
    other.line.patch_s = 3
    attaching = asyncio.create_task(other.volumes.ensure_attached(ONE, node, False))
    await pause(rig, 1)
    ending = asyncio.create_task(give_up(attaching))
    await pause(rig, 0.1)
    assert await nodes_with_disk(rig) == []
    return ending


def test_while_a_patch_is_under_way_whose_caller_gave_up_nothing_else_is_done_with_its_volume():
    async def story(rig: VolumesRig, other: Controller) -> None:
        ending = await give_up_attachment(rig, other, "node-1")
        for call in (
            other.volumes.ensure_detached(ONE, "node-1"),
            other.volumes.ensure_attached(ONE, "node-2", False),
            other.volumes.delete(ONE),
        ):
            with pytest.raises(Unfinished, match="another call works on volume"):
                await call
        await ending
        assert "node-1" in await nodes_with_disk(rig)
        await other.volumes.ensure_detached(ONE, "node-1")
        await other.volumes.ensure_attached(ONE, "node-2", False)
        await pause(rig, 10)

        assert await nodes_with_disk(rig) == ["node-2", "instance of node-2"]

    live(story, as_process=True)


def test_no_vm_gets_a_volume_that_was_deleted_after_its_attachment_was_given_up():
    async def story(rig: VolumesRig, other: Controller) -> None:
        ending = await give_up_attachment(rig, other, "node-1")
        await ending
        with pytest.raises(VolumeInUse):
            await other.volumes.delete(ONE)
        await other.volumes.ensure_detached(ONE, "node-1")
        await other.volumes.delete(ONE)
        await pause(rig, 10)

        assert await nodes_with_disk(rig) == []

    live(story, as_process=True)


# --- what is known of instances and of other VMs ----------------------------------------------------------------------


def test_a_detachment_waits_for_the_instance_although_its_watch_is_behind():
    async def story(rig: VolumesRig, other: Controller) -> None:
        other.line.late_kind = "virtualmachineinstances"
        attaching = asyncio.create_task(other.volumes.ensure_attached(ONE, "node-1", False))
        await pause(rig, 8)
        await give_up(attaching)
        assert await nodes_with_disk(rig) == ["node-1", "instance of node-1"]
        detaching = asyncio.create_task(other.volumes.ensure_detached(ONE, "node-1"))
        await pause(rig, 0.5)
        assert await nodes_with_disk(rig) == ["instance of node-1"]
        assert not detaching.done()
        other.line.late_kind = ""
        await detaching

        assert await nodes_with_disk(rig) == []

    live(story)


def test_a_volume_that_another_instance_has_yet_is_not_attached():
    async def story(rig: VolumesRig, other: Controller) -> None:
        other.line.late_kind = "virtualmachineinstances"
        await rig.volumes.ensure_attached(ONE, "node-2", False)
        detaching = asyncio.create_task(rig.volumes.ensure_detached(ONE, "node-2"))
        await pause(rig, 2)
        assert await nodes_with_disk(rig) == ["instance of node-2"]
        attaching = asyncio.create_task(other.volumes.ensure_attached(ONE, "node-1", False))
        await pause(rig, 10)
        other.line.late_kind = ""
        with pytest.raises(VolumeInUse, match="is attached to node-2, so it cannot be attached to node-1"):
            await attaching
        await detaching
        await other.volumes.ensure_attached(ONE, "node-1", False)

        assert await nodes_with_disk(rig) == ["node-1", "instance of node-1"]

    live(story, delays=Delays(hotplug_unplug=60))


@pytest.mark.parametrize(("was_attached", "kept"), [(True, ["node-1", "instance of node-1"]), (False, [])])
def test_of_an_attachment_that_must_not_be_only_what_it_sent_is_taken_back(
    was_attached: bool, kept: list[str]
):
    async def story(rig: VolumesRig, other: Controller) -> None:
        if was_attached:
            await other.volumes.ensure_attached(ONE, "node-1", False)
            await pause(rig, 5)
        shown = False

        async def show_another(request: Request) -> None:
            """Once the queue asks for node-1, the instance of node-2 has the volume, too."""
            nonlocal shown
            if not request.path.endswith("virtualmachines/node-1") or shown:
                return
            shown = True
            ref = VMI.ref("node-2", "default")
            statuses = (await rig.line.get(ref))["status"]["volumeStatus"]
            plugged = {"name": ONE, "phase": "Ready", "hotplugVolume": {}}
            await rig.line.patch(ref, {"status": {"volumeStatus": [*statuses, plugged]}})
            await pause(rig, 0.5)

        other.line.before = show_another
        with pytest.raises(VolumeInUse, match="is attached to node-2"):
            await other.volumes.ensure_attached(ONE, "node-1", False)
        other.line.before = None
        await pause(rig, 20)

        found = await nodes_with_disk(rig)
        assert [one for one in found if not one.endswith("node-2")] == kept

    live(story)


def test_a_removal_without_an_answer_takes_nothing_that_came_back_meanwhile():
    async def story(rig: VolumesRig, other: Controller) -> None:
        await rig.volumes.ensure_attached(ONE, "node-1", False)
        other.line.unanswered = 1
        with pytest.raises(Unavailable):
            await other.volumes.ensure_detached(ONE, "node-1")
        await rig.volumes.ensure_detached(ONE, "node-1")
        await rig.volumes.ensure_attached(ONE, "node-1", False)
        await other.line.send_lost()
        await pause(rig, 10)

        assert await nodes_with_disk(rig) == ["node-1", "instance of node-1"]

    live(story)


def test_a_deletion_is_not_judged_by_a_watch_that_has_not_told_of_the_attachment():
    async def story(rig: VolumesRig, other: Controller) -> None:
        other.line.is_late = True
        await rig.volumes.ensure_attached(ONE, "node-1", False)
        with pytest.raises(VolumeInUse) as error:
            await other.volumes.delete(ONE)
        other.line.is_late = False

        assert error.value.nodes == ("node-1",)

    live(story)


def test_deletions_that_come_together_share_a_list_that_is_not_older_than_they_are():
    async def story(rig: VolumesRig, other: Controller) -> None:
        def lists() -> int:
            return sum(one.method == "GET" and one.path.endswith("virtualmachines") for one in other.requests)

        await pause(rig, 5)
        before = lists()
        found = await asyncio.gather(*(other.host._attached.nodes_with(ONE) for _ in range(20)))
        assert found == [[]] * 20
        assert lists() - before == 2  # the first had begun before the others came
        await rig.volumes.ensure_attached(ONE, "node-1", False)
        assert await other.host._attached.nodes_with(ONE) == ["node-1"]

        reading = asyncio.create_task(other.host._attached.nodes_with("another"))
        await pause(rig, 0.01)
        await rig.volumes.ensure_detached(ONE, "node-1")
        assert await other.host._attached.nodes_with(ONE) == []
        await reading

    live(story)


# --- what a process before has sent -----------------------------------------------------------------------------------


def test_an_attachment_without_an_answer_keeps_the_detachment_of_the_next_process_waiting():
    async def story(rig: VolumesRig, other: Controller) -> None:
        other.line.unanswered = 1
        with pytest.raises(Unavailable):
            await other.volumes.ensure_attached(ONE, "node-1", False)
        for _ in range(2):
            with pytest.raises(
                Unfinished, match=f"to attach volume {ONE} to VirtualMachine default/node-1 had no answer"
            ):
                await rig.volumes.ensure_detached(ONE, "node-1")
        await rig.volumes.ensure_detached(ONE, "node-2")
        await other.line.send_lost()
        await pause(rig, 5)
        for _ in range(2):
            await rig.volumes.ensure_detached(ONE, "node-1")

        assert await nodes_with_disk(rig) == []

    live(story)


def test_what_a_process_before_has_sent_is_waited_for_as_long_as_it_may_be_carried_out():
    async def story(rig: VolumesRig, other: Controller) -> None:
        other.line.unanswered = 1
        with pytest.raises(Unavailable):
            await other.volumes.ensure_attached(ONE, "node-1", False)
        await pause(rig, LATEST.total_seconds() - 2)
        with pytest.raises(Unfinished):
            await rig.volumes.ensure_detached(ONE, "node-1")
        await pause(rig, 2)
        await rig.volumes.ensure_detached(ONE, "node-1")

    live(story)


def test_an_attachment_after_one_of_a_process_before_does_not_end_the_wait_for_that():
    async def story(rig: VolumesRig, other: Controller) -> None:
        other.line.unanswered = 1
        with pytest.raises(Unavailable):
            await other.volumes.ensure_attached(ONE, "node-1", False)
        await rig.volumes.ensure_attached(ONE, "node-1", False)
        with pytest.raises(Unfinished):
            await rig.volumes.ensure_detached(ONE, "node-1")
        await other.line.send_lost()
        await pause(rig, LATEST.total_seconds())
        await rig.volumes.ensure_detached(ONE, "node-1")

        assert await nodes_with_disk(rig) == []

    live(story)


def test_a_record_that_the_watch_has_not_told_of_is_neither_taken_away_nor_overlooked():
    async def story(rig: VolumesRig, other: Controller) -> None:
        await rig.volumes.ensure_attached(ONE, "node-1", False)
        await rig.volumes.ensure_detached(ONE, "node-1")
        await pause(rig, LATEST.total_seconds() + 60)  # from here on that record counts no more
        other.line.late_kind = "persistentvolumeclaims"
        await rig.volumes.ensure_attached(ONE, "node-1", False)
        await rig.volumes.ensure_detached(ONE, "node-1")
        before = (await rig.line.get(PVC.ref(ONE, "default")))["metadata"]["annotations"]
        await other.volumes.ensure_attached(ONE, "node-2", False)
        after = (await rig.line.get(PVC.ref(ONE, "default")))["metadata"]["annotations"]

        assert after["attach.csi.windrow.io/node-1"] == before["attach.csi.windrow.io/node-1"]
        assert "attach.csi.windrow.io/node-2" in after

    live(story)


def test_a_volume_whose_claim_is_changed_again_and_again_is_attached_by_a_later_call():
    async def story(rig: VolumesRig, other: Controller) -> None:
        claims = frozenset({"persistentvolumeclaims"})
        rig.harvester.faults.add(Fault(CONFLICT, frozenset({"patch"}), claims, times=6))
        with pytest.raises(Unfinished, match="was changed by others 6 times meanwhile"):
            await other.volumes.ensure_attached(ONE, "node-1", False)
        assert await nodes_with_disk(rig) == []
        rig.harvester.faults.add(Fault(CONFLICT, frozenset({"patch"}), claims, times=5))
        await other.volumes.ensure_attached(ONE, "node-1", False)

        assert await nodes_with_disk(rig) == ["node-1", "instance of node-1"]

    live(story)


def test_after_an_answer_a_detachment_is_repeated_without_a_wait():
    async def story(rig: VolumesRig, other: Controller) -> None:
        await other.volumes.ensure_attached(ONE, "node-1", False)
        await rig.volumes.ensure_detached(ONE, "node-1")
        await rig.volumes.ensure_detached(ONE, "node-1")
        await other.volumes.ensure_detached(ONE, "node-1")

    live(story)
