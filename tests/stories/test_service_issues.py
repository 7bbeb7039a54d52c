"""What users reported against the Go program, replayed: reference 02 §8.1, the part about services.

Each test is named after the issue (of harvester/harvester unless it says otherwise), and tells what happens instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.emulator import kinds
from windrow.emulator.faults import CONFLICT, DropReply, Fault, denied
from windrow.kubernetes.objects import Raw, annotations_of, finalizers_of, labels_of, name_of, nested
from windrow.kubernetes.resources import EVENT, SERVICE

from .service_invariants import InvariantChecker, find_faults, look, name_for
from .service_rig import ADDRESSES, CLEANUP, INTERFACE, Room, a_room, a_service, service_ref

CREATE, UPDATE, DELETE = frozenset({"create"}), frozenset({"update", "patch"}), frozenset({"delete"})
BALANCERS, SERVICES = frozenset({"loadbalancers"}), frozenset({"services"})
NO_ELECTION = "--leader-elect=false"


def tell(story: Callable[[Room], Awaitable[Any]], *flags: str, started: bool = True, **kind: Any) -> Any:
    """Run the story in a room with a running program, and hold it against the invariants in the end."""

    async def whole() -> Any:
        async with a_room(1, **kind) as room:
            checker = InvariantChecker(room)
            if started:
                room.start(NO_ELECTION, *flags)
                await room.pass_time(5)
            found = await story(room)
            await room.pass_time(60)
            assert checker.faults + find_faults(await look(room)) == []
            return found

    return run_driven(whole())


async def warnings(room: Room, name: str = "web") -> list[str]:
    return [
        raw["message"]
        for raw in await room.guest.list(EVENT)
        if raw["type"] == "Warning" and nested(raw, "involvedObject", "name") == name
    ]


def at_host(room: Room, method: str) -> int:
    return room.calls[f"host {method} loadbalancers"]


# --- addresses leaked, duplicated, stuck ----------------------------------------------------------------------------


def test_issue_7449_an_address_that_comes_late_costs_no_load_balancer_and_is_never_allocated_twice() -> None:
    async def story(room: Room) -> tuple[str, int, int, Raw]:
        await room.serve()
        await room.pass_time(1200)
        await room.make_pool("10.1.0.10-12")
        address = await room.served(within_s=5)
        [pool] = await room.at_host.list(kinds.IP_POOL)
        return address, at_host(room, "POST"), at_host(room, "DELETE"), pool["status"]

    address, made, deleted, status = tell(story)

    assert (address, made, deleted) == ("10.1.0.10", 1, 0)
    assert "allocatedHistory" not in status


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03, 0.06, 0.09, 0.12, 0.2, 0.4, 5.0])
def test_issue_8318_a_service_deleted_at_any_moment_of_its_creation_leaves_nothing(after_s: float) -> None:
    async def story(room: Room) -> tuple[list[Raw], Raw]:
        await room.make_pool("10.1.0.10-12")
        await room.pass_time(1)
        await room.serve()
        await room.pass_time(after_s)
        await room.delete()
        await room.gone(within_s=10)
        await room.pass_time(5)
        [pool] = await room.at_host.list(kinds.IP_POOL)
        return await room.balancers(), pool["status"]

    balancers, status = tell(story)

    assert balancers == []
    assert "allocated" not in status


def test_issue_4329_a_program_that_takes_over_in_the_middle_finds_what_the_other_one_made() -> None:
    async def story(room: Room) -> tuple[str, int]:
        await room.make_pool("10.1.0.10-12")
        first = room.start()
        await room.pass_time(5)
        room.start()
        await room.serve()
        await room.pass_time(0.03)
        assert len(await room.balancers()) == 1
        assert await room.address() == ""
        await room.kill(first)
        return await room.served(), at_host(room, "POST")

    assert tell(story, started=False) == ("10.1.0.10", 1)


def test_issue_11345_the_leftover_of_an_earlier_service_of_the_name_makes_room_in_a_pool_of_one() -> None:
    async def story(room: Room) -> tuple[str, list[str]]:
        await room.make_pool("10.1.0.10")
        await room.serve()
        await room.served()
        [pod] = room.pods
        await room.kill(pod)
        await room.guest.patch(service_ref(), {"metadata": {"finalizers": None}})
        await room.delete()
        raw = await room.serve()
        assert len(await room.balancers()) == 1
        room.start(NO_ELECTION)
        address = await room.served(within_s=60)
        assert [name_of(one) for one in await room.balancers()] == [name_for(raw)]
        return address, [name_of(one) for one in await room.balancers()]

    address, _ = tell(story)

    assert address == "10.1.0.10"


def test_issue_9019_a_service_that_others_write_at_the_same_time_loses_nothing() -> None:
    async def story(room: Room) -> Raw:
        await room.make_pool("10.1.0.10-12")
        room.faults.add(Fault(CONFLICT, UPDATE, SERVICES, times=3))
        await room.serve(labels={"round": "0"})
        for number in range(20):
            change = {
                "metadata": {"labels": {"round": f"{number}"}, "annotations": {f"mine/{number}": "yes"}}
            }
            await room.guest.patch(service_ref(), change)
            await room.pass_time(0.01)
        await room.served()
        return await room.guest.get(service_ref())

    found = tell(story)

    assert labels_of(found)["round"] == "19"
    assert {f"mine/{number}" for number in range(20)} < annotations_of(found).keys()


@pytest.mark.parametrize("number", [5918, 7542])
def test_issue_5918_and_7542_an_answer_that_is_lost_makes_no_second_load_balancer(number: int) -> None:
    """Both report addresses that were allocated twice or to no service; here the answer to each kind of write is lost."""
    verbs = {5918: CREATE, 7542: DELETE}[number]

    async def story(room: Room) -> tuple[str, int]:
        await room.make_pool("10.1.0.10-12")
        room.host.faults.add(Fault(DropReply(), verbs, BALANCERS, times=1))
        await room.serve()
        address = await room.served()
        made = at_host(room, "POST")
        await room.delete()
        await room.gone()
        return address, made

    address, made = tell(story)

    assert address == "10.1.0.10"
    assert made <= 2  # a second try may find that the first one counted


# --- left behind after cluster deletion -----------------------------------------------------------------------------


async def leave_behind(room: Room) -> None:
    """A service that is gone without anybody who cleaned up."""
    await room.make_pool("10.1.0.10")
    pod = room.start(NO_ELECTION)
    await room.pass_time(5)
    await room.serve()
    await room.served()
    await room.kill(pod)
    await room.guest.patch(service_ref(), {"metadata": {"finalizers": None}})
    await room.delete()
    assert len(await room.balancers()) == 1


def test_issue_1460_and_5522_load_balancers_without_a_service_are_swept_where_that_is_wanted() -> None:
    async def story(room: Room) -> list[Raw]:
        await leave_behind(room)
        room.start(NO_ELECTION, "--orphan-sweep=delete")
        await room.pass_time(1800)
        assert len(await room.balancers()) == 1  # who sees the report has an hour
        await room.pass_time(3600)
        return await room.balancers()

    assert tell(story, started=False) == []


def test_issue_7940_without_that_wish_they_are_reported_once_and_stay() -> None:
    async def whole() -> tuple[int, int]:
        async with a_room(1) as room:
            await leave_behind(room)
            [balancer] = await room.balancers()
            room.said.clear()
            room.start(NO_ELECTION)
            await room.pass_time(7200)
            said = [line for line in room.said if name_of(balancer) in line]
            return len(await room.balancers()), len(said)

    assert run_driven(whole()) == (1, 1)


# --- cluster name ---------------------------------------------------------------------------------------------------


def test_issue_6218_a_pool_that_does_not_match_is_told_with_the_requirement_that_it_had_to_meet() -> None:
    async def story(room: Room) -> list[str]:
        await room.make_pool("10.1.0.10-12", cluster="other")
        await room.serve()
        await room.pass_time(600)
        return await warnings(room)

    [message] = tell(story)

    assert "no matched IPPool with requirement" in message
    assert "Cluster:demo" in message


def test_issue_10527_a_refusal_by_the_webhook_of_harvester_is_told_and_tried_again() -> None:
    async def story(room: Room) -> tuple[list[str], str]:
        await room.make_pool("10.1.0.10-12")
        text = "Internal error occurred: create loadbalancer failed with guest cluster check"
        fault = room.host.faults.add(Fault(denied(text), CREATE, BALANCERS))
        await room.serve()
        await room.pass_time(300)
        told = await warnings(room)
        room.host.faults.end(fault)
        return told, await room.served(within_s=310)

    told, address = tell(story)

    assert len(told) == 1
    assert "guest cluster check" in told[0]
    assert address == "10.1.0.10"


# --- pool and network selection -------------------------------------------------------------------------------------


def test_issue_10133_a_network_that_the_webhook_overwrites_is_no_reason_to_write_again() -> None:
    async def story(room: Room) -> tuple[dict[str, str], int]:
        await room.make_pool("10.1.0.10-12")
        await room.serve(network="default/vlan50")
        await room.served()
        await room.pass_time(5)
        [balancer] = await room.balancers()
        before = at_host(room, "PUT")
        await room.annotate(something="else")
        await room.pass_time(60)
        return annotations_of(balancer), at_host(room, "PUT") - before

    said, written = tell(story)

    # Harvester 1.8 asks the machines for their network, and these carry no label of the node driver.
    assert said["loadbalancer.harvesterhci.io/network"] == ""
    assert said["cloudprovider.harvesterhci.io/lb-network"] == "default/vlan50"
    assert written == 0


def test_issue_5486_a_service_on_another_network_is_announced_on_its_interface() -> None:
    async def story(room: Room) -> dict[str, str]:
        await room.make_pool("10.1.0.10-12", network="default/vlan50")
        await room.serve(network="default/vlan50")
        await room.served()
        return annotations_of(await room.guest.get(service_ref()))

    said = tell(story, version="v1.9.0")

    assert said[INTERFACE] == "enp1s0"
    assert said[ADDRESSES] == "10.1.0.10"


# --- pending load balancers and messages ----------------------------------------------------------------------------


def test_issue_6123_and_4891_a_pending_service_says_why() -> None:
    async def story(room: Room) -> list[str]:
        await room.make_pool("10.1.0.10")
        await room.serve("first")
        await room.served("first")
        await room.serve()
        await room.pass_time(600)
        return await warnings(room)

    [message] = tell(story)

    assert "no IP addresses available in range set: 10.1.0.10-10.1.0.10" in message


def test_issue_4689_a_second_service_by_dhcp_gets_a_lease_of_its_own() -> None:
    async def story(room: Room) -> set[str]:
        names = ("one", "two", "three")
        for name in names:
            await room.serve(name, ipam="dhcp")
        return {await room.served(name) for name in names}

    assert len(tell(story)) == 3


def test_issue_11590_a_plain_service_without_any_annotation_gets_an_address_from_a_pool() -> None:
    async def story(room: Room) -> str:
        await room.make_pool("10.1.0.10-12")
        await room.serve(ipam="")
        return await room.served()

    assert tell(story) == "10.1.0.10"


def test_issue_4678_after_an_upgrade_load_balancers_of_the_earlier_program_are_taken_over_as_they_are() -> (
    None
):
    """The Go program before 0.2.7 did not note the network; a service that names one must not fail for it."""

    async def story(room: Room) -> tuple[str, list[str]]:
        await room.make_pool("10.1.0.10-12")
        pod = room.start(NO_ELECTION)
        await room.pass_time(5)
        await room.serve(network="default/vlan50")
        address = await room.served()
        await room.kill(pod)
        [balancer] = await room.balancers()
        gone = {"metadata": {"annotations": {"cloudprovider.harvesterhci.io/lb-network": None}}}
        await room.at_host.patch(kinds.LOAD_BALANCER.ref(name_of(balancer), "default"), gone)
        room.start(NO_ELECTION)
        await room.pass_time(60)
        assert await room.address() == address
        return address, await warnings(room)

    assert tell(story, started=False) == ("10.1.0.10", [])


# --- other controllers ----------------------------------------------------------------------------------------------


def test_docs_pr_1110_a_finalizer_that_another_controller_takes_away_leaks_no_load_balancer() -> None:
    async def story(room: Room) -> list[Raw]:
        await room.make_pool("10.1.0.10")
        await room.serve(finalizers=["example.com/mine"])
        await room.served()
        room.gates["host"].shut()  # so that the other one is faster
        await room.delete()
        await room.pass_time(1)
        raw = await room.guest.get(service_ref())
        assert CLEANUP in finalizers_of(raw)
        await room.guest.patch(service_ref(), {"metadata": {"finalizers": None}})
        await room.pass_time(1)
        assert await room.service() is None
        room.gates["host"].open()
        await room.pass_time(310)
        return await room.balancers()

    assert tell(story) == []


def test_issue_11345_a_service_made_anew_at_once_gets_a_load_balancer_of_its_own() -> None:
    async def story(room: Room) -> tuple[str, str]:
        await room.make_pool("10.1.0.10")
        await room.serve()
        first = await room.served()
        await room.guest.patch(service_ref(), {"metadata": {"finalizers": None}})
        await room.delete()
        await room.guest.create(SERVICE, a_service())
        return first, await room.served(within_s=60)

    assert tell(story) == ("10.1.0.10", "10.1.0.10")
