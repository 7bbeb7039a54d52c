"""Servers for these tests: in memory, seeded, on a frozen clock unless a test drives one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.core.formats.fastjson import dumps, loads
from windrow.core.rng import Rng
from windrow.kubernetes.requests import JSON, Reply, Request
from windrow.kubernetes.resources import ApiResource

WIDGET = ApiResource("example.io", "v1", "Widget", "widgets")


class FrozenClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.instant = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.instant

    def monotonic(self) -> timedelta:
        return self.instant - datetime(2026, 1, 1, tzinfo=UTC)

    async def sleep_until(self, instant: datetime) -> None:
        if instant > self.instant:
            await asyncio.Event().wait()


def widgets(*, status: bool = True, **version: Any) -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "color": {"type": "string", "default": "red", "enum": ["red", "blue"]},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "weight": {"type": "integer"}},
                },
            },
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    schema = {
        "type": "object",
        "properties": {
            "spec": spec,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    if status:
        one.setdefault("subresources", {"status": {}})
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.io"},
        "spec": {
            "group": "example.io",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [one],
        },
    }


class ApiCaller:
    """Requests through the whole server, as over HTTP."""

    def __init__(
        self, server: ApiServer, user: str = "system:admin", groups: tuple[str, ...] = ("system:masters",)
    ):
        self.local = server.local(user, groups)

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = JSON,
        accept: str = JSON,
        **headers: str,
    ) -> Reply:
        path, _, query = path.partition("?")
        pairs = tuple(tuple(part.partition("=")[::2]) for part in query.split("&") if part)
        encoded = body if isinstance(body, bytes) or body is None else dumps(body)
        named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        return await self.local.send(
            Request(method, path, pairs, encoded, media if body is not None else "", accept, named)
        )

    async def json(self, method: str, path: str, body: Any = None, **rest: Any) -> tuple[int, Any]:
        reply = await self(method, path, body, **rest)
        return reply.status, loads(reply.body)


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def a_server(clock: FrozenClock) -> Callable[..., ApiServer]:
    def make(*, crds: list[dict[str, Any]] | None = None, **options: Any) -> ApiServer:
        server = ApiServer(options.pop("store", None) or MemoryStore(), clock, Rng(1), **options)
        for crd in crds or []:
            server.install_crd(crd)
        return server

    return make


@pytest.fixture
def server(a_server: Callable[..., ApiServer]) -> ApiServer:
    return a_server(crds=[widgets()])


@pytest.fixture
def api(server: ApiServer) -> ApiCaller:
    return ApiCaller(server)


@pytest.fixture
def api_as() -> Callable[..., ApiCaller]:
    return ApiCaller


@pytest.fixture
def widget_crd() -> Callable[..., dict[str, Any]]:
    return widgets


RunControllers = Callable[[ApiServer], Any]


@pytest.fixture
def run_controllers() -> RunControllers:
    """Run a server with its controllers; yields a function that waits for a condition."""

    @asynccontextmanager
    async def run(
        server: ApiServer,
    ) -> AsyncIterator[Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]]:
        async def eventually(question: Callable[[], Awaitable[bool]]) -> None:
            for _ in range(500):
                if await question():
                    return
                await asyncio.sleep(0)
            raise AssertionError("the condition was not met")

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(server.run())
            yield eventually
            task.cancel()

    return run
