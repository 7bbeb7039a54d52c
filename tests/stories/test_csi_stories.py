"""Stories of volumes as side-cars order them from the service Controller, on the emulated Harvester; each is a golden file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from google.protobuf.message import Message
from tests.support.clock import run_driven

from windrow.core.clock import sleep
from windrow.emulator import kinds
from windrow.kubernetes.objects import new_object
from windrow.protocols.csi import csi_pb2 as csi

from .cluster_rig import compare
from .csi_rig import (
    METHODS,
    CsiRig,
    a_csi_rig,
    create,
    create_snapshot,
    delete,
    delete_snapshot,
    describe,
    expand,
    publish,
    unpublish,
)
from .harvester_rig import NAMESPACE, boot, eventually, is_gone, order, vm_ref, vmi_ref

DATA = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001"
COPY = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0002"


class Narrator:
    """Writes down each call with its answers, and what they change on Harvester."""

    def __init__(self, rig: CsiRig) -> None:
        self.rig, self.lines = rig, list[str]()
        self._last: dict[str, str] = {}
        self._began = rig.now_s

    def log(self, what: str) -> None:
        self.lines.append(f"{self.rig.now_s - self._began:6.1f}s  {what}")

    async def calls(self, what: str, *requests: Message, once: bool = False) -> None:
        """The calls, all at once and each repeated until it is done, or `once`."""
        self.lines.append(f"== {what}")
        first = len(self.lines)
        await asyncio.gather(*(self._call(one, once) for one in requests))
        self.lines[first:] = sorted(self.lines[first:])  # those of one instant have no order
        await self.look()

    async def _call(self, request: Message, once: bool) -> None:
        pause, last = 1.0, ""
        while True:
            answer = await self.rig.call(METHODS[type(request)], request)
            said = f"{describe(request)}: {answer.code}{_details(answer.response)}{' ' * bool(answer.text)}{answer.text}"
            if said != last:
                self.log(said)
            last = said
            if answer.is_ok or once:
                return
            await sleep(self.rig.clock, timedelta(seconds=pause))
            pause = min(pause * 2, 30)

    async def look(self) -> None:
        """What is different on Harvester from the last look."""
        found = await self.rig.observe()
        for key in sorted({*found, *self._last}):
            if found.get(key) != self._last.get(key):
                self.log(f"    {key}: {found.get(key, 'absent')}")
        self._last = found

    async def rest(self, seconds: float) -> None:
        await sleep(self.rig.clock, timedelta(seconds=seconds))
        await self.look()


def _details(response: Any) -> str:
    """What the answer tells, as `kubectl` would show it."""
    match response:
        case csi.CreateVolumeResponse():
            source = response.volume.content_source.snapshot.snapshot_id
            return f" {response.volume.capacity_bytes} bytes{f' of {source}' if source else ''}"
        case csi.ControllerPublishVolumeResponse():
            return " " + " ".join(f"{key}={text}" for key, text in sorted(response.publish_context.items()))
        case csi.ControllerExpandVolumeResponse():
            then = ", then the node" if response.node_expansion_required else ""
            return f" {response.capacity_bytes} bytes{then}"
        case csi.CreateSnapshotResponse():
            return " ready" if response.snapshot.ready_to_use else " not ready"
        case csi.ListVolumesResponse():
            entries = [
                f"{one.volume.volume_id} on {','.join(one.status.published_node_ids) or 'no node'}"
                for one in response.entries
            ]
            return f" {'; '.join(entries) or 'none'}"
        case _:
            return ""


def told(name: str, story: Callable[[Narrator], Awaitable[None]], **options: Any) -> None:
    async def run_story() -> list[str]:
        async with a_csi_rig(**options) as rig:
            narrator = Narrator(rig)
            await narrator.look()
            await story(narrator)
            return narrator.lines

    compare(name, run_driven(run_story()))


def test_a_volume_lives_from_its_creation_to_its_deletion():
    async def story(told: Narrator) -> None:
        await told.calls("a volume is created", create(DATA))
        await told.calls("again, as after a lost answer", create(DATA))
        await told.calls("it is attached", publish(DATA, "node-1"))
        await told.calls("the attacher looks", csi.ListVolumesRequest())
        await told.calls("it grows", expand(DATA, 2))
        await told.calls("a snapshot is taken", create_snapshot("snapshot-1", DATA))
        await told.calls("a volume is made of it", create(COPY, 2, snapshot="snapshot-1"))
        await told.calls("the first cannot be deleted while it is attached", delete(DATA), once=True)
        await told.calls("it is detached", unpublish(DATA, "node-1"))
        await told.calls("all is deleted", delete(DATA), delete(COPY), delete_snapshot("snapshot-1"))
        await told.rest(30)
        await told.calls("again, as after a lost answer", delete(DATA), delete_snapshot("snapshot-1"))

    told("csi-volume-life", story, nodes=("node-1",))


def test_a_pod_moves_with_its_volume_when_its_node_dies():
    async def story(told: Narrator) -> None:
        await told.calls("a pod runs on node-1", create(DATA))
        await told.calls("with its volume", publish(DATA, "node-1"))
        assert await order(told.rig.harvester, "stop", "node-1") < 300
        await eventually(told.rig.harvester, vmi_ref("node-1"), is_gone)
        await told.calls(
            "node-1 stops; another gets the volume only once it left", publish(DATA, "node-2"), once=True
        )
        await told.calls("the dead node has the taint out-of-service", unpublish(DATA, "node-1"))
        await told.calls("the pod starts on node-2", publish(DATA, "node-2"))
        await told.calls("the attacher looks", csi.ListVolumesRequest())
        await order(told.rig.harvester, "start", "node-1")
        await told.rest(120)
        await told.calls("node-1 comes back without it", csi.ListVolumesRequest())

    told("csi-pod-moves", story, nodes=("node-1", "node-2"))


def test_calls_outlast_a_harvester_that_is_down_for_a_minute():
    async def story(told: Narrator) -> None:
        await told.calls("a volume", create(DATA))
        down = asyncio.create_task(told.rig.lose_host(60))
        await asyncio.sleep(0)
        await told.calls("Harvester is down; each call is repeated", publish(DATA, "node-1"), create(COPY))
        await down
        await told.calls("the attacher looks", csi.ListVolumesRequest())

    told("csi-harvester-down", story, nodes=("node-1",))


def test_a_vm_that_is_deleted_by_hand_ends_its_attachment():
    async def story(told: Narrator) -> None:
        rig = told.rig
        await told.calls("a volume", create(DATA))
        attaching = asyncio.create_task(
            told.calls("node-1 is deleted while it is attached", publish(DATA, "node-1"), once=True)
        )
        await sleep(rig.clock, timedelta(seconds=1))
        await rig.client.delete(vm_ref("node-1"))
        await attaching
        await eventually(rig.harvester, vmi_ref("node-1"), is_gone)
        await told.calls("the attacher tries once more", publish(DATA, "node-1"), once=True)
        await told.calls("its VolumeAttachment is deleted", unpublish(DATA, "node-1"))
        await boot(rig.harvester, name="node-2")
        await told.calls("the pod moves", publish(DATA, "node-2"))
        await told.calls("the volume has outlived node-1", unpublish(DATA, "node-2"))

    told("csi-vm-deleted", story, nodes=("node-1",))


def test_what_harvester_refuses_is_answered_with_its_words():
    async def story(told: Narrator) -> None:
        rig = told.rig
        await told.calls("a class that Harvester lacks", create(DATA, host_class="fast"), once=True)
        quota = new_object(kinds.QUOTA, "storage", NAMESPACE, spec={"hard": {"requests.storage": "41Gi"}})
        await rig.client.create(kinds.QUOTA, quota)
        await told.calls("more than the quota", create(DATA, 500), once=True)
        await told.calls("what the quota allows", create(DATA), once=True)
        await told.calls("growth beyond the quota", expand(DATA, 500), once=True)
        await told.calls("a node that has no VM", publish(DATA, "node-9"), once=True)

    told("csi-refusals", story, nodes=("node-1",))


def test_ten_volumes_are_attached_at_once():
    names = [f"data-{place:02}" for place in range(10)]

    async def story(told: Narrator) -> None:
        await told.calls("ten volumes", *(create(one) for one in names))
        told.rig.requests.clear()
        await told.calls("all are attached", *(publish(one, "node-1") for one in names))
        patches = [
            one for one in told.rig.requests if one.method == "PATCH" and "/virtualmachines/" in one.path
        ]
        told.log(f"patches of VM node-1: {len(patches)}")
        told.rig.requests.clear()
        await told.calls("all are detached", *(unpublish(one, "node-1") for one in names))
        patches = [
            one for one in told.rig.requests if one.method == "PATCH" and "/virtualmachines/" in one.path
        ]
        told.log(f"patches of VM node-1: {len(patches)}")

    told("csi-ten-at-once", story, nodes=("node-1",))


def test_three_volumes_of_a_node_that_died_are_attached_elsewhere_within_two_minutes():
    names = [f"pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f000{place}" for place in range(3)]

    async def story(told: Narrator) -> None:
        rig = told.rig
        await told.calls("three volumes", *(create(one) for one in names))
        await told.calls("all are attached to node-1", *(publish(one, "node-1") for one in names))
        began = rig.now_s
        await rig.client.delete(vm_ref("node-1"))
        await told.calls(
            "VM node-1 is deleted; the pods may not start elsewhere yet",
            *(publish(one, "node-2") for one in names),
            once=True,
        )
        await eventually(rig.harvester, vmi_ref("node-1"), is_gone)
        await told.calls(
            "Node node-1 is out of service: its VolumeAttachments are deleted",
            *(unpublish(one, "node-1") for one in names),
        )
        await told.calls("the pods start on node-2", *(publish(one, "node-2") for one in names))
        assert rig.now_s - began < 120
        assert set(names) <= set(await rig.claims())
        await told.calls("the attacher looks", csi.ListVolumesRequest())

    told("csi-node-dies", story, nodes=("node-1", "node-2"))


def test_a_snapshot_outlives_its_volume_and_its_node_and_is_restored():
    async def story(told: Narrator) -> None:
        rig = told.rig
        await told.calls("a volume", create(DATA))
        await told.calls("it is attached", publish(DATA, "node-1"))
        await told.calls("a snapshot is taken while it is used", create_snapshot("snapshot-1", DATA))
        await told.calls("again, as after a lost answer", create_snapshot("snapshot-1", DATA))
        await rig.client.delete(vm_ref("node-1"))
        await eventually(rig.harvester, vmi_ref("node-1"), is_gone)
        await told.calls("node-1 is lost; its attachment ends", unpublish(DATA, "node-1"))
        await told.calls("the volume is deleted", delete(DATA))
        await told.rest(30)
        await told.calls("it is restored of the snapshot", create(COPY, 1, snapshot="snapshot-1"))
        await told.calls("and attached to node-2", publish(COPY, "node-2"))
        await told.calls("the snapshot is deleted; the restored volume stays", delete_snapshot("snapshot-1"))
        await told.rest(30)
        await told.calls("the attacher looks", csi.ListVolumesRequest())

    told("csi-snapshot-restored", story, nodes=("node-1", "node-2"))
