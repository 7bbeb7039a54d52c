"""Services of two families, and of IPv6, between a guest, Harvester's IPAM and a kube-vip."""

import pytest

from windrow.cloudprovider import names
from windrow.emulator import kinds
from windrow.kubernetes.objects import name_of, new_object
from windrow.kubernetes.resources import SERVICE

from .rig import CLUSTER, ingress, run_story

BOTH = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}
STRICT = {**BOTH, "ipFamilyPolicy": "RequireDualStack"}
SIX = {"ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"}
V4, V6 = "10.1.0.10", "fd00:1::10"
WEB = SERVICE.ref("web", "default")


async def six(world, name="six", first="10", last="12", cluster="elsewhere"):
    scope = [{"project": "*", "namespace": "*", "guestCluster": cluster}]
    ranges = [{"subnet": "fd00:1::/64", "rangeStart": f"fd00:1::{first}", "rangeEnd": f"fd00:1::{last}"}]
    await world.harvester.create(
        kinds.IP_POOL, new_object(kinds.IP_POOL, name, spec={"ranges": ranges, "selector": {"scope": scope}})
    )


async def remarks(world):
    return [message for _, message in await world.events(reason="AddressNotAsRequested")]


@pytest.mark.parametrize("spec", [BOTH, STRICT], ids=["preferred", "required"])
def test_a_service_of_two_families_has_an_address_of_each_and_gives_both_back(spec):
    async def story(world):
        await world.pool("four")
        await six(world)
        world.start()
        await world.serve(spec=spec, pool="four,six")
        await world.settle()
        shown, writes = ingress(await world.service()), world.writes()
        held = {**await world.held("four"), **await world.held("six")}
        in_use = sorted(one["status"]["address"] for one in (await world.balancers()).values())
        await world.restart()
        await world.settle(200)
        idle = world.writes(), await world.complaints(), await remarks(world)
        await world.delete()
        await world.settle()
        left = {**await world.held("four"), **await world.held("six")}
        return shown, writes, list(held), in_use, idle, left, await world.is_gone(), await world.balancers()

    shown, writes, held, in_use, idle, left, is_gone, balancers = run_story(story)
    assert shown == held == [V4, V6]
    assert in_use == [V4, V6]  # both are recorded as in use on Harvester
    assert (writes["host POST loadbalancers"], writes["host PUT loadbalancers"]) == (2, 2)
    assert writes["guest PATCH services"] == 2  # finalizer, and both addresses at once
    assert idle == ({}, [], [])
    assert (left, is_gone, balancers) == ({}, True, {})


def test_with_one_pool_the_preferred_goes_on_and_the_required_is_told_which_and_why():
    async def story(world):
        await world.pool("four")
        world.start()
        await world.serve(spec=BOTH)
        await world.settle()
        await world.serve("strict", spec=STRICT)
        await world.settle()
        one = ingress(await world.service()), await remarks(world), await world.complaints()
        strict = ingress(await world.service("strict")), await world.complaints("strict")
        await six(world)
        await world.annotate("strict", pool="four,six")
        await world.settle()
        return one, strict, ingress(await world.service("strict"))

    one, (shown, complaints), mended = run_story(story)
    assert (one[0], one[2]) == ([V4], [])
    assert "asks for an address of IPv4 and IPv6, and Harvester gave 10.1.0.10 (IPv4)" in one[1][0]
    assert shown == []
    assert len(complaints) == 1
    assert "RequireDualStack" in complaints[0]
    assert mended == ["10.1.0.11", V6]


def test_a_full_second_pool_is_told_and_its_address_is_added_when_the_user_says_so():
    async def story(world):
        await world.pool("four")
        await six(world, last="10")
        world.start()
        await world.serve("other", spec=SIX, pool="six")
        await world.settle()
        await world.serve(spec=BOTH, pool="four,six")
        await world.settle()
        alone, told = ingress(await world.service()), await remarks(world)
        await world.delete("other")
        await world.settle(300)
        kept = await world.address()
        await world.annotate(addresses=None)
        await world.settle()
        return alone, told, kept, ingress(await world.service())

    alone, told, kept, both = run_story(story)
    assert (alone, kept) == ([V4], V4)
    assert "all addresses of the IP pool are taken" in told[0]
    assert both == [V4, V6]


def test_a_service_of_ipv6_has_its_address_from_a_pool_of_ipv6():
    async def story(world):
        await six(world, cluster=CLUSTER)
        world.start()
        await world.serve(spec=SIX)
        await world.settle()
        return ingress(await world.service()), await world.complaints()

    assert run_story(story) == ([V6], [])


def test_an_address_of_another_family_is_not_announced_and_the_event_says_so():
    async def story(world):
        await world.pool("four")
        await six(world)
        world.start()
        await world.serve(spec=SIX)
        await world.settle(100)
        wrong = await world.address(), await world.complaints()
        await world.annotate(pool="six")
        await world.settle()
        return wrong, ingress(await world.service()), await world.held("four")

    (address, complaints), mended, held = run_story(story)
    assert address == names.NO_ADDRESS
    assert len(complaints) == 1
    assert "Harvester gave 10.1.0.10 (IPv4), and spec.ipFamilies of the service is IPv6" in complaints[0]
    assert (mended, held) == ([V6], {})


def test_by_dhcp_a_service_has_ipv4_and_is_told_so_where_it_asks_for_more():
    async def story(world):
        world.start()
        await world.serve(spec=BOTH, ipam="dhcp")
        await world.serve("strict", spec=STRICT, ipam="dhcp")
        await world.serve("six", spec=SIX, ipam="dhcp")
        await world.settle()
        balancers = [name_of(one) for one in (await world.balancers()).values()]
        found = ingress(await world.service()), await remarks(world)
        return *found, await world.complaints("strict"), await world.complaints("six"), balancers

    shown, told, strict, only_six, balancers = run_story(story)
    assert shown == ["192.168.50.100"]
    assert [len(one) for one in (told, strict, only_six)] == [1, 1, 1]
    assert all("DHCP for IPv4 only" in one[0] for one in (told, strict, only_six))
    assert not any("-six-" in one for one in balancers)  # nothing is asked for what cannot be had


def test_the_second_address_goes_back_when_the_service_has_one_family_again():
    async def story(world):
        await world.pool("four")
        await six(world)
        world.start()
        await world.serve(spec=BOTH, pool="four,six")
        await world.settle()
        await world.guest.patch(WEB, {"spec": {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}})
        await world.settle()
        return ingress(await world.service()), await world.held("six"), len(await world.balancers())

    assert run_story(story) == ([V4], {}, 1)


def test_a_second_load_balancer_deleted_on_harvester_comes_again_with_its_address():
    async def story(world):
        await world.pool("four")
        await six(world)
        world.start()
        await world.serve(spec=BOTH, pool="four,six")
        await world.settle()
        [second] = [one for one in (await world.balancers()).values() if one["spec"]["ipPool"] == "six"]
        await world.harvester.delete(kinds.LOAD_BALANCER.ref(name_of(second), "default"))
        await world.settle()
        return ingress(await world.service()), list(await world.held("six"))

    shown, held = run_story(story)
    assert shown[-1:] == held == [V6]


def test_a_refused_second_load_balancer_holds_up_nothing_but_itself():
    async def story(world):
        await world.pool("four")
        await six(world)
        world.start()
        await world.serve(spec=BOTH, pool="four,six")
        await world.until(lambda: first(world))
        world.host_cable.denies = "POST loadbalancers"
        await world.settle(200)
        return ingress(await world.service()), await world.complaints()

    async def first(world):
        return len(await world.balancers()) == 1

    shown, complaints = run_story(story)
    assert shown == [V4]
    assert "Harvester refuses the load balancer" in complaints[0]
