"""The wall clock of the cloud provider's machine is set while services rest, wait and lose Harvester."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.cloudprovider.names import LEASE_NAME, LEASE_NAMESPACE
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import EVENT, LEASE, SERVICE

from .service_invariants import InvariantChecker, find_faults, look
from .service_rig import ServiceRig, a_service_rig

JUMPS = pytest.mark.parametrize(
    "jump_s", [-3600, 300, *(pytest.param(jump_s, marks=pytest.mark.long) for jump_s in (-300, 3600))]
)


@asynccontextmanager
async def a_rig_of_two_machines() -> AsyncIterator[ServiceRig]:
    """Pods run on a machine with a clock of its own; it is two hours after the certificates were made."""
    async with a_service_rig(1) as rig:
        await rig.pass_time(7200)
        rig.pod_clock = another_clock(rig)
        await rig.make_pool("10.1.0.10-19")
        yield rig


def another_clock(rig: ServiceRig) -> LoopClock:
    clock = LoopClock()
    clock.set_wall(rig.clock.now() - clock.now())
    return clock


def set_wall(clock: LoopClock, seconds: float) -> None:
    clock.set_wall(timedelta(seconds=seconds))


def run_story(story: Callable[[ServiceRig], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with a_rig_of_two_machines() as rig:
            return await story(rig)

    return run_driven(run())


async def problems_of(rig: ServiceRig, name: str) -> list[str]:
    return [
        raw["message"]
        for raw in await rig.guest.list(EVENT)
        if raw["involvedObject"]["name"] == name and raw["type"] == "Warning"
    ]


@JUMPS
def test_no_service_loses_its_address_and_nothing_is_asked_when_the_clock_is_set(jump_s: int) -> None:
    async def story(rig: ServiceRig) -> tuple[list[str], Counter[str], list[str]]:
        checker = InvariantChecker(rig)
        rig.start()
        await rig.serve("dns", ports=[("UDP", 53)])
        await rig.served("dns")
        await rig.serve("dns-tcp", ipam="", ports=[("TCP", 53)], primary="dns")
        await rig.serve("web", ipam="dhcp")
        names = ("dns", "dns-tcp", "web")
        before = [await rig.served(name) for name in names]
        await rig.pass_time(120)
        calls, writes = rig.calls.copy(), len(rig.writes)
        set_wall(rig.pod_clock, jump_s)
        await rig.pass_time(900)
        set_wall(rig.pod_clock, -jump_s)
        await rig.pass_time(900)
        asked = rig.calls - calls
        after = [await rig.address(name) for name in names]
        assert before == after
        return (
            [write.what for write in rig.writes[writes:]],
            asked,
            checker.faults + find_faults(await look(rig)),
        )

    writes, asked, faults = run_story(story)
    assert faults == []
    assert [what for what in writes if "leases" not in what] == []
    assert {what for what in asked if "leases" not in what and "WATCH" not in what} == set()


@JUMPS
def test_what_kube_vip_may_lack_is_told_after_a_minute_of_waiting(jump_s: int) -> None:
    async def story(rig: ServiceRig) -> list[bool]:
        rig.announcer.works = False
        rig.start()
        await rig.serve()
        await rig.pass_time(30)
        set_wall(rig.pod_clock, jump_s)
        # A change while it waits, so that the wait is looked at.
        await rig.guest.patch(
            SERVICE.ref("web", "default"), {"metadata": {"annotations": {"acme.io/note": "x"}}}
        )
        found = []
        for seconds in (20, 15):  # 50 s and 65 s after the beginning
            await rig.pass_time(seconds)
            found.append(bool(await problems_of(rig, "web")))
        return found

    assert run_story(story) == [False, True]


@JUMPS
def test_an_outage_of_harvester_is_reported_as_early_and_ends_as_soon(jump_s: int) -> None:
    async def story(rig: ServiceRig, jump_s: int) -> tuple[float, bool]:
        rig.start()
        await rig.pass_time(20)
        rig.links["host"].shut()
        await rig.serve()
        begun = rig.now_s
        await rig.pass_time(2)
        set_wall(rig.pod_clock, jump_s)
        await rig.guest.patch(
            SERVICE.ref("web", "default"), {"metadata": {"annotations": {"acme.io/note": "x"}}}
        )
        await rig.until(lambda: problems_of(rig, "web"), 120)
        reported = rig.now_s - begun
        await rig.pass_time(300)
        rig.links["host"].open()
        await rig.pass_time(2.5)  # two for the watches, and kube-vip's own time
        return reported, bool(await rig.address())

    usual, _ = run_story(lambda rig: story(rig, 0))
    reported, is_served = run_story(lambda rig: story(rig, jump_s))
    assert abs(reported - usual) <= 2
    assert is_served


@JUMPS
@pytest.mark.parametrize("of_the_leader", [True, False])
def test_the_lease_stays_with_its_holder_when_a_clock_is_set(jump_s: int, of_the_leader: bool) -> None:
    async def story(rig: ServiceRig) -> tuple[set[str], str]:
        async def holder() -> str:
            raw = await rig.guest.get(LEASE.ref(LEASE_NAME, LEASE_NAMESPACE))
            return str(nested(raw, "spec", "holderIdentity"))

        first = rig.pod_clock
        rig.start()
        await rig.pass_time(5)
        rig.pod_clock = another_clock(rig)
        rig.start()
        await rig.pass_time(20)
        leader = await holder()
        set_wall(first if of_the_leader else rig.pod_clock, jump_s)
        holders = set()
        for _ in range(30):
            await rig.pass_time(2)
            holders.add(await holder())
        await rig.serve()
        await rig.served()
        return holders, leader

    holders, leader = run_story(story)
    assert holders == {leader}
    assert leader.startswith("provider-1")
