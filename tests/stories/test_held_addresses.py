"""Addresses that VMs have and that nothing records any more: the state of the manager was restored to an earlier one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.stories.cluster_rig import ALL, a_cluster, a_pool, machines_of, post, scale, stock, until
from tests.stories.test_addresses import RANGE, claims_of, started, waiting, with_addresses
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.clusters.api.addresses import IPAddress, address_name, render_ip_address
from windrow.clusters.api.kinds import IP_ADDRESS, MACHINE
from windrow.emulator.faults import Fault, Refuse
from windrow.harvester.names import CLUSTER_UID, CREATOR, MACHINE_UID
from windrow.harvester.resources import VM
from windrow.kubernetes.conditions import Condition, find_condition
from windrow.kubernetes.objects import Raw, annotations_of, name_of, namespace_of, new_object, uid_of

ADDRESS = "192.168.50.150"
ONE = {**RANGE, "addresses": [ADDRESS]}


def a_cluster_with_one_address() -> list[Raw]:
    """Its worker has the only address of a range, its server one by DHCP."""
    documents = a_cluster(a_pool("servers", 1, ALL), a_pool("workers", 1))
    documents[1]["addressPools"] = [ONE]
    return documents


def another_cluster() -> list[Raw]:
    """Another cluster whose server wants the same address."""
    return with_addresses(a_cluster(a_pool("other", 1, ALL), name="rival"), ONE)


async def lose(sim: Simulation, ref: Any) -> Raw:
    """What a backup from before the worker was asked for restores: neither its Machine nor its IPAddress."""
    await sim.kill_manager()
    (lost,) = await machines_of(sim, ref, "workers")
    machine = MACHINE.ref(name_of(lost), namespace_of(lost))
    await sim.management_client.patch(machine, {"metadata": {"finalizers": []}})
    await sim.management_client.delete(machine)
    for raw in await sim.management_client.list(IP_ADDRESS):
        if raw["spec"]["address"] == ADDRESS:
            await sim.management_client.delete(IP_ADDRESS.ref(name_of(raw)))
    await scale(sim, ref, 1, 0)
    return lost


async def condition_of(sim: Simulation, ref: Any, type: str) -> Condition | None:
    raw = await sim.management_client.get(ref)
    return find_condition(raw["status"]["conditions"], type)


@pytest.mark.parametrize("sees_all", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_address_of_a_vm_that_a_restored_state_has_lost_is_given_to_no_other(sees_all: bool) -> None:
    """Also where the credential may list VMs in its own namespace only."""

    async def story() -> None:
        documents = a_cluster_with_one_address()
        async with simulation(seed=21, with_manager=False) as sim:
            if not sees_all:
                sim.harvester.faults.add(Fault(Refuse(403, "Forbidden"), where=is_for_all_namespaces))
            ref = await started(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            lost = await lose(sim, ref)
            other = another_cluster()
            await stock(sim, other)
            rival = await post(sim, other)

            sim.start_manager()
            await sim.advance(minutes=4)
            held = await condition_of(sim, ref, "VMsRecorded")
            assert held is not None
            assert f"VirtualMachine default/{name_of(lost)}" in held.message
            assert (await claims_of(sim))[name_of(lost)] == ADDRESS
            (late,) = await machines_of(sim, rival)
            assert waiting(late).startswith("an address of network default/vlan-50 to be released (all 1 of")
            vms = await sim.harvester_client.list(VM)
            assert {annotations_of(vm)[CLUSTER_UID] for vm in vms} == {await uid(sim, ref)}

            # As the condition says, a higher quantity has it adopted, with its address.
            await scale(sim, ref, 1, 1)
            await stage.wait_for_settled()
            (adopted,) = await machines_of(sim, ref, "workers")
            assert name_of(adopted) == name_of(lost)
            assert adopted["status"]["addresses"] == [ADDRESS]
            assert await condition_of(sim, ref, "AddressesUnique") is None

            # Once that VM is gone, so is what the other waits for.
            await scale(sim, ref, 1, 0)
            await sim.cluster("rival").wait_for_settled()
            (claim,) = await machines_of(sim, rival)
            assert (await claims_of(sim))[name_of(claim)] == ADDRESS

    run_driven(story())


def is_for_all_namespaces(request: Any) -> bool:
    return request.method == "GET" and request.path.split("/")[-2:-1] == ["v1"] and "kubevirt" in request.path


async def uid(sim: Simulation, ref: Any) -> str:
    return uid_of(await sim.management_client.get(ref))


def test_a_vm_whose_address_another_cluster_has_is_adopted_all_the_same_and_both_are_named() -> None:
    async def story() -> None:
        documents = a_cluster_with_one_address()
        async with simulation(seed=22, with_manager=False) as sim:
            ref = await started(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            (harvester,) = {raw["spec"]["harvester"] for raw in await sim.management_client.list(IP_ADDRESS)}
            lost = await lose(sim, ref)
            claim = IPAddress(
                address_name(harvester, "default/vlan-50", ADDRESS),
                "",
                ADDRESS,
                24,
                "default/vlan-50",
                harvester,
                "elsewhere/late-7",
                "uid-late",
                "uid-of-another-cluster",
            )
            await sim.management_client.create(IP_ADDRESS, render_ip_address(claim))

            sim.start_manager()
            told = f"VirtualMachine default/{name_of(lost)} has {ADDRESS}, which {claim} gives to a Machine of another namespace"
            await until(stage, told)
            await scale(sim, ref, 1, 1)
            await stage.wait_for_settled()
            (adopted,) = await machines_of(sim, ref, "workers")
            assert name_of(adopted) == name_of(lost)
            condition = await condition_of(sim, ref, "AddressesUnique")
            assert condition is not None
            assert (condition.status, condition.reason) == ("False", "AddressContested")
            assert told in condition.message
            assert len(await sim.harvester_client.list(VM)) == 2

            await sim.management_client.delete(IP_ADDRESS.ref(claim.name))
            await sim.advance(minutes=2)
            condition = await condition_of(sim, ref, "AddressesUnique")
            assert condition is not None
            assert condition.status == "True"
            assert (await claims_of(sim))[name_of(lost)] == ADDRESS

    run_driven(story())


@pytest.mark.long
def test_no_vm_is_made_with_the_claimed_address_of_another_vm_until_that_is_gone() -> None:
    """As after a restore of a backup with the IPAddress of a machine whose VM was never made."""

    async def story() -> None:
        documents = a_cluster_with_one_address()
        async with simulation(seed=23, with_manager=False) as sim:
            refused = sim.harvester.faults.add(Fault(Refuse(500, "InternalError"), where=makes_a_worker))
            ref = await started(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await sim.advance(minutes=4)
            assert list((await claims_of(sim)).values()) == [ADDRESS]
            (server,) = await sim.harvester_client.list(VM)
            await sim.kill_manager()
            stranger = await sim.harvester_client.create(VM, with_address(server))
            sim.harvester.faults.end(refused)

            sim.start_manager()
            await until(
                stage, f"VirtualMachine default/stranger to give up {ADDRESS} of network default/vlan-50"
            )
            await sim.advance(minutes=4)
            assert {name_of(vm) for vm in await sim.harvester_client.list(VM)} == {
                name_of(server),
                "stranger",
            }

            await sim.harvester_client.delete(VM.ref(name_of(stranger), "default"))
            await stage.wait_for_settled()
            (made,) = await machines_of(sim, ref, "workers")
            assert made["status"]["addresses"] == [ADDRESS]
            assert await condition_of(sim, ref, "AddressesUnique") is None

    run_driven(story())


def makes_a_worker(request: Any) -> bool:
    is_creation = request.method == "POST" and request.path.endswith("/virtualmachines")
    return is_creation and b"workers" in request.body


def with_address(vm: Raw) -> Raw:
    """A stopped VM of another user that is told to have the address."""
    data = f"version: 2\nethernets: {{eth0: {{addresses: [{ADDRESS}/24]}}}}\n"
    spec = {
        "domain": {
            "devices": {"interfaces": [{"name": "nic-0", "bridge": {}}]},
            "cpu": {"cores": 1, "maxSockets": 1},
            "resources": {"limits": {"memory": "1Gi", "cpu": "1"}},
        },
        "networks": [{"name": "nic-0", "multus": {"networkName": "default/vlan-50"}}],
        "volumes": [{"name": "cloudinit", "cloudInitNoCloud": {"networkData": data}}],
    }
    labels = {key: vm["metadata"]["labels"][key] for key in (CREATOR,)}
    whole = {"runStrategy": "Halted", "template": {"metadata": {}, "spec": spec}}
    annotations = {MACHINE_UID: "uid-stranger", CLUSTER_UID: "uid-of-another-cluster"}
    return new_object(VM, "stranger", "default", labels=labels, annotations=annotations, spec=whole)


def test_an_ipaddress_that_a_user_deletes_is_claimed_again_at_once() -> None:
    """Its VM has the address still; nothing else happens to its Cluster."""

    async def story() -> None:
        async with simulation(seed=24, with_manager=False) as sim:
            ref = await started(sim, with_addresses(a_cluster(a_pool("servers", 1, ALL)), ONE))
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            await sim.advance(minutes=2)
            (before,) = await sim.management_client.list(IP_ADDRESS)
            await sim.management_client.delete(IP_ADDRESS.ref(name_of(before)))
            await sim.advance(seconds=3)
            (after,) = await sim.management_client.list(IP_ADDRESS)
            assert after["spec"] == before["spec"]
            assert uid_of(after) != uid_of(before)

    run_driven(story())
