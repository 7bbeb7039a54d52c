"""A dashboard over a management API in this process, asked as a browser would, without sockets."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from tests.support.clock import LoopClock

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.access.management import CODE_PATH, ManagementAccess, install_code_role
from windrow.app.cluster_roles import install_cluster_roles
from windrow.app.embedded import install_crds, management_api
from windrow.app.harvester.reader import HarvesterReader
from windrow.app.network import Connect
from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.clusters.api.kinds import CLUSTER
from windrow.core.rng import Rng
from windrow.dashboard.changes import ChangeFeed
from windrow.dashboard.messages import EventStream, PageRequest, PageResponse
from windrow.dashboard.sessions import Sessions, SignInCodes, WrongTries
from windrow.dashboard.site import DashboardSite, Doors
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.resources import NAMESPACE, ROLE_BINDING

HOST = "127.0.0.1:8640"
ORIGIN = f"http://{HOST}"
OWN = {"host": HOST, "origin": ORIGIN, "sec-fetch-site": "same-origin"}


class HandClock(LoopClock):
    """A clock that can be set ahead, wall and monotonic side alike."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = timedelta()

    def monotonic(self) -> timedelta:
        return super().monotonic() + self.ahead

    def advance(self, by: timedelta) -> None:
        self.ahead += by


@dataclass
class Browser:
    """Keeps its cookie, and sends the headers of a page of the dashboard."""

    site: DashboardSite
    cookies: dict[str, str] = field(default_factory=dict)
    address: str = "127.0.0.1"

    async def ask(self, method: str, target: str, form: dict[str, str] | None = None, **headers: str) -> Any:
        parts = urlsplit(target)
        sent = {**OWN, **{name.replace("_", "-"): value for name, value in headers.items()}}
        sent = {name: value for name, value in sent.items() if value}
        request = PageRequest(
            method,
            parts.path,
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            form or {},
            dict(self.cookies),
            sent,
            self.address,
        )
        answer = await self.site.respond(request)
        if isinstance(answer, PageResponse) and answer.cookie:
            name, _, value = answer.cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    async def get(self, target: str, **headers: str) -> PageResponse:
        answer = await self.ask("GET", target, **headers)
        assert isinstance(answer, PageResponse)
        return answer

    async def post(self, target: str, form: dict[str, str], **headers: str) -> PageResponse:
        answer = await self.ask("POST", target, form, **headers)
        assert isinstance(answer, PageResponse)
        return answer

    async def follow(self, target: str) -> AsyncIterator[bytes]:
        answer = await self.ask("GET", target)
        assert isinstance(answer, EventStream)
        return answer.events

    async def csrf(self) -> str:
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', (await self.get("/clusters")).body.decode())
        assert found
        return found[1]


@dataclass
class Dashboard:
    """The dashboard, its API, and what it knows."""

    api: ApiServer
    doors: Doors
    feed: ChangeFeed
    site: DashboardSite
    clock: HandClock
    issued: list[str] = field(default_factory=list)

    def browser(self) -> Browser:
        return Browser(self.site)

    async def code(self, user: str = "admin", groups: tuple[str, ...] = ("system:masters",)) -> str:
        """A code for this user, asked for as `windrow dashboard` does."""
        from windrow.kubernetes.requests import JSON, Request

        request = Request("POST", CODE_PATH, (), b'{"namespace": ""}', JSON)
        raw = await Client(self.api.local(user, groups)).call(request)
        return str(raw["code"])

    async def signed_in(self, user: str = "admin", groups: tuple[str, ...] = ("system:masters",)) -> Browser:
        browser = self.browser()
        code = await self.code(user, groups)
        answer = await browser.get(f"/sign-in?{urlencode({'code': code})}", sec_fetch_site="none")
        assert answer.status == 303, answer
        return browser


@pytest.fixture
async def dashboard() -> AsyncIterator[Dashboard]:
    async with a_dashboard() as made:
        yield made


def no_harvester(config: ClientConfig) -> Transport:
    raise AssertionError(f"no test expects a request to {config.server}")


@asynccontextmanager
async def a_dashboard(connect: Connect = no_harvester) -> AsyncIterator[Dashboard]:
    """A dashboard while entered, which reaches Harvesters by `connect`."""
    clock, rng = HandClock(), Rng(1)
    api = management_api(MemoryStore(), clock, rng)
    await install_crds(Client(api.local()))
    await install_cluster_roles(Client(api.local()))
    await install_code_role(Client(api.local()))
    access = ManagementAccess(api)
    sessions, tries = Sessions(clock, rng), WrongTries(clock)
    doors = Doors(access, SignInCodes(clock, rng), sessions, tries, HarvesterReader(connect))
    access.serve_codes(lambda user, namespace: {"code": doors.codes.issue(user, namespace)})
    async with ChangeFeed(clock, rng) as feed:
        site = DashboardSite(doors, feed, clock, ("127.0.0.1", "localhost"))
        yield Dashboard(api, doors, feed, site, clock)


def a_cluster(name: str, namespace: str = "fleet-default", **status: Any) -> dict[str, Any]:
    """A Cluster with a status."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "kubernetesVersion": "v1.34.7+rke2r1",
            "rkeConfig": {
                "machinePools": [
                    {"name": "servers", "quantity": 3, "etcdRole": True, "controlPlaneRole": True}
                ]
            },
        },
        "status": status,
    }


async def add_cluster(api: ApiServer, raw: dict[str, Any]) -> None:
    """Store the Cluster and its status."""
    client = api.local()
    await client.create(CLUSTER, raw)
    ref = CLUSTER.ref(raw["metadata"]["name"], raw["metadata"]["namespace"])
    await client.patch(ref, {"status": raw["status"]}, "status")


async def add_tenant(api: ApiServer, namespace: str, user: str, role: str = "windrow-view") -> None:
    """A namespace in which the user has the role, and nothing elsewhere."""
    client = api.local()
    await client.create(NAMESPACE, {"metadata": {"name": namespace}})
    raw = {
        "metadata": {"name": "it"},
        "roleRef": {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": ROLE_BINDING.group, "kind": "User", "name": user}],
    }
    await client.create(ROLE_BINDING, raw, namespace)
