"""Request handlers of a server: the Kubernetes API and the supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from windrow.apiserver.apierrors import error_reply, status_error
from windrow.core.clock import parse_time, sleep
from windrow.core.formats.json import dumps, loads
from windrow.core.text import decode_base64, encode_base64
from windrow.emulator.guest_cluster.cluster import GuestCluster, ServerInstance
from windrow.emulator.guest_cluster.server_routes import ServerRoute, list_server_routes
from windrow.kubernetes.errors import KubeError, NotFound, OutcomeUnknown
from windrow.kubernetes.handler import Peer, TlsIdentity
from windrow.kubernetes.objects import nested
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import SECRET

_TEXT = "text/plain; charset=utf-8"
_OUTPACED = (
    'Internal error occurred: no kind "ServiceCIDR" is registered for version "networking.k8s.io/v1" in scheme '
    '"pkg/api/legacyscheme/scheme.go:30"'
)
_HEALTH = ("/readyz", "/livez", "/healthz")


class ApiHandler:
    """The API of one server. Without etcd quorum it accepts connections and answers errors."""

    def __init__(self, cluster: GuestCluster, server: ServerInstance, etcd_timeout: timedelta) -> None:
        self.cluster = cluster
        self.server = server
        self.etcd_timeout = etcd_timeout

    def identity(self) -> TlsIdentity | None:
        return self.server.identity

    async def send(self, request: Request, peer: Peer) -> Reply:
        if not self.cluster.etcd.has_quorum():
            return await self._reply_without_quorum(request)
        if self.cluster.is_outpaced(self.server):
            return self._reply_outpaced(request)
        reply = await self.cluster.api.send(request, peer)
        if request.path.rstrip("/") == "/version" and reply.status == 200:
            return replace(reply, body=dumps({**loads(reply.body), **_render_version(self.server)}))
        return reply

    async def _reply_without_quorum(self, request: Request) -> Reply:
        if request.path.startswith(_HEALTH):
            return Reply(500, b"[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n", _TEXT)
        await sleep(self.cluster.clock, self.etcd_timeout)
        return error_reply(status_error(500, "etcdserver: request timed out"))

    def _reply_outpaced(self, request: Request) -> Reply:
        """What an API server answers that cannot read what one two minors ahead has stored."""
        if request.path.startswith(_HEALTH):
            return Reply(
                500, b"[+]ping ok\n[-]informer-sync failed: reason withheld\nreadyz check failed\n", _TEXT
            )
        return error_reply(status_error(500, _OUTPACED))

    @asynccontextmanager
    async def stream(self, request: Request, peer: Peer) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        if not self.cluster.etcd.has_quorum():
            raise OutcomeUnknown("etcdserver: no leader")
        if self.cluster.is_outpaced(self.server):
            raise status_error(500, _OUTPACED)
        async with self.cluster.api.stream(request, peer) as events:
            yield self._until_stopped(events)

    async def _until_stopped(self, events: AsyncIterator[WatchEvent]) -> AsyncIterator[WatchEvent]:
        gone = asyncio.ensure_future(self.server.stopped.wait())
        following: asyncio.Future[WatchEvent] | None = None
        try:
            while True:
                following = asyncio.ensure_future(anext(events))
                await asyncio.wait({gone, following}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    raise OutcomeUnknown(f"the connection to the API server at {self.server.address} broke")
                try:
                    event = following.result()
                except StopAsyncIteration:
                    return
                following = None
                yield event
        finally:
            gone.cancel()
            if following is not None:
                following.cancel()
                await asyncio.wait({following})


def _render_version(server: ServerInstance) -> dict[str, str]:
    """The /version fields: during an upgrade each server reports its own release."""
    version = server.version
    return {"major": str(version.major), "minor": str(version.minor), "gitVersion": str(version)}


Handler = Callable[[Request, str], Awaitable[Reply]]


class SupervisorHandler:
    """The supervisor API for joining machines: the CA bundle without authentication, the rest with a token."""

    def __init__(self, cluster: GuestCluster, server: ServerInstance) -> None:
        self.cluster = cluster
        self.server = server
        path = cluster.distribution.supervisor_path
        self._routes: dict[str, Handler] = {
            path("readyz"): self._readyz,
            path("server-bootstrap"): self._server_bootstrap,
            path("config"): self._config,
            path("serving-kubelet.crt"): self._serving_kubelet,
        }

    def identity(self) -> TlsIdentity | None:
        return self.server.identity

    async def send(self, request: Request, peer: Peer) -> Reply:
        if request.path == "/cacerts":
            return Reply(200, self.cluster.authorities.server_ca.encode(), _TEXT)
        if request.path == "/ping":
            return Reply(200, b"pong", _TEXT)
        if (route := list_server_routes(self.cluster, self.server).get(request.path)) is not None:
            return await self._send_as_server(request, route)
        handler = self._routes.get(request.path)
        if handler is None:
            return Reply(404, b"404 page not found\n", _TEXT)
        user = await self._authenticate(request)
        if not user:
            return Reply(401, b"Unauthorized\n", _TEXT)
        return await handler(request, user)

    def stream(self, request: Request, peer: Peer) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        raise NotFound("the supervisor has nothing to watch", status=404)

    async def _send_as_server(self, request: Request, route: ServerRoute) -> Reply:
        """The servers' password alone opens the route; that of nodes, a bootstrap token and a certificate do not."""
        is_given = bool(_header(request, "Authorization"))
        user = await self._authenticate(request) if is_given else ""
        if user == "server":
            return await route(request)
        if is_given and not user:
            return error_reply(status_error(401, "not authorized"))
        return error_reply(status_error(403, "forbidden"))

    async def _authenticate(self, request: Request) -> str:
        """ "server" or "node" for a good credential, "" for a bad one."""
        scheme, _, credential = _header(request, "Authorization").partition(" ")
        if scheme.lower() == "bearer":
            return "node" if await self._is_bootstrap_token(credential) else ""
        try:
            user, _, password = decode_base64(credential).partition(":")
        except ValueError:
            return ""
        server, agent = self.server.server_password, self.server.agent_password
        allowed = {"server": {server}, "node": {agent, server}}
        return user if password in allowed.get(user, set()) else ""

    async def _is_bootstrap_token(self, token: str) -> bool:
        identity, _, secret = token.partition(".")
        if not self.cluster.is_usable():
            return False
        raw = await self.cluster.client().find(SECRET.ref(f"bootstrap-token-{identity}", "kube-system"))
        if raw is None or _secret_text(raw, "token-secret") != secret:
            return False
        expires = _secret_text(raw, "expiration")
        return not expires or parse_time(expires) > self.cluster.clock.now()

    async def _readyz(self, request: Request, user: str) -> Reply:
        if not self.cluster.is_usable():
            return error_reply(status_error(503, "runtime core not ready"))
        return Reply(200, b"ok", _TEXT)

    async def _server_bootstrap(self, request: Request, user: str) -> Reply:
        if user != "server":
            return Reply(403, b"Forbidden\n", _TEXT)
        if not self.cluster.etcd.is_embedded:
            return error_reply(status_error(400, "etcd disabled"))
        return Reply(200, dumps({"cluster": self.cluster.uid, "files": dict(self.cluster.authorities.files)}))

    async def _config(self, request: Request, user: str) -> Reply:
        cluster = self.cluster
        reply = {"cluster": cluster.uid, "version": str(cluster.version), "critical": cluster.critical}
        return Reply(200, dumps(reply))

    async def _serving_kubelet(self, request: Request, user: str) -> Reply:
        """The check of the node password, which comes with the kubelet's certificate."""
        if not self.cluster.is_usable():
            return Reply(503, b"runtime core not ready\n", _TEXT)
        named = self.cluster.distribution.node_header
        node, password = _header(request, named("Name")), _header(request, named("Password"))
        if not node or not password:
            return Reply(400, b"node name not set\n", _TEXT)
        if not await check_node_password(self.cluster, node, password):
            return Reply(403, b"Forbidden\n", _TEXT)
        return Reply(200, b"", _TEXT)


class SharedPortHandler(ApiHandler):
    """K3s' one port: the supervisor's paths, and everything else for the API, which comes later."""

    def __init__(self, cluster: GuestCluster, server: ServerInstance, etcd_timeout: timedelta) -> None:
        super().__init__(cluster, server, etcd_timeout)
        self._supervisor = SupervisorHandler(cluster, server)
        self._prefix = cluster.distribution.supervisor_path("")

    async def send(self, request: Request, peer: Peer) -> Reply:
        if request.path in ("/cacerts", "/ping") or request.path.startswith((self._prefix, "/db/")):
            return await self._supervisor.send(request, peer)
        if not self.server.api_up:
            return error_reply(self._not_ready())
        return await super().send(request, peer)

    @asynccontextmanager
    async def stream(self, request: Request, peer: Peer) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        if not self.server.api_up:
            raise self._not_ready()
        async with super().stream(request, peer) as events:
            yield events

    def _not_ready(self) -> KubeError:
        return status_error(503, f"apiserver {'not ready' if self.server.settings.runs_api else 'disabled'}")


async def check_node_password(cluster: GuestCluster, node: str, password: str) -> bool:
    """Whether `node` may use its name: the first password of a name is stored, another one is refused."""
    name = cluster.distribution.node_password_secret(node)
    local = cluster.client()
    raw = await local.find(SECRET.ref(name, "kube-system"))
    if raw is not None:
        return _secret_text(raw, "hash") == password
    data = {"hash": encode_base64(password)}
    await local.create(
        SECRET, {"metadata": {"name": name}, "type": "Opaque", "immutable": True, "data": data}, "kube-system"
    )
    return True


def _secret_text(raw: dict[str, object], key: str) -> str:
    value = nested(raw, "data", key, default="")
    return decode_base64(str(value), "replace")


def _header(request: Request, name: str) -> str:
    return next((value for key, value in request.headers if key.lower() == name.lower()), "")
