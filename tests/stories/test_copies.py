"""Two managers whose states are copies of each other: one acts, the other holds everything and says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.support.simulation import VIP, Simulation, simulation

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import make_manager, management_api, read_identity
from windrow.app.loop import running
from windrow.app.preload import credential_secrets
from windrow.client.client import Client
from windrow.client.transport import Transport, TransportMiddleware
from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.core.rng import Rng
from windrow.core.text import encode_base64
from windrow.emulator.faults import Fault, Refuse
from windrow.harvester.resources import VM
from windrow.kubernetes.conditions import Condition, find_condition
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import name_of, nested, uid_of
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import EVENT, LEASE, SECRET, ObjectRef

from .cluster_rig import SERVERS, a_cluster, a_pool, gone, post, scale, stock

POOLS = (("servers", 1, SERVERS), ("workers", 2, "worker"))
long = pytest.mark.long


class Line:
    """The network of one computer, which can fail."""

    def __init__(self) -> None:
        self.is_cut = False

    def connect(self, inner: Transport) -> Transport:
        return _Cut(inner, self)


class _Cut:
    def __init__(self, inner: Transport, line: Line) -> None:
        self._inner, self._line = inner, line

    async def send(self, request: Request) -> Reply:
        if self._line.is_cut:
            raise Unreachable("cut")
        return await self._inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._inner.stream(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass
class Site:
    """A store of its own, and a manager on it."""

    sim: Simulation
    api: ApiServer
    host: str
    store: str
    line: Line = field(default_factory=Line)
    starts: int = 0
    _task: asyncio.Task[None] | None = None

    @property
    def client(self) -> Client:
        return Client(self.api.local())

    async def start(self) -> None:
        self.starts += 1
        self.line = line = Line()
        rng = Rng(f"{self.host} {self.starts}")
        identity = replace(await read_identity(self.client, self.store, rng), host=self.host)
        manager, backend = make_manager(
            self.api.local(),
            lambda access: line.connect(self.sim.connect(access)),
            self.sim.clock,
            rng,
            identity=identity,
        )

        async def process() -> None:
            async with backend.running():
                await manager.run()

        self._task = asyncio.get_running_loop().create_task(process())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def kill(self) -> None:
        """As SIGKILL does: nothing that it had to tell Harvester arrives."""
        self.line.is_cut = True
        await self.stop()

    async def condition(self, ref: ObjectRef) -> Condition | None:
        return find_condition(nested(await self.client.get(ref), "status", "conditions"), "LeaseHeld")

    async def machines(self) -> set[str]:
        return {name_of(raw) for raw in await self.client.list(MACHINE)}


async def copy_of(api: ApiServer, sim: Simulation) -> ApiServer:
    """An API over a copy of the objects as they are now, as a backup holds them."""
    store = MemoryStore()
    for entry in api.store.snapshot()[1]:  # type: ignore[attr-defined]
        await store.commit(entry.key, entry.copy(), None)
    return management_api(store, sim.clock, Rng("copy"))


@dataclass
class Copies:
    sim: Simulation
    ref: ObjectRef
    first: Site
    second: Site

    async def vms(self) -> dict[str, str]:
        return {name_of(raw): uid_of(raw) for raw in await self.sim.harvester_client.list(VM)}


@asynccontextmanager
async def copies(second_store: str = "restored") -> AsyncIterator[Copies]:
    """A settled cluster whose manager runs, and a copy of its state where none runs yet."""
    documents = a_cluster(*(a_pool(*one) for one in POOLS))
    async with simulation(seed=3, with_manager=False) as sim:
        first = Site(sim, sim.api, "first", "original")
        await first.start()
        await stock(sim, documents)
        ref = await post(sim, documents)
        await sim.cluster(ref.name, ref.namespace).wait_for_settled()
        second = Site(sim, await copy_of(sim.api, sim), "second", second_store)
        async with running(second.api.run):
            try:
                yield Copies(sim, ref, first, second)
            finally:
                await first.kill()
                await second.kill()


def run_story(story: Callable[[], Awaitable[Any]]) -> None:
    async def run() -> None:
        await story()

    run_driven(run())


def test_a_restored_copy_beside_the_running_manager_changes_nothing_and_says_so() -> None:
    async def story() -> None:
        async with copies() as both:
            sim, first, second = both.sim, both.first, both.second
            await scale(sim, both.ref, 1, 1)  # which the copy does not know: it misses a VM
            await sim.cluster(both.ref.name, both.ref.namespace).wait_for_settled()
            vms, recorded = await both.vms(), await second.machines()
            assert (len(vms), len(recorded)) == (2, 3)

            await second.start()
            await sim.advance(minutes=30)

            assert await both.vms() == vms
            assert await second.machines() == recorded
            held = await second.condition(both.ref)
            assert held is not None
            assert (held.status, held.reason) == ("False", "AnotherManager")
            assert "manager first_original_" in held.message
            status = (await second.client.get(both.ref))["status"]
            assert held.message in status["warnings"]
            assert "to be released by manager first_original_" in status["waiting"]["for"]
            listed = await second.client.list(EVENT, both.ref.namespace)
            assert [raw["message"] for raw in listed if raw["reason"] == "AnotherManager"] == [held.message]

            # Not even what a person asks of it, while the other one works on.
            await second.client.delete(both.ref)
            await scale(sim, both.ref, 1, 2)
            await sim.cluster(both.ref.name, both.ref.namespace).wait_for_settled()
            assert len(await both.vms()) == 3
            assert await first.condition(both.ref) is None

    run_story(story)


@pytest.mark.parametrize("is_killed", [pytest.param(True, marks=long), pytest.param(False, marks=long)])
def test_a_copy_continues_by_itself_once_the_other_manager_has_ended(is_killed: bool) -> None:
    async def story() -> None:
        async with copies() as both:
            sim, first, second = both.sim, both.first, both.second
            await second.start()
            await sim.advance(minutes=5)
            assert await second.condition(both.ref) is not None
            await (first.kill() if is_killed else first.stop())
            await second.client.delete(both.ref)
            await sim.advance(minutes=1)
            # Released, it is taken at the next attempt; else it has to expire.
            assert (len(await both.vms()) == 3) == is_killed
            await sim.advance(minutes=5)
            assert await both.vms() == {}
            assert await second.client.find(both.ref) is None

            # And the former one finds that it is not its own any more.
            await first.start()
            await sim.advance(minutes=10)
            assert await both.vms() == {}
            assert await first.condition(both.ref) is not None

    run_story(story)


def test_a_manager_that_was_killed_goes_on_at_once_on_its_own_store() -> None:
    async def story() -> None:
        async with copies() as both:
            sim, first = both.sim, both.first
            await first.kill()
            await scale(sim, both.ref, 1, 3)
            await first.start()
            await sim.advance(seconds=5)
            assert len(await both.vms()) == 4
            assert await first.condition(both.ref) is None
            # One Lease in the namespace, renewed once in a minute.
            (lease,) = await sim.harvester_client.list(LEASE, "default")
            assert lease["spec"]["leaseTransitions"] == 1
            version = int(lease["metadata"]["resourceVersion"])
            await sim.advance(seconds=40)
            (lease,) = await sim.harvester_client.list(LEASE, "default")
            assert int(lease["metadata"]["resourceVersion"]) == version

    run_story(story)


@long
def test_of_two_processes_on_stores_that_cannot_be_told_apart_the_later_one_acts() -> None:
    async def story() -> None:
        async with copies("original") as both:
            sim, first, second = both.sim, both.first, both.second
            await second.start()
            await sim.advance(minutes=2)
            held = await first.condition(both.ref)
            assert held is not None
            assert "manager second_original_" in held.message
            await scale(sim, both.ref, 1, 1)  # in the store of the first one
            await sim.advance(minutes=20)
            assert len(await both.vms()) == 3
            assert await second.condition(both.ref) is None

    run_story(story)


@long
def test_a_manager_whose_harvester_is_out_of_reach_stops_before_a_copy_begins() -> None:
    async def story() -> None:
        async with copies() as both:
            sim, first, second = both.sim, both.first, both.second
            await second.start()
            await sim.advance(minutes=1)
            first.line.is_cut = True
            await sim.advance(minutes=6)
            assert (held := await second.condition(both.ref)) is not None
            assert held.status == "True"
            first.line.is_cut = False
            await scale(sim, both.ref, 1, 0)
            await sim.advance(minutes=10)
            assert len(await both.vms()) == 3
            assert (lost := await first.condition(both.ref)) is not None
            assert "manager second_restored_" in lost.message

    run_story(story)


@long
def test_a_credential_that_may_not_use_leases_leaves_the_cluster_unguarded() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, "etcd control-plane worker"))
        async with simulation(seed=3, with_manager=False) as sim:
            sim.harvester.faults.add(
                Fault(Refuse(403, "Forbidden"), where=lambda request: "/leases" in request.path)
            )
            first = Site(sim, sim.api, "first", "original")
            await first.start()
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            shown = await first.condition(ref)
            assert shown is not None
            assert (shown.status, shown.reason) == ("Unknown", "NotAllowed")
            assert "get, create and update leases.coordination.k8s.io" in shown.message
            await sim.management_client.delete(ref)
            await gone(sim, ref)
            assert await sim.harvester_client.list(VM) == []
            await first.kill()

    run_story(story)


TEAMS = ("a", "b")


@long
def test_a_tenants_bad_credential_takes_the_lease_from_no_other_tenant() -> None:
    async def story() -> None:
        async with simulation(seed=3, with_manager=False) as sim:
            first = Site(sim, sim.api, "first", "original")
            await first.start()
            refs = {}
            for team in TEAMS:
                credential = f"fleet-default:{team}"
                documents = a_cluster(
                    a_pool(f"pool-{team}", 1, "etcd control-plane worker"),
                    name=team,
                    cloudCredentialSecretName=credential,
                )
                for raw in credential_secrets(documents, sim.harvester.admin_kubeconfig(VIP)):
                    await sim.management_client.create(SECRET, raw)
                refs[team] = await post(sim, documents)  # without its image: refused, but its place is known
            await sim.advance(seconds=10)
            second = Site(sim, await copy_of(sim.api, sim), "second", "restored")
            async with running(second.api.run):
                await second.start()
                await sim.advance(seconds=30)
                for team in TEAMS:
                    shown = await second.condition(refs[team])
                    assert shown is not None
                    assert shown.reason == "AnotherManager"

                dead = render_kubeconfig(ClientConfig("https://127.0.0.1:9", token="x"), "harvester")
                patch = {"data": {CREDENTIAL_KEY: encode_base64(dead)}}
                await first.client.patch(SECRET.ref("a", "fleet-default"), patch)
                for _ in range(50):
                    await sim.advance(seconds=5)
                    (lease,) = await sim.harvester_client.list(LEASE, "default")
                    assert lease["spec"]["holderIdentity"].startswith("first_original_")
                for team in TEAMS:
                    shown = await second.condition(refs[team])
                    assert shown is not None
                    assert shown.reason == "AnotherManager"
                assert await first.condition(refs["b"]) is None
                await second.kill()
            await first.kill()

    run_story(story)


class Stopped(LoopClock):
    """Of a process that SIGSTOP held for `seconds`: time has passed, and no timer of it has run yet."""

    seconds = 0.0

    def monotonic(self) -> timedelta:
        return super().monotonic() + timedelta(seconds=self.seconds)


def test_a_manager_that_was_stopped_in_the_middle_of_an_action_sends_the_rest_once_it_holds_its_lease() -> (
    None
):
    """Another manager may have begun meanwhile."""
    sent: list[str] = []

    class Recorded(TransportMiddleware):
        def __init__(self, inner: Transport, clock: Stopped) -> None:
            super().__init__(inner)
            self.clock = clock

        async def send(self, request: Request) -> Reply:
            if not request.is_read and request.path.startswith(("/api", "/apis")):
                sent.append(f"{request.method} {request.path.split('/')[-1]}")
            reply = await self._inner.send(request)
            if request.method == "POST" and request.path.endswith("/secrets"):
                self.clock.seconds = 200
            return reply

    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, "etcd control-plane worker"))
        async with simulation(seed=3, with_manager=False) as sim:
            identity = replace(await read_identity(Client(sim.api.local()), "store", sim.rng))
            clock = Stopped()
            manager, backend = make_manager(
                sim.api.local(),
                lambda access: Recorded(sim.connect(access), clock),
                clock,
                sim.rng,
                identity=identity,
            )

            async def process() -> None:
                async with backend.running():
                    await manager.run()

            task = asyncio.create_task(process())
            await stock(sim, documents)
            await post(sim, documents)
            await sim.advance(seconds=75)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run_story(story)
    stopped = sent.index("POST secrets")
    assert sent[stopped + 1].endswith(" leases") or " windrow-" in sent[stopped + 1]
    assert "POST rolebindings" in sent[stopped + 2 :]
