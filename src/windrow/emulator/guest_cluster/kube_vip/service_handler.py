"""Handler behind a Service's address: kube-proxy on the node that announces it, and the simulated pods.

No pod runs a container. A Ready pod answers every request with 200 and its own name, which is what a test of the
route to it needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from zlib import crc32

from windrow.core.formats.json import dumps
from windrow.emulator.guest_cluster.cluster import Heartbeat
from windrow.emulator.kit.listers import Index, Key, Objects, key_of
from windrow.emulator.load_balancers.services import Backend, has_endpoints, ready_backends, tcp_ports_of
from windrow.kubernetes.errors import NotFound, OutcomeUnknown, Unreachable
from windrow.kubernetes.handler import Peer, TlsIdentity
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.requests import Reply, Request, WatchEvent


class ServiceHandler:
    """One port of one Service at one address. `backends` gives the Ready endpoints, `heartbeats` the nodes whose
    kubelet reports, `served_files` what pods serve of their files."""

    def __init__(
        self,
        heartbeats: Mapping[str, Heartbeat],
        backends: Callable[[], Sequence[Backend]],
        is_sticky: Callable[[], bool],
        served_files: Mapping[Key, Callable[[], str]],
    ) -> None:
        self._heartbeats = heartbeats
        self._backends = backends
        self._is_sticky = is_sticky
        self._served_files = served_files
        self._next = 0

    def identity(self) -> TlsIdentity | None:
        return None

    async def send(self, request: Request, peer: Peer) -> Reply:
        chosen = self._choose(peer)
        heartbeat = self._heartbeats.get(chosen.node)
        if heartbeat is not None and not heartbeat.runs_containers:
            # An endpoint stays Ready for a while after its node lost power; until then connections to it time out.
            raise OutcomeUnknown(f"connection to {chosen.address}:{chosen.port} timed out: its node is down")
        body = {
            "pod": chosen.name,
            "namespace": chosen.namespace,
            "node": chosen.node,
            "address": f"{chosen.address}:{chosen.port}",
        }
        if (read := self._served_files.get((chosen.namespace, chosen.name))) is not None:
            body["file"] = read()
        return Reply(200, dumps(body) + b"\n")

    def stream(self, request: Request, peer: Peer) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        raise NotFound("a simulated pod has nothing to watch", status=404)

    def _choose(self, peer: Peer) -> Backend:
        backends = self._backends()
        if not backends:
            raise Unreachable("connection refused: the service has no Ready endpoint")
        if self._is_sticky():
            return backends[crc32(peer.address.encode()) % len(backends)]
        self._next += 1
        return backends[(self._next - 1) % len(backends)]


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The cluster's Services and endpoints: live informer caches."""

    services: Objects
    slices: Objects
    slices_of: Index
    endpoints: Objects

    def backends(self, service: Raw, port: Raw) -> list[Backend]:
        """Ready endpoints of one port."""
        key = key_of(service)
        own = [self.slices[one] for one in sorted(self.slices_of.get(key, ()))]
        return ready_backends(service, port, own, self.endpoints.get(key))

    def has_endpoints(self, service: Raw, node: str) -> bool:
        """Whether it has endpoints; with externalTrafficPolicy Local, whether `node` has."""
        key = key_of(service)
        own = [self.slices[one] for one in sorted(self.slices_of.get(key, ()))]
        is_local = nested(service, "spec", "externalTrafficPolicy") == "Local"
        return has_endpoints(service, own, self.endpoints.get(key), node if is_local else "")

    def routes_of(self, service: Raw, node: str) -> list[PortRoute]:
        return [PortRoute(node, key_of(service), int(port["port"]), self) for port in tcp_ports_of(service)]


@dataclass(frozen=True, slots=True)
class PortRoute:
    """kube-proxy's routing on `node` for one port of a Service, evaluated per connection."""

    node: str
    service: Key
    port: int
    state: ServiceState

    def is_sticky(self) -> bool:
        return bool(nested(self.state.services.get(self.service), "spec", "sessionAffinity") == "ClientIP")

    def backends(self) -> list[Backend]:
        service = self.state.services.get(self.service)
        ports = [one for one in tcp_ports_of(service) if one["port"] == self.port] if service else []
        if service is None or not ports:
            return []
        found = self.state.backends(service, ports[0])
        local_only = nested(service, "spec", "externalTrafficPolicy") == "Local"
        return [one for one in found if not local_only or one.node == self.node]
