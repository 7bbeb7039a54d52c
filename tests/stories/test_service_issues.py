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
from .service_rig import ADDRESSES, CLEANUP, INTERFACE, ServiceRig, a_service, a_service_rig, service_ref

CREATE, UPDATE, DELETE = frozenset({"create"}), frozenset({"update", "patch"}), frozenset({"delete"})
BALANCERS, SERVICES = frozenset({"loadbalancers"}), frozenset({"services"})
NO_ELECTION = "--leader-elect=false"


def run_story(
    story: Callable[[ServiceRig], Awaitable[Any]], *flags: str, started: bool = True, **kind: Any
) -> Any:
    """Run the story in a rig with a running program, and hold it against the invariants in the end."""

    async def whole() -> Any:
        async with a_service_rig(1, **kind) as rig:
            checker = InvariantChecker(rig)
            if started:
                rig.start(NO_ELECTION, *flags)
                await rig.pass_time(5)
            found = await story(rig)
            await rig.pass_time(60)
            assert checker.faults + find_faults(await look(rig)) == []
            return found

    return run_driven(whole())


async def warnings(rig: ServiceRig, name: str = "web") -> list[str]:
    return [
        raw["message"]
        for raw in await rig.guest.list(EVENT)
        if raw["type"] == "Warning" and nested(raw, "involvedObject", "name") == name
    ]


def at_host(rig: ServiceRig, method: str) -> int:
    return rig.calls[f"host {method} loadbalancers"]


# --- addresses leaked, duplicated, stuck ----------------------------------------------------------------------------


def test_issue_7449_an_address_that_comes_late_costs_no_load_balancer_and_is_never_allocated_twice() -> None:
    async def story(rig: ServiceRig) -> tuple[str, int, int, Raw]:
        await rig.serve()
        await rig.pass_time(1200)
        await rig.make_pool("10.1.0.10-12")
        address = await rig.served(within_s=5)
        [pool] = await rig.at_host.list(kinds.IP_POOL)
        return address, at_host(rig, "POST"), at_host(rig, "DELETE"), pool["status"]

    address, made, deleted, status = run_story(story)

    assert (address, made, deleted) == ("10.1.0.10", 1, 0)
    assert "allocatedHistory" not in status


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03, 0.06, 0.09, 0.12, 0.2, 0.4, 5.0])
def test_issue_8318_a_service_deleted_at_any_moment_of_its_creation_leaves_nothing(after_s: float) -> None:
    async def story(rig: ServiceRig) -> tuple[list[Raw], Raw]:
        await rig.make_pool("10.1.0.10-12")
        await rig.pass_time(1)
        await rig.serve()
        await rig.pass_time(after_s)
        await rig.delete()
        await rig.gone(within_s=10)
        await rig.pass_time(5)
        [pool] = await rig.at_host.list(kinds.IP_POOL)
        return await rig.balancers(), pool["status"]

    balancers, status = run_story(story)

    assert balancers == []
    assert "allocated" not in status


def test_issue_4329_a_program_that_takes_over_in_the_middle_finds_what_the_other_one_made() -> None:
    async def story(rig: ServiceRig) -> tuple[str, int]:
        await rig.make_pool("10.1.0.10-12")
        first = rig.start()
        await rig.pass_time(5)
        rig.start()
        await rig.serve()
        await rig.pass_time(0.03)
        assert len(await rig.balancers()) == 1
        assert await rig.address() == ""
        await rig.kill(first)
        return await rig.served(), at_host(rig, "POST")

    assert run_story(story, started=False) == ("10.1.0.10", 1)


def test_issue_11345_the_leftover_of_an_earlier_service_of_the_name_makes_room_in_a_pool_of_one() -> None:
    async def story(rig: ServiceRig) -> tuple[str, list[str]]:
        await rig.make_pool("10.1.0.10")
        await rig.serve()
        await rig.served()
        [pod] = rig.pods
        await rig.kill(pod)
        await rig.guest.patch(service_ref(), {"metadata": {"finalizers": None}})
        await rig.delete()
        raw = await rig.serve()
        assert len(await rig.balancers()) == 1
        rig.start(NO_ELECTION)
        address = await rig.served(within_s=60)
        assert [name_of(one) for one in await rig.balancers()] == [name_for(raw)]
        return address, [name_of(one) for one in await rig.balancers()]

    address, _ = run_story(story)

    assert address == "10.1.0.10"


def test_issue_9019_a_service_that_others_write_at_the_same_time_loses_nothing() -> None:
    async def story(rig: ServiceRig) -> Raw:
        await rig.make_pool("10.1.0.10-12")
        rig.faults.add(Fault(CONFLICT, UPDATE, SERVICES, times=3))
        await rig.serve(labels={"round": "0"})
        for number in range(20):
            change = {
                "metadata": {"labels": {"round": f"{number}"}, "annotations": {f"mine/{number}": "yes"}}
            }
            await rig.guest.patch(service_ref(), change)
            await rig.pass_time(0.01)
        await rig.served()
        return await rig.guest.get(service_ref())

    found = run_story(story)

    assert labels_of(found)["round"] == "19"
    assert {f"mine/{number}" for number in range(20)} < annotations_of(found).keys()


@pytest.mark.parametrize("number", [5918, 7542])
def test_issue_5918_and_7542_an_answer_that_is_lost_makes_no_second_load_balancer(number: int) -> None:
    """Both report addresses that were allocated twice or to no service; here the answer to each kind of write is lost."""
    verbs = {5918: CREATE, 7542: DELETE}[number]

    async def story(rig: ServiceRig) -> tuple[str, int]:
        await rig.make_pool("10.1.0.10-12")
        rig.host.faults.add(Fault(DropReply(), verbs, BALANCERS, times=1))
        await rig.serve()
        address = await rig.served()
        made = at_host(rig, "POST")
        await rig.delete()
        await rig.gone()
        return address, made

    address, made = run_story(story)

    assert address == "10.1.0.10"
    assert made <= 2  # a second try may find that the first one counted


# --- left behind after cluster deletion -----------------------------------------------------------------------------


async def leave_behind(rig: ServiceRig) -> None:
    """A service that is gone without anybody who cleaned up."""
    await rig.make_pool("10.1.0.10")
    pod = rig.start(NO_ELECTION)
    await rig.pass_time(5)
    await rig.serve()
    await rig.served()
    await rig.kill(pod)
    await rig.guest.patch(service_ref(), {"metadata": {"finalizers": None}})
    await rig.delete()
    assert len(await rig.balancers()) == 1


def test_issue_1460_and_5522_load_balancers_without_a_service_are_swept_where_that_is_wanted() -> None:
    async def story(rig: ServiceRig) -> list[Raw]:
        await leave_behind(rig)
        rig.start(NO_ELECTION, "--orphan-sweep=delete")
        await rig.pass_time(1800)
        assert len(await rig.balancers()) == 1  # who sees the report has an hour
        await rig.pass_time(3600)
        return await rig.balancers()

    assert run_story(story, started=False) == []


def test_issue_7940_without_that_wish_they_are_reported_once_and_stay() -> None:
    async def whole() -> tuple[int, int]:
        async with a_service_rig(1) as rig:
            await leave_behind(rig)
            [balancer] = await rig.balancers()
            rig.said.clear()
            rig.start(NO_ELECTION)
            await rig.pass_time(7200)
            said = [line for line in rig.said if name_of(balancer) in line]
            return len(await rig.balancers()), len(said)

    assert run_driven(whole()) == (1, 1)


# --- cluster name ---------------------------------------------------------------------------------------------------


def test_issue_6218_a_pool_that_does_not_match_is_told_with_the_requirement_that_it_had_to_meet() -> None:
    async def story(rig: ServiceRig) -> list[str]:
        await rig.make_pool("10.1.0.10-12", cluster="other")
        await rig.serve()
        await rig.pass_time(600)
        return await warnings(rig)

    [message] = run_story(story)

    assert "no matched IPPool with requirement" in message
    assert "Cluster:demo" in message


def test_issue_10527_a_refusal_by_the_webhook_of_harvester_is_told_and_tried_again() -> None:
    async def story(rig: ServiceRig) -> tuple[list[str], str]:
        await rig.make_pool("10.1.0.10-12")
        text = "Internal error occurred: create loadbalancer failed with guest cluster check"
        fault = rig.host.faults.add(Fault(denied(text), CREATE, BALANCERS))
        await rig.serve()
        await rig.pass_time(300)
        told = await warnings(rig)
        rig.host.faults.end(fault)
        return told, await rig.served(within_s=310)

    told, address = run_story(story)

    assert len(told) == 1
    assert "guest cluster check" in told[0]
    assert address == "10.1.0.10"


# --- pool and network selection -------------------------------------------------------------------------------------


def test_issue_10133_a_network_that_the_webhook_overwrites_is_no_reason_to_write_again() -> None:
    async def story(rig: ServiceRig) -> tuple[dict[str, str], int]:
        await rig.make_pool("10.1.0.10-12")
        await rig.serve(network="default/vlan50")
        await rig.served()
        await rig.pass_time(5)
        [balancer] = await rig.balancers()
        before = at_host(rig, "PUT")
        await rig.annotate(something="else")
        await rig.pass_time(60)
        return annotations_of(balancer), at_host(rig, "PUT") - before

    said, written = run_story(story)

    # Harvester 1.8 asks the machines for their network, and these carry no label of the node driver.
    assert said["loadbalancer.harvesterhci.io/network"] == ""
    assert said["cloudprovider.harvesterhci.io/lb-network"] == "default/vlan50"
    assert written == 0


def test_issue_5486_a_service_on_another_network_is_announced_on_its_interface() -> None:
    async def story(rig: ServiceRig) -> dict[str, str]:
        await rig.make_pool("10.1.0.10-12", network="default/vlan50")
        await rig.serve(network="default/vlan50")
        await rig.served()
        return annotations_of(await rig.guest.get(service_ref()))

    said = run_story(story, version="v1.9.0")

    assert said[INTERFACE] == "enp1s0"
    assert said[ADDRESSES] == "10.1.0.10"


# --- pending load balancers and messages ----------------------------------------------------------------------------


def test_issue_6123_and_4891_a_pending_service_says_why() -> None:
    async def story(rig: ServiceRig) -> list[str]:
        await rig.make_pool("10.1.0.10")
        await rig.serve("first")
        await rig.served("first")
        await rig.serve()
        await rig.pass_time(600)
        return await warnings(rig)

    [message] = run_story(story)

    assert "no IP addresses available in range set: 10.1.0.10-10.1.0.10" in message


def test_issue_4689_a_second_service_by_dhcp_gets_a_lease_of_its_own() -> None:
    async def story(rig: ServiceRig) -> set[str]:
        names = ("one", "two", "three")
        for name in names:
            await rig.serve(name, ipam="dhcp")
        return {await rig.served(name) for name in names}

    assert len(run_story(story)) == 3


def test_issue_11590_a_plain_service_without_any_annotation_gets_an_address_from_a_pool() -> None:
    async def story(rig: ServiceRig) -> str:
        await rig.make_pool("10.1.0.10-12")
        await rig.serve(ipam="")
        return await rig.served()

    assert run_story(story) == "10.1.0.10"


def test_issue_4678_after_an_upgrade_load_balancers_of_the_earlier_program_are_taken_over_as_they_are() -> (
    None
):
    """The Go program before 0.2.7 did not note the network; a service that names one must not fail for it."""

    async def story(rig: ServiceRig) -> tuple[str, list[str]]:
        await rig.make_pool("10.1.0.10-12")
        pod = rig.start(NO_ELECTION)
        await rig.pass_time(5)
        await rig.serve(network="default/vlan50")
        address = await rig.served()
        await rig.kill(pod)
        [balancer] = await rig.balancers()
        gone = {"metadata": {"annotations": {"cloudprovider.harvesterhci.io/lb-network": None}}}
        await rig.at_host.patch(kinds.LOAD_BALANCER.ref(name_of(balancer), "default"), gone)
        rig.start(NO_ELECTION)
        await rig.pass_time(60)
        assert await rig.address() == address
        return address, await warnings(rig)

    assert run_story(story, started=False) == ("10.1.0.10", [])


# --- other controllers ----------------------------------------------------------------------------------------------


def test_docs_pr_1110_a_finalizer_that_another_controller_takes_away_leaks_no_load_balancer() -> None:
    async def story(rig: ServiceRig) -> list[Raw]:
        await rig.make_pool("10.1.0.10")
        await rig.serve(finalizers=["example.com/mine"])
        await rig.served()
        rig.links["host"].shut()  # so that the other one is faster
        await rig.delete()
        await rig.pass_time(1)
        raw = await rig.guest.get(service_ref())
        assert CLEANUP in finalizers_of(raw)
        await rig.guest.patch(service_ref(), {"metadata": {"finalizers": None}})
        await rig.pass_time(1)
        assert await rig.service() is None
        rig.links["host"].open()
        await rig.pass_time(310)
        return await rig.balancers()

    assert run_story(story) == []


def test_issue_11345_a_service_made_anew_at_once_gets_a_load_balancer_of_its_own() -> None:
    async def story(rig: ServiceRig) -> tuple[str, str]:
        await rig.make_pool("10.1.0.10")
        await rig.serve()
        first = await rig.served()
        await rig.guest.patch(service_ref(), {"metadata": {"finalizers": None}})
        await rig.delete()
        await rig.guest.create(SERVICE, a_service())
        return first, await rig.served(within_s=60)

    assert run_story(story) == ("10.1.0.10", "10.1.0.10")
