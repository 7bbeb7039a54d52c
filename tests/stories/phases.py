"""A cluster's whole life in phases, under a manager that may die at any moment; each phase ends at rest and is judged."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from windrow.assembly.clock import run_story
from windrow.assembly.manifests import read_documents, shipped
from windrow.assembly.stage import Stage
from windrow.assembly.story import Rackroom, rackroom
from windrow.assembly.waiting import NotSeen, World, wait_for
from windrow.clusters.kinds import CLUSTER
from windrow.emulator.inventory import inventory
from windrow.harvester.kinds import VM
from windrow.kube.objects import Raw, dig, name_of, namespace_of
from windrow.kube.refs import SECRET

from .crashes import Fate, Lives, Write, told
from .invariants import Founded, count_events, find_faults, find_remains

PATIENCE = timedelta(minutes=10)
REST_S = 20.0  # after a phase is done: what is still on its way may arrive
SERVERS, WORKERS = 0, 1  # places of the pools in our manifest


@dataclass(frozen=True, slots=True)
class Chapter:
    """One phase as it was lived: which writes were made in it, and what was wrong at its end."""

    phase: str
    first: int
    last: int  # numbers of its writes, both included
    seconds: float
    made: Counter[str]  # what was made in it, events left out
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Life:
    """A life that was lived to its end."""

    chapters: tuple[Chapter, ...]
    writes: tuple[Write, ...]
    deaths: tuple[float, ...]
    calls: Counter[str]
    most_told: int  # how often the most frequent event was told
    complaints: tuple[str, ...]  # errors that were logged

    @property
    def faults(self) -> list[str]:
        found = [f"{chapter.phase}: {fault}" for chapter in self.chapters for fault in chapter.faults]
        return found + [f"logged: {complaint}" for complaint in self.complaints]

    @property
    def seconds(self) -> float:
        return sum(chapter.seconds for chapter in self.chapters)

    def print_writes(self) -> str:
        """All writes, a line each."""
        return "\n".join(
            "\n".join((chapter.phase, *told(self.writes[chapter.first - 1 : chapter.last])))
            for chapter in self.chapters
        )


Phase = Callable[[Stage], Awaitable[None]]


def manifest(servers: int, workers: int) -> list[Raw]:
    """Our own manifest with other counts."""
    documents = read_documents(shipped())
    pools = next(raw for raw in documents if raw["kind"] == "Cluster")["spec"]["rkeConfig"]["machinePools"]
    pools[SERVERS]["quantity"], pools[WORKERS]["quantity"] = servers, workers
    return documents


# -- phases --------------------------------------------------------------------------------------------------------


async def birth(stage: Stage) -> None:
    await stage.settled()


def scale(pool: int, count: int) -> Phase:
    async def scale_to(stage: Stage) -> None:
        path = f"/spec/rkeConfig/machinePools/{pool}/quantity"
        await stage.manager.json_patch(
            CLUSTER.ref(stage.name, stage.namespace), [{"op": "replace", "path": path, "value": count}]
        )
        await stage.settled()

    return scale_to


def lose(role: str) -> Phase:
    """Somebody deletes the VM of the eldest machine of that role, behind the manager's back."""

    async def lose_one(stage: Stage) -> None:
        machine = next(raw for raw in await stage.machines() if role in raw["spec"]["roles"])
        vm = await stage.vm_of(machine)
        await stage.harvester.delete(VM.ref(name_of(vm), namespace_of(vm)), "Foreground")
        await stage.settled(without=name_of(machine))

    return lose_one


async def delete(stage: Stage) -> None:
    await stage.manager.delete(CLUSTER.ref(stage.name, stage.namespace))

    def judge(world: World) -> bool | None:
        return None if (stage.namespace, stage.name) in world else True

    await wait_for(
        stage.manager.transport,
        CLUSTER,
        judge,
        what=f"cluster {stage.name} to be gone",
        clock=stage.clock,
        within=stage.patience,
    )


PHASES: dict[str, Phase] = {
    "birth": birth,
    "grow": scale(WORKERS, 2),
    "shrink": scale(WORKERS, 1),
    "lose a worker": lose("worker"),
    "lose a server": lose("etcd"),
    "delete": delete,
}


# -- a life --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tale:
    """What is told: a cluster of so many machines, and its phases. Plain data, so that another process can tell it."""

    phases: tuple[str, ...]
    fates: tuple[Fate, ...] = ()
    servers: int = 1
    workers: int = 1
    seed: int = 1
    down_s: float = 1.0  # how long it takes until somebody starts the manager again
    short: bool = False  # after the phase with the first death, only the last one is told


def tell(tale: Tale) -> Life:
    """Live it on a driven clock, in this process."""
    complaints = _Complaints()
    logging.getLogger().addHandler(complaints)
    try:
        life = run_story(_live(tale))
    finally:
        logging.getLogger().removeHandler(complaints)
    return replace(life, complaints=tuple(complaints.lines))


class _Complaints(logging.Handler):
    """Errors in the log are faults, too: nobody is there to read them."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        why = f" ({record.exc_info[1]!r})" if record.exc_info else ""
        self.lines.append(f"{record.name}: {record.getMessage()}{why}")


async def _live(tale: Tale) -> Life:
    documents = manifest(tale.servers, tale.workers)
    async with rackroom(seed=tale.seed, manage=False) as room:
        founded = Founded(room)
        await room.apply(documents)
        lives = Lives(room, tale.fates, tale.down_s)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(lives.run())
            stage = room.stage("orchard", patience=PATIENCE)
            chapters = await _play(room, stage, founded, lives, tale)
            running.cancel()
        events = await count_events(room)
        return Life(
            tuple(chapters),
            tuple(sorted(lives.writes, key=lambda write: write.number)),
            tuple(lives.deaths),
            room.calls.copy(),
            max(events.values(), default=0),
            (),
        )


async def _play(room: Rackroom, stage: Stage, founded: Founded, lives: Lives, tale: Tale) -> list[Chapter]:
    """The chapters, up to the first with a fault. A phase that never comes to its end has one."""
    # No task of the manager has run yet.
    brought = frozenset(f"{namespace_of(raw)}/{name_of(raw)}" for raw in await room.manager.list(SECRET))
    before = await inventory(room.harvester.api)
    chapters: list[Chapter] = []
    for phase in tale.phases:
        if tale.short and lives.deaths and phase != tale.phases[-1] and chapters:
            continue
        made = lives.made()
        begun, first = room.clock.now(), lives.sent + 1
        faults: list[str] = []
        try:
            await PHASES[phase](stage)
        except NotSeen as error:
            faults.append(f"{error}; {[dig(raw, 'status', 'waiting') for raw in error.last.values()]}")
        seconds = (room.clock.now() - begun) / timedelta(seconds=1)
        await room.pass_time(seconds=REST_S)
        if not faults and phase == "delete":
            faults = await find_remains(room, before, brought)
        elif not faults:
            faults = await find_faults(room, stage, before, founded)
        chapters.append(Chapter(phase, first, lives.sent, seconds, lives.made() - made, tuple(faults)))
        if faults:
            break
    return chapters
