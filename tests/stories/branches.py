"""Many deaths out of one life: at each chosen moment the world branches, by a fork of this process.

In the child the manager dies at that moment, and the life is told to its end; the parent lives on to the next moment.
So a death near the end of a long life costs only what comes after it. A driven story has no threads and no sockets,
so both branches are whole worlds.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from .cluster_phases import Life, Scenario, run_scenario
from .crashes import Fate, Moment

LONGEST_S = 300  # of real time; a child that needs more is stuck, and is ended


@dataclass(frozen=True, slots=True)
class Branch:
    """What became of one death: the life, or why it could not be told to its end."""

    moment: Moment
    life: Life | None
    broken: str = ""


@dataclass(slots=True)
class Branching:
    """A fate that never strikes the parent, and at each moment that `chosen` strikes a child of its own, once."""

    chosen: Fate
    folder: Path
    at_once: int
    is_child: bool = False
    moments: list[Moment] = field(default_factory=list)
    running: set[int] = field(default_factory=set)

    @property
    def ask_at_s(self) -> float | None:
        return None if self.is_child else self.chosen.ask_at_s

    def strikes(self, moment: Moment) -> bool:
        return not self.is_child and self.chosen.strikes(moment) and self._branch(moment)

    def _branch(self, moment: Moment) -> bool:
        self.reap(self.at_once - 1)
        self.moments.append(moment)
        loop = asyncio.get_running_loop()
        pid = os.fork()
        if pid:
            self.running.add(pid)
            return False
        self.is_child = True
        gc.disable()  # it will not live long enough to need it
        asyncio._set_running_loop(loop)  # asyncio forgets it at a fork
        signal.alarm(LONGEST_S)
        return True

    def reap(self, left: int = 0) -> None:
        """Return when at most `left` children run."""
        while len(self.running) > left:
            pid, _ = os.wait()
            self.running.discard(pid)

    def collect(self) -> list[Branch]:
        self.reap()
        return [self._read(place, moment) for place, moment in enumerate(self.moments)]

    def _read(self, place: int, moment: Moment) -> Branch:
        path = self.folder / str(place)
        if not path.exists():
            return Branch(moment, None, "its process was ended")
        branch: Branch = pickle.loads(path.read_bytes())
        return branch

    def report(self, life: Life | None, broken: str = "") -> None:
        """A child's report. Written whole or not at all."""
        place, moment = len(self.moments) - 1, self.moments[-1]
        draft = self.folder / f"{place}.draft"
        draft.write_bytes(pickle.dumps(Branch(moment, life, broken)))
        draft.rename(self.folder / str(place))


def run_branches(scenario: Scenario, chosen: Fate) -> tuple[Life, list[Branch]]:
    """The calm life, and a branch for each moment that `chosen` struck. Call it in a process without threads."""
    with tempfile.TemporaryDirectory() as folder:
        branching = Branching(chosen, Path(folder), at_once=os.cpu_count() or 1)
        with _child_ends_here(branching):
            calm = run_scenario(replace(scenario, fates=(branching,)))
            if branching.is_child:
                branching.report(calm)
        return calm, branching.collect()


@contextmanager
def _child_ends_here(branching: Branching) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if not branching.is_child:
            raise
        branching.report(None, traceback.format_exc())
    finally:
        if branching.is_child:
            os._exit(0)
