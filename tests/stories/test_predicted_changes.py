"""What `status.pendingChanges` predicts is what is done: the same machines, in that order, with that change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.stories.cluster_rig import SERVERS, a_pool, machines_of
from tests.stories.test_cluster_life import Story, a_story
from tests.stories.test_updates import NEXT, kubelets, set_version, until_version
from tests.support.clock import run_driven

from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, name_of, nested


async def until_pending(story: Story) -> dict[str, Any]:
    """Return the plan once the status has one."""
    end = story.sim.clock.now() + timedelta(minutes=5)
    while not (found := nested(await story.stage.get_cluster(), "status", "pendingChanges")):
        assert story.sim.clock.now() < end
        await story.sim.advance(seconds=1)
    return dict(found)


def list_turns(pending: dict[str, Any]) -> list[str]:
    return [name for group in pending["groups"] for name in group["machines"]]


def versions_of(machines: list[Raw]) -> dict[str, tuple[str, str]]:
    """The version that each runs, and the one that is recorded of it."""
    return {
        name_of(raw): (
            nested(raw, "status", "version", default=""),
            nested(raw, "spec", "version", default=""),
        )
        for raw in machines
    }


@pytest.mark.long
def test_machines_take_the_turns_that_were_predicted_and_nothing_is_pending_then() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 3, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            assert nested(await it.stage.get_cluster(), "status", "pendingChanges") is None
            await set_version(it, NEXT)

            pending = await until_pending(it)
            predicted, done = list_turns(pending), []
            assert pending["turns"] == 5
            assert {group["change"] for group in pending["groups"]} == {"service restart"}
            while set(done) != set(predicted):
                for name, (_, recorded) in versions_of(await machines_of(it.sim, it.ref)).items():
                    if recorded == NEXT and name not in done:
                        done.append(name)
                await it.sim.advance(seconds=1)
            assert done == predicted

            await until_version(it, NEXT)
            raw = await it.stage.get_cluster()
            assert nested(raw, "status", "pendingChanges") is None
            found = find_condition(raw["status"]["conditions"], "UpToDate")
            assert found is not None
            assert found.status == "True"
            assert set(versions_of(await machines_of(it.sim, it.ref)).values()) == {(NEXT, NEXT)}
            assert await kubelets(it) == {NEXT}

    run_driven(story())


def test_a_version_that_is_refused_is_told_and_changes_nothing() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS)) as it:
            await it.stage.wait_for_settled()
            running = nested(await it.stage.get_cluster(), "status", "version")
            for wanted, told in (
                ("v1.38.0+rke2r1", "a release of v1.37, then v1.38.0+rke2r1"),
                ("v1.33.1+rke2r1", "a restore of a snapshot"),
                ("latest", "not a version in Rancher's form"),
            ):
                await set_version(it, wanted)
                pending = await until_pending(it)
                assert (pending["turns"], pending["groups"][0]["change"]) == (0, "refused")
                accepted = find_condition((await it.stage.get_cluster())["status"]["conditions"], "Accepted")
                assert accepted is not None
                assert told in accepted.message
                await set_version(it, running)
                await it.sim.advance(seconds=30)
                assert nested(await it.stage.get_cluster(), "status", "pendingChanges") is None
            assert await kubelets(it) == {running}

    run_driven(story())
