"""Stories of VMs that are changed in place: drained, stopped, edited and started, one after the other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.stories.cluster_rig import ALL, SERVERS, Transcript, a_pool, machines_of
from tests.stories.test_cluster_life import Story, a_story, check_story
from tests.stories.test_rollouts import set_options
from tests.support.clock import run_driven

from windrow.clusters.api.kinds import CLUSTER
from windrow.emulator.faults import Fault, Refuse
from windrow.emulator.kinds import VM
from windrow.kubernetes.handler import Request
from windrow.kubernetes.objects import name_of, nested, uid_of
from windrow.kubernetes.resources import PVC


async def sizes_of(story: Story, pool: str) -> dict[str, tuple[int, str, str]]:
    """Of each VM of the pool its uid, CPUs and memory."""
    found = {}
    for machine in await machines_of(story.sim, story.ref, pool):
        vm = await story.sim.harvester_client.get(VM.ref(name_of(machine), "default"))
        domain = nested(vm, "spec", "template", "spec", "domain")
        limits = nested(domain, "resources", "limits")
        found[name_of(machine)] = (domain["cpu"]["cores"], limits["memory"], uid_of(vm))
    return found


async def until_edited(story: Story, pool: str, key: str, value: str) -> None:
    """Return once all machines of the pool have the value, and none has its turn."""
    end = story.sim.clock.now() + timedelta(hours=2)
    while True:
        machines = await machines_of(story.sim, story.ref, pool)
        if all(
            raw["spec"]["options"].get(key) == value and not nested(raw, "status", "update")
            for raw in machines
        ):
            return await story.stage.wait_for_settled()
        assert story.sim.clock.now() < end, [nested(raw, "status", "update") for raw in machines]
        await story.sim.advance(seconds=5)


def test_more_memory_is_given_to_one_worker_after_the_other_and_no_vm_is_replaced() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            before = await sizes_of(it, "workers")
            it.transcript.restart()
            await set_options(it, "workers", memorySize="8", cpuCount="4")
            await until_edited(it, "workers", "memorySize", "8")
            after = await sizes_of(it, "workers")
            assert after == {name: (4, "8Gi", uid) for name, (_, _, uid) in before.items()}
            return it.transcript

    check_story("restart-workers", story)


def test_three_servers_get_more_memory_one_at_a_time() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 3, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            await set_options(it, "servers", memorySize="8")
            await until_edited(it, "servers", "memorySize", "8")
            assert {memory for _, memory, _ in (await sizes_of(it, "servers")).values()} == {"8Gi"}
            return it.transcript

    check_story("restart-servers", story)


@pytest.mark.long
def test_of_two_api_servers_one_serves_while_the_machine_of_the_other_is_restarted() -> None:
    async def story() -> None:
        pools = a_pool("etcd", 1, "etcd"), a_pool("api", 2, "control-plane"), a_pool("workers", 1)
        async with a_story(*pools) as it:
            await it.stage.wait_for_settled()
            members = {name_of(raw) for raw in await machines_of(it.sim, it.ref, "api")}
            await set_options(it, "api", memorySize="8")
            edited: set[str] = set()
            while edited != members:
                machines = await machines_of(it.sim, it.ref, "api")
                edited = {name_of(one) for one in machines if one["spec"]["options"]["memorySize"] == "8"}
                hosts = {address for one in machines for address in nested(one, "status", "addresses")}
                serving = [one for one in it.sim.harvester.network.listeners() if one[1] == 6443]
                assert hosts & {host for host, _ in serving}
                await it.sim.advance(seconds=0.5)
            await until_edited(it, "api", "memorySize", "8")

    run_driven(story())


def test_a_cluster_of_one_machine_gets_more_memory_while_its_api_is_away() -> None:
    async def story() -> None:
        async with a_story(a_pool("all", 1, ALL)) as it:
            await it.stage.wait_for_settled()
            before = await sizes_of(it, "all")
            await set_options(it, "all", memorySize="8")
            await until_edited(it, "all", "memorySize", "8")
            after = await sizes_of(it, "all")
            assert after == {name: (cores, "8Gi", uid) for name, (cores, _, uid) in before.items()}

    run_driven(story())


def test_a_larger_disk_is_a_restart_and_the_claim_grows() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            before = {name_of(raw) for raw in await machines_of(it.sim, it.ref, "workers")}
            disks = '{"disks":[{"imageName":"default/jammy","size":60,"bootOrder":1}]}'
            await set_options(it, "workers", diskInfo=disks)
            await until_edited(it, "workers", "diskInfo", disks)
            [machine] = await machines_of(it.sim, it.ref, "workers")
            assert {name_of(machine)} == before
            [claim] = machine["status"]["driverConfig"]["WindrowClaims"]
            found = await it.sim.harvester_client.get(PVC.ref(claim, "default"))
            assert nested(found, "spec", "resources", "requests", "storage") == "60Gi"

    run_driven(story())


VMS = frozenset({"virtualmachines"})


def is_larger(request: Request) -> bool:
    return b'"8Gi"' in (request.body or b"")


def test_what_harvester_refuses_leaves_the_machine_as_it_was_and_the_field_set_back_ends_its_turn() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            before = await sizes_of(it, "workers")
            refusal = it.sim.harvester.faults.add(
                Fault(
                    Refuse(422, "Invalid", "not with this host"),
                    frozenset({"update", "patch"}),
                    VMS,
                    where=is_larger,
                )
            )
            await set_options(it, "workers", memorySize="8")
            end = it.sim.clock.now() + timedelta(minutes=40)
            failure: Any = None
            while not failure:
                assert it.sim.clock.now() < end
                await it.sim.advance(seconds=5)
                found = await machines_of(it.sim, it.ref, "workers")
                failure = next(
                    filter(None, (nested(raw, "status", "update", "failure") for raw in found)), None
                )
            assert failure["step"] == "Edit"
            assert await sizes_of(it, "workers") == before
            assert len([raw for raw in found if nested(raw, "status", "update")]) == 1
            assert it.sim.harvester.faults.times_injected(refusal)
            await set_options(it, "workers", memorySize=None)
            await it.sim.advance(minutes=5)
            assert not [
                raw for raw in await machines_of(it.sim, it.ref, "workers") if nested(raw, "status", "update")
            ]
            await it.stage.wait_for_settled()
            assert it.ref.kind == CLUSTER

    run_driven(story())
