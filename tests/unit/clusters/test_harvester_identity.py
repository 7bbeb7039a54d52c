"""Which Harvester a credential leads to, and what is recorded of it for the addresses that are claimed there."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.builders import NOON, a_cluster, a_pool, look
from tests.unit.clusters.test_cluster import a_raw_cluster

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.clusters.api.secrets import CredentialError, SecretData
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.context import ReconcileContext, StalePlan
from windrow.clusters.execute.cluster_actions import ClusterActions
from windrow.clusters.plan.actions import RecordHarvester
from windrow.clusters.sources.credentials import CredentialProber
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.harvester.identity import ca_fingerprint
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import nested
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import NAMESPACE, SECRET

ACCESS = ClientConfig("https://10.0.0.1:6443", token="t")
BY_CA = ca_fingerprint(ACCESS)
CC = "ns:cc"


class OneNamespace:
    """A Harvester whose Namespace kube-system has this uid; without one it may not be read."""

    def __init__(self, uid: str) -> None:
        self._uid = uid

    async def send(self, request: Request) -> Reply:
        assert request.path == "/api/v1/namespaces/kube-system"
        if self._uid:
            return Reply(200, dumps({"metadata": {"name": "kube-system", "uid": self._uid}}))
        return Reply(403, dumps({"kind": "Status", "reason": "Forbidden", "code": 403}))

    def stream(self, request: Request) -> Any:
        raise AssertionError("nothing is watched")

    async def aclose(self) -> None:
        pass


def recorded_after(uid: str, before: str = "") -> str:
    """What is recorded of the Harvester, and was `before`."""

    async def main() -> str:
        clock = LoopClock(NOON)
        server = management_api(MemoryStore(), clock, Rng(1))
        await server.prepare()
        api, unused = Client(server.local()), None
        await api.create(NAMESPACE, {"metadata": {"name": "fleet-default"}})
        raw = await api.create(CLUSTER, a_raw_cluster())
        ref = CLUSTER.ref("prod", "fleet-default")
        await api.patch(ref, {"status": {"harvesterUID": before or None}}, "status")
        data = {CREDENTIAL_KEY: render_kubeconfig(ACCESS, "harvester")}
        may = SecretData("ns", "cc", allowed_namespaces=frozenset({"fleet-default"}), data=data)
        secrets: Any = {SECRET.ref("cc", "ns"): may}
        clusters: Any = SimpleNamespace(mutated=lambda raw: None)
        context = ReconcileContext(api, clusters, *[unused] * 5)  # type: ignore[arg-type]
        actions = ClusterActions(context, HarvesterClients(secrets, lambda access: OneNamespace(uid)), unused)  # type: ignore[arg-type]
        cluster = a_cluster(a_pool(), recorded=RecordedStatus(harvester_uid=before), raw=raw)
        with suppress(StalePlan):
            await actions.record_harvester(RecordHarvester("it is asked for", CC), look(cluster))
        return str(nested(await api.get(ref), "status", "harvesterUID", default=""))

    return run_driven(main())


@pytest.mark.parametrize(
    ("uid", "before", "after"),
    [
        ("uid-1", "", "uid-1"),
        ("uid-1", BY_CA, "uid-1"),
        ("", "", ""),
        ("", BY_CA, BY_CA),
        ("uid-1", "uid-2", "uid-2"),
        ("uid-1", "ca-of-another", "ca-of-another"),
    ],
    ids=["new", "known by its CA", "not to be read", "by its CA only", "another", "another by its CA"],
)
def test_a_harvester_is_recorded_by_the_uid_of_its_kube_system_where_it_is_the_one_that_was(
    uid: str, before: str, after: str
) -> None:
    assert recorded_after(uid, before) == after


@pytest.mark.parametrize(
    ("uid", "is_there", "hides"),
    [("uid-1", True, False), ("", True, True), ("uid-1", False, False)],
    ids=["may be read", "may not", "no such Secret"],
)
def test_a_credential_that_works_and_may_not_read_which_harvester_it_leads_to_hides_it(
    uid: str, is_there: bool, hides: bool
) -> None:
    def access(credential: str) -> ClientConfig:
        if not is_there:
            raise CredentialError("Secret ns/cc not found", "create it")
        return ACCESS

    async def main() -> tuple[bool, bool]:
        prober = CredentialProber(access, lambda config: OneNamespace(uid), LoopClock(), lambda one: None)
        before = prober.hides_identity(CC)
        with suppress(TimeoutError):
            async with asyncio.timeout(1), asyncio.TaskGroup() as group:
                prober.watch(group, CLUSTER.ref("prod", "fleet-default"), [CC])
                await asyncio.Event().wait()
        return before, prober.hides_identity(CC)

    assert run_driven(main()) == (False, hides)
