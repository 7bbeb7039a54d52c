"""Connections to guest clusters: one per cluster, kept open, with the Nodes of its API.

A connection probes /readyz each second until the API server answers, then watches the Nodes. When no server answers
any more it probes again; the Nodes read until then are kept, and the guest is reported as unreachable after a grace
period.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta

from windrow.bootstrap.pki import issue_client_config
from windrow.bootstrap.spec import ClusterSecrets
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.client.transport import Transport, find_certificate_end
from windrow.clusters.sources.servers.charts import GuestCharts
from windrow.clusters.sources.servers.snapshots import GuestSnapshots
from windrow.clusters.sources.servers.update_jobs import UpdateJobs
from windrow.clusters.state import GuestState, Node, read_node
from windrow.core.clock import Clock, sleep
from windrow.core.crash import handle_crash
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError, OutcomeUnknown, Unreachable, error_for
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.kubectl import IN_GUEST, render_delete
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import NODE

log = with_values(logging.getLogger(__name__))

CERTIFICATE_LIFETIME = timedelta(hours=24)
CERTIFICATE_RENEWAL = timedelta(hours=12)
PROBE_INTERVAL = timedelta(seconds=1)
SLOW_PROBE_INTERVAL = timedelta(seconds=10)
FAST_PROBE_PERIOD = timedelta(minutes=10)  # how long it is probed each second before it is probed slowly
PROBE_TIMEOUT_S = 5.0
# A watch that breaks is usually back at once. Only after this long the guest counts as unreachable.
UNREACHABLE_GRACE = timedelta(seconds=4)

Connect = Callable[[ClientConfig], Transport]


class FailoverTransport:
    """A Transport to one guest API through whichever of its servers answers; the last that did is asked first."""

    def __init__(self, client_config: Callable[[str], ClientConfig], connect: Connect, clock: Clock) -> None:
        self.urls: tuple[str, ...] = ()
        self.last_used = ""
        self.is_watching = False  # whether a watch is open
        self.problem = ""  # why the last watch or request broke
        self.changed = asyncio.Event()  # set when any of this changes
        self._client_config = client_config
        self._connect = connect
        self._clock = clock
        self._transports: dict[str, tuple[timedelta, Transport]] = {}
        self.certificate_ends: dict[str, datetime] = {}  # of the server that a watch is open to

    def set_endpoints(self, urls: Sequence[str]) -> None:
        self.urls = tuple(urls)
        self._transports = {url: entry for url, entry in self._transports.items() if url in urls}

    def _ordered_urls(self) -> list[str]:
        return sorted(self.urls, key=lambda url: url != self.last_used)

    def ask_next(self) -> None:
        """What was asked first has not answered in time: the next is asked first, or its silence would hide the others."""
        if self.urls:
            first = self.urls.index(self._ordered_urls()[0])
            self.last_used = self.urls[(first + 1) % len(self.urls)]

    def _transport_for(self, url: str) -> Transport:
        now = self._clock.monotonic()
        since, transport = self._transports.get(url, (now, None))
        if transport is None or now - since > CERTIFICATE_RENEWAL:
            transport = self._connect(self._client_config(url))
            self._transports[url] = (now, transport)
        return transport

    async def send_to(self, url: str, request: Request) -> Reply:
        """Ask that one server, which says nothing of the others."""
        return await self._transport_for(url).send(request)

    async def send(self, request: Request) -> Reply:
        problem: KubeError = Unreachable("no server has an address yet")
        for url in self._ordered_urls():
            try:
                reply = await self._transport_for(url).send(request)
            except Unreachable as error:
                problem = error
            except OutcomeUnknown as error:
                problem = error
                if not request.is_read:
                    break
            else:
                self.last_used = url
                self._on_reply(request, reply)
                return reply
        self._on_error(problem)
        raise problem

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with AsyncExitStack() as stack:
            events = await self._enter(stack, request)
            self.certificate_ends = self._read_certificate_end()
            self.is_watching, self.problem = True, ""
            self.changed.set()
            try:
                yield events
            except KubeError as error:
                self._on_error(error)
                raise
            finally:
                self.is_watching = False
                self.certificate_ends = {}  # it may be renewed before the next watch
                self.changed.set()

    def _read_certificate_end(self) -> dict[str, datetime]:
        end = find_certificate_end(self._transport_for(self.last_used))
        return {} if end is None else {self.last_used: end}

    async def _enter(self, stack: AsyncExitStack, request: Request) -> AsyncIterator[WatchEvent]:
        problem: KubeError = Unreachable("no server has an address yet")
        for url in self._ordered_urls():
            try:
                events = await stack.enter_async_context(self._transport_for(url).stream(request))
            except KubeError as error:
                problem = error
            else:
                self.last_used = url
                return events
        self._on_error(problem)
        raise problem

    async def aclose(self) -> None:
        while self._transports:
            _, (_, transport) = self._transports.popitem()
            await transport.aclose()

    def _on_reply(self, request: Request, reply: Reply) -> None:
        """A server that cannot even be read from (etcd without quorum) counts as unreachable."""
        refusal = error_for(reply) if request.is_read and reply.status >= 500 else None
        if refusal is None:
            self.problem = ""
        else:
            self._on_error(refusal)

    def _on_error(self, problem: KubeError) -> None:
        self.problem = str(problem)
        self.changed.set()


class SharingTransport(FailoverTransport):
    """Another FailoverTransport over the connections of `owner`, with a state of its own: a watch that breaks in it says
    nothing of those of the owner, which closes the connections."""

    def __init__(self, owner: FailoverTransport) -> None:
        super().__init__(owner._client_config, owner._connect, owner._clock)
        self._owner = owner

    def _transport_for(self, url: str) -> Transport:
        return self._owner._transport_for(url)


class GuestConnection:
    """The connection to one guest cluster. `run` is its owner's task; `changed` is called at each change."""

    def __init__(
        self,
        secrets: ClusterSecrets,
        connect: Connect,
        clock: Clock,
        rng: Rng,
        changed: Callable[[], None],
        proxy: str,
        uid: str = "",
    ) -> None:
        """`uid` is that of the Cluster, so that the watches of many guests do not end together."""
        self._secrets = secrets
        self._clock = clock
        self._changed = changed
        self._proxy = proxy
        self._transport = FailoverTransport(self._client_config, connect, clock)
        self._reason = "it has not been asked yet"
        # None while it is reachable. The grace is for guests that were reachable, never for one that has yet to start.
        self._unreachable_since: timedelta | None = clock.monotonic() - UNREACHABLE_GRACE
        self._probed = False
        self._opened_at = clock.monotonic()
        self._probe_now = asyncio.Event()
        self._disconnected = asyncio.Event()
        self._informer: Informer[Node] = Informer(
            self._transport, NODE, "", read_node, clock, rng, on_state=changed
        )
        self.nodes: MutationCache[Node] = MutationCache(
            self._informer, lambda node: node.resource_version, clock
        )
        self.client = Client(self._transport)
        self.snapshots = GuestSnapshots(SharingTransport(self._transport), clock, Rng(uid), changed)
        self.updates = UpdateJobs(SharingTransport(self._transport), clock, Rng(uid), changed)
        self.charts = GuestCharts(SharingTransport(self._transport), clock, Rng(uid), changed)

    def _client_config(self, url: str) -> ClientConfig:
        return issue_client_config(self._secrets, url, self._clock.now(), CERTIFICATE_LIFETIME, self._proxy)

    async def probe_server(self, url: str) -> str:
        """Why the API server at that URL is not ready, "" where it is, or where this connection does not use it. No other
        server answers in its place."""
        if url not in self._transport.urls:
            return ""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                reply = await self._transport.send_to(url, Request("GET", "/readyz"))
        except KubeError as error:
            return str(error)
        except TimeoutError:
            return f"{url} did not answer within {PROBE_TIMEOUT_S:.0f} s"
        refusal = error_for(reply)
        return "" if refusal is None else f"{url}: {refusal}"

    def set_endpoints(self, urls: Sequence[str]) -> None:
        """The addresses have changed: probe at once."""
        if tuple(urls) == self._transport.urls:
            return
        in_use = self._transport.last_used
        self._transport.set_endpoints(urls)
        self.snapshots.set_endpoints(tuple(urls))
        self.updates.set_endpoints(tuple(urls))
        self.charts.set_endpoints(tuple(urls))
        if in_use and in_use not in urls:
            # Its watch may hang for minutes without an error.
            self._disconnect()
        self._probe_now.set()

    def _disconnect(self) -> None:
        self._disconnected.set()
        self._transport.changed.set()

    def observe(self) -> GuestState:
        if not self._probed:
            return GuestState("unknown", self._reason)
        since = self._unreachable_since
        if since is not None and self._clock.monotonic() - since >= UNREACHABLE_GRACE:
            return GuestState(
                "unreachable",
                self._reason,
                tuple(self.nodes.values()),
                probed_since=self._by_wall_clock(self._opened_at),
            )
        if problem := self._unreadable_node():
            return GuestState("unknown", problem, tuple(self.nodes.values()))
        interruption = "" if since is None else self._reason
        ends = self._transport.certificate_ends
        return GuestState(
            "reachable", "", tuple(self.nodes.values()), interruption=interruption, certificate_ends=ends
        )

    def _unreadable_node(self) -> str:
        """A Node that is there in a state that is not known: read as absent or NotReady, its machine would be replaced."""
        for ref, why in sorted(self._informer.unreadable.items(), key=lambda one: one[0].name):
            return (
                f"Node {ref.name} of the guest cluster cannot be read ({why}); nothing is concluded about any Node until "
                f"it is corrected, or deleted with {render_delete(ref, kubeconfig=IN_GUEST)}"
            )
        return ""

    @property
    def grace_deadline(self) -> datetime | None:
        """When the guest counts as unreachable if it stays so."""
        since = self._unreachable_since
        if since is None or self._clock.monotonic() >= since + UNREACHABLE_GRACE:
            return None
        return self._by_wall_clock(since + UNREACHABLE_GRACE)

    def _by_wall_clock(self, instant: timedelta) -> datetime:
        return self._clock.now() + (instant - self._clock.monotonic())

    async def patch_node(self, name: str, change: Mapping[str, object]) -> None:
        self.nodes.mutated(await self.client.patch(NODE.ref(name), change))

    # -- the work ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the connection open until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forward_changes())
            group.create_task(self.updates.run())
            group.create_task(self.charts.run())
            while True:
                await self._probe_until_ready()
                await self._watch_nodes()

    async def _forward_changes(self) -> None:
        async for _ in self._informer.changes():
            self._changed()

    async def _probe_until_ready(self) -> None:
        started_at = self._clock.monotonic()
        while True:
            self._probe_now.clear()
            problem = await self._probe()
            if problem is None:
                return
            self._mark_unreachable(problem)
            if self._clock.monotonic() - started_at < FAST_PROBE_PERIOD:
                await sleep(self._clock, PROBE_INTERVAL)
                continue
            await self._wait_slowly()

    async def _wait_slowly(self) -> None:
        try:
            async with asyncio.timeout(SLOW_PROBE_INTERVAL.total_seconds()):
                await self._probe_now.wait()
        except TimeoutError:
            pass

    async def _probe(self) -> str | None:
        """None when the API is ready, else why not."""
        if not self._transport.urls:
            return "no server has an address yet"
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                reply = await self._transport.send(Request("GET", "/readyz"))
        except KubeError as error:
            return str(error)
        except TimeoutError:
            self._transport.ask_next()
            return f"{', '.join(self._transport.urls)} did not answer within {PROBE_TIMEOUT_S:.0f} s"
        refusal = error_for(reply)
        return None if refusal is None else f"{self._transport.last_used} is not ready: {refusal}"

    def _mark_unreachable(self, problem: str) -> None:
        before = self._reason, self._unreachable_since, self._probed
        self._reason = problem
        self._unreachable_since = self._unreachable_since or self._clock.monotonic()
        self._probed = self._probed or bool(self._transport.urls)
        if before != (self._reason, self._unreachable_since, self._probed):
            self._changed()

    async def _watch_nodes(self) -> None:
        """Watch the Nodes until no server answers any more."""
        self._disconnected.clear()
        watch = asyncio.ensure_future(self._informer.run())
        watch.add_done_callback(lambda _: self._transport.changed.set())
        snapshots = asyncio.ensure_future(self.snapshots.run())
        try:
            while True:
                await self._transport.changed.wait()
                self._transport.changed.clear()
                if watch.done():
                    return watch.result()  # it only ends by a defect, which is raised here
                if self._disconnected.is_set():
                    return self._mark_unreachable("the connection to its API was lost")
                if self._transport.is_watching:
                    self._mark_reachable()
                elif self._transport.problem:
                    return self._mark_unreachable(self._transport.problem)
        finally:
            watch.cancel()
            snapshots.cancel()
            await asyncio.gather(watch, snapshots, return_exceptions=True)

    def _mark_reachable(self) -> None:
        if self._unreachable_since is not None or not self._probed:
            self._unreachable_since, self._probed, self._reason = None, True, ""
            self._changed()


class GuestClusterCache:
    """All connections; their tasks live in the task group of the controller."""

    def __init__(self, connect: Connect, clock: Clock, rng: Rng) -> None:
        self._connect = connect
        self._clock = clock
        self._rng = rng
        self._connections: dict[str, tuple[GuestConnection, asyncio.Task[None]]] = {}

    def find(self, cluster_uid: str) -> GuestConnection | None:
        entry = self._connections.get(cluster_uid)
        return entry[0] if entry else None

    def open(
        self,
        group: asyncio.TaskGroup,
        cluster_uid: str,
        secrets: ClusterSecrets,
        proxy: str,
        changed: Callable[[], None],
    ) -> GuestConnection:
        """The connection of this cluster, opened where there is none."""
        if connection := self.find(cluster_uid):
            return connection
        connection = GuestConnection(
            secrets, self._connect, self._clock, self._rng, changed, proxy, cluster_uid
        )
        keeping = self._keep_alive(connection, cluster_uid)
        try:
            task = group.create_task(keeping, name=f"guest {cluster_uid}")
        except RuntimeError:
            # A group that ends takes no more tasks; the caller is about to be cancelled with it.
            keeping.close()
            raise asyncio.CancelledError("the controller is stopping") from None
        self._connections[cluster_uid] = (connection, task)
        return connection

    def close(self, cluster_uid: str) -> None:
        if entry := self._connections.pop(cluster_uid, None):
            entry[1].cancel()

    async def _keep_alive(self, connection: GuestConnection, cluster_uid: str) -> None:
        """A defect in one connection must not end the controller."""
        while True:
            with handle_crash(
                log, "the connection to a guest cluster failed; it is opened again", clusteruid=cluster_uid
            ):
                await connection.run()
            await sleep(self._clock, SLOW_PROBE_INTERVAL)
