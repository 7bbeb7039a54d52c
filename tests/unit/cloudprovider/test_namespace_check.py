"""A program that is started where its VMs may not be: what its services have stays as it is."""

import asyncio
from dataclasses import replace

import pytest

from windrow.kubernetes.kubeconfig import render_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import NODE, SERVICE

from .rig import BALANCER, CA, VM, Slipped, run_story

WEB = SERVICE.ref("web", "default")
SHOWN = "kube-vip.io/loadbalancerIPs"
REFUSAL = {"status": {"conditions": [{"type": "Ready", "status": "False", "message": "no matched IPPool"}]}}


async def start_elsewhere(world, *flags, namespace="other"):
    """A settled cluster whose program is started anew with a cloud config that names `namespace`."""
    slipped = Slipped(world)
    await slipped.settle()
    await restart(world, *flags, namespace=namespace)
    return slipped


async def restart(world, *flags, namespace):
    await world.stop()
    world.renew("harvester-token", namespace=namespace)
    world.start(*flags)
    await asyncio.sleep(20)
    for raw in await world.harvester.list(BALANCER, "other"):
        await world.harvester.patch(BALANCER.ref(raw["metadata"]["name"], "other"), REFUSAL)
    await asyncio.sleep(100)


async def forget_vms(world):
    """No node says which VM it runs in."""
    await world.cluster.delete(NODE.ref("n1"))


@pytest.mark.parametrize("flags", [[], ["--controllers=service-lb-controller"], ["--disable-vmi-controller"]])
def test_a_start_in_a_wrong_namespace_costs_no_service_its_address(flags):
    async def story(world):
        slipped = await start_elsewhere(world, *flags)
        return (
            await slipped.announced(),
            await slipped.places(),
            world.said("its load balancer is left as it is"),
        )

    address, places, told = run_story(story)

    assert (address, places) == ("10.1.0.1", ["default"])
    assert len(told) == 1
    assert "set the namespace of the VMs in the context" in told[0]
    assert "such as n1" in told[0]


def test_without_nodes_a_start_in_a_wrong_namespace_costs_no_service_its_address_nor_gives_another_one():
    async def story(world):
        slipped = Slipped(world)
        await slipped.settle()
        await forget_vms(world)
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        await restart(world, namespace="other")
        await world.cluster.create(SERVICE, new_object(SERVICE, "api", "default", spec=spec))
        await asyncio.sleep(100)
        return await slipped.announced(), await slipped.places()

    assert run_story(story) == ("10.1.0.1", ["default"])


def test_a_service_deleted_while_the_place_is_in_doubt_goes_with_its_load_balancer_once_the_config_is_right():
    async def story(world):
        slipped = await start_elsewhere(world)
        await world.cluster.delete(WEB)
        await asyncio.sleep(20)
        kept = await world.cluster.find(WEB) is not None
        world.renew("harvester-token")
        await asyncio.sleep(30)
        return kept, await world.cluster.find(WEB), await slipped.places()

    assert run_story(story) == (True, None, [])


def test_a_load_balancer_deleted_while_no_program_ran_is_made_again_where_our_vms_are():
    async def story(world):
        slipped = Slipped(world)
        await slipped.settle()
        await world.stop()
        for raw in await world.harvester.list(BALANCER):
            await world.harvester.delete(BALANCER.ref(raw["metadata"]["name"], "default"))
        world.start()
        await asyncio.sleep(20)
        return await slipped.places()

    assert run_story(story) == ["default"]


def test_a_load_balancer_with_an_address_that_is_shown_proves_the_place_though_every_vm_is_new():
    async def story(world):
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        slipped = Slipped(world)
        await slipped.settle()
        await world.stop()
        await world.harvester.delete(VM.ref("n1", "default"))
        await world.cluster.create(SERVICE, new_object(SERVICE, "api", "default", spec=spec))
        world.start()
        await asyncio.sleep(20)
        return await slipped.places()

    assert run_story(story) == ["default", "default"]


def test_a_place_stays_ours_when_all_that_proved_it_is_gone():
    async def story(world):
        slipped = Slipped(world)
        await slipped.settle()
        await forget_vms(world)
        await world.stop()
        world.start()
        await asyncio.sleep(20)
        (made,) = await world.harvester.list(BALANCER)
        await world.harvester.delete(BALANCER.ref(made["metadata"]["name"], "default"))
        await asyncio.sleep(20)
        (again,) = await world.harvester.list(BALANCER)
        return made["metadata"]["uid"] != again["metadata"]["uid"]

    assert run_story(story)


def test_a_vm_of_ours_that_comes_to_the_place_ends_the_doubt_at_once():
    async def story(world):
        slipped = await start_elsewhere(world)
        uid = await world.make_vm("n2", "192.168.1.9", namespace="other")
        await world.join("n2")
        await world.cluster.patch(NODE.ref("n2"), {"spec": {"providerID": f"harvester://{uid}"}})
        await asyncio.sleep(2)
        return sorted(await slipped.places())

    assert run_story(story) == ["default", "other"]


def test_without_addresses_on_any_service_all_are_served_in_the_new_place():
    async def story(world):
        slipped = await start_elsewhere(world)
        await world.cluster.patch(WEB, {"metadata": {"annotations": {SHOWN: None}}})
        await asyncio.sleep(70)
        return sorted(await slipped.places())

    assert run_story(story) == ["default", "other"]


@pytest.mark.parametrize("half", [{"token": ""}, {"ca": CA[0][:-10]}])
def test_half_a_cloud_config_is_no_start(half):
    async def story(world):
        access = replace(world.access("10.0.0.1", "harvester-token"), **half)
        world.write("/cloud-config", render_kubeconfig(access, "harvester"))
        return await world.start(), world.lines

    code, lines = run_story(story)

    assert code == 1
    assert any("the file is not whole" in line and "--cloud-config" in line for line in lines)
