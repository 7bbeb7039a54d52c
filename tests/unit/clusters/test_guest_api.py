from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.bootstrap.pki import new_cluster_secrets
from windrow.client.transport import Transport
from windrow.clusters.sources.guest_api import UNREACHABLE_GRACE, GuestConnection
from windrow.core.rng import Rng
from windrow.kubernetes.errors import OutcomeUnknown, Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import NODE

A, B = "https://10.0.0.1:6443", "https://10.0.0.2:6443"


class Servers:
    """One guest API behind several addresses, each of which may be down."""

    def __init__(self, clock: LoopClock) -> None:
        self.api = ApiServer(MemoryStore(), clock, Rng(1))
        self.up: dict[str, asyncio.Event] = {}
        self.silent: set[str] = set()  # they take a request, and never answer
        self.asked: list[str] = []
        self.dialled: list[ClientConfig] = []

    def start(self, url: str) -> None:
        self.up[url] = asyncio.Event()

    def stop(self, url: str) -> None:
        self.up.pop(url).set()

    def dial(self, access: ClientConfig) -> Transport:
        self.dialled.append(access)
        return _Server(self, access.server)


class _Server:
    def __init__(self, servers: Servers, url: str) -> None:
        self.servers, self.url = servers, url

    def _reach(self) -> asyncio.Event:
        self.servers.asked.append(self.url)
        if self.url not in self.servers.up:
            raise Unreachable(f"{self.url} refused the connection")
        return self.servers.up[self.url]

    async def send(self, request: Request) -> Reply:
        if self.url in self.servers.silent:
            await asyncio.Event().wait()
        self._reach()
        return await self.servers.api.local().send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        down = self._reach()
        async with self.servers.api.local().stream(request) as events:
            yield self._until(down, events)

    async def _until(
        self, down: asyncio.Event, events: AsyncIterator[WatchEvent]
    ) -> AsyncIterator[WatchEvent]:
        while True:
            ends = asyncio.ensure_future(down.wait())
            coming = asyncio.ensure_future(_next(events))
            try:
                await asyncio.wait({ends, coming}, return_when=asyncio.FIRST_COMPLETED)
                if ends.done():
                    raise OutcomeUnknown(f"{self.url} broke the connection")
                try:
                    event = coming.result()
                except StopAsyncIteration:
                    return
                yield event
            finally:
                ends.cancel()
                coming.cancel()
                await asyncio.gather(coming, ends, return_exceptions=True)

    async def aclose(self) -> None:
        pass


async def _next(events: AsyncIterator[WatchEvent]) -> WatchEvent:
    return await anext(events)


@asynccontextmanager
async def linked(*urls: str) -> AsyncIterator[tuple[GuestConnection, Servers, LoopClock]]:
    clock = LoopClock()
    servers = Servers(clock)
    for url in urls:
        servers.start(url)
    link = GuestConnection(new_cluster_secrets(clock.now()), servers.dial, clock, Rng(1), lambda: None, "")
    link.set_endpoints([A, B])
    running = asyncio.ensure_future(link.run())
    try:
        yield link, servers, clock
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def after(clock: LoopClock, **span: float) -> None:
    await clock.sleep_until(clock.now() + timedelta(**span))


def test_a_guest_that_has_not_begun_is_silent_from_the_start() -> None:
    async def story() -> None:
        async with linked() as (link, _, clock):
            await after(clock, seconds=0.5)

            assert link.observe().state == "unreachable"
            assert "refused the connection" in link.observe().because

    run_driven(story())


def test_a_server_that_is_silent_hides_the_others_for_one_probe_only() -> None:
    async def story() -> None:
        async with linked() as (link, servers, clock):
            servers.silent.add(A)
            servers.start(B)
            await after(clock, seconds=7)

            assert link.observe().state == "reachable"

    run_driven(story())


def test_a_guest_answers_within_a_second_of_its_api() -> None:
    async def story() -> None:
        async with linked() as (link, servers, clock):
            await after(clock, seconds=100)
            servers.start(A)
            await after(clock, seconds=1.1)

            assert link.observe().is_reachable

    run_driven(story())


def test_nodes_are_seen_as_they_come() -> None:
    async def story() -> None:
        async with linked(A) as (link, servers, clock):
            await after(clock, seconds=1)
            await servers.api.local().create(
                NODE, new_object(NODE, "n-1", labels={"rke.cattle.io/machine": "u-1"})
            )
            await after(clock, seconds=0.1)

            assert [(node.name, node.machine_uid) for node in link.observe().nodes] == [("n-1", "u-1")]

    run_driven(story())


def test_a_lost_server_is_survived_through_another_without_a_word() -> None:
    async def story() -> None:
        async with linked(A, B) as (link, servers, clock):
            await after(clock, seconds=1)
            servers.stop(A)
            for _ in range(50):
                await after(clock, seconds=0.1)
                assert link.observe().is_reachable

    run_driven(story())


def test_a_guest_whose_servers_are_all_lost_is_silent_after_a_grace() -> None:
    async def story() -> None:
        async with linked(A) as (link, servers, clock):
            await after(clock, seconds=1)
            servers.stop(A)
            await after(clock, seconds=0.1)
            assert link.observe().is_reachable
            assert link.observe().interruption
            assert link.grace_deadline is not None

            await after(clock, seconds=UNREACHABLE_GRACE.total_seconds())
            assert link.observe().state == "unreachable"

    run_driven(story())


def test_what_was_known_of_nodes_stays_while_a_guest_is_silent() -> None:
    async def story() -> None:
        async with linked(A) as (link, servers, clock):
            await servers.api.local().create(NODE, new_object(NODE, "n-1"))
            await after(clock, seconds=1)
            servers.stop(A)
            await after(clock, seconds=60)

            assert [node.name for node in link.observe().nodes] == ["n-1"]

    run_driven(story())


def test_a_guest_that_comes_back_is_heard_at_once_for_a_while_and_later_within_ten_seconds() -> None:
    async def story() -> None:
        async with linked(A) as (link, servers, clock):
            await after(clock, seconds=1)
            for away, within in ((60.0, 1.2), (3600.0, 11.0)):
                servers.stop(A)
                await after(clock, seconds=away)
                servers.start(A)
                await after(clock, seconds=within)
                assert link.observe().is_reachable, away

    run_driven(story())


def test_a_server_that_is_not_offered_any_more_is_left_at_once() -> None:
    async def story() -> None:
        async with linked(A, B) as (link, servers, clock):
            await after(clock, seconds=1)
            servers.asked.clear()
            link.set_endpoints([B])
            await after(clock, seconds=1)

            assert set(servers.asked) == {B}
            assert link.observe().is_reachable

    run_driven(story())


def test_certificates_are_minted_anew_before_they_expire() -> None:
    async def story() -> None:
        async with linked(A) as (_, servers, clock):
            await after(clock, hours=30)

            certificates = [access.certificate for access in servers.dialled]
            assert 2 <= len(set(certificates)) <= 4

    run_driven(story())


def test_a_node_that_cannot_be_read_is_neither_absent_nor_not_ready() -> None:
    """Its machine would be replaced for a Node that is there."""

    async def story() -> None:
        async with linked(A) as (link, servers, clock):
            store = servers.api.store
            raw = new_object(NODE, "n-1", labels={"rke.cattle.io/machine": "u-1"})
            raw["metadata"]["uid"] = "u"
            entry = await store.commit("/nodes/n-1", {**raw, "status": {"conditions": [5]}}, None)
            await after(clock, seconds=2)
            found = link.observe()

            assert (found.state, found.nodes) == ("unknown", ())
            assert "Node n-1 of the guest cluster cannot be read" in found.because
            assert "kubectl --kubeconfig GUEST.yaml delete nodes n-1" in found.because

            entry = await store.commit("/nodes/n-1", {**raw, "status": {}}, entry.rev)
            await after(clock, seconds=1)
            assert link.observe().is_reachable

            entry = await store.commit("/nodes/n-1", {**raw, "spec": {"providerID": {}}}, entry.rev)
            await after(clock, seconds=1)
            assert link.observe().state == "unknown"

            await store.commit("/nodes/n-1", None, entry.rev)
            await after(clock, seconds=1)
            assert link.observe().is_reachable

    run_driven(story())
