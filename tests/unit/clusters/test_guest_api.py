from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest
from tests.support.clock import NOON, LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.bootstrap.pki import new_cluster_secrets
from windrow.client.transport import Transport
from windrow.clusters.sources.guest_api import (
    UNREACHABLE_GRACE,
    FailoverTransport,
    GuestClusterCache,
    GuestConnection,
)
from windrow.core.pki import read_certificate
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
        self.broken: set[str] = set()  # they take a request, and break the connection
        self.refusing: set[str] = set()  # they answer each request with 500
        self.asked: list[str] = []
        self.dialled: list[ClientConfig] = []
        self.closed: list[str] = []
        self.certificate_end: datetime | None = None  # as they show it

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

    @property
    def certificate_end(self) -> datetime | None:
        return self.servers.certificate_end

    def _reach(self) -> asyncio.Event:
        self.servers.asked.append(self.url)
        if self.url in self.servers.broken:
            raise OutcomeUnknown(f"{self.url} broke the connection")
        if self.url not in self.servers.up:
            raise Unreachable(f"{self.url} refused the connection")
        return self.servers.up[self.url]

    async def send(self, request: Request) -> Reply:
        if self.url in self.servers.silent:
            await asyncio.Event().wait()
        self._reach()
        if self.url in self.servers.refusing:
            return Reply(500, b"etcd has no leader")
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
        self.servers.closed.append(self.url)


async def _next(events: AsyncIterator[WatchEvent]) -> WatchEvent:
    return await anext(events)


def failover(*urls: str) -> tuple[FailoverTransport, Servers]:
    """A transport to both servers, of which those at `urls` are up."""
    clock = LoopClock()
    servers = Servers(clock)
    for url in urls:
        servers.start(url)
    transport = FailoverTransport(ClientConfig, servers.dial, clock)
    transport.set_endpoints([A, B])
    return transport, servers


@asynccontextmanager
async def linked(
    *urls: str, endpoints: tuple[str, ...] = (A, B), proxy: str = "", changes: list[str] | None = None
) -> AsyncIterator[tuple[GuestConnection, Servers, LoopClock]]:
    """Every change that the connection reports is the guest's state at that time, in `changes`."""
    clock = LoopClock()
    servers = Servers(clock)
    for url in urls:
        servers.start(url)

    def changed() -> None:
        if changes is not None:
            changes.append(link.observe().state)

    link = GuestConnection(new_cluster_secrets(clock.now()), servers.dial, clock, Rng(1), changed, proxy)
    link.set_endpoints(endpoints)
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


def test_a_server_is_asked_on_its_own_address_and_no_other_answers_in_its_place() -> None:
    async def story() -> None:
        async with linked(A, B) as (link, servers, clock):
            await after(clock, seconds=1)
            assert await link.probe_server(A) == ""
            assert await link.probe_server("https://elsewhere:6443") == ""
            assert "https://elsewhere:6443" not in servers.asked
            servers.stop(A)
            assert "refused the connection" in await link.probe_server(A)
            servers.refusing.add(B)
            assert "etcd has no leader" in await link.probe_server(B)
            servers.silent.add(B)
            before = clock.now()
            assert await link.probe_server(B) == f"{B} did not answer within 5 s"
            assert clock.now() - before == timedelta(seconds=5)

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


# -- through which server

READ, WRITE = Request("GET", "/api/v1/nodes"), Request("POST", "/api/v1/namespaces", body=b"{}")


@pytest.mark.parametrize(("request_", "asked"), [(READ, [A, B]), (WRITE, [A])], ids=["read", "write"])
def test_a_request_that_may_have_been_served_is_repeated_on_another_server_only_where_it_reads(
    request_: Request, asked: list[str]
) -> None:
    async def story() -> None:
        transport, servers = failover(B)
        servers.broken.add(A)
        if request_.is_read:
            assert (await transport.send(request_)).status == 200
        else:
            with pytest.raises(OutcomeUnknown, match=f"{A} broke the connection"):
                await transport.send(request_)

        assert servers.asked == asked

    run_driven(story())


def test_a_write_that_was_not_sent_is_sent_to_another_server_which_is_asked_first_from_then_on() -> None:
    async def story() -> None:
        transport, servers = failover(B)
        await transport.send(WRITE)
        await transport.send(READ)

        assert servers.asked == [A, B, B]
        assert (transport.problem, len(servers.dialled)) == ("", 2)

    run_driven(story())


def test_where_no_server_answers_the_problem_of_the_last_is_raised_and_kept() -> None:
    async def story() -> None:
        transport, _ = failover()
        with pytest.raises(Unreachable, match=f"{B} refused"):
            await transport.send(READ)
        assert transport.changed.is_set()
        with pytest.raises(Unreachable, match=f"{B} refused"):
            async with transport.stream(READ):
                pass
        assert transport.problem == f"{B} refused the connection"

        transport.set_endpoints([])
        for attempt in (transport.send(READ), transport.stream(READ).__aenter__()):
            with pytest.raises(Unreachable, match="no server has an address yet"):
                await attempt

    run_driven(story())


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (READ, "etcd has no leader"),
        (WRITE, ""),  # one that is refused says nothing of the others
    ],
    ids=["read", "write"],
)
def test_a_server_that_cannot_be_read_from_is_a_problem_until_one_can(
    request_: Request, problem: str
) -> None:
    async def story() -> None:
        transport, servers = failover(A)
        servers.refusing.add(A)
        await transport.send(request_)
        assert (transport.problem, transport.changed.is_set()) == (problem, bool(problem))

        servers.refusing.clear()
        assert (await transport.send(Request("GET", "/api/v1/nodes/none"))).status == 404
        assert transport.problem == ""

    run_driven(story())


def test_a_watch_is_opened_on_the_server_that_answers_and_its_end_is_noticed() -> None:
    async def story() -> None:
        transport, servers = failover(B)

        async def watch() -> None:
            async with transport.stream(
                Request("GET", "/api/v1/nodes", query=(("watch", "true"),))
            ) as events:
                assert (transport.is_watching, transport.changed.is_set()) == (True, True)
                transport.changed.clear()
                servers.stop(B)
                async for _ in events:
                    pass

        with pytest.raises(OutcomeUnknown):
            await watch()
        assert (transport.is_watching, transport.changed.is_set()) == (False, True)
        assert (transport.problem, transport.last_used) == (f"{B} broke the connection", B)

    run_driven(story())


def test_a_server_that_is_offered_again_is_dialled_again_and_each_is_closed_in_the_end() -> None:
    async def story() -> None:
        transport, servers = failover(A, B)
        for urls in ([A, B], [B], [A, B]):
            transport.set_endpoints(urls)
            transport.last_used = A
            await transport.send(READ)
        assert [one.server for one in servers.dialled] == [A, B, A]

        await transport.aclose()
        assert sorted(servers.closed) == [A, B]

    run_driven(story())


@pytest.mark.parametrize(("hours", "dialled"), [(12, 1), (12.01, 2)])
def test_a_certificate_is_used_for_half_its_life(hours: float, dialled: int) -> None:
    async def story() -> None:
        transport, servers = failover(A)
        await transport.send(READ)
        await asyncio.sleep(hours * 3600)
        await transport.send(READ)

        assert len(servers.dialled) == dialled

    run_driven(story())


def test_a_silent_server_is_asked_last_the_next_time() -> None:
    async def story() -> None:
        transport, _ = failover()
        first = []
        for _ in range(3):
            transport.ask_next()
            first.append(transport.last_used)
        assert first == [B, A, B]

        transport.set_endpoints([])
        transport.ask_next()
        assert transport.last_used == B

    run_driven(story())


# -- what is known of a guest, and since when


def test_a_guest_without_servers_is_unknown_and_one_whose_servers_do_not_answer_is_unreachable() -> None:
    async def story() -> None:
        async with linked(endpoints=()) as (link, _, clock):
            assert link.observe().because == "it has not been asked yet"
            await after(clock, seconds=30)
            found = link.observe()
            assert (found.state, found.because) == ("unknown", "no server has an address yet")
            assert link.grace_deadline is None

            link.set_endpoints([A])
            await after(clock, seconds=1.5)
            found = link.observe()
            assert (found.state, found.because) == ("unreachable", f"{A} refused the connection")
            assert (found.probed_since, link.grace_deadline) == (NOON, None)

    run_driven(story())


def test_a_guest_that_is_not_ready_is_unreachable_for_what_its_server_says() -> None:
    async def story() -> None:
        async with linked(A) as (link, servers, clock):
            servers.refusing.add(A)
            servers.up.pop(A)
            await after(clock, seconds=1)
            servers.start(A)
            await after(clock, seconds=2)

            assert link.observe().because == f"{A} is not ready: etcd has no leader"

    run_driven(story())


def test_a_guest_whose_watch_breaks_counts_as_unreachable_four_seconds_later() -> None:
    async def story() -> None:
        changes: list[str] = []
        async with linked(A, changes=changes) as (link, servers, clock):
            await after(clock, seconds=100)
            assert (link.grace_deadline, changes[-1]) == (None, "reachable")
            servers.stop(A)
            await after(clock, seconds=3.9)
            assert link.grace_deadline == NOON + timedelta(seconds=104)
            assert link.observe().is_reachable

            await after(clock, seconds=0.1)
            assert (link.observe().state, link.grace_deadline) == ("unreachable", None)
            told = len(changes)
            await after(clock, seconds=60)
            assert len(changes) == told, "it is told again though nothing has changed"

    run_driven(story())


def test_a_server_that_comes_to_a_guest_that_is_probed_slowly_is_asked_at_once() -> None:
    async def story() -> None:
        async with linked(B, endpoints=(A,)) as (link, servers, clock):
            await after(clock, minutes=15, seconds=1)
            link.set_endpoints([A, B])
            await after(clock, seconds=0.1)
            assert link.observe().is_reachable

            servers.asked.clear()
            link.set_endpoints([B, A])
            await after(clock, seconds=30)
            assert servers.asked == [], "it still is connected to the server that it uses"

    run_driven(story())


def test_a_guest_that_is_away_for_long_is_probed_six_times_a_minute() -> None:
    async def story() -> None:
        async with linked(endpoints=(A,)) as (_, servers, clock):
            await after(clock, minutes=9)
            for expected in (60, 6):
                servers.asked.clear()
                await after(clock, minutes=1)
                assert abs(len(servers.asked) - expected) <= 1
                await after(clock, minutes=1)

    run_driven(story())


def test_a_node_that_was_patched_is_read_as_it_is_now() -> None:
    async def story() -> None:
        async with linked(A) as (link, servers, clock):
            await servers.api.local().create(NODE, new_object(NODE, "n-1"))
            await after(clock, seconds=1)
            await link.patch_node("n-1", {"spec": {"unschedulable": True}})

            assert [one.unschedulable for one in link.observe().nodes] == [True]

    run_driven(story())


def test_its_api_is_asked_through_the_clusters_proxy_with_a_certificate_for_a_day() -> None:
    async def story() -> None:
        async with linked(A, proxy="http://10.0.0.9:3128") as (_, servers, clock):
            await after(clock, seconds=1)

            (access,) = servers.dialled
            assert access.proxy_url == "http://10.0.0.9:3128"
            assert read_certificate(access.certificate).not_after == NOON + timedelta(days=1)

    run_driven(story())


# -- the connections of all guests


def test_a_cluster_has_one_connection_until_it_is_closed() -> None:
    async def story() -> None:
        clock = LoopClock()
        servers = Servers(clock)
        cache = GuestClusterCache(servers.dial, clock, Rng(1))
        secrets = new_cluster_secrets(clock.now())
        async with asyncio.TaskGroup() as group:
            first, again, other = (
                cache.open(group, uid, secrets, "", lambda: None) for uid in ("u-1", "u-1", "u-2")
            )
            assert (first, other) == (again, cache.find("u-2"))
            first.set_endpoints([A])
            await after(clock, seconds=5)

            cache.close("u-1")
            cache.close("u-1")
            await after(clock, seconds=1)
            servers.asked.clear()
            await after(clock, minutes=1)
            assert (cache.find("u-1"), cache.find("u-2"), servers.asked) == (None, other, [])
            cache.close("u-2")

    run_driven(story())


def test_a_connection_that_ends_by_a_defect_is_opened_again_after_ten_seconds() -> None:
    async def story() -> None:
        clock = LoopClock()
        servers = Servers(clock)
        servers.start(A)
        dialled: list[float] = []

        def dial(access: ClientConfig) -> Transport:
            dialled.append(clock.monotonic().total_seconds())
            if len(dialled) == 1:
                raise ZeroDivisionError
            return servers.dial(access)

        cache = GuestClusterCache(dial, clock, Rng(1))
        async with asyncio.TaskGroup() as group:
            link = cache.open(group, "u-1", new_cluster_secrets(clock.now()), "", lambda: None)
            link.set_endpoints([A])
            await after(clock, seconds=11)

            assert (dialled, link.observe().is_reachable) == ([0, 10], True)
            cache.close("u-1")

    run_driven(story())


def test_while_the_manager_stops_no_connection_is_opened() -> None:
    async def story() -> None:
        clock = LoopClock()
        cache = GuestClusterCache(Servers(clock).dial, clock, Rng(1))
        async with asyncio.TaskGroup() as group:
            pass
        with pytest.raises(asyncio.CancelledError):
            cache.open(group, "u-1", new_cluster_secrets(clock.now()), "", lambda: None)

        assert cache.find("u-1") is None

    run_driven(story())


WATCH = Request("GET", "/api/v1/nodes", query=(("watch", "true"),))


def test_what_a_server_shows_of_its_certificate_is_known_while_it_is_watched() -> None:
    async def scenario() -> None:
        transport, servers = failover(A)
        servers.certificate_end = NOON
        assert transport.certificate_ends == {}
        async with transport.stream(WATCH):
            assert transport.certificate_ends == {A: NOON}
        assert transport.certificate_ends == {}
        servers.certificate_end = None
        async with transport.stream(WATCH):
            assert transport.certificate_ends == {}

    run_driven(scenario())
