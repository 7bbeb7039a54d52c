"""Metrics of the management API and the emulator, and who may read the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.clock import LoopClock
from tests.unit.probes.test_server import get

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.clock import SystemClock
from windrow.app.cluster_roles import METRICS_READER, install_cluster_roles
from windrow.app.embedded import embedded_manager, install_crds, management_api
from windrow.app.metrics.api_server import ApiServerMetrics
from windrow.app.metrics.page import serve_metrics
from windrow.app.metrics.port import NoMetricsPort, new_endpoints, parse_address, serving_metrics
from windrow.app.network import HttpConnector
from windrow.client.client import Client
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import CLUSTER_ROLE_BINDING, CONFIG_MAP, NAMESPACE, ROLE_BINDING
from windrow.probes.metrics import Registry


@pytest.fixture
async def api() -> ApiServer:
    server = management_api(MemoryStore(), LoopClock(), Rng(1))
    await install_crds(Client(server.local()))
    await install_cluster_roles(Client(server.local()))
    server.tokens["tenant"] = ("tenant", ("team-a",), None)
    server.tokens["prometheus"] = ("prometheus", (), None)
    await server.local().create(NAMESPACE, {"metadata": {"name": "team-a"}})
    return server


def a_page(api: ApiServer) -> Registry:
    registry = Registry()
    ApiServerMetrics(registry, api)
    serve_metrics(api, registry)
    return registry


async def bind(api: ApiServer, user: str, role: str, namespace: str = "") -> None:
    raw = {
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": ROLE_BINDING.group, "kind": "User", "name": user}],
    }
    await api.local().create(ROLE_BINDING if namespace else CLUSTER_ROLE_BINDING, raw, namespace)


async def ask(api: ApiServer, path: str, token: str = "", method: str = "GET") -> Reply:
    headers = (("Authorization", f"Bearer {token}"),) if token else ()
    return await api.send(Request(method, path, headers=headers), Peer())


async def test_a_tenant_who_may_do_everything_in_its_namespace_reads_no_metrics(api: ApiServer):
    a_page(api)
    await bind(api, "tenant", "admin", "team-a")
    await bind(api, "tenant", "view", "team-a")

    assert (await ask(api, "/metrics", "tenant")).status == 403
    assert (await ask(api, "/metrics", "wrong")).status == 401
    assert (await ask(api, "/metrics")).status == 401


async def test_a_user_with_the_role_for_metrics_reads_them_and_nothing_else(api: ApiServer):
    a_page(api)
    await bind(api, "prometheus", METRICS_READER)

    reply = await ask(api, "/metrics", "prometheus")

    assert (reply.status, reply.content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"# TYPE apiserver_request_total counter\n" in reply.body
    assert (await ask(api, "/metrics/others", "prometheus")).status == 403
    assert (await ask(api, "/api/v1/secrets", "prometheus")).status == 403
    assert (await ask(api, "/metrics", "prometheus", "POST")).status == 403


async def test_the_page_is_only_read(api: ApiServer):
    a_page(api)
    await bind(api, "prometheus", "cluster-admin")

    assert (await ask(api, "/metrics", "prometheus", "POST")).status == 405
    assert (await ask(api, "/metrics/others", "prometheus")).status == 404


async def test_requests_are_counted_by_verb_resource_and_code(api: ApiServer):
    registry = a_page(api)
    client = api.local()
    await client.send(Request("GET", "/api/v1/namespaces/team-a/configmaps"))
    await client.send(Request("GET", "/api/v1/namespaces/team-a/configmaps/missing"))
    await ask(api, "/api/v1/secrets", "tenant")
    await ask(api, "/api/v1/secrets", "wrong")

    value = registry.value
    assert value("apiserver_request_total", verb="LIST", resource="configmaps", code="200") == 1
    assert value("apiserver_request_total", verb="GET", resource="configmaps", code="404") == 1
    assert value("apiserver_request_total", verb="LIST", resource="secrets", code="403") == 1
    assert value("apiserver_request_total", verb="LIST", resource="secrets", code="401") == 1
    assert value("apiserver_request_duration_seconds_count", verb="LIST") == 3


async def test_paths_and_methods_at_random_make_no_new_series(api: ApiServer):
    registry = a_page(api)
    for number in range(200):
        await ask(api, f"/apis/group{number}/v1/things{number}", "wrong")
        await ask(api, f"/path{number}", "wrong", f"METHOD{number}")

    series = [line for line in registry.render().splitlines() if line.startswith("apiserver_request_total{")]
    assert len(series) == 2


async def test_open_watches_are_counted_until_they_end(api: ApiServer):
    registry = a_page(api)

    async with api.local().watch(CONFIG_MAP):
        assert registry.value("apiserver_longrunning_requests", resource="configmaps") == 1

    assert registry.value("apiserver_longrunning_requests", resource="configmaps") == 0
    assert registry.value("apiserver_request_total", verb="WATCH", resource="configmaps", code="200") == 1


async def test_a_watch_that_is_refused_is_counted_with_its_code_and_is_not_open(api: ApiServer):
    registry = a_page(api)
    with pytest.raises(KubeError):
        async with api.local("tenant", ()).watch(CONFIG_MAP):
            pass

    assert registry.value("apiserver_request_total", verb="WATCH", resource="configmaps", code="403") == 1
    assert registry.value("apiserver_longrunning_requests", resource="configmaps") == 0


async def test_the_store_shows_its_objects_and_revisions(api: ApiServer):
    registry = a_page(api)
    for name in ("a", "b"):
        await api.local().create(CONFIG_MAP, new_object(CONFIG_MAP, name, "team-a"))
    api.store.compact(3)

    assert registry.value("apiserver_storage_objects", resource="configmaps") == 2
    assert registry.value("windrow_store_revision", revision="latest") == api.store.rev
    assert registry.value("windrow_store_revision", revision="compacted") == 3


async def test_the_manager_serves_its_metrics_with_those_of_its_api(tmp_path: Path):
    clock = SystemClock()
    async with (
        HttpConnector(clock) as sockets,
        embedded_manager(tmp_path, clock, Rng(1), sockets.connect, persistent=True) as managed,
    ):
        reply = await sockets.connect(managed.access).send(Request("GET", "/metrics", accept="text/plain"))

    text = reply.body.decode()
    assert 'leader_election_master_status{name="windrow-manager"} 1.0' in text
    assert 'windrow_watching{resource="clusters"} 1' in text
    assert 'apiserver_storage_objects{resource="namespaces"} 6' in text
    size = next(line for line in text.splitlines() if line.startswith("apiserver_storage_size_bytes"))
    assert float(size.split()[1]) > 4096
    assert 'rest_client_requests_total{code="200",host="management",method="GET"}' in text


# -- a port of its own


async def test_the_port_is_open_for_probes_and_asks_the_api_who_may_read_metrics(api: ApiServer):
    await bind(api, "prometheus", METRICS_READER)
    clock = SystemClock()
    registry = Registry()
    registry.counter("windrow_things_total", "Things.")
    endpoints = new_endpoints(registry, api.local(), clock, lambda: True, lambda: {"clusters": True})

    async with serving_metrics("127.0.0.1:0", endpoints, clock) as port:
        assert await get(port, "/readyz") == ("HTTP/1.1 200 OK", "ok")
        assert "403" in (await get(port, "/metrics"))[0]
        assert "403" in (await get(port, "/metrics", Authorization="Bearer tenant"))[0]
        assert "401" in (await get(port, "/metrics", Authorization="Bearer wrong"))[0]
        status, text = await get(port, "/metrics", Authorization="Bearer prometheus")

    assert status == "HTTP/1.1 200 OK"
    assert "windrow_things_total 0.0\n" in text


@pytest.mark.parametrize(
    ("leads", "watches", "ready"), [(True, True, 200), (True, False, 500), (False, False, 200)]
)
async def test_an_active_manager_is_ready_while_it_watches_and_one_that_stands_by_always(
    api: ApiServer, leads: bool, watches: bool, ready: int
):
    clock = SystemClock()
    endpoints = new_endpoints(Registry(), api.local(), clock, lambda: leads, lambda: {"clusters": watches})

    async with serving_metrics("127.0.0.1:0", endpoints, clock) as port:
        assert f" {ready} " in (await get(port, "/readyz"))[0]


async def test_a_port_that_is_taken_is_an_error_with_what_to_do(api: ApiServer):
    clock = SystemClock()
    endpoints = new_endpoints(Registry(), api.local(), clock, lambda: True, dict)
    async with serving_metrics("127.0.0.1:0", endpoints, clock) as port:
        with pytest.raises(NoMetricsPort, match="address already in use") as raised:
            async with serving_metrics(f"127.0.0.1:{port}", endpoints, clock):
                pass

    assert "a port that is free" in raised.value.hint


async def test_without_an_address_no_port_is_open(api: ApiServer):
    endpoints = new_endpoints(Registry(), api.local(), SystemClock(), lambda: True, dict)
    async with serving_metrics("", endpoints, SystemClock()) as port:
        assert port is None


@pytest.mark.parametrize(
    ("text", "address"),
    [(":8443", ("::", 8443)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:8443", ("::1", 8443))],
)
def test_addresses_are_written_as_in_go(text: str, address: tuple[str, int]):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["8443", "host", ":", ":http", ":65536", "::1:8443", ":-1", ":²"])
def test_what_is_no_address_is_said(text: str):
    with pytest.raises(ValueError, match="wanted"):
        parse_address(text)
