from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.support.clock import LoopClock

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.clock import SystemClock
from windrow.app.embedded import embedded_manager, management_api
from windrow.app.network import HttpConnector
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER
from windrow.core.pki import verify_client, verify_server
from windrow.core.rng import Rng
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import (
    CONFIG_MAP,
    DEPLOYMENT,
    EVENT,
    LEASE,
    NODE,
    POD,
    PVC,
    ROLE,
    SECRET,
    SERVICE,
    ApiResource,
)


def client() -> Client:
    return Client(management_api(MemoryStore(), LoopClock(), Rng(1)).local())


@pytest.mark.parametrize("kind", [DEPLOYMENT, NODE, POD, PVC, SERVICE], ids=lambda kind: kind.plural)
async def test_the_management_api_takes_no_workloads(kind: ApiResource):
    """So that a kubeconfig of the wrong cluster is noticed."""
    with pytest.raises(NotFound, match="the server could not find the requested resource"):
        await client().create(kind, new_object(kind, "a", "default" if kind.namespaced else ""))


@pytest.mark.parametrize(
    "kind", [CLUSTER, CONFIG_MAP, EVENT, LEASE, ROLE, SECRET], ids=lambda kind: kind.plural
)
async def test_the_management_api_has_its_own_kinds_and_what_its_clients_need(kind: ApiResource):
    assert isinstance(await client().list(kind), list)


async def test_a_manager_whose_clock_is_set_forward_by_more_than_a_year_shows_a_new_certificate(
    tmp_path: Path,
):
    ahead = timedelta()
    clock = SystemClock(wall=lambda: datetime.now(UTC) + ahead)
    async with (
        HttpConnector(SystemClock()) as sockets,
        embedded_manager(tmp_path, clock, Rng(1), sockets.connect) as managed,
    ):
        ahead = timedelta(days=400)
        url = urlsplit(managed.access.server)
        unverified = ssl.create_default_context()
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection(url.hostname, url.port, ssl=unverified)
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()

        access = parse_kubeconfig(managed.kubeconfig_path.read_text())
        chain = ssl.DER_cert_to_PEM_cert(shown)
        assert verify_server(chain, access.ca, "127.0.0.1", clock.now()) is None
        assert verify_client(access.certificate, access.ca, clock.now()) is None


async def test_a_manager_serves_where_its_kubeconfig_says_after_a_restart_too(tmp_path: Path):
    servers = []
    for _ in range(2):
        async with (
            HttpConnector(SystemClock()) as sockets,
            embedded_manager(tmp_path, SystemClock(), Rng(1), sockets.connect, persistent=True) as managed,
        ):
            servers.append(managed.access.server)

    assert servers[0] == servers[1]


@pytest.mark.parametrize(
    ("bind", "server"), [("0.0.0.0", "https://127.0.0.1:"), ("127.0.0.2", "https://127.0.0.2:")]
)
async def test_a_manager_listens_where_it_is_told(bind: str, server: str, tmp_path: Path):
    async with (
        HttpConnector(SystemClock()) as sockets,
        embedded_manager(tmp_path, SystemClock(), Rng(1), sockets.connect, bind=bind) as managed,
    ):
        found = await Client(sockets.connect(managed.access)).list(CLUSTER)

    assert managed.access.server.startswith(server)
    assert found == []
