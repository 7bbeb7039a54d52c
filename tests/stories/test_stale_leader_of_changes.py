"""A manager that stalls in the middle of a change loses the Lease; what it had sent arrives when another has finished it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.support.simulation import Simulation, simulation

from windrow.app.embedded import make_manager
from windrow.bootstrap.install.update_job import MACHINE_LABEL
from windrow.client.client import Client
from windrow.client.leader_election import LeaderElector, LeaderTransport
from windrow.client.transport import Transport
from windrow.clusters.api.kinds import HARVESTER_CONFIG
from windrow.clusters.api.names import APPLIED_REVISION
from windrow.core.rng import Rng
from windrow.kubernetes.objects import annotations_of, labels_of, name_of, nested
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import JOB, POD, SECRET, ObjectRef

from .cluster_rig import SERVERS, a_cluster, a_pool, machines_of, post, stock
from .test_updates import NEXT, booted

Matches = Callable[[Request], bool]


class Stall:
    """Of one process: from the first write that matches on, nothing is sent or answered; that write arrives late."""

    def __init__(self, matches: Matches) -> None:
        self._matches = matches
        self.is_armed = False
        self.late: asyncio.Task[Reply] | None = None
        self.arrives = asyncio.Event()

    def over(self, inner: Transport) -> Transport:
        return _Stalling(inner, self)

    async def pass_on(self, request: Request, inner: Transport) -> Reply:
        if self.late is None and self.is_armed and not request.is_read and self._matches(request):
            self.late = asyncio.create_task(self._deliver(request, inner))
        if self.late is not None:
            await asyncio.Event().wait()
        return await inner.send(request)

    async def _deliver(self, request: Request, inner: Transport) -> Reply:
        await self.arrives.wait()
        return await inner.send(request)


class _Stalling:
    def __init__(self, inner: Transport, stall: Stall) -> None:
        self._inner, self._stall = inner, stall

    async def send(self, request: Request) -> Reply:
        return await self._stall.pass_on(request, self._inner)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._inner.stream(request)

    async def aclose(self) -> None:
        pass


class Contender:
    """A manager that competes for the Lease; all its connections stall together."""

    def __init__(self, sim: Simulation, name: str, stall: Stall) -> None:
        clock = LoopClock()
        clock.set_wall(sim.clock.now() - clock.now())
        api = stall.over(sim.api.local())
        elector = LeaderElector(Client(api), "kube-system", "windrow", name, clock, Rng(name))
        manager, backend = make_manager(
            LeaderTransport(api, elector),
            lambda access: LeaderTransport(stall.over(sim.connect(access)), elector),
            clock,
            Rng(f"manager {name}"),
        )
        self.elector = elector

        async def lead() -> None:
            async with backend.running():
                await manager.run()

        self.task = asyncio.create_task(elector.run(lead))

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def _has(request: Request, *words: bytes) -> bool:
    return all(word in (request.body or b"") for word in words)


def begins_a_turn(request: Request) -> bool:
    return "/machines/" in request.path and _has(request, b'"update"', b'"Drain"')


def marks_a_node(request: Request) -> bool:
    return "/nodes/" in request.path and _has(request, b"updating-")


def makes_the_secret(request: Request) -> bool:
    return (
        request.method == "POST"
        and request.path.endswith("/kube-system/secrets")
        and _has(request, b"apply.sh")
    )


def makes_the_job(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/jobs")


def releases_a_node(request: Request) -> bool:
    is_of_node = "/nodes/" in request.path and _has(request, b"applied-revision")
    return is_of_node and not _has(request, b"updating-")


def records_the_end(request: Request) -> bool:
    return (
        "/machines/" in request.path
        and _has(request, b'"configHash"', b'"version"')
        and not _has(request, b'"update"')
    )


def edits_a_vm(request: Request) -> bool:
    return request.method == "PATCH" and "/virtualmachines/" in request.path


def deletes_a_machine(request: Request) -> bool:
    return request.method == "DELETE" and "/machines/" in request.path


async def observe(sim: Simulation, ref: ObjectRef) -> dict[str, tuple[str, object, bool, str]]:
    """Of each Machine's Node since when its kubelet runs, whether it is cordoned, and whether it says what its Machine says."""
    found = {}
    nodes = {name_of(node): node for node in await sim.cluster(ref.name, ref.namespace).list_nodes()}
    for machine in await machines_of(sim, ref):
        node = nodes[name_of(machine)]
        is_as_recorded = annotations_of(node)[APPLIED_REVISION] == machine["spec"]["configHash"]
        version = nested(node, "status", "nodeInfo", "kubeletVersion")
        found[name_of(machine)] = booted(node), nested(node, "spec", "unschedulable"), is_as_recorded, version
    return found


async def list_left(sim: Simulation, ref: ObjectRef) -> set[str]:
    """The kinds of what there is of updates in the guest."""
    guest = await sim.cluster(ref.name, ref.namespace).guest_client()
    return {
        kind.kind
        for kind in (JOB, SECRET, POD)
        for raw in await guest.list(kind, "kube-system")
        if MACHINE_LABEL in labels_of(raw)
    }


async def until_done(sim: Simulation, ref: ObjectRef, options: dict[str, str]) -> None:
    end = sim.clock.now() + timedelta(hours=1)
    while True:
        machines = await machines_of(sim, ref)
        workers = [raw["spec"]["options"] for raw in machines if raw["spec"]["pool"] == "workers"]
        version = nested(await sim.cluster(ref.name, ref.namespace).get_cluster(), "status", "version")
        is_given = all(options.items() <= one.items() for one in workers) and len(workers) == 2
        in_turn = any(nested(raw, "status", "update") for raw in machines)
        if is_given and not in_turn and (options or version == NEXT):
            return
        assert sim.clock.now() < end
        await sim.advance(seconds=1)


LONG, NIGHTLY = pytest.mark.long, [pytest.mark.long, pytest.mark.nightly]
UPGRADE = {"spec": {"kubernetesVersion": NEXT}}


@pytest.mark.parametrize(
    ("matches", "options", "is_refused"),
    [
        (marks_a_node, {}, True),
        pytest.param(makes_the_secret, {}, False, marks=LONG),  # it goes with the next turn of its machine
        pytest.param(makes_the_job, {}, False, marks=LONG),  # its pod never runs, for want of the Secret
        pytest.param(releases_a_node, {}, True, marks=LONG),
        pytest.param(edits_a_vm, {"memorySize": "8"}, True, marks=LONG),
        pytest.param(begins_a_turn, {}, True, marks=NIGHTLY),
        pytest.param(records_the_end, {}, True, marks=NIGHTLY),
        pytest.param(deletes_a_machine, {"enableEfi": "true"}, True, marks=NIGHTLY),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_write_that_arrives_after_another_manager_has_finished_changes_nothing(
    matches: Matches, options: dict[str, str], is_refused: bool
) -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 2))
        async with simulation(seed=7, with_manager=False) as sim:
            await stock(sim, documents)
            stall, never = Stall(matches), Stall(lambda _: False)
            first = Contender(sim, "one", stall)
            await sim.advance(seconds=1)
            second = Contender(sim, "two", never)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            assert first.elector.may_write
            stall.is_armed = True
            if options:
                await sim.management_client.patch(HARVESTER_CONFIG.ref("nc-workers", ref.namespace), options)
            else:
                await sim.management_client.patch(ref, UPGRADE)
            end = sim.clock.now() + timedelta(hours=1)
            while stall.late is None:
                await sim.advance(seconds=1)
                assert sim.clock.now() < end

            await until_done(sim, ref, options)
            assert second.elector.may_write
            await stage.wait_for_settled()
            before = await observe(sim, ref)

            stall.arrives.set()
            reply = await stall.late
            assert (reply.status >= 400) == is_refused
            await sim.advance(minutes=5)

            await stage.wait_for_settled()
            assert await observe(sim, ref) == before
            if matches is makes_the_job:
                await sim.advance(hours=2)
            assert await list_left(sim, ref) <= ({"Secret"} if matches is makes_the_secret else set())
            for manager in (first, second):
                await manager.stop()

    run_driven(story())
