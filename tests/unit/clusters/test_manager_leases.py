"""The Leases of this manager on Harvester: shared by all credentials that lead there, held whatever one of them does."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.leader_election import NotLeader
from windrow.client.mutation_cache import MutationCache
from windrow.client.transport import Transport, TransportMiddleware
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.clusters.api.secrets import SecretData, read_secret_data
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.clusters.sources.manager_leases import LeasedTransport, ManagerIdentity, ManagerLeases
from windrow.clusters.state import Place
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import LEASE, SECRET

GOOD = "https://10.0.0.1:6443"
VIP = "https://10.0.0.9:6443"  # the same Harvester
DEAD = "https://10.0.0.2:6443"
EVIL = "https://10.0.0.3:6443"
ONE, OTHER = (CLUSTER.ref(name, "ns") for name in ("one", "other"))
THEIRS, OURS = Place("ns:theirs", "default", "ns"), Place("ns:ours", "default", "ns")
IDENTITY = ManagerIdentity("state", "original", "process")
COPY = ManagerIdentity("state", "restored", "other")


class Clock(LoopClock):
    """Of a process that may have been stopped."""

    stopped = timedelta()

    def monotonic(self) -> timedelta:
        return super().monotonic() + self.stopped


class Connection(TransportMiddleware):
    """To the server of a kubeconfig, which treats its users by their tokens."""

    def __init__(self, harvester: Transport, access: ClientConfig, sent: list[tuple[str, str]]) -> None:
        super().__init__(harvester)
        self.access, self.sent = access, sent

    async def send(self, request: Request) -> Reply:
        self.sent.append((self.access.token, request.method))
        match self.access.server, self.access.token:
            case server, _ if server == DEAD:
                raise Unreachable("connection refused")
            case server, _ if server == EVIL:
                spec = {"holderIdentity": "evil", "leaseDurationSeconds": 3600}
                lease = new_object(LEASE, IDENTITY.lease_name, "default", spec=spec)
                return Reply(200, dumps({**lease, "metadata": {**lease["metadata"], "resourceVersion": "1"}}))
            case _, "revoked":
                return Reply(401, dumps({"kind": "Status", "reason": "Unauthorized", "message": "no"}))
            case _, "forbidden":
                return Reply(403, dumps({"kind": "Status", "reason": "Forbidden", "message": "no"}))
            case _, "silent":
                await asyncio.Event().wait()
        return await super().send(request)


@dataclass
class Process:
    """A manager's Leases over the Secrets that it knows."""

    harvester: Transport
    identity: ManagerIdentity
    clock: Clock = field(default_factory=Clock)
    sent: list[tuple[str, str]] = field(default_factory=list)
    version: int = 0

    def __post_init__(self) -> None:
        rng = Rng(self.identity.holder)
        informer = Informer(self.harvester, SECRET, "", read_secret_data, self.clock, rng)
        self.secrets: MutationCache[SecretData] = MutationCache(
            informer, lambda one: one.resource_version, self.clock, ttl=timedelta(days=1)
        )
        clients = HarvesterClients(self.secrets, lambda access: Connection(self.harvester, access, self.sent))
        self.changed: list[str] = []
        self.leases = ManagerLeases(clients, self.identity, self.clock, rng, self.changed.append)
        self.task: asyncio.Task[None] | None = None

    def write(self, place: Place, server: str = GOOD, token: str = "good") -> None:
        """The Secret of the place's credential, as its owner writes it."""
        namespace, _, name = place.credential.partition(":")
        text = render_kubeconfig(ClientConfig(server, token=token), "harvester")
        data = {CREDENTIAL_KEY: base64.b64encode(text.encode()).decode()}
        self.version += 1
        raw = new_object(SECRET, name, namespace, data=data)
        raw["metadata"]["resourceVersion"] = str(self.version)
        self.secrets.mutated(raw)
        self.leases.restart(place.credential)

    async def start(self, **places: Place) -> None:
        ready = asyncio.Event()

        async def run() -> None:
            async with asyncio.TaskGroup() as self.group:
                self.leases.open(self.group, ONE, frozenset({THEIRS}))
                self.leases.open(self.group, OTHER, frozenset({OURS}))
                ready.set()
                await asyncio.Event().wait()

        self.task = asyncio.create_task(run())
        await ready.wait()
        await asyncio.sleep(5)

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    def states(self) -> tuple[str, str]:
        return self.leases.read([THEIRS]).state, self.leases.read([OURS]).state


@dataclass
class Rig:
    api: ApiServer
    live: Process

    async def holder(self) -> str | None:
        raw = await Client(self.api.local()).find(LEASE.ref(IDENTITY.lease_name, "default"))
        return None if raw is None else raw["spec"]["holderIdentity"]

    def copy(self) -> Process:
        return Process(self.api.local(), COPY)


def in_rig(story: Callable[[Rig], Awaitable[Any]]) -> Any:
    @asynccontextmanager
    async def rig() -> AsyncIterator[Rig]:
        api = ApiServer(MemoryStore(), LoopClock(), Rng(1))
        live = Process(api.local(), IDENTITY)
        try:
            yield Rig(api, live)
        finally:
            await live.stop()

    async def run() -> Any:
        async with rig() as one:
            return await story(one)

    return run_driven(run())


@pytest.mark.parametrize(
    "change", [(DEAD, "good"), (EVIL, "good"), (GOOD, "revoked"), (GOOD, "forbidden"), (GOOD, "silent"), None]
)
def test_a_credential_that_does_not_work_any_more_takes_the_lease_from_no_other(
    change: tuple[str, str] | None,
) -> None:
    async def story(rig: Rig) -> None:
        live, copy = rig.live, rig.copy()
        for process in (live, copy):
            process.write(THEIRS)
            process.write(OURS)
            await process.start()
        assert (live.states(), copy.states()) == (("held", "held"), ("taken", "taken"))

        if change is None:
            live.secrets.deleted(SECRET.ref("theirs", "ns"), "9")
            live.leases.restart(THEIRS.credential)
        else:
            live.write(THEIRS, *change)
        for _ in range(120):
            await asyncio.sleep(5)
            assert await rig.holder() == IDENTITY.holder
            assert live.states()[1] == "held"
            assert copy.states() == ("taken", "taken")
        await copy.stop()

    in_rig(story)


@pytest.mark.parametrize("token", ["revoked", "forbidden", "silent"])
def test_a_credential_that_may_not_use_leases_follows_the_one_that_may(token: str) -> None:
    async def story(rig: Rig) -> None:
        live, copy = rig.live, rig.copy()
        for process in (live, copy):
            process.write(THEIRS, token=token)
            process.write(OURS)
            await process.start()
            await asyncio.sleep(60)
        assert live.states() == ("held", "held")
        assert copy.states() == ("taken", "taken")
        await copy.stop()

    in_rig(story)


def test_a_lease_is_renewed_once_a_minute_however_many_credentials_lead_there() -> None:
    async def story(rig: Rig) -> None:
        rig.live.write(THEIRS)
        rig.live.write(OURS)
        await rig.live.start()
        rig.live.sent.clear()
        await asyncio.sleep(600)
        assert 9 <= len(rig.live.sent) <= 10
        assert {method for _, method in rig.live.sent} == {"PUT"}

    in_rig(story)


def test_another_server_that_says_what_it_likes_is_a_place_of_its_own() -> None:
    async def story(rig: Rig) -> None:
        live = rig.live
        live.write(THEIRS, EVIL)
        live.write(OURS)
        await live.start()
        assert live.states() == ("taken", "held")
        assert live.leases.read([THEIRS]).holder == "evil"
        live.leases.close(ONE)
        await asyncio.sleep(100)
        assert live.states()[1] == "held"
        assert await rig.holder() == IDENTITY.holder

    in_rig(story)


@pytest.mark.parametrize("their_server", [GOOD, VIP])
def test_a_lease_is_held_on_when_the_last_cluster_there_is_gone(their_server: str) -> None:
    """A copy still has that Cluster, and would make all of it anew."""

    async def story(rig: Rig) -> None:
        live, copy = rig.live, rig.copy()
        for process in (live, copy):
            process.write(THEIRS, their_server)
            process.write(OURS)
            await process.start()
        live.leases.close(ONE)
        live.leases.close(OTHER)
        await asyncio.sleep(600)
        assert await rig.holder() == IDENTITY.holder
        assert copy.states() == ("taken", "taken")

        live.leases.open(live.group, OTHER, frozenset({OURS}))
        assert live.states()[1] == "held"
        await live.stop()
        assert await rig.holder() == ""
        await copy.stop()

    in_rig(story)


@pytest.mark.parametrize("change", ["deleted", "leads elsewhere", "never held", "lost", "other place"])
def test_what_holds_a_lease_ends_once_no_cluster_and_no_credential_is_there(change: str) -> None:
    async def story(rig: Rig) -> None:
        live = rig.live
        live.write(THEIRS, token="forbidden" if change == "never held" else "good")
        await live.start()
        live.leases.close(ONE)
        match change:
            case "deleted":
                live.secrets.deleted(SECRET.ref("theirs", "ns"), "9")
                live.leases.restart(THEIRS.credential)
            case "leads elsewhere":
                live.write(THEIRS, EVIL)
            case "lost":
                await Client(rig.api.local()).patch(
                    LEASE.ref(IDENTITY.lease_name, "default"), {"spec": {"holderIdentity": COPY.holder}}
                )
            case "other place":
                live.write(OURS)
                assert live.states()[1] == "held"
                live.secrets.deleted(SECRET.ref("ours", "ns"), "9")
                live.leases.restart(OURS.credential)
        await asyncio.sleep(300)
        assert not [one for one in asyncio.all_tasks() if one.get_name().startswith("hold lease")]
        assert await rig.holder() == {"never held": None, "lost": COPY.holder}.get(change, IDENTITY.holder)

    in_rig(story)


def test_a_lease_is_released_when_the_process_ends_and_not_when_a_credential_goes() -> None:
    async def story(rig: Rig) -> None:
        live = rig.live
        live.write(THEIRS)
        live.write(OURS)
        await live.start()
        for place in (THEIRS, OURS):
            live.write(place, DEAD)
        await asyncio.sleep(10)
        assert await rig.holder() == IDENTITY.holder
        assert live.states() == ("pending", "pending")
        live.write(OURS)
        await asyncio.sleep(1)
        assert live.states()[1] == "held"
        await live.stop()
        assert await rig.holder() == ""

    in_rig(story)


def test_a_place_that_joins_a_lease_that_is_held_is_reported() -> None:
    async def story(rig: Rig) -> None:
        live = rig.live
        live.write(THEIRS)
        await live.start()
        assert live.states() == ("held", "pending")
        live.changed.clear()
        live.write(OURS)
        assert live.states() == ("held", "held")
        live.leases.open(live.group, OTHER, frozenset({OURS}))
        assert live.changed == [OURS.credential]

    in_rig(story)


@pytest.mark.parametrize(("stopped_s", "sent"), [(0, True), (50, True), (130, False), (3600, False)])
def test_a_process_that_was_stopped_past_its_lease_sends_no_write_there(stopped_s: int, sent: bool) -> None:
    async def story(rig: Rig) -> list[str]:
        live = rig.live
        live.write(THEIRS)
        live.write(OURS)
        await live.start()
        reached: list[tuple[str, str]] = []
        access = ClientConfig(GOOD, token="anyone")
        inner = Connection(rig.api.local(), access, reached)
        transport = LeasedTransport(inner, lambda request: live.leases.require(request, access))
        live.clock.stopped = timedelta(seconds=stopped_s)

        assert live.leases.may_write(OURS.credential, "default") == sent
        assert live.leases.may_write(OURS.credential, "elsewhere")
        path = "/api/v1/namespaces/default/secrets"
        await transport.send(Request("GET", path))
        await transport.send(Request("POST", path.replace("default", "elsewhere"), body=b"{}"))
        for method in ("POST", "DELETE"):
            refused = pytest.raises(
                NotLeader, match=f"{method} {path} not sent: .* Lease default/windrow-state"
            )
            with nullcontext() if sent else refused:
                await transport.send(Request(method, path, body=b"{}"))
        return [method for _, method in reached]

    assert in_rig(story) == ["GET", "POST"] + ["POST", "DELETE"] * sent
