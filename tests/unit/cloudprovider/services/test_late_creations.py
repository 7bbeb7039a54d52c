"""A load balancer that was requested and not answered, and is made after its service was deleted."""

from dataclasses import replace
from datetime import timedelta

import pytest

from windrow.cloudprovider.services.actions import ClearStatus, PatchService, RemoveFinalizer
from windrow.harvester.unanswered import LATEST

from .rig import NOON, protected, run_story
from .test_planning import ENDS, LB, TOLD, WEB, kinds, plan

CREATION = "POST loadbalancers"
LATEST_S = LATEST.total_seconds()


async def requested(world):
    """A provider is creating the load balancer of a service, and the creation is held."""
    world.host_cable.holds = CREATION
    await world.pool()
    world.start()
    await world.serve()
    await world.settle(1)
    assert world.host_cable.late is not None
    assert protected(await world.service())


async def came_late(world, after_s):
    """The deleted service is there yet, and says why; and what is made then goes with it."""
    await world.settle(after_s)
    assert not await world.is_gone()
    (why,) = await world.complaints()
    assert "waiting for any request to create LoadBalancer default/demo-default-web-" in why
    assert "to expire (no answer to one is known, so Harvester may carry it out yet)" in why

    assert (await world.host_cable.arrive()).status == 201
    await world.settle(5)
    assert await world.is_gone()
    assert await world.balancers() == await world.held() == {}


@pytest.mark.parametrize("after_s", [25, LATEST_S - 10])
def test_what_a_killed_provider_requested_goes_with_the_service_though_it_is_made_late(after_s):
    async def story(world):
        await requested(world)
        await world.stop()
        await world.delete()
        world.start()
        await came_late(world, after_s)

    run_story(story)


def test_what_had_no_answer_in_time_goes_with_the_service_though_it_is_made_late():
    async def story(world):
        await requested(world)
        await world.settle(LATEST_S)  # it counts from the end of the request
        await world.delete()
        world.host_cable.gives_up.set()
        await world.settle(1)
        (said,) = [one for one in await world.complaints() if "waiting" not in one]
        assert "host did not answer" in said
        await world.settle(LATEST_S - 10)
        assert not await world.is_gone()
        assert (await world.host_cable.arrive()).status == 201
        await world.settle(5)
        assert await world.balancers() == await world.held() == {}
        await world.settle(10)  # another request may have had no answer
        assert await world.is_gone()

    run_story(story)


def test_a_second_load_balancer_that_is_made_late_goes_with_the_service():
    async def story(world):
        await world.pool("four")
        world.start()
        await world.serve(
            spec={"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}, pool="four,six"
        )
        await world.until(lambda: is_one(world))
        world.host_cable.holds = CREATION
        await world.settle(1)
        assert world.host_cable.late is not None
        await world.stop()
        await world.delete()
        world.start()
        await world.settle(25)
        assert await world.held("four") == {}
        assert not await world.is_gone()
        assert (await world.host_cable.arrive()).status == 201
        await world.settle(5)
        assert await world.is_gone()
        assert await world.balancers() == {}

    async def is_one(world):
        return len(await world.balancers()) == 1

    run_story(story)


def test_what_never_comes_is_waited_for_until_it_cannot_come():
    async def story(world):
        await requested(world)
        await world.stop()
        await world.delete()
        world.start()
        await world.settle(LATEST_S - 1)
        assert not await world.is_gone()
        await world.settle(2)
        assert await world.is_gone()

    run_story(story)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_service_whose_load_balancer_is_seen_is_released_at_once(restarts):
    async def story(world):
        await world.pool()
        world.start()
        await world.serve()
        await world.settle(5)
        if restarts:
            await world.restart()
            await world.settle(1)
        await world.delete()
        await world.settle(2)
        return await world.is_gone()

    assert run_story(story)


def test_a_service_whose_load_balancer_was_refused_is_released_at_once():
    async def story(world):
        await world.pool()
        world.host_cable.denies = CREATION
        world.start()
        await world.serve()
        await world.settle(2)
        assert protected(await world.service())
        await world.delete()
        await world.settle(10)
        return await world.is_gone()

    assert run_story(story)


SOON = {"may_be_made_until": NOON + timedelta(seconds=1)}
KEPT = replace(TOLD, finalizers=(*TOLD.finalizers, "other"), **ENDS)
CLUSTER_IP = replace(TOLD, is_load_balancer=False)


@pytest.mark.parametrize(
    ("service", "first", "then"),
    [
        (replace(WEB, **ENDS), [], []),
        (replace(TOLD, **ENDS), [PatchService], []),  # its address is reserved no more
        (KEPT, [PatchService, ClearStatus], [ClearStatus]),
        (CLUSTER_IP, [PatchService], []),
    ],
)
def test_the_address_goes_and_the_finalizer_stays_while_a_load_balancer_may_come(service, first, then):
    found = plan(service, **SOON)
    assert kinds(found) == first
    assert found.until == SOON["may_be_made_until"]
    assert "to expire" in found.problem

    taken_off = replace(service, addresses="" if service.is_load_balancer else None)
    assert kinds(plan(taken_off, **SOON)) == then
    assert RemoveFinalizer in kinds(plan(service, may_be_made_until=NOON))


def test_the_finalizer_of_another_class_waits_for_nothing_of_ours():
    found = plan(replace(TOLD, load_balancer_class="acme", primary_label="default.front"), **SOON)
    assert not found.problem
    assert not found.waits_for


def test_one_that_came_is_deleted_though_more_may_come():
    assert not plan(replace(TOLD, **ENDS), load_balancer=LB, **SOON).problem
