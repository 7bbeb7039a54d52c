"""Machines that die, return, are deleted; pods deleted; a Deployment scaled and changed, in any order: in the end there
are as many Ready pods as wanted, on living nodes, and the endpoints are those pods."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.support.clock import run_driven

from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import is_deleting, name_of, nested
from windrow.kubernetes.resources import DEPLOYMENT, NODE, POD, REPLICA_SET, SERVICE

from .test_workloads import WEB, Rig, a_deployment, a_rig, a_service

WORKERS = ("w1", "w2", "w3")
STEPS = 25


async def something(rig: Rig, rng: Rng, dark: set[str]) -> None:
    worker = WORKERS[rng.below(3)]
    match rng.below(9):
        case 0 | 1:
            await rig.kubectl.patch(WEB, {"spec": {"replicas": rng.below(6)}})
        case 2:
            spec = a_deployment(image=f"web:{rng.below(4)}")["spec"]
            await rig.kubectl.patch(WEB, {"spec": {"template": spec["template"]}})
        case 3:
            for pod in (await rig.pods())[: 1 + rng.below(2)]:
                await rig.kubectl.delete(POD.ref(name_of(pod), "default"))
        case 4 if len(dark) < 2:
            dark.add(worker)
            await rig.testbed.cut_power(worker)
        case 5 if dark:
            rig.testbed.power_on(dark.pop())
        case 6 if dark:
            await rig.kubectl.delete(NODE.ref(sorted(dark)[0]))
        case 7:
            sets = await rig.kubectl.list(REPLICA_SET, "default")
            await rig.kubectl.delete(REPLICA_SET.ref(name_of(sets[-1]), "default"))
        case 8:
            wanted = bool(rng.below(2))
            await rig.kubectl.patch(NODE.ref(worker), {"spec": {"unschedulable": wanted or None}})


async def holds_now(rig: Rig) -> None:
    """What is true at any moment."""
    pods = await rig.pods()
    addresses = [nested(pod, "status", "podIP") for pod in pods if nested(pod, "status", "podIP")]
    assert len(addresses) == len(set(addresses))
    nodes = {name_of(raw) for raw in await rig.kubectl.list(NODE)}
    ready = {name_of(pod) for pod in await rig.ready()}
    for one in await rig.endpoints():
        if nested(one, "conditions", "ready"):
            assert one["targetRef"]["name"] in ready
            assert one["nodeName"] in nodes


async def holds_in_the_end(rig: Rig) -> None:
    wanted = (await rig.kubectl.get(WEB))["spec"]["replicas"]
    ready, pods = await rig.ready(), await rig.pods()
    assert len(ready) == wanted == sum(not is_deleting(pod) for pod in pods)
    assert sorted(await rig.addresses()) == sorted(pod["status"]["podIP"] for pod in ready)
    status = (await rig.kubectl.get(WEB))["status"]
    assert status.get("readyReplicas", 0) == status.get("updatedReplicas", 0) == wanted
    assert sum(one["spec"]["replicas"] for one in await rig.kubectl.list(REPLICA_SET, "default")) == wanted


@pytest.mark.parametrize("seed", range(6))
def test_pods_and_endpoints_come_to_what_is_wanted_whatever_happens(seed: int):
    async def scenario() -> None:
        async with a_rig(*WORKERS) as rig:
            rng, dark = Rng(f"workloads {seed}"), set[str]()
            await rig.create(SERVICE, a_service())
            await rig.create(DEPLOYMENT, a_deployment(3))
            for _ in range(STEPS):
                with suppress(AssertionError, KubeError):  # a refusal is a valid reply
                    await something(rig, rng, dark)
                await rig.testbed.sleep(rng.uniform(0, 6) if rng.below(4) else rng.uniform(30, 400))
                await holds_now(rig)
            for name in WORKERS:
                with suppress(AssertionError):
                    await rig.kubectl.patch(NODE.ref(name), {"spec": {"unschedulable": None}})
            for name in dark:
                rig.testbed.power_on(name)
            await rig.testbed.sleep(420)
            await holds_in_the_end(rig)

    run_driven(scenario())
