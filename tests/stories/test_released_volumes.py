"""A machine of a cluster is lost while volumes are attached to its Node: they are released, and the Node stays until they are.

The attach-detach controller is played here: it detaches a volume from a Node that is out of service once no pod there uses it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.stories.cluster_rig import SERVERS, Transcript, a_pool, machines_of, scale, until
from tests.stories.test_cluster_life import Story, a_story, check_story, lose
from tests.stories.test_reclaimed_volumes import make_claim, make_volume, plug
from tests.support.clock import run_driven

from windrow.client.client import Client
from windrow.clusters.api.names import REMEDIATION
from windrow.harvester.resources import VM, VM_ACTIONS
from windrow.kubernetes.objects import Raw, name_of, nested, new_object
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import DAEMON_SET, NODE, POD, PVC, VOLUME_ATTACHMENT
from windrow.kubernetes.taints import OUT_OF_SERVICE

VOLUMES = ("pvc-1", "pvc-2", "pvc-3")


@dataclass
class AttachDetach:
    """The volumes of one Node, each used by the one pod on it."""

    guest: Client
    node: str
    detached_at: Any = None
    log: list[str] = field(default_factory=list)

    async def begin(self, daemon: bool = False) -> None:
        """With `daemon` the pod is one of a DaemonSet, and uses the first volume by a claim."""
        for volume in VOLUMES:
            spec = {
                "attacher": "driver.harvesterhci.io",
                "nodeName": self.node,
                "source": {"persistentVolumeName": volume},
            }
            await self.guest.create(
                VOLUME_ATTACHMENT, new_object(VOLUME_ATTACHMENT, f"csi-{volume}", spec=spec)
            )
        spec: Raw = {"containers": [{"name": "c", "image": "database"}]}
        if daemon:
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
            await make_volume(self.guest, VOLUMES[0])
            await self.guest.create(PVC, a_claim("data", VOLUMES[0]))
            await self.guest.create(DAEMON_SET, a_daemon_set(self.node, spec))
        else:
            spec["nodeName"] = self.node
            await self.guest.create(POD, new_object(POD, "database-0", "default", spec=spec))

    async def step(self, now: Any) -> bool:
        """Whether everything is detached."""
        if self.detached_at is None and await self.guest.find(POD.ref("database-0", "default")) is None:
            for volume in VOLUMES:
                await self.guest.delete(VOLUME_ATTACHMENT.ref(f"csi-{volume}"))
            self.detached_at = now
        return self.detached_at is not None


def a_daemon_set(node: str, spec: Raw) -> Raw:
    """One with a pod on this Node alone."""
    labels = {"app": "database"}
    template = {
        "metadata": {"labels": labels},
        "spec": {**spec, "nodeSelector": {"kubernetes.io/hostname": node}},
    }
    return new_object(
        DAEMON_SET,
        "database",
        "default",
        spec={"selector": {"matchLabels": labels}, "template": template},
    )


def a_claim(name: str, volume: str) -> Raw:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": volume,
    }
    return new_object(PVC, name, "default", spec=spec)


async def taints_of(guest: Client, node: str) -> list[Raw]:
    raw = await guest.find(NODE.ref(node))
    return [] if raw is None else nested(raw, "spec", "taints", default=[])


def has_taint(taints: list[Raw]) -> bool:
    return any(one["key"] == OUT_OF_SERVICE for one in taints)


async def daemons(guest: Client) -> list[str]:
    """The Nodes of the DaemonSet's pods."""
    return [nested(raw, "spec", "nodeName") for raw in await guest.list(POD, "default", "app=database")]


async def begin(it: Story, daemon: bool = False) -> tuple[Raw, AttachDetach]:
    await it.stage.wait_for_settled()
    worker = (await machines_of(it.sim, it.ref, "workers"))[0]
    attached = AttachDetach(await it.stage.guest_client(), name_of(worker))
    await attached.begin(daemon)
    await it.sim.advance(seconds=30)
    it.transcript.lines.clear()
    return worker, attached


def test_a_worker_that_is_lost_with_three_volumes_releases_them_within_two_minutes() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            worker, attached = await begin(it)
            lost_at = it.sim.clock.now()
            await lose(it, worker)
            while not await attached.step(it.sim.clock.now()):
                await it.sim.advance(seconds=1)
            assert (attached.detached_at - lost_at).total_seconds() < 110
            assert await attached.guest.find(NODE.ref(attached.node)) is not None
            it.transcript.say("the pod is gone, and the volumes are detached")
            await it.stage.wait_for_settled(without=name_of(worker))
            assert await attached.guest.find(NODE.ref(attached.node)) is None
            return it.transcript

    check_story("lost-worker-with-volumes", story)


def test_volumes_that_are_never_detached_hold_the_node_for_six_minutes_and_the_replacement_not_at_all() -> (
    None
):
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            worker, attached = await begin(it)
            lost_at = it.sim.clock.now()
            await lose(it, worker)
            while await attached.guest.find(NODE.ref(attached.node)) is not None:
                await it.sim.advance(seconds=5)
            assert 360 <= (it.sim.clock.now() - lost_at).total_seconds() < 380
            ready = [raw for raw in await it.stage.list_nodes() if name_of(raw) != attached.node]
            assert len(ready) == 3

    run_driven(story())


def test_a_stopped_worker_is_tainted_once_it_is_not_ready_and_is_released_from_it_when_it_is_back() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            change = {"metadata": {"annotations": {REMEDIATION: "off"}}}
            await it.sim.management_client.patch(it.ref, change)
            worker, attached = await begin(it)
            await it.sim.harvester_client.call(
                put_subresource(VM_ACTIONS.ref(name_of(worker), "default"), "stop")
            )
            it.transcript.say("the VM of the worker is stopped")
            await it.sim.advance(seconds=30)
            assert not has_taint(await taints_of(attached.guest, attached.node))
            while not await attached.step(it.sim.clock.now()):
                await it.sim.advance(seconds=1)
            node = await attached.guest.get(NODE.ref(attached.node))
            taint = next(one for one in node["spec"]["taints"] if one["key"] == OUT_OF_SERVICE)
            assert (taint["value"], taint["effect"]) == ("nodeshutdown-by-windrow", "NoExecute")
            it.transcript.say("the VM of the worker is started")
            await it.sim.harvester_client.call(
                put_subresource(VM_ACTIONS.ref(name_of(worker), "default"), "start")
            )
            while has_taint(await taints_of(attached.guest, attached.node)):
                await it.sim.advance(seconds=1)
            await it.stage.wait_for_settled()
            return it.transcript

    check_story("stopped-worker-with-volumes", story)


def test_a_drained_worker_keeps_its_vm_until_its_volumes_are_detached() -> None:
    """harvester#9500: a disk that is still in a VM's spec cannot be plugged into another."""

    async def story() -> Transcript:
        pool = a_pool("workers", 2, drainBeforeDelete=True)
        async with a_story(a_pool("servers", 1, SERVERS), pool) as it:
            _, attached = await begin(it)
            oldest = attached.node
            it.transcript.say("workers 2 -> 1")
            await scale(it.sim, it.ref, 1, 1)
            await until(it.stage, "PersistentVolume pvc-1 and 2 more to be detached from Node")
            await it.sim.advance(seconds=20)
            assert await attached.guest.find(NODE.ref(oldest)) is not None
            assert await attached.step(it.sim.clock.now())
            it.transcript.say("the volumes are detached")
            await it.stage.wait_for_settled(without=oldest)
            return it.transcript

    check_story("drained-worker-with-volumes", story)


def test_volumes_of_a_daemon_set_s_pod_do_not_hold_the_removal_of_its_machine_and_are_detached_when_it_is_off() -> (
    None
):
    """As of `kubectl drain --ignore-daemonsets`: the pod stays, and uses its volume until the machine is gone."""

    async def story() -> Transcript:
        pool = a_pool("workers", 2, drainBeforeDelete=True)
        async with a_story(a_pool("servers", 1, SERVERS), pool) as it:
            worker, attached = await begin(it, daemon=True)
            for volume in VOLUMES[1:]:
                await attached.guest.delete(VOLUME_ATTACHMENT.ref(f"csi-{volume}"))
            await make_claim(it.sim.harvester_client, VOLUMES[0])
            await plug(it.sim.harvester_client, name_of(worker), VOLUMES[0])
            began = it.sim.clock.now()
            it.transcript.say("workers 2 -> 1")
            await scale(it.sim, it.ref, 1, 1)
            while not has_taint(await taints_of(attached.guest, attached.node)):
                assert await daemons(attached.guest) == [attached.node]
                await it.sim.advance(seconds=1)
            assert (it.sim.clock.now() - began).total_seconds() < 60
            assert await it.sim.harvester_client.find(VM.ref(name_of(worker), "default")) is None
            while await daemons(attached.guest):
                await it.sim.advance(seconds=1)
            while await attached.guest.list(VOLUME_ATTACHMENT):
                await it.sim.advance(seconds=1)
            it.transcript.say("the DaemonSet's pod is gone, and its volume is detached")
            await it.stage.wait_for_settled(without=attached.node)
            assert await it.sim.harvester_client.find(PVC.ref(VOLUMES[0], "default")) is not None
            return it.transcript

    check_story("drained-daemon-set-with-volume", story)
