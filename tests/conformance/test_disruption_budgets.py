"""What the real disruption controller and API server say of a PodDisruptionBudget, and what ours do: status and evictions."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

import pytest
from tests.conformance.cloud_provider_rig import eventually
from tests.conformance.real_cluster import Cluster
from tests.conformance.test_workloads import WEB, Kubelets, Ours, Pictures
from tests.support.clock import run_driven
from tests.unit.emulator.guests.test_disruption_budgets import BUDGET, a_budget
from tests.unit.emulator.guests.test_workloads import a_deployment, a_rig

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.emulator.guest_cluster.disruption_budgets import PDB
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.errors import KubeError, error_for
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import DEPLOYMENT, NODE, POD, ref_of

pytestmark = [pytest.mark.go, pytest.mark.timeout(180)]

BUDGETS: dict[str, Raw] = {
    "one unavailable": {"maxUnavailable": 1},
    "half": {"minAvailable": "50%"},
    "more than there are": {"minAvailable": 5},
    "without numbers": {},
}
_COUNTS = ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed", "observedGeneration")


@pytest.fixture
def cluster(managed_cluster: Cluster) -> Cluster:
    return managed_cluster


async def are_ready(api: Any, count: int) -> bool:
    pods = [pod for pod in await api.list(POD, "default") if not is_deleting(pod)]
    return len(pods) == count and all(is_true(nested(pod, "status", "conditions"), "Ready") for pod in pods)


async def is_settled(api: Any, count: int) -> bool:
    status = (await api.get(BUDGET)).get("status") or {}
    return bool(status.get("conditions")) and status.get("currentHealthy") == count


def shown(budget: Raw) -> Raw:
    status = budget["status"]
    conditions = [
        {key: one.get(key) for key in ("type", "status", "reason", "observedGeneration")}
        for one in status["conditions"]
    ]
    return {key: status.get(key) for key in _COUNTS} | {"conditions": conditions}


def told(error: KubeError | None) -> Any:
    """What a client is told of a refused eviction; None where it was granted."""
    if error is None:
        return None
    details = error.details or {}
    # The real controller may have counted the first eviction before the second is asked for.
    causes = re.sub(r"has \d currently", "has <some> currently", repr(details.get("causes")))
    return error.status, error.message, causes, details.get("retryAfterSeconds")


def eviction(pod: Raw) -> Request:
    head = {"name": name_of(pod), "namespace": "default"}
    body: Raw = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": head}
    return requests.create_subresource(ref_of(POD, pod), "eviction", body)


async def scene(api: Any, send: Any, wait: Any, spec: Raw) -> Pictures:
    await api.create(DEPLOYMENT, a_deployment(3))
    await wait(lambda: are_ready(api, 3))
    await api.create(PDB, a_budget(**spec))
    await wait(lambda: is_settled(api, 3))
    before = shown(await api.get(BUDGET))
    pods = sorted(await api.list(POD, "default"), key=name_of)
    answers = [told(error_for(await send(eviction(pod)))) for pod in pods[:2]]
    return {"status": before, "evictions": answers}


@pytest.mark.parametrize("name", BUDGETS)
def test_status_and_evictions_are_those_of_the_real_programs(cluster: Cluster, name: str) -> None:
    async def real() -> Pictures:
        async with HttpTransport(cluster.access(), SystemClock()) as transport:
            api = Client(transport)
            kubelets = Kubelets(api)
            await kubelets.register("w1", "w2")
            life = asyncio.create_task(kubelets.run())
            try:
                return await scene(api, transport.send, lambda holds: eventually(holds, name), BUDGETS[name])
            finally:
                for ref in (BUDGET, WEB):
                    with suppress(KubeError):
                        await api.delete(ref)
                await eventually(lambda: is_empty(api), "no pods are left")
                life.cancel()
                for node in ("w1", "w2"):
                    with suppress(KubeError):
                        await api.delete(NODE.ref(node))

    async def ours() -> Pictures:
        async with a_rig("w1", "w2") as rig:

            async def send(request: Request) -> Reply:
                door = rig.testbed.network.find("10.0.0.11", 6443)
                assert door is not None
                return await door.send(request, Peer(rig.cluster.admin[0]))

            return await scene(Ours(rig), send, rig.testbed.wait_for, BUDGETS[name])

    assert run_driven(ours()) == asyncio.run(real())


async def is_empty(api: Any) -> bool:
    for pod in await api.list(POD, "default"):
        with suppress(KubeError):
            await api.delete(ref_of(POD, pod))
    return not await api.list(POD, "default")
