"""Which VM a node of the guest cluster runs in: what its Node says, and what the side-cars are told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.volumes_rig import VolumesRig, volumes_rig
from tests.stories.harvester_rig import eventually, is_gone, vm_ref, vmi_ref
from tests.support.clock import run_driven
from tests.unit.csi.rig import create_volume, publish_volume

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.core.clock import sleep
from windrow.core.rng import Rng
from windrow.csi.controller import ControllerService
from windrow.csi.harvester.disks import InstanceDisks, VmDisks
from windrow.csi.harvester.nodes import GuestNode, GuestNodes, match_vms, read_node
from windrow.csi.harvester.state import HarvesterState
from windrow.csi.idempotency import IdempotentVolumes
from windrow.csi.volumes import NodeNotFound
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import NODE
from windrow.protocols.csi import csi_pb2 as csi

LOG = logging.getLogger("csi-test")


def vm(name: str) -> VmDisks:
    return VmDisks(name, f"uid-{name}", False, (), 1)


def instance(name: str, system_uuid: str) -> InstanceDisks:
    return InstanceDisks(name, False, "Running", frozenset(), (), system_uuid=system_uuid)


VMS = [vm("a"), vm("b"), vm("c"), VmDisks("d", "UID-D", False, (), 1)]
INSTANCES = [instance("a", "hw-a"), instance("b", "hw-b"), instance("c", "")]


@pytest.mark.parametrize(
    ("node", "found"),
    [
        (GuestNode("a"), "a"),
        (GuestNode("a", system_uuid="hw-a"), "a"),
        (GuestNode("worker", system_uuid="hw-a"), "a"),
        (GuestNode("b", system_uuid="hw-a"), "a"),
        (GuestNode("b", vm_uid="uid-a"), "a"),
        (GuestNode("b", vm_uid="uid-a", system_uuid="hw-c"), "a"),
        (GuestNode("b", vm_uid="uid-of-none", system_uuid="hw-a"), "a"),
        (GuestNode("b", vm_uid="uid-of-none", system_uuid="hw-of-none"), "b"),
        (GuestNode("worker", vm_uid="uid-d"), "d"),
        (GuestNode("worker"), None),
        (GuestNode("worker", system_uuid="hw-of-none"), None),
    ],
)
def test_the_provider_id_decides_then_the_hardware_then_the_name(node: GuestNode, found: str | None):
    assert match_vms([node], VMS, INSTANCES).get(node.name) == found


def test_hardware_that_two_vms_have_proves_nothing():
    same = [instance("a", "hw"), instance("b", "hw")]

    assert match_vms([GuestNode("b", system_uuid="hw")], VMS, same) == {"b": "b"}
    assert match_vms([GuestNode("worker", system_uuid="hw")], VMS, same) == {}


def test_a_node_says_what_it_is_in_lower_case():
    raw = {
        "metadata": {"name": "w"},
        "spec": {"providerID": "harvester://ABC"},
        "status": {"nodeInfo": {"systemUUID": "DEF"}},
    }

    assert read_node(raw) == GuestNode("w", "abc", "def")
    assert read_node({"metadata": {"name": "w"}, "spec": {"providerID": "aws://x"}}) == GuestNode("w")


class Guest:
    """A guest cluster's API, and the controller that asks it."""

    def __init__(self, rig: VolumesRig, *, forbidden: bool = False) -> None:
        clock = rig.harvester.clock.base
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
