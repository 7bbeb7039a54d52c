"""Harvester's own upgrade, and hosts in maintenance, with guests on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from tests.stories.cluster_rig import ALL, SERVERS, Transcript, a_cluster, a_pool, machines_of, post, stock
from tests.stories.test_cluster_life import Story, a_story, voters
from tests.stories.test_outages import LinkedTransport, ServerLink
from tests.stories.test_updates import BUDGET, check_story
from tests.support.clock import run_driven
from tests.support.simulation import VIP as VIP_URL
from tests.support.simulation import Simulation, simulation

from windrow.client.transport import Transport
from windrow.clusters.api.kinds import MACHINE
from windrow.emulator.faults import Fault, Refuse
from windrow.emulator.harvester import VIP
from windrow.emulator.host.nodes import default_hosts
from windrow.harvester.hosts.maintenance import UPGRADE_NAMESPACE
from windrow.harvester.resources import SETTING, UPGRADE, VM, VM_ACTIONS, VMI
from windrow.kubernetes.conditions import find_condition, is_true
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested, new_object
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import DEPLOYMENT, NODE, POD

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


async def until_upgraded(story: Story, within: timedelta = timedelta(hours=2), servers: int = 0) -> None:
    """Return once the upgrade is over. Of so many etcd members a majority votes at every instant, and the guest answers."""
    end, ref = story.sim.clock.now() + within, UPGRADE.ref("hvst-upgrade", UPGRADE_NAMESPACE)
    told: dict[str, str] = {}
    while True:
        raw = await story.sim.harvester_client.get(ref)
        for host, one in sorted(nested(raw, "status", "nodeStatuses", default={}).items()):
            if told.get(host) != one["state"]:
                told[host] = one["state"]
                story.transcript.say(f"{host} is {one['state']}")
        if servers:
            assert 2 * len(await voters(story)) > servers
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
            await until_upgraded(it, servers=3)
            it.transcript.say("the upgrade is over")
            await at_rest(it)
            assert await vms(it) == before
            return it.transcript

    check_story("harvester-upgrade-3-2", story)


@asynccontextmanager
async def a_linked_story(
    *pools: Raw, hosts: int = 3, kubeconfig: Callable[[Simulation], str] | None = None
) -> AsyncIterator[tuple[Story, ServerLink]]:
    """A cluster with these pools on so many hosts, and the link from its manager to Harvester."""
    documents, link = a_cluster(*pools), ServerLink()
    async with simulation(seed=3, with_manager=False, hosts=default_hosts(hosts)) as sim:

        def dial(access: ClientConfig) -> Transport:
            made = sim.connect(access)
            return LinkedTransport(made, link) if VIP in access.server else made

        transcript = Transcript(sim.api.local())
        await stock(sim, documents, kubeconfig=kubeconfig(sim) if kubeconfig else "")
        sim.start_manager(transcript, dial)
        ref = await post(sim, documents)
        yield Story(sim, ref, sim.cluster(ref.name, ref.namespace), transcript), link


@pytest.mark.long
def test_a_cluster_of_one_machine_on_one_host_is_off_during_the_upgrade_and_runs_afterwards() -> None:
    """Its API and Harvester's are away for a while: nothing is concluded from that."""

    async def story() -> Transcript:
        async with a_linked_story(a_pool("all", 1, ALL), hosts=1) as (it, link):
            await it.stage.wait_for_settled()
            before = await vms(it)
            it.transcript.restart()
            await upgrade_harvester(it)
            await it.sim.advance(minutes=2)
            it.transcript.say("Harvester is away")
            link.pull()
            await it.sim.advance(minutes=20)
            it.transcript.say("Harvester is back")
            link.is_open = True
            await at_rest(it)
            assert await vms(it) == before
            return it.transcript

    check_story("harvester-upgrade-one-host", story)


@pytest.mark.long
def test_while_harvester_is_away_in_its_upgrade_no_guest_is_judged_by_that() -> None:
    async def story() -> Transcript:
        async with a_linked_story(a_pool("servers", 3, SERVERS), a_pool("workers", 1)) as (it, link):
            await it.stage.wait_for_settled()
            before = await vms(it)
            server = name_of((await machines_of(it.sim, it.ref, "servers"))[0])
            it.transcript.restart()
            it.transcript.say(f"the VM of {server} cannot be migrated")
            await pin(it, server)
            await upgrade_harvester(it)
            await it.sim.advance(seconds=90)
            it.transcript.say("Harvester is away")
            link.pull()
            await it.sim.advance(minutes=10)
            it.transcript.say("Harvester is back")
            link.is_open = True
            await until_upgraded(it)
            await at_rest(it)
            assert await vms(it) == before
            return it.transcript

    check_story("harvester-away-in-its-upgrade", story)


async def a_shop(story: Story, replicas: int, available: int) -> None:
    guest, labels = await story.stage.guest_client(), {"app": "shop"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "shop:1"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    await guest.create(DEPLOYMENT, new_object(DEPLOYMENT, "shop", "default", spec=spec))
    budget = {"minAvailable": available, "selector": {"matchLabels": labels}}
    await guest.create(BUDGET, new_object(BUDGET, "shop", "default", spec=budget))


async def until_recorded(story: Story, machine: str) -> None:
    """Return once the host of the machine is known to be in maintenance."""
    ref, end = MACHINE.ref(machine, story.ref.namespace), story.sim.clock.now() + timedelta(minutes=30)
    while not nested(await story.sim.management_client.get(ref), "status", "hostMaintenance"):
        assert story.sim.clock.now() < end
        await story.sim.advance(seconds=0.5)


async def shop_nodes(story: Story) -> set[str]:
    pods = await (await story.stage.guest_client()).list(POD, "default")
    return {nested(raw, "spec", "nodeName") for raw in pods if not is_deleting(raw)}


@pytest.mark.long
def test_pods_leave_the_node_of_a_vm_that_is_shut_down_before_it_is_as_their_budget_allows() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            await a_shop(it, 2, 1)
            await it.sim.advance(seconds=60)
            workers = await machines_of(it.sim, it.ref, "workers")
            workers.sort(key=lambda raw: str(nested(raw, "status", "host")))
            first, second = map(name_of, workers)
            await pin(it, first)
            assert await shop_nodes(it) == {first, second}
            it.transcript.restart()
            await upgrade_harvester(it)
            await until_recorded(it, first)
            await it.sim.advance(seconds=12)
            vmi = await it.sim.harvester_client.get(VMI.ref(first, "default"))
            assert nested(vmi, "status", "phase") == "Running"
            assert await shop_nodes(it) == {second}
            await until_upgraded(it)
            await at_rest(it)
            return it.transcript

    check_story("harvester-upgrade-with-pods", story)


def test_maintenance_mode_of_one_host_is_waited_for_and_its_machine_is_started_again() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            before = await vms(it)
            it.transcript.restart()
            worker = (await machines_of(it.sim, it.ref, "workers"))[0]
            host = nested(worker, "status", "host")
            it.transcript.say(
                f"the VM of {name_of(worker)} cannot be migrated, and {host} enters maintenance mode"
            )
            await pin(it, name_of(worker))
            await it.sim.harvester.begin_maintenance(host, force=True)
            await it.sim.advance(minutes=40)
            it.transcript.say(f"maintenance mode of {host} ends")
            await it.sim.harvester.end_maintenance(host)
            await at_rest(it)
            assert await vms(it) == before
            return it.transcript

    check_story("maintenance-mode", story)


@pytest.mark.long
def test_a_vm_whose_user_has_stopped_it_and_paused_its_pool_stays_off_after_the_upgrade() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            first, second = (name_of(raw) for raw in await machines_of(it.sim, it.ref, "workers"))
            paused = {"op": "add", "path": "/spec/rkeConfig/machinePools/1/paused", "value": True}
            await it.sim.management_client.json_patch(it.ref, [paused])
            await it.sim.harvester_client.call(put_subresource(VM_ACTIONS.ref(first, "default"), "stop"))
            await it.sim.advance(minutes=2)
            await pin(it, second)
            await upgrade_harvester(it)
            await until_upgraded(it)
            await it.sim.advance(minutes=10)
            running = {name_of(raw) for raw in await it.sim.harvester_client.list(VMI)}
            assert not running & {first, second}
            it.transcript.say("the pool is not paused any more")
            await it.sim.management_client.json_patch(it.ref, [{**paused, "value": False, "op": "replace"}])
            await at_rest(it)

    run_driven(story())


@pytest.mark.long
def test_who_may_not_see_hosts_has_the_guests_of_before_and_is_told_what_is_missing() -> None:
    """The VM that is shut down is started at once, on another host."""

    async def story() -> None:
        def kubeconfig(sim: Simulation) -> str:
            sim.harvester.faults.add(
                Fault(
                    Refuse(403, "Forbidden"), where=lambda request: request.path.startswith("/api/v1/nodes")
                )
            )
            return sim.harvester.token_kubeconfig(sim.harvester.new_token(), VIP_URL)

        async with a_linked_story(
            a_pool("servers", 1, SERVERS), a_pool("workers", 1), kubeconfig=kubeconfig
        ) as (it, _):
            await it.stage.wait_for_settled()
            before = await vms(it)
            raw = await it.stage.get_cluster()
            said = find_condition(raw["status"]["conditions"], "HostsAvailable")
            assert said is not None
            assert said.reason == "NotAllowed"
            worker = name_of((await machines_of(it.sim, it.ref, "workers"))[0])
            await pin(it, worker)
            await upgrade_harvester(it)
            await until_upgraded(it)
            await it.stage.wait_for_settled()
            assert await vms(it) == before

    run_driven(story())


def test_another_release_of_harvester_is_compared_as_soon_as_it_says_so() -> None:
    async def story() -> None:
        async with a_story(a_pool("all", 1, ALL)) as it:
            await it.stage.wait_for_settled()
            await it.sim.advance(seconds=30)
            await it.sim.harvester_client.patch(SETTING.ref("server-version"), {"value": "v1.1.0"})
            await it.sim.advance(seconds=20)
            raw = await it.stage.get_cluster()
            said = find_condition(raw["status"]["conditions"], "VersionsSupported")
            assert said is not None
            assert "v1.1" in said.message

    run_driven(story())
