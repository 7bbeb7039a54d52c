"""Harvester's own upgrade, and hosts in maintenance, with guests on them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.stories.cluster_rig import SERVERS, Transcript, a_pool, machines_of
from tests.stories.test_cluster_life import Story, a_story
from tests.stories.test_updates import check_story

from windrow.harvester.hosts.maintenance import UPGRADE_NAMESPACE
from windrow.harvester.resources import UPGRADE, VM, VMI
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import name_of, nested, new_object
from windrow.kubernetes.resources import NODE

NEXT_HARVESTER = "v1.9.0"


async def pin(story: Story, name: str) -> None:
    """KubeVirt says that the instance cannot be migrated."""
    ref = VMI.ref(name, "default")
    raw = await story.sim.harvester_client.get(ref)
    conditions = [one for one in raw["status"]["conditions"] if one["type"] != "LiveMigratable"]
    stuck = {"type": "LiveMigratable", "status": "False", "reason": "HostDeviceNotLiveMigratable"}
    await story.sim.harvester_client.patch(ref, {"status": {"conditions": [*conditions, stuck]}})


async def upgrade_harvester(story: Story, version: str = NEXT_HARVESTER) -> None:
    story.transcript.say(f"an administrator upgrades Harvester to {version}")
    raw = new_object(UPGRADE, "hvst-upgrade", UPGRADE_NAMESPACE, spec={"version": version})
    await story.sim.harvester_client.create(UPGRADE, raw)


async def until_upgraded(story: Story, within: timedelta = timedelta(hours=2)) -> None:
    end, ref = story.sim.clock.now() + within, UPGRADE.ref("hvst-upgrade", UPGRADE_NAMESPACE)
    told: dict[str, str] = {}
    while True:
        raw = await story.sim.harvester_client.get(ref)
        for host, one in sorted(nested(raw, "status", "nodeStatuses", default={}).items()):
            if told.get(host) != one["state"]:
                told[host] = one["state"]
                story.transcript.say(f"{host} is {one['state']}")
        if is_true(nested(raw, "status", "conditions"), "Completed"):
            return
        assert story.sim.clock.now() < end, raw["status"]
        await story.sim.advance(seconds=1)


async def at_rest(story: Story) -> None:
    """Nothing of any maintenance is left, on Machines and on Nodes."""
    end = story.sim.clock.now() + timedelta(minutes=20)
    while True:
        machines = await machines_of(story.sim, story.ref)
        if not any(nested(raw, "status", "hostMaintenance") for raw in machines):
            break
        assert story.sim.clock.now() < end, [raw["status"] for raw in machines]
        await story.sim.advance(seconds=1)
    await story.stage.wait_for_settled()
    guest = await story.stage.guest_client()
    assert not any(nested(raw, "spec", "unschedulable") for raw in await guest.list(NODE))


async def vms(story: Story) -> dict[str, str]:
    found = await story.sim.harvester_client.list(VM)
    return {name_of(raw): raw["metadata"]["uid"] for raw in found}


@pytest.mark.long
def test_harvester_is_upgraded_under_three_servers_and_two_workers() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 3, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            before = await vms(it)
            worker = name_of((await machines_of(it.sim, it.ref, "workers"))[0])
            it.transcript.restart()
            it.transcript.say(f"the VM of {worker} cannot be migrated")
            await pin(it, worker)
            await upgrade_harvester(it)
            await until_upgraded(it)
            it.transcript.say("the upgrade is over")
            await at_rest(it)
            assert await vms(it) == before
            return it.transcript

    check_story("harvester-upgrade-3-2", story)
