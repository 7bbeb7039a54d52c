"""Listeners at virtual addresses of load balancers, and the proxy from there to machines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from windrow.emulator.kit.network import Network
from windrow.emulator.load_balancers.services import Backend
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.handler import Handler, Peer, TlsIdentity
from windrow.kubernetes.requests import Reply, Request, WatchEvent

SocketAddress = tuple[str, int]
Backends = Callable[[], Sequence[Backend]]


class VirtualListeners:
    """The listeners of one kube-vip, each with its owner (a Service's key)."""

    def __init__(self, network: Network, log: Callable[[str], None]) -> None:
        self._network = network
        self._log = log
        self._open: dict[SocketAddress, tuple[object, Handler]] = {}

    def sync(self, owner: object, wanted: Mapping[SocketAddress, Callable[[], Handler]]) -> None:
        """Make `wanted` the listeners of `owner`; those that exist are kept. May be repeated."""
        for place, (held_by, _) in list(self._open.items()):
            if held_by == owner and place not in wanted:
                self._close(place)
        for place, make in wanted.items():
            if place not in self._open:
                self._listen(owner, place, make())

    def close_all(self) -> None:
        for place in list(self._open):
            self._close(place)

    def _listen(self, owner: object, place: SocketAddress, handler: Handler) -> None:
        try:
            self._network.listen(*place, handler)
        except ValueError as error:
            self._log(f"{place[0]}:{place[1]} is announced twice, the first listener is kept: {error}")
        else:
            self._open[place] = owner, handler

    def _close(self, place: SocketAddress) -> None:
        _, handler = self._open.pop(place)
        if self._network.find(*place) is handler:
            self._network.close(*place)


class ProxyHandler:
    """Round-robin proxy to the machines behind a load balancer; TLS ends at the machine."""

    def __init__(self, network: Network, backends: Backends) -> None:
        self._network = network
        self._backends = backends
        self._turn = 0

    def identity(self) -> TlsIdentity | None:
        """The identity of the first machine that listens: all have certificates for the address they share."""
        found = (self._network.find(one.address, one.port) for one in self._backends())
        handler = next(filter(None, found), None)
        return handler.identity() if handler is not None else None

    async def send(self, request: Request, peer: Peer) -> Reply:
        return await self._next().send(request, peer)

    @asynccontextmanager
    async def stream(self, request: Request, peer: Peer) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with self._next().stream(request, peer) as events:
            yield events

    def _next(self) -> Handler:
        """The handler of the machine of this turn. Raises Unreachable when it does not listen."""
        self._turn += 1
        backends = self._backends()
        chosen = backends[self._turn % len(backends)] if backends else None
        handler = self._network.find(chosen.address, chosen.port) if chosen is not None else None
        if handler is None:
            raise Unreachable("connection refused: no machine behind the load balancer listens")
        return handler
