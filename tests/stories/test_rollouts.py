"""Stories of rollouts: machines that cannot be changed in place are replaced, one up and one down."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from tests.stories.cluster_rig import SERVERS, Transcript, a_pool, machines_of
from tests.stories.test_cluster_life import Story, a_story, check_story, voters
from tests.support.clock import run_driven

from windrow.clusters.api.kinds import HARVESTER_CONFIG
from windrow.clusters.api.names import CANARY
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.objects import name_of, nested


async def set_options(story: Story, pool: str, **options: Any) -> None:
    """A user edits the machine config of the pool."""
    told = ", ".join(f"{key}: {value}" for key, value in options.items())
    story.transcript.say(f"a user sets {told} in the HarvesterConfig of pool {pool}")
    cluster = await story.stage.get_cluster()
    pools = nested(cluster, "spec", "rkeConfig", "machinePools")
    name = next(one["machineConfigRef"]["name"] for one in pools if one["name"] == pool)
    await story.sim.management_client.patch(HARVESTER_CONFIG.ref(name, story.ref.namespace), options)


async def until_rolled(story: Story, pool: str, key: str, value: str, at_least: int = 0) -> None:
    """Return once all machines of the pool were made with that value; never with fewer Ready Nodes than `at_least`."""
    end = story.sim.clock.now() + timedelta(hours=3)
    while True:
        machines = await machines_of(story.sim, story.ref, pool)
        if all(raw["spec"]["options"].get(key) == value for raw in machines):
            break
        with suppress(Unreachable):  # the server that its kubeconfig names has just gone
            names = {name_of(raw) for raw in machines}
            nodes = [node for node in await story.stage.list_nodes() if name_of(node) in names]
            ready = [node for node in nodes if is_true(nested(node, "status", "conditions"), "Ready")]
            assert len(ready) >= at_least, f"{len(ready)} Nodes are Ready"
        assert story.sim.clock.now() < end, (await story.stage.get_cluster())["status"]
        await story.sim.advance(seconds=5)
    await story.stage.wait_for_settled()


def test_workers_whose_firmware_changes_are_replaced_one_by_one_and_none_is_missing_meanwhile() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 3)) as it:
            await it.stage.wait_for_settled()
            before = {name_of(raw) for raw in await machines_of(it.sim, it.ref, "workers")}
            it.transcript.restart()
            await set_options(it, "workers", enableEfi="true")
            await until_rolled(it, "workers", "enableEfi", "true", at_least=3)
            after = {name_of(raw) for raw in await machines_of(it.sim, it.ref, "workers")}
            assert len(after) == 3
            assert not before & after
            return it.transcript

    check_story("roll-workers", story)


def test_three_servers_are_replaced_one_by_one_and_etcd_keeps_three_members() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 3, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            await set_options(it, "servers", enableEfi="true")
            await until_rolled(it, "servers", "enableEfi", "true", at_least=3)
            assert await voters(it) == {name_of(raw) for raw in await machines_of(it.sim, it.ref, "servers")}
            return it.transcript

    check_story("roll-servers", story)


def test_a_canary_is_replaced_and_the_others_once_the_cluster_is_resumed() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 3)) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            client = it.sim.management_client
            await client.patch(it.ref, {"metadata": {"annotations": {CANARY: "1"}}})
            await set_options(it, "workers", enableEfi="true")
            await it.sim.advance(minutes=30)
            machines = await machines_of(it.sim, it.ref, "workers")
            made = [raw for raw in machines if raw["spec"]["options"].get("enableEfi") == "true"]
            assert (len(machines), len(made)) == (4, 1)
            it.transcript.say("she looks at the new machine, and resumes")
            await client.patch(it.ref, {"metadata": {"annotations": {CANARY: None}}})
            await until_rolled(it, "workers", "enableEfi", "true", at_least=3)
            return it.transcript

    check_story("roll-canary", story)


def test_an_image_that_no_machine_boots_from_stops_the_rollout_and_another_edit_ends_it() -> None:
    """Nothing is lost: the old machines serve, the new one goes when the old image is asked for again."""

    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            before = {name_of(raw) for raw in await machines_of(it.sim, it.ref, "workers")}
            disks = '{"disks":[{"imageName":"default/missing","size":40,"bootOrder":1}]}'
            await set_options(it, "workers", diskInfo=disks)
            await it.sim.advance(minutes=40)
            assert before <= {name_of(raw) for raw in await machines_of(it.sim, it.ref, "workers")}
            await set_options(
                it, "workers", diskInfo='{"disks":[{"imageName":"default/jammy","size":40,"bootOrder":1}]}'
            )
            await it.sim.advance(minutes=20)
            assert {name_of(raw) for raw in await machines_of(it.sim, it.ref, "workers")} == before
            await it.stage.wait_for_settled()

    run_driven(story())


def test_a_pause_in_the_middle_of_a_rollout_keeps_every_machine_and_a_resume_goes_on() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            await set_options(it, "workers", enableEfi="true")
            while len(await machines_of(it.sim, it.ref, "workers")) == 2:
                await it.sim.advance(seconds=1)
            await it.sim.management_client.patch(it.ref, {"spec": {"paused": True}})
            during = {name_of(raw) for raw in await machines_of(it.sim, it.ref, "workers")}
            await it.sim.advance(minutes=30)
            assert {name_of(raw) for raw in await machines_of(it.sim, it.ref, "workers")} == during
            await it.sim.management_client.patch(it.ref, {"spec": {"paused": False}})
            await until_rolled(it, "workers", "enableEfi", "true", at_least=2)
            assert len(await machines_of(it.sim, it.ref, "workers")) == 2

    run_driven(story())
