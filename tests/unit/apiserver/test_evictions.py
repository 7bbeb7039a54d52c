"""Evictions: what a PodDisruptionBudget's status lets go, and what is said of the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windrow.apiserver.server import ApiServer
from windrow.core.formats.fastjson import loads
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import POD, ApiResource

Raw = dict[str, Any]
PDB = ApiResource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
SEEN = {
    "observedGeneration": 1,
    "currentHealthy": 3,
    "desiredHealthy": 2,
    "disruptionsAllowed": 1,
    "expectedPods": 3,
}
ALLOWED = {
    "type": "DisruptionAllowed",
    "status": "True",
    "reason": "SufficientPods",
    "lastTransitionTime": "2025-01-01T00:00:00Z",
    "message": "",
}
OTHER = {
    "type": "Other",
    "status": "True",
    "reason": "Other",
    "lastTransitionTime": "2025-01-01T00:00:00Z",
    "message": "",
}


async def a_pod(
    server: ApiServer,
    name: str = "a",
    *,
    ready: bool = True,
    phase: str = "Running",
    labels: Raw | None = None,
) -> None:
    local = server.local()
    head = {
        "name": name,
        "namespace": "default",
        **({"labels": {"app": "web"}} if labels is None else {"labels": labels}),
    }
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await local.create(POD, {"metadata": head, "spec": spec})
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}
    await local.send(requests.merge_patch(POD.ref(name, "default"), {"status": status}, "status"))


async def a_budget(server: ApiServer, name: str = "web", status: Raw | None = None, **spec: Any) -> None:
    local = server.local()
    given = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 2, **spec}
    await local.create(PDB, {"metadata": {"name": name, "namespace": "default"}, "spec": given})
    if status is not None:
        await local.send(requests.merge_patch(PDB.ref(name, "default"), {"status": status}, "status"))


async def evict(server: ApiServer, name: str = "a", **query: str) -> Reply:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    request = requests.create_subresource(POD.ref(name, "default"), "eviction", body)
    return await server.local().send(replace(request, query=tuple(query.items())))


async def status_of(server: ApiServer) -> Raw:
    found: Raw = (await server.local().get(PDB.ref("web", "default")))["status"]
    return found


async def pods(server: ApiServer) -> list[str]:
    return [raw["metadata"]["name"] for raw in await server.local().list(POD, "default")]


async def test_a_granted_eviction_takes_one_disruption_and_names_the_pod(server: ApiServer) -> None:
    await a_pod(server)
    held = {"b": "2026-01-01T11:59:00Z"}
    await a_budget(server, status={**SEEN, "disruptedPods": held, "conditions": [ALLOWED, OTHER]})
    reply = await evict(server)
    status = await status_of(server)
    condition = find_condition(status["conditions"], "DisruptionAllowed")

    assert reply.status == 201
    assert await pods(server) == []
    assert status["disruptionsAllowed"] == 0
    assert status["disruptedPods"] == {**held, "a": "2026-01-01T12:00:00Z"}
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "InsufficientPods")
    assert OTHER in status["conditions"]


async def test_while_more_are_allowed_the_condition_stays(server: ApiServer) -> None:
    await a_pod(server)
    await a_budget(server, status={**SEEN, "disruptionsAllowed": 2, "conditions": [ALLOWED]})
    await evict(server)
    status = await status_of(server)

    assert status["disruptionsAllowed"] == 1
    assert status["conditions"] == [ALLOWED]


async def test_a_budget_that_spares_none_refuses_without_a_time_to_ask_again(server: ApiServer) -> None:
    await a_pod(server)
    await a_budget(server, status={**SEEN, "disruptionsAllowed": 0})
    reply = await evict(server)
    told = loads(reply.body)

    assert (reply.status, await pods(server)) == (429, ["a"])
    assert told["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    message = "The disruption budget web needs 2 healthy pods and has 3 currently"
    assert told["details"] == {"causes": [{"reason": "DisruptionBudget", "message": message}]}


@pytest.mark.parametrize("status", [None, {**SEEN, "observedGeneration": 0}])
async def test_a_budget_that_its_controller_has_not_seen_says_when_to_ask_again(
    server: ApiServer, status: Raw | None
) -> None:
    await a_pod(server)
    await a_budget(server, status=status)
    reply = await evict(server)
    details = loads(reply.body)["details"]

    assert reply.status == 429
    assert dict(reply.headers)["Retry-After"] == "10"
    assert details["retryAfterSeconds"] == 10
    assert (
        details["causes"][0]["message"] == "The disruption budget web is still being processed by the server."
    )


async def test_a_budget_with_too_many_named_pods_refuses(server: ApiServer) -> None:
    await a_pod(server)
    named = {f"p{number}": "2026-01-01T11:59:00Z" for number in range(2001)}
    await a_budget(server, status={**SEEN, "disruptedPods": named})
    reply = await evict(server)

    assert reply.status == 403
    assert b"DisruptedPods map too big" in reply.body

    named.popitem()
    await server.local().send(
        requests.merge_patch(
            PDB.ref("web", "default"), {"status": {"disruptedPods": {"p2000": None}}}, "status"
        )
    )
    assert (await evict(server)).status == 201


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Pending"])
async def test_a_pod_that_does_not_run_goes_whatever_its_budget_says(server: ApiServer, phase: str) -> None:
    await a_pod(server, phase=phase)
    await a_budget(server, status={**SEEN, "disruptionsAllowed": 0})

    assert (await evict(server)).status == 201
    assert (await status_of(server)).get("disruptedPods") is None


@pytest.mark.parametrize(
    ("desired", "healthy", "policy", "code"),
    [
        (2, 2, "", 201),
        (2, 1, "", 429),
        (0, 0, "", 429),
        (2, 1, "IfHealthyBudget", 429),
        (2, 1, "AlwaysAllow", 201),
    ],
)
async def test_a_pod_that_is_not_ready_goes_where_enough_are_healthy_or_the_policy_says_so(
    server: ApiServer, desired: int, healthy: int, policy: str, code: int
) -> None:
    await a_pod(server, ready=False)
    status = {**SEEN, "disruptionsAllowed": 0, "desiredHealthy": desired, "currentHealthy": healthy}
    await a_budget(server, status=status, **({"unhealthyPodEvictionPolicy": policy} if policy else {}))

    assert (await evict(server)).status == code
    assert (await status_of(server)).get("disruptedPods") is None


async def test_a_pod_of_two_budgets_cannot_be_evicted(server: ApiServer) -> None:
    await a_pod(server)
    await a_budget(server, status=SEEN)
    await a_budget(server, "more", status=SEEN)
    reply = await evict(server)

    assert reply.status == 500
    assert b"more than one PodDisruptionBudget" in reply.body


async def test_a_pod_of_no_budget_goes(server: ApiServer) -> None:
    await a_pod(server, labels={"app": "other"})
    await a_pod(server, "plain", labels={})
    await a_budget(server, status={**SEEN, "disruptionsAllowed": 0})
    await a_budget(server, "none", status={**SEEN, "disruptionsAllowed": 0}, selector=None)

    assert (await evict(server)).status == 201
    assert (await evict(server, "plain")).status == 201
    assert await pods(server) == []


async def test_a_dry_run_counts_nothing_and_tells_what_would_be(server: ApiServer) -> None:
    await a_pod(server)
    await a_budget(server, status=SEEN)
    reply = await evict(server, dryRun="All")

    assert reply.status == 201
    assert await pods(server) == ["a"]
    assert (await status_of(server))["disruptionsAllowed"] == 1
