"""Bad input to changes: each says what happened, what is untouched and how to go on, and leaves nothing half-made."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.stories.cluster_rig import SERVERS, a_pool, machines_of, until
from tests.stories.test_cluster_life import Story, a_story, set_heartbeats
from tests.stories.test_etcd_restores import with_bucket
from tests.stories.test_rollouts import set_options, until_rolled
from tests.stories.test_turns_and_losses import run_shop
from tests.stories.test_updates import BUDGET, NEXT, kubelets, set_version, until_version
from tests.stories.test_vm_restarts import sizes_of, until_edited
from tests.support.clock import run_driven

from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import is_deleting, name_of, nested

OLD = "v1.34.7+rke2r1"


async def failures_of(story: Story) -> dict[str, dict[str, Any]]:
    """Of each Machine whose turn has failed why."""
    machines = await machines_of(story.sim, story.ref)
    found = {name_of(raw): nested(raw, "status", "update", "failure") for raw in machines}
    return {name: failure for name, failure in found.items() if failure}


async def until_failed(story: Story, count: int) -> dict[str, dict[str, Any]]:
    end = story.sim.clock.now() + timedelta(hours=2)
    while len(found := await failures_of(story)) < count:
        assert story.sim.clock.now() < end, (found, (await story.stage.get_cluster())["status"])
        await story.sim.advance(seconds=5)
    return found


async def message_of(story: Story, type: str) -> str:
    condition = find_condition(nested(await story.stage.get_cluster(), "status", "conditions"), type)
    return condition.message if condition is not None else ""


@pytest.mark.long
def test_s3_that_refuses_the_snapshot_before_an_upgrade_holds_it_and_says_how_to_go_on() -> None:
    async def story() -> None:
        async with with_bucket(a_pool("servers", 1, SERVERS)) as (it, store):
            store.refusal = 503
            await set_version(it, NEXT)
            await until(it.stage, "an etcd snapshot before the upgrade to")
            await it.sim.advance(minutes=10)
            waiting = nested(await it.stage.get_cluster(), "status", "waiting")
            assert "reduce your request rate" in waiting["for"]
            assert "disableSnapshots" in waiting["next"]
            assert await kubelets(it) == {OLD}
            assert not any(nested(one, "status", "update") for one in await machines_of(it.sim, it.ref))
            store.refusal = 0
            await until_version(it, NEXT)
            assert await kubelets(it) == {NEXT}

    run_driven(story())


@pytest.mark.long
def test_a_budget_that_holds_a_vm_and_a_node_that_stays_away_end_when_the_field_is_set_back() -> None:
    async def story() -> None:
        pools = a_pool("servers", 1, SERVERS), a_pool("workers", 3)
        async with a_story(*pools) as it:
            await it.stage.wait_for_settled()
            drained = {"workerConcurrency": "2", "workerDrainOptions": {"enabled": True, "timeout": 120}}
            await it.sim.management_client.patch(
                it.ref, {"spec": {"rkeConfig": {"upgradeStrategy": drained}}}
            )
            before = await sizes_of(it, "workers")
            await run_shop(it)
            await set_options(it, "workers", memorySize="8")
            found = await until_failed(it, 1)
            held = min(found)
            for words in ("did not leave Node", "PodDisruptionBudgets hold them", "have it tried again"):
                assert words in found[held]["message"] + found[held]["hint"]
            await set_heartbeats(it.sim, {held}, beating=False)
            await it.sim.advance(minutes=3)
            assert await sizes_of(it, "workers") == before  # nothing was edited
            await set_options(it, "workers", memorySize="4")
            end = it.sim.clock.now() + timedelta(minutes=30)
            while any(nested(raw, "status", "update") for raw in await machines_of(it.sim, it.ref)):
                assert it.sim.clock.now() < end, await failures_of(it)
                await it.sim.advance(seconds=5)
            await set_heartbeats(it.sim, {held}, beating=True)
            await it.sim.advance(minutes=5)
            assert await sizes_of(it, "workers") == before
            assert not any(nested(node, "spec", "unschedulable") for node in await it.stage.list_nodes())
            await (await it.stage.guest_client()).delete(BUDGET.ref("shop", "default"))
            await set_options(it, "workers", memorySize="8")
            await until_edited(it, "workers", "memorySize", "8")

    run_driven(story())


@pytest.mark.long
def test_images_out_of_reach_in_the_middle_of_a_rollout_lose_no_machine_and_it_goes_on_afterwards() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            before = {name_of(raw) for raw in await machines_of(it.sim, it.ref, "workers")}
            await set_options(it, "workers", enableEfi="true")
            while len(await machines_of(it.sim, it.ref, "workers")) == 2:
                await it.sim.advance(seconds=1)
            it.sim.harvester.network.internet.is_reachable = False
            await it.sim.advance(minutes=30)
            machines = await machines_of(it.sim, it.ref, "workers")
            names = {name_of(raw) for raw in machines if not is_deleting(raw)}
            assert before < names
            assert len(names) == 3  # what never comes up is replaced, one after the other
            status = (await it.stage.get_cluster())["status"]
            assert any(name in status["waiting"]["for"] for name in names - before)
            it.sim.harvester.network.internet.is_reachable = True
            await until_rolled(it, "workers", "enableEfi", "true", at_least=2)
            assert len(await machines_of(it.sim, it.ref, "workers")) == 2

    run_driven(story())
