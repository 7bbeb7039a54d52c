"""The manager is killed before and after every write it makes, and started again: the end is always the same.

One life is a birth, a scale up, a scale down and a deletion. What must hold in the end: everything that was asked for
is there, once, and after the deletion Harvester and the management API are as they were before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

import pytest
from tests.stories.telling import ALL, SERVERS, a_cluster, a_pool, gone, machines_of, post, scale, stock

from windrow.assembly.clock import run_story
from windrow.assembly.stage import Stage
from windrow.assembly.story import Rackroom, rackroom
from windrow.client.transport import Transport
from windrow.clusters.kinds import MACHINE
from windrow.emulator.inventory import Item, inventory
from windrow.harvester.kinds import VM
from windrow.kube.kubeconfig import Access
from windrow.kube.objects import Raw, name_of, namespace_of
from windrow.kube.refs import SECRET, Ref
from windrow.kube.requests import Event, Reply, Request
from windrow.values.chance import Chance

Moment = Literal["before", "after"]


@dataclass
class Switch:
    """Counts the manager's writes, and kills it at one of them."""

    at: int = 0  # 0: never
    moment: Moment = "before"
    writes: list[str] = field(default_factory=list)
    struck: asyncio.Event = field(default_factory=asyncio.Event)

    def over(self, inner: Transport) -> Transport:
        return _Switched(inner, self)

    async def strike(self) -> None:
        """The process is dead: nothing after this happens."""
        self.struck.set()
        await asyncio.Event().wait()


@dataclass
class _Switched:
    inner: Transport
    switch: Switch

    async def send(self, request: Request) -> Reply:
        switch = self.switch
        if request.is_read:
            return await self.inner.send(request)
        if switch.struck.is_set():
            await switch.strike()
        switch.writes.append(f"{request.method} {request.path}")
        mine = len(switch.writes) == switch.at
        if mine and switch.moment == "before":
            await switch.strike()
        reply = await self.inner.send(request)
        if mine:
            await switch.strike()
        return reply

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        return self.inner.stream(request)


async def replace_when_killed(room: Rackroom, switch: Switch) -> None:
    """Start the manager; when the switch strikes, end it and start another, which is left alone."""

    def dial(access: Access) -> Transport:
        return switch.over(room.dial(access))

    room.start_manager(switch.over(room.api.local()), dial)
    await switch.struck.wait()
    await room.kill_manager()
    room.start_manager()


Pools = Sequence[Raw]


async def live(
    room: Rackroom, pools: Pools, grown: Sequence[tuple[int, int]], shrunk: Sequence[tuple[int, int]]
) -> None:
    """One life. Every stage is compared with what was asked for."""
    documents = a_cluster(*pools)
    await stock(room, documents)
    before = await shelves(room)
    ref = await post(room, documents)
    stage = room.stage(ref.name, patience=timedelta(hours=2))
    await stands(room, stage, ref)
    for wanted in (grown, shrunk):
        for pool, quantity in wanted:
            await scale(room, ref, pool, quantity)
        await stands(room, stage, ref)
    await room.manager.delete(ref)
    await gone(room, ref)
    assert await shelves(room) == before
    assert await room.manager.list(MACHINE) == []


async def shelves(room: Rackroom) -> tuple[frozenset[Item], set[str]]:
    """What there is at Harvester, and the Secrets of the management API."""
    secrets = {f"{namespace_of(raw)}/{name_of(raw)}" for raw in await room.manager.list(SECRET)}
    return await inventory(room.harvester.api), secrets


async def stands(room: Rackroom, stage: Stage, ref: Ref) -> None:
    """The cluster has what it asks for, once: machines, VMs, disks, accounts, nodes, members."""
    machines = await stage.settled(within=timedelta(hours=2))
    await room.pass_time(seconds=30)  # what was retired may still be on its way out
    wanted = sorted(name_of(raw) for raw in machines)
    assert sorted(name_of(raw) for raw in await machines_of(room, ref)) == wanted
    assert sorted(name_of(raw) for raw in await room.at_harvester.list(VM)) == wanted
    assert sorted(name_of(node) for node in await stage.nodes()) == wanted
    kinds = Counter(
        kind for kind, namespace, _ in await inventory(room.harvester.api) if namespace in ("default", "")
    )
    assert kinds["PersistentVolumeClaim"] == len(wanted)
    assert (kinds["ServiceAccount"], kinds["RoleBinding"], kinds["ClusterRoleBinding"]) == (1, 1, 1)
    assert sum(raw["spec"].get("first", False) for raw in machines) <= 1


SMALL = (a_pool("servers", 1, SERVERS), a_pool("workers", 1))


async def small_life(switch: Switch) -> list[str]:
    async with rackroom(seed=11, manage=False) as room:
        killer = asyncio.ensure_future(replace_when_killed(room, switch))
        await live(room, SMALL, grown=[(1, 2)], shrunk=[(1, 1)])
        killer.cancel()
        await asyncio.gather(killer, return_exceptions=True)
    return switch.writes


async def count_writes() -> list[str]:
    return await small_life(Switch())


def find_writes() -> int:
    """How many writes an undisturbed life takes; a few more may be needed after a crash."""
    return len(run_story(count_writes()))


def test_killed_before_and_after_every_write_the_end_is_the_same() -> None:
    total = find_writes()
    assert total > 50
    for number in range(1, total + 1):
        for moment in ("before", "after"):
            switch = Switch(number, moment)  # type: ignore[arg-type]
            try:
                run_story(small_life(switch))
            except BaseException as error:
                place = switch.writes[number - 1] if len(switch.writes) >= number else "?"
                raise AssertionError(f"killed {moment} write {number} of {total}: {place}") from error
            assert switch.struck.is_set() or number > total - 5


@pytest.mark.parametrize("seed", range(50))
def test_killed_at_a_seeded_instant_the_end_is_the_same(seed: int) -> None:
    """Three servers that are born, grow, shrink to one member and end, with three kills at any time."""

    async def story() -> None:
        chance = Chance(f"instant {seed}")
        async with rackroom(seed=seed, manage=False) as room:

            async def disturb() -> None:
                for _ in range(3):
                    room.start_manager()
                    await room.pass_time(seconds=chance.between(0, 240))
                    await room.kill_manager()
                    await room.pass_time(seconds=chance.between(0, 20))
                room.start_manager()

            disturber = asyncio.ensure_future(disturb())
            pools = (a_pool("servers", 1 if seed % 3 else 3, ALL), a_pool("workers", 1))
            await live(room, pools, grown=[(0, 3), (1, 2)], shrunk=[(0, 1), (1, 0)])
            disturber.cancel()
            await asyncio.gather(disturber, return_exceptions=True)

    run_story(story())
