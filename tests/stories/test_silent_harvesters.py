"""A Harvester that accepts connections and does not answer holds up the Clusters on it, and no others."""

from __future__ import annotations

import base64
from collections import Counter
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from tests.stories.cluster_rig import ALL, a_cluster, a_pool, post, stock
from tests.stories.test_refusals import said
from tests.support.clock import run_driven
from tests.support.simulation import VIP, simulation

from windrow.client.http_transport import RESPONSE_TIMEOUT_S
from windrow.client.transport import TransportMiddleware
from windrow.clusters.api.kinds import CLUSTER
from windrow.harvester.identity import IDENTITY
from windrow.kubernetes import requests
from windrow.kubernetes.errors import OutcomeUnknown
from windrow.kubernetes.objects import finalizers_of, name_of, nested
from windrow.kubernetes.resources import NAMESPACE, SECRET

SILENT = "https://silent.example:6443"
PROBE = requests.get(IDENTITY).path
# By tasks of their own, with back-off: no reconcile waits for them.
WATCHED = {
    "virtualmachines",
    "persistentvolumeclaims",
    "serviceaccounts",
    "secrets",
    "nodes",
    "upgrades",
    "settings",
}


class SilentTransport(TransportMiddleware):
    """To a server that reads requests and does not answer them, but perhaps those of `answered` paths."""

    def __init__(self, inner, clock, asked, answered):
        super().__init__(inner)
        self._clock, self._asked, self._answered = clock, asked, answered

    async def send(self, request):
        self._asked[request.path] += 1
        if request.path in self._answered:
            return await self._inner.send(request)
        await self._clock.sleep_until(self._clock.now() + timedelta(seconds=RESPONSE_TIMEOUT_S))
        raise OutcomeUnknown("no answer in time")

    @asynccontextmanager
    async def stream(self, request):
        await self.send(request)
        raise OutcomeUnknown("no answer in time")
        yield


async def with_silent_harvester(sim, clusters, *, namespaces=1, answered=()):
    """Clusters of other namespaces whose own credentials lead to a silent Harvester; what it was asked."""
    asked = Counter()
    honest = sim.harvester.admin_kubeconfig(VIP)
    documents = a_cluster(a_pool("p", 1, ALL), name="good", namespace="team-b")

    def connect(config):
        if config.server != SILENT:
            return sim.connect(config)
        return SilentTransport(sim.harvester.api.local(), sim.clock, asked, answered)

    for namespace in ("team-b", *(f"team-a{number}" for number in range(namespaces))):
        await sim.management_client.create(NAMESPACE, {"metadata": {"name": namespace}})
    await stock(sim, documents)
    sim.start_manager(connect=connect)
    for number in range(clusters):
        namespace = f"team-a{number % namespaces}"
        secret = SECRET.ref(f"cc-{number}", namespace)
        content = base64.b64encode(honest.replace(VIP, SILENT).encode()).decode()
        await sim.management_client.create(
            SECRET,
            {
                "metadata": {"name": secret.name, "namespace": namespace},
                "data": {"harvestercredentialConfig-kubeconfigContent": content},
            },
            namespace,
        )
        silent = a_cluster(
            a_pool(f"p{number}", 1, ALL),
            name=f"c{number}",
            namespace=namespace,
            cloudCredentialSecretName=f"{namespace}:{secret.name}",
        )
        await post(sim, silent)
    await sim.advance(seconds=1)
    return documents, asked


@pytest.mark.parametrize("answered", [(), (PROBE,)], ids=["nothing", "only the probe"])
def test_twenty_clusters_on_a_silent_harvester_do_not_hold_up_those_of_other_namespaces(answered):
    async def story():
        async with simulation(with_manager=False) as sim:
            documents, _ = await with_silent_harvester(sim, 20, answered=answered)
            good = await post(sim, documents)
            await sim.advance(seconds=1)
            return await sim.management_client.get(good)

    cluster = run_driven(story())

    assert finalizers_of(cluster)
    assert nested(cluster, "status", "phase") == "Provisioning"


def test_a_silent_harvester_is_asked_by_one_probe_for_each_credential_and_its_clusters_say_so():
    async def story():
        async with simulation(with_manager=False) as sim:
            _, asked = await with_silent_harvester(sim, 20)
            await sim.advance(seconds=50)
            return await sim.management_client.list(CLUSTER), asked

    clusters, asked = run_driven(story())

    assert len(clusters) == 20
    for cluster in clusters:
        credential = f"credential Secret {cluster['metadata']['namespace']}/cc-{name_of(cluster)[1:]}"
        assert f"Harvester {SILENT} ({credential}) did not answer: no answer within 15 s" in said(cluster)
        assert nested(cluster, "status", "phase") == "Refused"
    assert {path for path in asked if path.rpartition("/")[2] not in WATCHED} == {PROBE}
    assert asked[PROBE] <= 60  # each credential three times in 51 s: 15 s each, 10 s between
