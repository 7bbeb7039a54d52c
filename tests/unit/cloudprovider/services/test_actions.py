"""What the log says of a service."""

from typing import get_args

import pytest

from windrow.cloudprovider.names import PRIMARY_SERVICE, VIP_ADDRESSES, VIP_INTERFACE
from windrow.cloudprovider.services import actions
from windrow.cloudprovider.services.readings import load_balancer_reader

from .rig import run_story

LB = load_balancer_reader("demo")({"metadata": {"name": "demo-web", "namespace": "default"}, "spec": {}})
TOLD = [
    (actions.PatchService("it is", add_finalizer=True), "finalizer added because it is"),
    (
        actions.PatchService(
            "it is", {VIP_ADDRESSES: "10.1.0.10", VIP_INTERFACE: None}, {PRIMARY_SERVICE: "default-web"}
        ),
        f"annotations {VIP_ADDRESSES}=10.1.0.10 set and annotations {VIP_INTERFACE} removed; "
        f"labels {PRIMARY_SERVICE}=default-web set because it is",
    ),
    (actions.ClearStatus("it is"), "addresses removed from its status because it is"),
    (actions.CreateLoadBalancer("demo-web", "it is"), "load balancer demo-web created because it is"),
    (actions.UpdateLoadBalancer(LB, "it is"), "load balancer demo-web updated because it is"),
    (actions.DeleteLoadBalancer(LB, "it is"), "load balancer demo-web deleted because it is"),
    (actions.RemoveFinalizer("it is", load_balancer=""), "finalizer removed because it is"),
    (
        actions.RemoveFinalizer("it is", load_balancer="", annotations={VIP_ADDRESSES: None}),
        f"finalizer removed; annotations {VIP_ADDRESSES} removed because it is",
    ),
]


@pytest.mark.parametrize(("action", "told"), TOLD)
def test_an_action_is_told_with_a_plain_verb_and_its_reason(action, told):
    assert str(action) == told


def test_every_action_has_its_words():
    unlogged = {actions.ConfirmDeleted, actions.EmitEvent}

    assert {type(action) for action, _ in TOLD} == set(get_args(actions.Action)) - unlogged


def test_the_log_tells_the_life_of_a_service_in_plain_words():
    async def story(world):
        await world.pool()
        world.start()
        await world.settle()
        await world.serve()
        await world.settle()
        name = (await world.balancer())["metadata"]["name"]
        await world.delete()
        await world.settle(20)
        return name, world.lines

    name, lines = run_story(story)

    assert lines == [
        f'info: {action} service="default/web"'
        for action in (
            "finalizer added; annotations kube-vip.io/ignore=true, windrow.io/awaits-address=true set and "
            "annotations kube-vip.io/loadbalancerIPs emptied because it is about to have a load balancer on Harvester",
            f"load balancer {name} created because it has none",
            "annotations kube-vip.io/loadbalancerIPs=10.1.0.10 set and annotations kube-vip.io/ignore, "
            "windrow.io/awaits-address removed because Harvester gave its address",
            f"load balancer {name} updated because 10.1.0.10 is in use",
            "annotations kube-vip.io/loadbalancerIPs emptied because it is being deleted",
            f"load balancer {name} deleted because it is being deleted",
            "finalizer removed because nothing is left of it on Harvester",
        )
    ]
