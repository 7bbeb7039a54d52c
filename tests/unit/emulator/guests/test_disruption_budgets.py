"""PodDisruptionBudgets in a guest cluster: their status, and evictions that they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.clock import NOON, run_driven

from windrow.core.clock import format_time
from windrow.core.formats.json import loads
from windrow.emulator.guest_cluster.disruption_budgets import (
    FORGET,
    PDB,
    NoScale,
    count,
    keep_disrupted,
    selects,
)
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import name_of, namespace_of, nested, new_object
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import DEPLOYMENT, POD, ref_of

from .test_workloads import Rig, a_deployment, a_rig

Raw = dict[str, Any]
BUDGET = PDB.ref("web", "default")


def a_budget(name: str = "web", **spec: Any) -> Raw:
    return new_object(PDB, name, "default", spec={"selector": {"matchLabels": {"app": "web"}}, **spec})


async def evict(rig: Rig, pod: Raw) -> Reply:
    door = rig.testbed.network.find("10.0.0.11", 6443)
    assert door is not None
    body = {"apiVersion": "policy/v1", "kind": "Eviction"}
    body |= {"metadata": {"name": name_of(pod), "namespace": namespace_of(pod)}}  # type: ignore[dict-item]
    request = requests.create_subresource(ref_of(POD, pod), "eviction", body)
    return await door.send(request, Peer(rig.cluster.admin[0]))


async def status(rig: Rig) -> Raw:
    found: Raw = (await rig.kubectl.get(BUDGET)).get("status") or {}
    return found


async def serve(rig: Rig, replicas: int, **spec: Any) -> None:
    await rig.create(DEPLOYMENT, a_deployment(replicas))
    await rig.ready_pods(replicas)
    await rig.create(PDB, a_budget(**spec))
    await rig.testbed.sleep(1)


def test_one_of_two_pods_may_be_evicted_and_the_next_once_another_is_ready():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            await serve(rig, 2, maxUnavailable=1)
            before = await status(rig)
            first, second = await rig.ready()
            granted = await evict(rig, first)
            meanwhile = await status(rig)
            refused = await evict(rig, second)
            await rig.ready_pods(2)
            await rig.testbed.sleep(1)
            again = await evict(rig, second)

            counts = {key: value for key, value in before.items() if isinstance(value, int)}
            assert counts == {
                "observedGeneration": 1,
                "currentHealthy": 2,
                "desiredHealthy": 1,
                "expectedPods": 2,
                "disruptionsAllowed": 1,
            }
            assert granted.status == again.status == 201
            assert meanwhile["disruptionsAllowed"] == 0
            condition = find_condition(meanwhile["conditions"], "DisruptionAllowed")
            assert condition is not None
            assert (condition.status, condition.reason) == ("False", "InsufficientPods")
            assert refused.status == 429
            told = loads(refused.body)
            assert told["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
            (cause,) = told["details"]["causes"]
            assert cause["reason"] == "DisruptionBudget"
            assert cause["message"].startswith("The disruption budget web needs 1 healthy pods and has ")

    run_driven(scenario())


def test_a_budget_of_one_replica_never_lets_go():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await serve(rig, 1, minAvailable=1)
            (pod,) = await rig.ready()
            replies = []
            for _ in range(3):
                replies.append((await evict(rig, pod)).status)
                await rig.testbed.sleep(60)

            assert replies == [429, 429, 429]
            assert len(await rig.ready()) == 1

    run_driven(scenario())


def test_until_its_controller_has_seen_a_budget_it_allows_nothing_and_says_when_to_ask_again():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(DEPLOYMENT, a_deployment(1))
            await rig.ready_pods(1)
            (pod,) = await rig.ready()
            await rig.create(PDB, a_budget(minAvailable=0))
            reply = await evict(rig, pod)

            assert reply.status == 429
            assert dict(reply.headers)["Retry-After"] == "10"
            (cause,) = loads(reply.body)["details"]["causes"]
            assert cause["message"] == "The disruption budget web is still being processed by the server."

    run_driven(scenario())


def test_a_pod_of_two_budgets_cannot_be_evicted():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await serve(rig, 1, minAvailable=0)
            await rig.create(PDB, a_budget("more", minAvailable=0))
            (pod,) = await rig.ready()
            reply = await evict(rig, pod)

            assert reply.status == 500
            assert b"This pod has more than one PodDisruptionBudget" in reply.body

    run_driven(scenario())


def test_a_pod_that_has_not_begun_is_evicted_whatever_its_budget_says():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(DEPLOYMENT, a_deployment(1, nodeSelector={"disk": "none"}))
            await rig.create(PDB, a_budget(minAvailable=1))
            await rig.testbed.sleep(2)
            (pod,) = await rig.pods()

            assert (await evict(rig, pod)).status == 201

    run_driven(scenario())


def test_a_pod_that_is_not_ready_is_evicted_where_enough_others_are_or_the_policy_says_so():
    async def scenario(least: int, policy: str) -> int:
        async with a_rig("w1", "w2") as rig:
            spec = {"unhealthyPodEvictionPolicy": policy} if policy else {}
            await serve(rig, 2, minAvailable=least, **spec)
            await rig.testbed.cut_power("w2")
            await rig.testbed.sleep(60)
            (pod,) = [one for one in await rig.pods() if nested(one, "spec", "nodeName") == "w2"]
            return (await evict(rig, pod)).status

    assert run_driven(scenario(1, "")) == 201
    assert run_driven(scenario(2, "")) == 429
    assert run_driven(scenario(2, "AlwaysAllow")) == 201


# -- counting


def a_pod(name: str, *, ready: bool = True, owner: str = "rs", phase: str = "Running") -> Raw:
    pod = new_object(POD, name, "default", labels={"app": "web"}, spec={})
    if owner:
        pod["metadata"]["ownerReferences"] = [
            {"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        ]
    pod["status"] = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}
    return pod


def scale(replicas: int) -> Any:
    return lambda pod: (pod["metadata"]["ownerReferences"][0]["uid"], replicas)


@pytest.mark.parametrize(
    ("spec", "pods", "replicas", "expected"),
    [
        ({"minAvailable": 2}, 3, 3, (3, 2, 3, 1)),
        ({"minAvailable": "50%"}, 3, 3, (3, 2, 3, 1)),
        ({"maxUnavailable": "30%"}, 3, 3, (3, 2, 3, 1)),
        ({"maxUnavailable": 0}, 3, 3, (3, 3, 3, 0)),
        ({"maxUnavailable": 5}, 3, 3, (3, 0, 3, 3)),
        ({"minAvailable": "100%"}, 3, 4, (3, 4, 4, 0)),
        ({"maxUnavailable": 1}, 0, 3, (0, 0, 0, 0)),
        ({}, 1, 1, (1, 0, 0, 0)),
    ],
)
def test_what_a_budget_allows(spec: Raw, pods: int, replicas: int, expected: tuple[int, ...]):
    listed = [a_pod(f"p{place}") for place in range(pods)]
    found = count(a_budget(**spec), listed, scale(replicas), {})

    assert (found.healthy, found.desired, found.expected, found.allowed) == expected


def test_pods_that_are_not_ready_disrupted_or_ended_are_not_healthy():
    listed = [a_pod("a"), a_pod("b", ready=False), a_pod("c"), a_pod("d", phase="Failed")]

    assert count(a_budget(minAvailable=1), listed, scale(4), {"c": ""}).healthy == 1
    assert count(a_budget(minAvailable=1), listed, scale(4), {"c": ""}).expected == 3


def test_a_pod_whose_controller_has_no_scale_cannot_be_counted():
    with pytest.raises(NoScale, match='found no controllers for pod "a"'):
        count(a_budget(maxUnavailable=1), [a_pod("a")], lambda pod: None, {})
    assert count(a_budget(maxUnavailable=1), [a_pod("a", owner="")], lambda pod: None, {}).expected == 0


def test_a_granted_eviction_counts_until_the_pod_is_deleted_or_two_minutes_are_over():
    budget = a_budget() | {"status": {"disruptedPods": {"a": format_time(NOON), "gone": format_time(NOON)}}}
    deleted = a_pod("a")
    deleted["metadata"]["deletionTimestamp"] = format_time(NOON)

    assert list(keep_disrupted(budget, [a_pod("a")], NOON)) == ["a"]
    assert list(keep_disrupted(budget, [a_pod("a")], NOON + FORGET)) == []
    assert list(keep_disrupted(budget, [deleted], NOON)) == []


def test_an_empty_selector_takes_all_pods_and_none_takes_none():
    everything, nothing = a_budget(selector={}), a_budget(selector=None)

    assert selects(everything, a_pod("a"))
    assert not selects(nothing, a_pod("a"))
