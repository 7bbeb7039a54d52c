"""Connecting to API servers, over sockets or through the emulator's network in this process.

Both are a function from a ClientConfig (a kubeconfig, read) to a Transport.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from windrow.client.http_transport import ConnectionPool, HttpTransport
from windrow.client.in_process import InProcessTransport
from windrow.client.transport import Transport, TransportMiddleware
from windrow.core.clock import Clock
from windrow.core.files import read_text
from windrow.emulator.kit.network import Network
from windrow.kubernetes.kubeconfig import ClientConfig, ReadFile
from windrow.kubernetes.requests import Reply, Request, WatchEvent

Connect = Callable[[ClientConfig], Transport]


def verb_and_resource(request: Request) -> str:
    """`GET virtualmachines`, `WATCH nodes`, `PUT virtualmachines/start`: a request without names."""
    parts = [part for part in request.path.split("/") if part]
    rest = parts[2:] if parts[:1] == ["api"] else parts[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    resource = "/".join([rest[0], *rest[2:]]) if rest else request.path
    method = "WATCH" if request.query_parameter("watch") else request.method
    return f"{method} {resource}"


class CountingTransport(TransportMiddleware):
    """Counts requests by verb and resource."""

    def __init__(self, inner: Transport, counts: Counter[str], label: str) -> None:
        super().__init__(inner)
        self._counts, self._label = counts, label

    async def send(self, request: Request) -> Reply:
        self._counts[f"{self._label} {verb_and_resource(request)}"] += 1
        return await self._inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        self._counts[f"{self._label} {verb_and_resource(request)}"] += 1
        return self._inner.stream(request)


class HttpConnector:
    """Connects over sockets from one connection pool, and closes the pool at the end.

    `env` is the environment of the kubeconfigs' exec plugins.
    """

    def __init__(self, clock: Clock, env: Mapping[str, str] | None = None) -> None:
        self._clock, self._env = clock, env
        self._pool = ConnectionPool()

    def connect(self, access: ClientConfig) -> Transport:
        return HttpTransport(access, self._clock, env=self._env, pool=self._pool)

    async def __aenter__(self) -> HttpConnector:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._pool.aclose()


def in_process_connector(network: Network, clock: Clock, read_file: ReadFile = read_text) -> Connect:
    """Connects to servers of the simulated network by function calls; certificates and credentials are verified.

    `read_file` reads the files that kubeconfigs name, as the connecting machine sees them.
    """

    def connect(access: ClientConfig) -> Transport:
        return InProcessTransport(access, network.find, clock, read_file=read_file)

    return connect
