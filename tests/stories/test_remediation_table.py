"""What the manager does for each row of reference/04 §3.3: evidence from the Node, from the VM and from its host.

| Node | VM | Host | Done | Told in |
|---|---|---|---|---|
| Ready | migrating | cordoned | nothing | `row-live-migration`, `row-maintenance` |
| not Ready | missing | | replaced at once | `lost-worker`, `lost-etcd-member` (test_cluster_life) |
| not Ready | stopped | Ready | started; replaced when it stops again | `row-stopped-twice`, `stopped-last-member` |
| not Ready | migrating | any | waits for the migration, then for the Node | `row-unready-while-migrating` |
| not Ready | running | Ready | waits `unhealthyNodeTimeout`, then replaces | `row-guest-problem` |
| not Ready | running | NotReady | waits for Harvester, which starts it elsewhere | `row-host-fails` |
| not Ready | its disks are on the lost host | NotReady | kept where the host returns within a quarter of an hour, else replaced | `row-host-returns-with-local-disks`, `row-host-fails-with-local-disks` |
| not there yet | halted over a quota | Ready | started until there is room, never replaced | `row-quota` |
| many not Ready | many | many | the breaker | `breaker` (test_cluster_life) |
| guest API down | fine | Ready | nothing | `row-guest-api-down` |

The stories take seconds each, so `make test-long` runs them; tests/unit/clusters/test_remediation.py has every row as a plan.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.stories.cluster_rig import (
    SERVERS,
    Transcript,
    a_cluster,
    a_pool,
    compare,
    machines_of,
    post,
    scale,
    stock,
)
from tests.stories.test_cluster_life import Story, set_heartbeats
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.emulator import kinds
from windrow.emulator.system import render_storage_class
from windrow.harvester.resources import VM, VM_ACTIONS
from windrow.kubernetes.objects import Raw, name_of, nested, new_object
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import NODE, STORAGE_CLASS

Act = Callable[[Story, Raw], Awaitable[None]]
LOCAL_CLASS = "lvm"
DISKS = (
    '{"disks":[{"imageName":"default/jammy","size":40,"bootOrder":1},'
    f'{{"storageClassName":"{LOCAL_CLASS}","size":40,"bootOrder":2}}]}}'
)


@asynccontextmanager
async def a_settled_cluster(*, with_local_disks: bool = False, **harvester: str) -> AsyncIterator[Story]:
    """A server and two workers, whose second disks may be on storage of their host alone."""
    documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 2))
    async with simulation(seed=3, with_manager=False, **harvester) as sim:
        if with_local_disks:
            documents[1]["diskInfo"] = DISKS
            local = render_storage_class(LOCAL_CLASS) | {"provisioner": "lvm.driver.harvesterhci.io"}
            await sim.harvester_client.create(STORAGE_CLASS, local)
        transcript = Transcript(sim.api.local())
        await stock(sim, documents)
        sim.start_manager(transcript)
        ref = await post(sim, documents)
        it = Story(sim, ref, sim.cluster(ref.name, ref.namespace), transcript)
        await it.stage.wait_for_settled()
        it.transcript.lines.clear()
        yield it


def run_story(name: str, act: Act, **site: Any) -> None:
    """The golden story of what `act` does to the first worker."""

    async def story() -> Transcript:
        async with a_settled_cluster(**site) as it:
            await act(it, (await machines_of(it.sim, it.ref, "workers"))[0])
            return it.transcript

    compare(name, run_driven(story()).lines)


async def names_of(it: Story) -> set[str]:
    return {name_of(raw) for raw in await machines_of(it.sim, it.ref)}


async def host_of(it: Story, name: str) -> str:
    vmi = await it.sim.harvester_client.get(kinds.VMI.ref(name, "default"))
    return str(nested(vmi, "status", "nodeName"))


async def order(it: Story, verb: str, name: str) -> None:
    await it.sim.harvester_client.call(put_subresource(VM_ACTIONS.ref(name, "default"), verb))


async def a_migration_of_a_ready_node(it: Story, worker: Raw) -> None:
    before, name = await names_of(it), name_of(worker)
    host = await host_of(it, name)
    it.transcript.say(f"an administrator cordons the host of {name} and migrates it")
    await it.sim.harvester_client.patch(NODE.ref(host), {"spec": {"unschedulable": True}})
    await order(it, "migrate", name)
    await it.sim.advance(minutes=5)
    assert await host_of(it, name) != host
    assert await names_of(it) == before
    await it.stage.wait_for_settled()


async def maintenance(it: Story, worker: Raw) -> None:
    before, name = await names_of(it), name_of(worker)
    host = await host_of(it, name)
    it.transcript.say(f"the host of {name} enters maintenance mode")
    await it.sim.harvester.begin_maintenance(host)
    await it.sim.advance(minutes=5)
    node = await it.sim.harvester_client.get(NODE.ref(host))
    assert node["metadata"]["annotations"]["harvesterhci.io/maintain-status"] == "completed"
    assert await host_of(it, name) != host
    it.transcript.say("and leaves it")
    await it.sim.harvester.end_maintenance(host)
    await it.stage.wait_for_settled()
    assert await names_of(it) == before


async def a_full_quota(it: Story, worker: Raw) -> None:
    before = await names_of(it)
    label = {"resourcequota.management.cattle.io/default-resource-quota": "true"}
    quota = new_object(kinds.QUOTA, "default", "default", labels=label, spec={"hard": {"limits.cpu": "7"}})
    it.transcript.say("a quota of 7 CPUs; servers and workers of two each: 1 + 2 -> 1 + 3")
    await it.sim.harvester_client.create(kinds.QUOTA, quota)
    await scale(it.sim, it.ref, 1, 3)
    await it.sim.advance(minutes=60)
    (new,) = await names_of(it) - before
    it.transcript.say("the quota is raised")
    change = {"spec": {"hard": {"limits.cpu": "20"}}}
    await it.sim.harvester_client.patch(kinds.QUOTA.ref("default", "default"), change)
    await it.stage.wait_for_settled()
    assert await names_of(it) == before | {new}


async def two_stops(it: Story, worker: Raw) -> None:
    name = name_of(worker)
    it.transcript.say(f"an administrator stops the VM of {name}")
    await order(it, "stop", name)
    await it.sim.advance(minutes=4)
    await it.stage.wait_for_settled()
    assert name in await names_of(it)
    it.transcript.say("and stops it again, as often as it starts")
    for _ in range(40):
        if name not in await names_of(it):
            break
        vm = await it.sim.harvester_client.find(VM.ref(name, "default"))
        if vm is not None and nested(vm, "status", "printableStatus") == "Running":
            await order(it, "stop", name)
        await it.sim.advance(seconds=10)
    await it.stage.wait_for_settled(without=name)


async def an_unready_node_while_migrating(it: Story, worker: Raw) -> None:
    before, name = await names_of(it), name_of(worker)
    it.transcript.say(f"the kubelet of {name} falls silent, and an administrator migrates its VM")
    await set_heartbeats(it.sim, {name}, beating=False)
    await it.sim.advance(seconds=45)
    await order(it, "migrate", name)
    await it.sim.advance(seconds=60)
    it.transcript.say("it is heard again")
    await set_heartbeats(it.sim, {name}, beating=True)
    await it.stage.wait_for_settled()
    assert await names_of(it) == before


async def a_guest_problem(it: Story, worker: Raw) -> None:
    name = name_of(worker)
    it.transcript.say(f"the kubelet of {name} falls silent")
    await set_heartbeats(it.sim, {name}, beating=False)
    await it.stage.wait_for_settled(without=name)


async def a_failed_host(it: Story, worker: Raw) -> None:
    before, name = await names_of(it), name_of(worker)
    host = await host_of(it, name)
    it.transcript.say(f"the host of {name} loses power")
    it.sim.harvester.fail_host(host)
    await it.sim.advance(minutes=8)
    assert await host_of(it, name) != host
    await it.stage.wait_for_settled()
    assert await names_of(it) == before


async def a_failed_host_with_local_disks(it: Story, worker: Raw) -> None:
    name = name_of(worker)
    host = await host_of(it, name)
    it.transcript.say(f"the host of {name} loses power, and with it its second disk")
    it.sim.harvester.fail_host(host)
    await it.stage.wait_for_settled(without=name)


async def a_host_with_local_disks_that_returns(it: Story, worker: Raw) -> None:
    before, name = await names_of(it), name_of(worker)
    host = await host_of(it, name)
    it.transcript.say(f"the host of {name} loses power, and with it its second disk")
    it.sim.harvester.fail_host(host)
    await it.sim.advance(minutes=10)
    it.transcript.say("the host is back")
    it.sim.harvester.recover_host(host)
    await it.stage.wait_for_settled()
    assert await names_of(it) == before
    assert await host_of(it, name) == host


async def a_guest_api_that_is_down(it: Story, worker: Raw) -> None:
    before = await names_of(it)
    (server,) = await machines_of(it.sim, it.ref, "servers")
    it.transcript.say("the kubelet of the server and its API server end, the VM runs on")
    guest = next(
        session
        for session in it.sim.harvester.hypervisor.running_machines()
        if session.key == ("default", name_of(server))
    )
    address = server["status"]["addresses"][0]
    handler = it.sim.harvester.network.find(address, 6443)
    it.sim.harvester.network.close(address, 6443)
    assert guest.machine is not None
    await it.sim.advance(minutes=30)
    assert await names_of(it) == before
    it.transcript.say("the API server is back")
    assert handler is not None
    it.sim.harvester.network.listen(address, 6443, handler)
    await it.stage.wait_for_settled()
    assert await names_of(it) == before


@pytest.mark.long
def test_a_failed_host_is_left_to_harvester() -> None:
    run_story("row-host-fails", a_failed_host)


@pytest.mark.long
def test_a_failed_host_of_harvester_1_6_takes_longer_and_is_left_to_it_as_well() -> None:
    run_story("row-host-fails-1-6", a_failed_host, version="v1.6.1")


@pytest.mark.long
def test_a_vm_whose_disks_are_on_the_lost_host_is_replaced() -> None:
    run_story("row-host-fails-with-local-disks", a_failed_host_with_local_disks, with_local_disks=True)


@pytest.mark.long
def test_a_vm_whose_disks_are_on_a_host_that_returns_is_kept() -> None:
    run_story(
        "row-host-returns-with-local-disks", a_host_with_local_disks_that_returns, with_local_disks=True
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("row-live-migration", a_migration_of_a_ready_node),
        ("row-maintenance", maintenance),
        ("row-quota", a_full_quota),
        ("row-stopped-twice", two_stops),
        ("row-unready-while-migrating", an_unready_node_while_migrating),
        ("row-guest-problem", a_guest_problem),
        ("row-guest-api-down", a_guest_api_that_is_down),
    ],
)
def test_each_row_of_the_table_is_as_told(name: str, act: Act) -> None:
    run_story(name, act)
