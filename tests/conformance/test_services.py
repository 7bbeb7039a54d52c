"""Services before a real kube-apiserver and before ours: the same fields, the same refusals."""

from __future__ import annotations

import pytest
from tests.conformance.real_cluster import Cluster
from tests.unit.apiserver.service_cases import CHANGED, CREATED, blurred

from windrow.apiserver.server import ApiServer
from windrow.apiserver.services.allocation import ServiceRanges
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import SERVICE

pytestmark = pytest.mark.go


def ours() -> Client:
    server = ApiServer(MemoryStore(), SystemClock(), Rng(1), services=ServiceRanges(("10.43.0.0/16",)))
    return Client(server.local())


async def created(api: Client, name: str, spec: Raw) -> Raw | str:
    """The spec that came of it, or the refusal."""
    try:
        return blurred((await api.create(SERVICE, new_object(SERVICE, name, "default", spec=spec)))["spec"])
    except KubeError as error:
        return f"{error.status} {error.message}"


async def changed(api: Client, name: str, spec: Raw) -> Raw | str:
    try:
        return blurred((await api.update(SERVICE, new_object(SERVICE, name, "default", spec=spec)))["spec"])
    except KubeError as error:
        return f"{error.status} {error.message}"


async def test_new_services_get_the_same_fields_and_refusals(cluster: Cluster) -> None:
    here = ours()
    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        there = Client(transport)
        real = {name: await created(there, name, spec) for name, spec in CREATED.items()}
    found = {name: await created(here, name, spec) for name, spec in CREATED.items()}

    assert found == real


async def test_changed_services_keep_get_and_lose_the_same_fields(cluster: Cluster) -> None:
    async def both(api: Client) -> dict[str, Raw | str]:
        seen: dict[str, Raw | str] = {}
        for name, (before, after) in CHANGED.items():
            assert isinstance(await created(api, f"c-{name}", before), dict)
            seen[name] = await changed(api, f"c-{name}", after)
        return seen

    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        real = await both(Client(transport))

    assert await both(ours()) == real


async def test_what_a_service_had_can_be_had_again_once_it_is_gone(cluster: Cluster) -> None:
    spec: Raw = {"type": "NodePort", "clusterIP": "10.43.0.99", "ports": [{"port": 80, "nodePort": 30033}]}

    async def again(api: Client) -> list[Raw | str]:
        first = await created(api, "f-one", spec)
        taken = await created(api, "f-two", spec)
        await api.delete(SERVICE.ref("f-one", "default"))
        return [first, taken, await created(api, "f-two", spec)]

    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        real = await again(Client(transport))

    assert await again(ours()) == real
