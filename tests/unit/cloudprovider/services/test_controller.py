"""What the service controller does around its plans: what it counts, and when it looks again."""

from itertools import pairwise

import pytest

from windrow.cloudprovider import names
from windrow.cloudprovider.services.controller import EVENT_PERIOD
from windrow.kubernetes.objects import annotations_of

from .rig import run_story


def states(world):
    """State -> how many services the metric has in it."""
    values = {state: world.metrics.value("windrow_services", state=state) for state in STATES}
    return {state: count for state, count in values.items() if count}


STATES = ("ready", "waiting", "refused")


def test_each_service_is_counted_as_what_it_is_until_it_is_gone():
    async def story(world):
        found = []

        async def count():
            await world.settle(60)
            found.append(states(world))

        await world.pool()
        await world.serve("web")
        await world.serve("inner", spec={"type": "ClusterIP"})
        world.host_cable.lists_in_s = 15
        world.start()
        await world.settle(10)
        found.append(states(world))
        await count()
        await world.serve("bad", ipam="static")
        await count()
        await world.annotate("bad", ipam="pool")
        await count()
        for name in ("web", "bad"):
            await world.delete(name)
        await count()
        return found

    assert run_story(story) == [
        {"waiting": 1},
        {"ready": 1},
        {"ready": 1, "refused": 1},
        {"ready": 2},
        {},
    ]


@pytest.mark.parametrize("lists_in_s", [0, 7])
def test_a_service_is_served_however_late_harvester_lists_its_load_balancers(lists_in_s):
    async def story(world):
        await world.pool()
        await world.serve()
        world.host_cable.lists_in_s = lists_in_s
        world.start()
        await world.until(world.address, within_s=lists_in_s * 3 + 5)
        return await world.complaints()

    assert run_story(story) == []


def test_a_service_on_a_network_gets_its_interface_when_the_network_map_names_it():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve(network="default/vlan1")
        await world.settle()
        found = []
        for interface in ("enp7s0", "enp8s0"):
            await world.map_networks(**{"default/vlan1": interface})
            await world.settle()
            found.append(annotations_of(await world.service()).get(names.VIP_INTERFACE))
        return found

    assert run_story(story) == ["enp7s0", "enp8s0"]


def test_a_problem_that_lasts_is_told_again_before_its_event_expires():
    async def story(world):
        world.start()
        await world.settle()
        await world.serve("bad", ipam="static")
        found = []
        for _ in range(3):
            await world.settle(EVENT_PERIOD.total_seconds() - 60)
            found.append(
                world.metrics.value("windrow_service_failures_total", reason="SyncLoadBalancerFailed")
            )
            await world.settle(60)
        return found

    assert run_story(story) == [1, 2, 3]


def test_harvester_that_refuses_is_asked_later_each_time_up_to_every_five_minutes():
    async def story(world):
        await world.pool()
        world.start()
        await world.settle()
        world.host_cable.denies = "POST loadbalancers"
        await world.serve()
        asked = []
        while world.seconds < 1600:
            if world.calls["host POST loadbalancers"] > len(asked):
                asked.append(world.seconds)
            await world.settle(0.5)
        return [later - earlier for earlier, later in pairwise(asked)]

    pauses = run_story(story)

    # The second attempt comes with the finalizer, which the first one wrote.
    assert pauses[1:8] == pytest.approx([10, 20, 40, 80, 160, 300, 300], rel=0.1, abs=0.5)
