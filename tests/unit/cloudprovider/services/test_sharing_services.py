"""Several services on one address."""

import pytest

from windrow.cloudprovider import names
from windrow.harvester.unanswered import LATEST
from windrow.kubernetes.objects import annotations_of, labels_of
from windrow.kubernetes.resources import SERVICE

from .rig import ingress, protected, run_story, sharing


async def three(world, primary="web"):
    """A primary and two secondaries, settled."""
    await world.pool()
    world.start()
    await world.serve("web")
    await world.serve("one", primary=primary, ports=(81,))
    await world.serve("two", primary=primary, ports=(82,))
    await world.settle()


@pytest.mark.parametrize("primary", ["web", "default/web"])
def test_three_services_share_one_address_of_the_pool(primary):
    async def story(world):
        await three(world, primary)
        services = [await world.service(name) for name in ("web", "one", "two")]
        return services, await world.held(), await world.events("one")

    services, held, events = run_story(story)

    assert [ingress(one) for one in services] == [["10.1.0.10"]] * 3
    assert list(held) == ["10.1.0.10"]
    assert [sharing(one) for one in services] == [None, "default.web", "default.web"]
    assert all(map(protected, services))
    assert [reason for reason, _ in events] == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]


def test_a_secondary_waits_for_a_primary_that_comes_later():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve("one", primary="web", ports=(81,))
        await world.settle()
        await world.serve("web")
        await world.settle()
        return await world.address("one"), len(await world.complaints("one"))

    assert run_story(story) == ("10.1.0.10", 1)


def test_a_primary_in_another_namespace_is_fine():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve("web", "front")
        await world.serve("one", primary="front/web", ports=(81,))
        await world.settle()
        return await world.service("one")

    service = run_story(story)
    assert ingress(service) == ["10.1.0.10"]
    assert sharing(service) == "front.web"


@pytest.mark.parametrize("deletes", [True, False])
def test_a_primary_with_a_long_name_can_be_shared(deletes):
    async def story(world):
        await world.pool()
        world.start()
        await world.serve("w" * 60, "n" * 60)
        await world.serve("one", primary=f"{'n' * 60}/{'w' * 60}", ports=(81,))
        await world.settle()
        await world.delete("w" * 60, "n" * 60)
        await world.settle()
        stays = not await world.is_gone("w" * 60, "n" * 60)
        await (world.delete("one") if deletes else world.annotate("one", primary=None))
        await world.settle()
        return stays, await world.is_gone("w" * 60, "n" * 60), list(await world.held())

    assert run_story(story) == (True, True, [] if deletes else ["10.1.0.11"])


def test_the_same_number_on_another_protocol_is_no_collision():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve("web", ports=(("TCP", 53),))
        await world.serve("one", primary="web", ports=(("UDP", 53),))
        await world.settle()
        return await world.address("one"), await world.complaints("one")

    assert run_story(story) == ("10.1.0.10", [])


def test_of_two_secondaries_made_at_once_with_one_port_only_the_first_gets_it():
    async def story(world):
        await world.pool()
        await world.serve("web")
        await world.serve("one", primary="web", ports=(81,))
        await world.serve("two", primary="web", ports=(81,))
        world.start()
        await world.settle()
        first = await world.address("one"), await world.address("two")
        await world.delete("one")
        await world.settle()
        return first, await world.address("two"), len(await world.complaints("two"))

    assert run_story(story) == (("10.1.0.10", ""), "10.1.0.10", 1)


def test_a_primary_with_secondaries_stays_until_they_have_left():
    async def story(world):
        await three(world)
        await world.delete("web")
        await world.settle()
        held, complaints = await world.held(), await world.complaints("web")
        await world.delete("one")
        await world.settle()
        half = await world.is_gone("one"), await world.is_gone("web")
        await world.annotate("two", primary=None)
        await world.settle()
        return (
            held,
            complaints,
            half,
            await world.is_gone("web"),
            await world.address("two"),
            await world.held(),
        )

    held, complaints, half, gone, address, afterwards = run_story(story)

    assert list(held) == ["10.1.0.10"]
    assert complaints[0].startswith(
        "Error syncing load balancer: failed to delete load balancer: could not delete load balancer for service "
        "default/web: service default/web is still used by other services [default/one default/two]"
    )
    assert half == (True, False)
    assert gone
    assert address == "10.1.0.11"
    assert list(afterwards) == ["10.1.0.11"]


@pytest.mark.parametrize("order", [("web", "one", "two"), ("one", "web", "two"), ("two", "one", "web")])
def test_services_that_go_with_one_command_are_not_complained_about(order):
    async def story(world):
        await three(world)
        for name in order:
            await world.delete(name)
            await world.settle(0.5)
        await world.settle()
        told = [await world.complaints(name) for name in order]
        return told, [await world.is_gone(name) for name in order], await world.held(), world.lines

    told, gone, held, lines = run_story(story)
    assert told == [[], [], []]
    assert gone == [True, True, True]
    assert held == {}
    assert not [line for line in lines if "does not exist" in line]


def test_a_secondary_that_is_made_just_before_its_primary_is_not_complained_about():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve("one", primary="web", ports=(81,))
        await world.settle(0.5)
        await world.serve("web")
        await world.settle()
        return await world.address("one"), await world.complaints("one")

    assert run_story(story) == ("10.1.0.10", [])


def test_the_mode_of_a_secondary_is_taken_away_with_a_word():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve("web")
        await world.serve("one", primary="web", ports=(81,), ipam="dhcp")
        await world.settle()
        return annotations_of(await world.service("one")), await world.events("one", "IgnoredAnnotations")

    annotations, told = run_story(story)
    assert names.IPAM not in annotations
    assert len(told) == 1


def test_secondaries_follow_their_primary_to_another_address():
    async def story(world):
        await three(world)
        await world.pool("other", first=50, last=60, cluster="absent")
        await world.annotate("web", pool="other")
        await world.settle()
        return [await world.address(name) for name in ("web", "one", "two")], await world.held()

    assert run_story(story) == (["10.1.0.50"] * 3, {})


def test_a_secondary_with_a_fault_leaves_the_address_that_its_primary_left():
    async def story(world):
        await world.pool(last=10)
        await world.pool("other", first=50, last=60, cluster="absent")
        world.start()
        await world.serve("web", pool="pool")
        await world.serve("one", primary="web", ports=(81,))
        await world.settle()
        ports = [{"name": f"p{one}", "port": one} for one in (80, 81)]
        await world.guest.patch(SERVICE.ref("web", "default"), {"spec": {"ports": ports}})
        await world.settle()
        await world.annotate("web", pool="other")
        await world.serve("next", pool="pool")
        await world.settle(60)
        return [await world.address(name) for name in ("web", "one", "next")], await world.complaints("one")

    addresses, complaints = run_story(story)
    assert addresses == ["10.1.0.50", "10.1.0.50", "10.1.0.10"]
    assert len(complaints) == 1
    assert "port 81 (TCP)" in complaints[0]


def test_secondaries_leave_an_address_that_their_primary_lost_without_another():
    async def story(world):
        await world.pool(last=10)
        world.start()
        await world.serve("web", pool="pool")
        await world.serve("one", primary="web", ports=(81,))
        await world.settle()
        await world.annotate("web", pool="nowhere")
        await world.serve("next", pool="pool")
        await world.settle(60)
        return [await world.address(name) for name in ("web", "one", "next")]

    assert run_story(story) == ["", "", "10.1.0.10"]


def test_a_label_that_a_stranger_wrote_holds_no_primary():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve("web")
        await world.serve("x", "evil", ipam="nonsense")
        forged = {"metadata": {"labels": {names.PRIMARY_SERVICE: "default.web"}}}
        await world.guest.patch(SERVICE.ref("x", "evil"), forged)
        await world.settle()
        await world.delete("web")
        await world.settle()
        return await world.is_gone("web"), await world.address("x", "evil")

    assert run_story(story) == (True, "")


def test_a_secondary_that_waits_for_its_primarys_only_address_gets_it_when_that_goes():
    async def story(world):
        await world.pool(last=10)
        world.start()
        await world.serve("web")
        await world.serve("one", primary="web", ports=(81,))
        await world.settle()
        await world.annotate("one", primary=None)
        await world.settle()
        before = await world.address("one")
        await world.delete("web")
        await world.settle(300)
        return (
            before,
            await world.is_gone("web"),
            await world.address("one"),
            sharing(await world.service("one")),
        )

    assert run_story(story) == ("10.1.0.10", True, "10.1.0.10", None)


def test_a_secondary_whose_own_load_balancer_was_never_seen_leaves_none():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve("web")
        await world.settle()
        world.host_cable.hold_news()
        world.host_cable.breaks += [("POST loadbalancers", "after")] * 2
        await world.serve("one", ports=(81,))
        await world.settle(0.5)
        made = len(await world.balancers())
        await world.annotate("one", primary="web")
        await world.settle(3)
        await world.delete("one")
        await world.settle(10)
        world.host_cable.flows.set()
        await world.settle(60)
        assert list(await world.held()) == ["10.1.0.10"]
        await world.settle(LATEST.total_seconds())  # since a request had no answer
        return made, await world.is_gone("one"), list(await world.held())

    assert run_story(story) == (2, True, ["10.1.0.10"])


def test_secondaries_follow_a_primary_of_dhcp():
    async def story(world):
        world.start()
        await world.serve("web", ipam="dhcp")
        await world.serve("one", primary="web", ports=(81,))
        await world.settle(10)
        return await world.address("web"), await world.address("one"), ingress(await world.service("one"))

    assert run_story(story) == ("0.0.0.0", "192.168.50.100", ["192.168.50.100"])


def test_a_service_that_becomes_a_secondary_gives_its_own_address_back_afterwards():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve("web")
        await world.settle()
        await world.serve("one", ipam="pool", ports=(81,))
        await world.settle()
        before = await world.held()
        await world.annotate("one", primary="web")
        await world.settle()
        return before, await world.held(), await world.service("one")

    before, held, service = run_story(story)
    assert list(before) == ["10.1.0.10", "10.1.0.11"]
    assert list(held) == ["10.1.0.10"]
    assert ingress(service) == ["10.1.0.10"]
    assert names.IPAM not in annotations_of(service)


def test_a_secondary_that_goes_its_own_way_keeps_the_shared_address_until_it_has_one():
    async def story(world):
        await world.pool(last=10)
        world.start()
        await world.serve("web")
        await world.serve("one", primary="web", ports=(81,))
        await world.settle()
        await world.annotate("one", primary=None)
        await world.settle()
        meanwhile = await world.address("one"), sharing(await world.service("one"))
        await world.widen(20)
        await world.settle(40)
        return meanwhile, await world.address("one"), labels_of(await world.service("one"))

    assert run_story(story) == (("10.1.0.10", "default.web"), "10.1.0.11", {})


def test_a_service_whose_address_others_share_cannot_become_a_secondary():
    async def story(world):
        await three(world)
        await world.serve("fourth", ports=(90,))
        await world.settle()
        await world.annotate("web", primary="fourth")
        await world.settle()
        return await world.complaints("web"), await world.address("web"), await world.address("one")

    complaints, *addresses = run_story(story)
    assert len(complaints) == 1
    assert "[default/one default/two]" in complaints[0]
    assert addresses == ["10.1.0.10", "10.1.0.10"]


def test_a_deleted_secondary_releases_at_once_and_touches_no_load_balancer():
    async def story(world):
        await three(world)
        world.writes()
        await world.delete("one")
        await world.settle(1)
        return await world.is_gone("one"), world.writes()

    gone, writes = run_story(story)
    assert gone
    assert writes == {"guest PATCH services": 1, "guest POST events": 1}


def test_a_secondary_takes_the_network_of_its_primary_and_may_not_name_another():
    async def story(world):
        await world.pool()
        await world.map_networks(**{"default/vlan1": "enp1s0", "default/vlan2": "enp2s0"})
        world.start()
        await world.serve("web", network="default/vlan1")
        await world.serve("one", primary="web", ports=(81,))
        await world.serve("two", primary="web", ports=(82,), network="default/vlan2")
        await world.settle()
        return (
            annotations_of(await world.service("one")),
            await world.address("two"),
            await world.complaints("two"),
        )

    annotations, address, complaints = run_story(story)
    assert annotations[names.NETWORK] == "default/vlan1"
    assert names.VIP_INTERFACE not in annotations
    assert address == ""
    assert len(complaints) == 1
    assert "default/vlan2" in complaints[0]


def test_a_primary_that_stops_to_be_a_load_balancer_stays_one_until_its_secondaries_left():
    async def story(world):
        await three(world)
        await world.guest.patch(SERVICE.ref("web", "default"), {"spec": {"type": "ClusterIP"}})
        await world.settle()
        held = await world.held()
        for name in ("one", "two"):
            await world.delete(name)
        await world.annotate("web", addresses=None, **dict.fromkeys(names.VIP_STATUS_KEYS))
        await world.settle()
        return list(held), await world.held(), protected(await world.service("web"))

    assert run_story(story) == (["10.1.0.10"], {}, False)


def test_secondaries_keep_a_dhcp_address_while_kube_vip_starts_anew():
    async def story(world):
        world.start()
        await world.serve("web", ipam="dhcp")
        await world.settle(20)
        await world.serve("one", primary="web", ports=(81,))
        await world.settle(10)
        before = await world.address("one")
        world.vip.works = False
        await world.guest.patch(
            SERVICE.ref("web", "default"), {"status": {"loadBalancer": {"ingress": None}}}, "status"
        )
        await world.settle(60)
        return before, await world.address("one"), ingress(await world.service("one"))

    before, after, shown = run_story(story)

    assert before not in (None, names.DHCP_PLACEHOLDER)
    assert (after, shown) == (before, [before])
