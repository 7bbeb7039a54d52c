"""The orphan sweep of the whole program, against the emulated load balancer controller: what was lost is found again.

How a load balancer loses its service: another cloud controller acknowledges the deletion while ours is away, as
`kube-vip-cloud-provider` does (harvester/docs PR #1110), or a user removes the finalizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.clock import run_driven

from windrow.emulator import kinds
from windrow.kubernetes.objects import annotations_of, name_of, nested, new_object
from windrow.kubernetes.resources import SERVICE

from .service_rig import ServiceRig, a_service_rig

HOUR = 3600
MARK = "windrow.io/guest-uid"
# The renewals of a Lease are most of what happens in an hour.
ALONE = "--leader-elect=false"


def run_story(story: Callable[[ServiceRig], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        async with a_service_rig(1) as rig:
            await rig.make_pool("10.1.0.10")
            own = new_object(SERVICE, "kubernetes", "default", spec={"ports": [{"port": 443}]})
            if await rig.guest.find(SERVICE.ref("kubernetes", "default")) is None:
                await rig.guest.create(SERVICE, own)
            return await story(rig)

    return run_driven(whole())


async def lose_service(rig: ServiceRig, name: str = "web") -> None:
    """No program runs, and a user removes the finalizer."""
    ref = SERVICE.ref(name, "default")
    await rig.guest.delete(ref)
    await rig.guest.patch(ref, {"metadata": {"finalizers": None}})


async def an_orphan(rig: ServiceRig, *flags: str) -> str:
    """A load balancer with the only address of the pool, whose service went while no program ran."""
    pod = rig.start(ALONE, *flags)
    await rig.serve()
    await rig.served()
    await asyncio.sleep(30)
    await rig.stop(pod)
    await lose_service(rig)
    (found,) = await rig.balancers()
    return name_of(found)


def orphans_told(rig: ServiceRig) -> list[str]:
    return [line for line in rig.said if "orphan" in line]


def test_an_orphan_is_told_and_kept_unless_its_deletion_is_asked_for() -> None:
    async def story(rig: ServiceRig) -> tuple[str, list[str], list[str]]:
        name = await an_orphan(rig)
        rig.start(ALONE)
        await asyncio.sleep(3 * HOUR)
        return name, orphans_told(rig), [name_of(raw) for raw in await rig.balancers()]

    name, told, left = run_story(story)

    assert len(told) == 1
    assert "orphan with 10.1.0.10: service default/web does not exist" in told[0]
    assert left == [name]


def test_a_deleted_orphan_gives_its_address_back_to_the_pool() -> None:
    async def story(rig: ServiceRig) -> tuple[str, list[str], str]:
        await an_orphan(rig)
        rig.start(ALONE, "--orphan-sweep=delete")
        await asyncio.sleep(60)
        await rig.serve("other")
        await asyncio.sleep(600)
        waiting = await rig.address("other")
        address = await rig.served("other", within_s=2 * HOUR)
        balancers = await rig.balancers()
        return waiting, [nested(raw, "metadata", "labels", default={}) for raw in balancers], address

    waiting, labels, address = run_story(story)

    assert (waiting, address) == ("", "10.1.0.10")
    assert [one["cloudprovider.harvesterhci.io/serviceName"] for one in labels] == ["other"]


def test_load_balancers_of_the_go_program_are_told_and_left_to_a_person() -> None:
    async def story(rig: ServiceRig) -> tuple[list[str], int]:
        name = await an_orphan(rig)
        ref = kinds.LOAD_BALANCER.ref(name, "default")
        found = await rig.at_host.get(ref)
        assert annotations_of(found)[MARK]
        await rig.at_host.patch(ref, {"metadata": {"annotations": {MARK: None}}})
        rig.start(ALONE, "--orphan-sweep=delete")
        await asyncio.sleep(3 * HOUR)
        return orphans_told(rig), len(await rig.balancers())

    told, left = run_story(story)

    assert "it is kept, because it has no annotation windrow.io/guest-uid" in told[0]
    assert (len(told), left) == (1, 1)


def test_the_credential_of_another_guest_of_the_same_name_costs_no_service_its_address() -> None:
    """The guest behind the credential has the same name, and none of our services."""

    async def story(rig: ServiceRig) -> tuple[list[str], list[str]]:
        pod = rig.start(ALONE, "--orphan-sweep=delete")
        await rig.serve()
        await rig.served()
        await asyncio.sleep(30)
        await rig.stop(pod)
        await lose_service(rig)
        await rig.guest.delete(SERVICE.ref("kubernetes", "default"))
        other = new_object(SERVICE, "kubernetes", "default", spec={"ports": [{"port": 443}]})
        await rig.guest.create(SERVICE, other)
        rig.start(ALONE, "--orphan-sweep=delete")
        await asyncio.sleep(60)
        # A service of the same name there, which must not take over what is not its own either.
        await rig.serve()
        await asyncio.sleep(3 * HOUR)
        return orphans_told(rig), [
            nested(raw, "status", "allocatedAddress", "ip") for raw in await rig.balancers()
        ]

    told, addresses = run_story(story)

    assert "is that of another guest cluster of this name" in told[0]
    assert "10.1.0.10" in addresses


def test_what_the_service_controller_removes_by_itself_is_no_orphan() -> None:
    """harvester/harvester#11345: the service was made anew, and its old load balancer has the pool's only address."""

    async def story(rig: ServiceRig) -> tuple[str, list[str], int]:
        name = await an_orphan(rig)
        await rig.serve()
        rig.start(ALONE)
        address = await rig.served()
        await asyncio.sleep(HOUR)
        assert name not in [name_of(raw) for raw in await rig.balancers()]
        return address, orphans_told(rig), len(await rig.balancers())

    assert run_story(story) == ("10.1.0.10", [], 1)
