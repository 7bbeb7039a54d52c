"""`windrow why`: for each known wait the chain ends with its first cause, as far as the credential lets it be seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from tests.stories.cluster_rig import ALL, SERVERS, a_cluster, a_pool, machines_of, post, scale, stock
from tests.support.clock import run_driven
from tests.support.simulation import VIP, Simulation, simulation

from windrow.app.describe.causes import Link, explain_cluster, explain_machine, find_waiting_machine
from windrow.app.embedded import read_credential
from windrow.app.emulate import serve_consoles
from windrow.app.harvester.objects import read_harvester_objects
from windrow.emulator import kinds
from windrow.emulator.preload import VmNetwork
from windrow.harvester.resources import VM
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import Raw, name_of, nested, new_object
from windrow.kubernetes.resources import ObjectRef

Act = Callable[[Simulation, ObjectRef], Awaitable[None]]


async def chain_of(sim: Simulation, ref: ObjectRef) -> tuple[Link, ...]:
    """What `windrow why` shows of the cluster."""
    cluster = await sim.management_client.get(ref)
    machines = await machines_of(sim, ref)
    machine = find_waiting_machine(cluster, machines)
    if machine is None:
        return explain_cluster(cluster, machines)
    text = await read_credential(sim.management_client, machine["spec"]["credential"])
    seen = await read_harvester_objects(sim.connect(parse_kubeconfig(text)), machine)
    chain = explain_cluster(cluster, machines, seen)
    of_machine = explain_machine(machine, seen)
    assert chain[-len(of_machine) :] == of_machine or chain[-1].kind in ("Condition", "Secret")
    return chain


def told(chain: tuple[Link, ...]) -> list[str]:
    return [f"{one.object}: {one.message} -> {one.hint}" for one in chain]


async def until_cause(sim: Simulation, ref: ObjectRef, kind: str, words: str) -> tuple[Link, ...]:
    """The chain, once its last link is an object of that kind whose message has the words."""
    end = sim.clock.now() + timedelta(minutes=30)
    while True:
        chain = await chain_of(sim, ref)
        if chain[-1].kind == kind and words in chain[-1].message:
            return chain
        assert sim.clock.now() < end, "\n".join(told(chain))
        await sim.advance(seconds=5)


# -- clusters that do not come up ------------------------------------------------------------------------------------


def with_image(documents: list[Raw], image: str) -> list[Raw]:
    documents[0]["diskInfo"] = f'{{"disks":[{{"imageName":"{image}","size":40,"bootOrder":1}}]}}'
    return documents


@pytest.mark.parametrize(
    ("documents", "kind", "words"),
    [
        (a_cluster(a_pool("workers", 1)), "Condition", "etcd"),
        (with_image(a_cluster(a_pool("servers", 1, ALL)), "default/nowhere"), "Condition", "default/nowhere"),
    ],
    ids=["a spec that is refused", "an image that is not there"],
)
def test_a_cluster_that_is_not_begun_names_the_condition_and_its_hint(
    documents: list[Raw], kind: str, words: str
) -> None:
    async def story() -> None:
        async with simulation(seed=3) as sim:
            await stock(sim, a_cluster(a_pool("servers", 1, ALL)))
            ref = await post(sim, documents)
            first, cause = await until_cause(sim, ref, kind, words)
            assert first.message.startswith("condition Ready is False")
            assert cause.hint

    run_driven(story())


def test_a_credential_that_harvester_does_not_take_is_the_cause_with_its_secret() -> None:
    async def story() -> None:
        async with simulation(seed=3) as sim:
            documents = a_cluster(a_pool("servers", 1, ALL))
            token = sim.harvester.new_token()
            sim.harvester.credentials.revoke(token)
            await stock(sim, documents, kubeconfig=sim.harvester.token_kubeconfig(token, VIP))
            ref = await post(sim, documents)
            _, cause = await until_cause(sim, ref, "Secret", "")
            assert cause.object == "Secret cattle-global-data/cc-harvester"
            assert cause.hint

    run_driven(story())


def test_a_machine_without_an_address_ends_at_its_console() -> None:
    async def story() -> None:
        async with simulation(seed=5) as sim:
            serve_consoles(sim.harvester)
            await sim.harvester.preload(networks=[VmNetwork("default/vlan-50", cidr="192.168.50.0/30")])
            documents = a_cluster(a_pool("servers", 2, ALL))
            await stock(sim, documents)
            ref = await post(sim, documents)
            chain = await until_cause(sim, ref, "Console", "has leased all")
            assert [one.kind for one in chain] == ["Cluster", "Machine", "VirtualMachine", "Console"]
            assert "DHCP" in chain[-1].hint

    run_driven(story())


# -- clusters that have run ------------------------------------------------------------------------------------------


async def a_host_loses_power(sim: Simulation, ref: ObjectRef) -> None:
    (worker,) = await machines_of(sim, ref, "workers")
    sim.harvester.fail_host(str(nested(worker, "status", "host")))


async def a_quota_is_full(sim: Simulation, ref: ObjectRef) -> None:
    label = {"resourcequota.management.cattle.io/default-resource-quota": "true"}
    quota = new_object(kinds.QUOTA, "default", "default", labels=label, spec={"hard": {"limits.cpu": "5"}})
    await sim.harvester_client.create(kinds.QUOTA, quota)
    await scale(sim, ref, 1, 2)


async def a_vm_is_deleted(sim: Simulation, ref: ObjectRef) -> None:
    (worker,) = await machines_of(sim, ref, "workers")
    await sim.management_client.patch(
        ref, {"metadata": {"annotations": {"windrow.io/remediation": "disabled"}}}
    )
    await sim.harvester_client.delete(VM.ref(name_of(worker), "default"))


async def the_guest_api_falls_silent(sim: Simulation, ref: ObjectRef) -> None:
    (server,) = await machines_of(sim, ref, "servers")
    sim.harvester.network.close(server["status"]["addresses"][0], 6443)


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        (a_host_loses_power, "Host", "is not Ready"),
        (a_quota_is_full, "ResourceQuota", "limits.cpu"),
        (a_vm_is_deleted, "VirtualMachine", "does not exist"),
        (the_guest_api_falls_silent, "Machine", "to recover (replacement skipped: last etcd member"),
    ],
    ids=["host", "quota", "deleted VM", "guest API"],
)
def test_a_cluster_that_ran_names_the_object_on_harvester(act: Act, kind: str, words: str) -> None:
    async def story() -> None:
        async with simulation(seed=3) as sim:
            documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1))
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            (ready,) = await chain_of(sim, ref)
            assert ready.message == "condition Ready is True (MachinesReady)"
            await act(sim, ref)
            chain = await until_cause(sim, ref, kind, words)
            assert chain[0].object == f"Cluster {ref.namespace}/{ref.name}"
            assert all(one.hint for one in chain), told(chain)
            assert all(one.since is not None for one in chain[:2])

    run_driven(story())
