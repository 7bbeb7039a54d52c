"""Services with an address from a pool, from their creation to their end."""

import pytest

from .rig import ingress, protected, run_story


def test_a_service_gets_its_address_and_harvester_learns_that_it_is_in_use():
    async def story(world):
        await world.pool()
        world.start()
        await world.settle()
        world.calls.clear()
        await world.serve()
        await world.settle()
        return await world.service(), await world.balancer(), world.writes(), await world.events()

    service, balancer, writes, events = run_story(story)

    assert service["metadata"]["annotations"]["kube-vip.io/loadbalancerIPs"] == "10.1.0.10"
    assert ingress(service) == ["10.1.0.10"]
    assert protected(service)
    assert balancer["status"]["address"] == "10.1.0.10"
    assert balancer["metadata"]["labels"] == {
        "cloudprovider.harvesterhci.io/cluster": "demo",
        "cloudprovider.harvesterhci.io/serviceNamespace": "default",
        "cloudprovider.harvesterhci.io/serviceName": "web",
    }
    assert balancer["spec"] == {"ipam": "pool", "workloadType": "cluster"}
    assert [reason for reason, _ in events] == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]
    assert writes == {
        "host POST loadbalancers": 1,
        "host PUT loadbalancers": 1,
        "guest PATCH services": 2,
        "guest POST events": 2,
    }


@pytest.mark.parametrize("side", ["host_cable", "guest_cable"])
def test_a_watch_that_lags_behind_costs_no_call_more(side):
    async def story(world):
        await world.pool()
        world.start()
        await world.settle()
        getattr(world, side).lag_s = 0.4
        world.calls.clear()
        await world.serve()
        await world.settle(20)
        made = world.calls.copy()
        world.calls.clear()
        await world.delete()
        await world.settle(20)
        return made, world.calls, await world.held()

    made, removed, held = run_story(story)

    assert made == {
        "host POST loadbalancers": 1,
        "host PUT loadbalancers": 1,
        "guest PATCH services": 2,
        "guest POST events": 2,
    }
    assert removed == {
        "host DELETE loadbalancers": 1,
        "host GET loadbalancers": 1,
        "guest PATCH services": 2,  # off the node first
        "guest POST events": 2,
    }
    assert held == {}


def test_a_deleted_service_stays_until_its_load_balancer_is_gone():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve()
        await world.settle()
        await world.delete()
        await world.settle()
        return await world.is_gone(), await world.balancers(), await world.held(), await world.events()

    gone, balancers, held, events = run_story(story)

    assert gone
    assert balancers == {}
    assert held == {}
    assert [reason for reason, _ in events][2:] == ["DeletingLoadBalancer", "DeletedLoadBalancer"]


def test_a_restart_with_everything_settled_writes_nothing():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve("web")
        await world.serve("two", primary="web", ports=(81,))
        await world.serve("three", ipam="dhcp")
        await world.settle(30)
        world.calls.clear()
        await world.restart()
        await world.settle(400)
        return world.writes()

    assert run_story(story) == {}
