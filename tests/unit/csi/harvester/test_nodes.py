"""Which VM a node of the guest cluster runs in: what its Node says, and what the side-cars are told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.volumes_rig import VolumesRig, volumes_rig
from tests.stories.harvester_rig import boot, eventually, is_gone, order, vm_ref, vmi_ref
from tests.support.clock import run_driven
from tests.unit.csi.rig import create_volume, publish_volume

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.core.clock import sleep
from windrow.core.rng import Rng
from windrow.csi.controller import ControllerService
from windrow.csi.harvester.disks import InstanceDisks, VmDisks
from windrow.csi.harvester.nodes import GuestNodes, match_vms
from windrow.csi.harvester.state import HarvesterState
from windrow.csi.idempotency import IdempotentVolumes
from windrow.csi.nodes import GuestNode, NodeVm
from windrow.csi.volumes import NodeNotFound
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import NODE
from windrow.protocols.csi import csi_pb2 as csi

LOG = logging.getLogger("csi-test")


def vm(name: str, hardware: str = "", marks: tuple[str, str] = ("", "")) -> VmDisks:
    return VmDisks(name, f"uid-{name}", False, (), 1, system_uuid=hardware, cluster_marks=marks)


def instance(name: str, system_uuid: str) -> InstanceDisks:
    return InstanceDisks(name, False, "Running", frozenset(), (), system_uuid=system_uuid)


VMS = [vm("a"), vm("b"), vm("c"), VmDisks("d", "UID-D", False, (), 1), vm("stopped", "hw-s")]
INSTANCES = [instance("a", "hw-a"), instance("b", "hw-b"), instance("c", ""), instance("vm-is-gone", "hw-g")]


def match(*nodes: GuestNode, vms: Any = VMS, instances: Any = INSTANCES) -> dict[str, str]:
    return {node: found.name for node, found in match_vms(nodes, vms, instances).items()}


@pytest.mark.parametrize(
    ("node", "found"),
    [
        (GuestNode("a"), NodeVm("a", "uid-a", "name")),
        (GuestNode("a", system_uuid="hw-a"), NodeVm("a", "uid-a", "hardware")),
        (GuestNode("worker", system_uuid="hw-a"), NodeVm("a", "uid-a", "hardware")),
        (GuestNode("b", system_uuid="hw-a"), NodeVm("a", "uid-a", "hardware")),
        (GuestNode("b", system_uuid="hw-s"), NodeVm("stopped", "uid-stopped", "hardware")),
        (GuestNode("b", system_uuid="hw-g"), NodeVm("vm-is-gone", "", "hardware")),
        (GuestNode("b", vm_uid="uid-a"), NodeVm("a", "uid-a", "providerID")),
        (GuestNode("b", vm_uid="uid-a", system_uuid="hw-c"), NodeVm("a", "uid-a", "providerID")),
        (GuestNode("b", vm_uid="uid-of-none", system_uuid="hw-a"), None),
        (GuestNode("b", vm_uid="uid-of-none", system_uuid="hw-of-none"), None),
        (GuestNode("b", vm_uid="uid-of-none"), None),
        (GuestNode("b", system_uuid="hw-of-none"), None),
        (GuestNode("c", system_uuid="hw-of-none"), None),
        (GuestNode("worker", vm_uid="uid-d"), NodeVm("d", "uid-d", "providerID")),
        (GuestNode("worker"), None),
        (GuestNode("worker", system_uuid="hw-of-none"), None),
    ],
)
def test_the_provider_id_decides_then_the_hardware_then_the_name(node: GuestNode, found: NodeVm | None):
    assert match_vms([node], VMS, INSTANCES).get(node.name) == found


def test_hardware_that_two_vms_have_proves_nothing():
    same = [instance("a", "hw"), instance("b", "hw")]

    assert match(GuestNode("b", system_uuid="hw"), instances=same) == {"b": "b"}
    assert match(GuestNode("worker", system_uuid="hw"), instances=same) == {}


def test_of_nodes_that_say_to_be_one_vm_only_the_one_of_its_name_is():
    evil, other = GuestNode("evil", system_uuid="hw-a"), GuestNode("other", system_uuid="hw-a")

    assert match(evil, other) == {}
    assert match(evil, GuestNode("a", system_uuid="hw-a")) == {"a": "a"}
    assert match(evil, GuestNode("a")) == {"a": "a"}
    assert match(GuestNode("x", vm_uid="uid-a"), GuestNode("y", vm_uid="uid-a")) == {}


def test_a_vm_whose_uid_is_in_a_provider_id_is_no_other_node_s():
    assert match(GuestNode("w", vm_uid="uid-a"), GuestNode("evil", system_uuid="hw-a")) == {"w": "a"}
    assert match(GuestNode("w", vm_uid="uid-a"), GuestNode("a")) == {"w": "a"}


@pytest.mark.parametrize(
    ("marks", "is_taken"),
    [
        (("u1", "one"), True),
        (("", "one"), True),
        (("", ""), True),
        (("u2", "one"), False),
        (("", "two"), False),
        (("u2", ""), False),
    ],
)
@pytest.mark.parametrize("node", [GuestNode("b"), GuestNode("worker", system_uuid="hw-b")])
def test_a_vm_of_another_cluster_is_taken_by_neither_name_nor_hardware(
    node: GuestNode, marks: tuple[str, str], is_taken: bool
):
    vms = [vm("a", marks=("u1", "one")), vm("b", marks=marks)]
    certain = GuestNode("a", vm_uid="uid-a")

    assert match(certain, node, vms=vms) == {"a": "a"} | ({node.name: "b"} if is_taken else {})


def test_without_a_provider_id_vms_named_like_their_node_tell_whose_marks_are_its_own():
    vms = [vm("a", marks=("u1", "one")), vm("b", marks=("u2", "two"))]

    assert match(GuestNode("a"), GuestNode("evil", system_uuid="hw-b"), vms=vms) == {"a": "a"}
    assert match(GuestNode("evil", system_uuid="hw-b"), vms=vms) == {"evil": "b"}


class Guest:
    """A guest cluster's API, and the controller that asks it."""

    def __init__(self, rig: VolumesRig, *, forbidden: bool = False) -> None:
        self.clock = clock = rig.harvester.clock.base
        self.may_list = not forbidden
        self.api = ApiServer(MemoryStore(), clock, Rng(3), name="guest", authorize=self._authorize)
        self.line = self.api.local("admin")
        self.rig = rig
        self.nodes = GuestNodes(self.api.local("driver", ()), rig.volumes.state, clock, Rng(4), LOG)
        self.controller = ControllerService(IdempotentVolumes(rig.volumes), LOG, self.nodes)

    async def _authorize(self, user: Any, *rest: Any) -> bool:
        return self.may_list or "driver" not in str(user)

    async def join(self, name: str, vm_name: str) -> None:
        """A Node with the hardware of the VM."""
        found = await self.rig.line.get(vmi_ref(vm_name))
        uuid = found["spec"]["domain"]["firmware"]["uuid"]
        await self.line.create(
            NODE, new_object(NODE, name, status={"nodeInfo": {"systemUUID": uuid.upper()}})
        )
        await self.pause(1)

    async def pause(self, seconds: float) -> None:
        await sleep(self.rig.harvester.clock.base, timedelta(seconds=seconds))

    async def publish(self, node: str) -> None:
        await self.controller.ControllerPublishVolume(publish_volume("pvc-1", node))

    async def unpublish(self, node: str) -> None:
        await self.controller.ControllerUnpublishVolume(
            csi.ControllerUnpublishVolumeRequest(volume_id="pvc-1", node_id=node)
        )

    async def published(self) -> list[str]:
        """Where the volume is listed; by its own reading it is the same."""
        listed = (await self.controller.ListVolumes(csi.ListVolumesRequest())).entries[0].status
        request = csi.ControllerGetVolumeRequest(volume_id="pvc-1")
        status = (await self.controller.ControllerGetVolume(request)).status
        assert list(status.published_node_ids) == list(listed.published_node_ids)
        return list(listed.published_node_ids)

    async def vms_with_volume(self) -> list[str]:
        return [
            name
            for name in ("node-1", "node-2")
            for raw in [await self.rig.line.find(vm_ref(name))]
            if raw and any(one["name"] == "pvc-1" for one in raw["spec"]["template"]["spec"]["volumes"])
        ]


def live(story: Callable[[Guest], Awaitable[None]], *, forbidden: bool = False) -> None:
    async def alive() -> None:
        async with volumes_rig() as rig, asyncio.TaskGroup() as tasks:
            guest = Guest(rig, forbidden=forbidden)
            running = tasks.create_task(guest.nodes.run())
            await guest.controller.CreateVolume(create_volume())
            await story(guest)
            running.cancel()

    run_driven(alive())


def test_a_volume_goes_to_the_vm_that_the_node_runs_in_and_is_listed_at_the_node():
    async def story(guest: Guest) -> None:
        await guest.join("worker", "node-2")
        await guest.join("node-2", "node-1")
        await guest.publish("worker")
        assert await guest.vms_with_volume() == ["node-2"]
        assert await guest.published() == ["worker"]
        await guest.unpublish("worker")
        assert await guest.vms_with_volume() == []
        await guest.publish("node-2")

        assert await guest.vms_with_volume() == ["node-1"]
        assert await guest.published() == ["node-2"]

    live(story)


def test_a_node_without_a_node_object_or_a_vm_is_not_found():
    async def story(guest: Guest) -> None:
        with pytest.raises(NodeNotFound):
            await guest.publish("worker")

    live(story)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_volume_leaves_the_vm_of_a_node_that_was_deleted(restarted: bool):
    async def story(guest: Guest) -> None:
        await guest.join("worker", "node-2")
        await guest.join("node-1", "node-1")
        await guest.publish("worker")
        await guest.line.delete(NODE.ref("worker"))
        await guest.pause(1)
        if restarted:
            guest.nodes._known.clear()
        await guest.unpublish("worker")

        assert await guest.vms_with_volume() == []

    live(story)


def test_a_volume_stays_at_another_node_when_it_leaves_one_that_is_not_known():
    async def story(guest: Guest) -> None:
        await guest.join("node-1", "node-1")
        await guest.publish("node-1")
        await guest.unpublish("worker")

        assert await guest.vms_with_volume() == ["node-1"]

    live(story)


def test_where_nodes_may_not_be_listed_each_runs_in_the_vm_of_its_name(caplog: pytest.LogCaptureFixture):
    async def story(guest: Guest) -> None:
        await guest.join("worker", "node-2")
        await guest.publish("node-2")
        await guest.unpublish("worker")
        assert await guest.vms_with_volume() == ["node-2"]
        assert await guest.published() == ["node-2"]
        await guest.unpublish("node-2")
        assert await guest.vms_with_volume() == []

    live(story, forbidden=True)
    found = [one for one in caplog.messages if "each node is taken to run in the VM of its name" in one]
    assert len(found) == 1


def test_a_call_waits_for_the_first_list_of_nodes():
    async def story(guest: Guest) -> None:
        nodes = GuestNodes(
            guest.api.local("driver", ()),
            guest.rig.volumes.state,
            guest.rig.harvester.clock.base,
            Rng(4),
            LOG,
        )
        asking = asyncio.create_task(nodes.get_vm("worker"))
        await guest.pause(60)
        assert not asking.done()
        await guest.join("worker", "node-2")
        running = asyncio.create_task(nodes.run())

        assert await asking == "node-2"
        running.cancel()

    live(story)


def test_a_call_waits_for_the_first_list_of_vms():
    async def story(guest: Guest) -> None:
        clock = guest.rig.harvester.clock.base
        await guest.join("worker", "node-2")
        state = HarvesterState(guest.rig.harvester.api.local(), "default", clock, Rng(8))
        nodes = GuestNodes(guest.api.local("driver", ()), state, clock, Rng(4), LOG)
        running = [asyncio.create_task(nodes.run())]
        asking = asyncio.create_task(nodes.get_vm("worker"))
        await guest.pause(60)
        assert not asking.done()
        running.append(asyncio.create_task(state.run()))

        assert await asking == "node-2"
        for task in running:
            task.cancel()

    live(story)


def test_the_instance_of_a_deleted_vm_is_still_that_of_its_node():
    async def story(guest: Guest) -> None:
        await guest.join("worker", "node-2")
        await guest.publish("worker")
        await guest.rig.line.delete(vm_ref("node-2"))
        await guest.unpublish("worker")
        await eventually(guest.rig.harvester, vmi_ref("node-2"), is_gone)

    live(story)


async def stop(guest: Guest, name: str) -> None:
    await order(guest.rig.harvester, "stop", name)
    await eventually(guest.rig.harvester, vmi_ref(name), is_gone)
    await guest.pause(2)


async def mark(guest: Guest, name: str, annotations: dict[str, str]) -> None:
    await guest.rig.line.patch(vm_ref(name), {"metadata": {"annotations": annotations}})
    await guest.pause(1)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_node_keeps_its_vm_while_that_is_stopped_and_a_vm_of_its_name_is_not_taken(restarted: bool):
    async def story(guest: Guest) -> None:
        await guest.join("node-2", "node-1")
        await guest.publish("node-2")
        await stop(guest, "node-1")
        if restarted:
            guest.nodes._known.clear()
        assert await guest.nodes.get_vm("node-2") == "node-1"
        await guest.unpublish("node-2")

        assert await guest.vms_with_volume() == []

    live(story)


@pytest.mark.parametrize("spec", [{"providerID": "harvester://of-none"}, {}])
def test_no_volume_goes_to_a_vm_of_the_node_s_name_that_is_another(spec: dict[str, str]):
    async def story(guest: Guest) -> None:
        info = {"nodeInfo": {"systemUUID": "of-none"}}
        await guest.line.create(NODE, new_object(NODE, "node-2", spec=spec, status=info))
        await guest.pause(1)
        with pytest.raises(NodeNotFound) as caught:
            await guest.publish("node-2")

        assert "of-none in namespace default that is no other Node's" in str(caught.value)
        assert await guest.vms_with_volume() == []

    live(story)


def test_a_node_that_the_guest_does_not_have_is_not_taken_for_the_vm_of_its_name():
    async def story(guest: Guest) -> None:
        with pytest.raises(NodeNotFound, match="the guest cluster has no Node node-2"):
            await guest.publish("node-2")

    live(story)


def test_what_was_known_of_a_node_ends_with_a_vm_made_again_under_the_name():
    async def story(guest: Guest) -> None:
        await guest.join("worker", "node-2")
        assert await guest.nodes.get_vm("worker") == "node-2"
        await guest.rig.line.delete(vm_ref("node-2"))
        await eventually(guest.rig.harvester, vmi_ref("node-2"), is_gone)
        await guest.pause(1)
        assert await guest.nodes.get_vm("worker") == "node-2"
        await boot(guest.rig.harvester, name="node-2")

        assert await guest.nodes.find_vm("worker") is None

    live(story)


def test_what_was_known_of_a_node_ends_with_another_node_of_that_name():
    async def story(guest: Guest) -> None:
        await guest.join("worker", "node-2")
        assert await guest.nodes.get_vm("worker") == "node-2"
        change = {"status": {"nodeInfo": {"systemUUID": "of-none"}}}
        await guest.line.patch(NODE.ref("worker"), change, "status")
        await guest.pause(1)

        assert await guest.nodes.find_vm("worker") is None

    live(story)


def test_nothing_is_kept_of_nodes_and_vms_that_are_gone():
    async def story(guest: Guest) -> None:
        await guest.join("worker", "node-2")
        await guest.line.delete(NODE.ref("worker"))
        await guest.pause(1)
        assert await guest.nodes.find_vm("worker") is not None
        await guest.rig.line.delete(vm_ref("node-2"))
        await eventually(guest.rig.harvester, vmi_ref("node-2"), is_gone)
        await guest.pause(1)
        await guest.nodes.find_vm("other")

        assert guest.nodes._known == {}

    live(story)


def plug_by_hand(guest: Guest, name: str) -> Awaitable[Any]:
    devices: list[Any] = [
        {"op": "add", "path": f"/spec/template/spec/{path}/-", "value": value}
        for path, value in (
            (
                "volumes",
                {"name": "pvc-1", "persistentVolumeClaim": {"claimName": "pvc-1", "hotpluggable": True}},
            ),
            ("domain/devices/disks", {"name": "pvc-1", "disk": {"bus": "scsi"}}),
        )
    ]
    return guest.rig.line.json_patch(vm_ref(name), devices)


@pytest.mark.parametrize(
    ("marks", "is_freed"),
    [({}, False), ({"windrow.io/cluster-uid": "u2"}, False), ({"windrow.io/cluster-uid": "u1"}, True)],
)
def test_a_disk_plugged_in_by_hand_stays_in_a_vm_that_is_not_of_this_cluster(
    marks: dict[str, str], is_freed: bool, caplog: pytest.LogCaptureFixture
):
    async def story(guest: Guest) -> None:
        await mark(guest, "node-1", {"windrow.io/cluster-uid": "u1"})
        await mark(guest, "node-2", marks)
        await guest.join("node-1", "node-1")
        await plug_by_hand(guest, "node-2")
        await guest.pause(2)
        await guest.unpublish("ghost")

        assert await guest.vms_with_volume() == ([] if is_freed else ["node-2"])

    live(story)
    assert ("volume pvc-1 stays in VirtualMachine node-2" in caplog.text) is not is_freed


def test_the_vm_of_a_node_is_not_freed_for_a_node_of_the_vm_s_name_that_is_gone():
    async def story(guest: Guest) -> None:
        await guest.join("worker", "node-2")
        await guest.publish("worker")
        await guest.unpublish("node-2")

        assert await guest.vms_with_volume() == ["node-2"]

    live(story)


def test_a_vm_whose_hardware_two_nodes_report_is_not_freed_for_a_third():
    async def story(guest: Guest) -> None:
        await guest.join("worker", "node-2")
        await guest.publish("worker")
        await guest.join("evil", "node-2")
        assert await guest.published() == ["worker"]
        guest.nodes._known.clear()
        await guest.unpublish("ghost")
        assert await guest.vms_with_volume() == ["node-2"]
        await guest.unpublish("evil")

        assert await guest.vms_with_volume() == ["node-2"]

    live(story)
