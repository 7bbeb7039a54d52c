"""Handler behind a Service's address: kube-proxy on the node that announces it, and the simulated pods.

No pod runs a container. A Ready pod answers every request with 200 and its own name, which is what a test of the
route to it needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from zlib import crc32

from windrow.core.json import dumps
from windrow.emulator.guest_cluster.cluster import Heartbeat
from windrow.emulator.load_balancers.services import Backend
from windrow.kubernetes.errors import NotFound, OutcomeUnknown, Unreachable
from windrow.kubernetes.handler import Peer, TlsIdentity
from windrow.kubernetes.requests import Reply, Request, WatchEvent

Raw = dict[str, Any]


class ServiceHandler:
    """One port of one Service at one address. `backends` gives the Ready endpoints, `heartbeats` the nodes whose
    kubelet reports."""

    def __init__(
        self,
        heartbeats: Mapping[str, Heartbeat],
        backends: Callable[[], Sequence[Backend]],
        is_sticky: Callable[[], bool],
    ) -> None:
        self._heartbeats = heartbeats
        self._backends = backends
        self._is_sticky = is_sticky
        self._next = 0

    def identity(self) -> TlsIdentity | None:
        return None

    async def send(self, request: Request, peer: Peer) -> Reply:
        chosen = self._choose(peer)
        heartbeat = self._heartbeats.get(chosen.node)
        if heartbeat is not None and not heartbeat.alive:
            # An endpoint stays Ready for a while after its node lost power; until then connections to it time out.
            raise OutcomeUnknown(f"connection to {chosen.address}:{chosen.port} timed out: its node is down")
        return Reply(200, dumps(render_reply(chosen)) + b"\n")

    @asynccontextmanager
    async def stream(self, request: Request, peer: Peer) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        raise NotFound("a simulated pod has nothing to watch", status=404)
        yield _nothing()  # unreachable: makes this function a generator, as asynccontextmanager needs

    def _choose(self, peer: Peer) -> Backend:
        backends = self._backends()
        if not backends:
            raise Unreachable("connection refused: the service has no Ready endpoint")
        if self._is_sticky():
            return backends[crc32(peer.address.encode()) % len(backends)]
        self._next += 1
        return backends[(self._next - 1) % len(backends)]


def render_reply(backend: Backend) -> Raw:
    """The pod's reply."""
    return {
        "pod": backend.name,
        "namespace": backend.namespace,
        "node": backend.node,
        "address": f"{backend.address}:{backend.port}",
    }


async def _nothing() -> AsyncIterator[WatchEvent]:
    return
    yield
