"""A pytest plugin that runs mutants instead of tests: `python -m pytest -p tests.mutants.session …`, started by `run`.

The tests are collected once, with all of Windrow imported; everything then runs in forks of that process. First each file of
tests, with probes in the functions that have mutants: they tell which tests reach which mutant, and each test's time is taken.
Then each mutant, its code put in the place of the original: the tests that reach it run, the quickest first, until one fails.
That is done in stages, the tests nearest to the mutants first: what one stage lets live is asked of the next. What runs at
import is not reached by an exchange of code: such a mutant gets a new process, into which its module is loaded from the mutated
text.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.mutants.forks import Forks
from tests.mutants.loading import (
    ROOT,
    Finder,
    Site,
    Swap,
    list_functions,
    note_in,
    plan_probes,
    plan_swap,
    swap,
)

# In the environment of a process: the file that says what it does.
ORDER = "WINDROW_MUTANTS"
# Tests that take longer together are not run for one mutant: in seconds of the original.
MOST_SECONDS = 60.0
KILLED, SURVIVED = 1, 0


def read_order() -> dict[str, Any]:
    path = os.environ.get(ORDER)
    return json.loads(Path(path).read_text()) if path else {}


_order = read_order()
if "import" in _order:  # before anything of Windrow is imported
    sys.meta_path.insert(0, Finder(_order["import"]["path"], _order["import"]["text"]))


@dataclass
class TestFile:
    """A file of tests, by their indices, and what a run with probes found. `is_known`: it ran to its end."""

    __test__ = False

    indices: list[int]
    is_begun: bool = False
    is_ended: bool = False
    is_known: bool = False
    seconds: dict[int, float] = field(default_factory=dict)
    # The tests that reach a mutant, by the mutant's number.
    reach: dict[int, list[int]] = field(default_factory=dict)
    broken: list[int] = field(default_factory=list)


@dataclass
class Group:
    """The mutants of one package. At each stage its files are run with probes, and then the mutants that are waiting."""

    stages: list[list[TestFile]]
    waiting: list[int]
    stage: int = 0
    running: list[int] = field(default_factory=list)
    # What this stage let live.
    alive: list[int] = field(default_factory=list)

    @property
    def files(self) -> list[TestFile]:
        return self.stages[self.stage]

    @property
    def following(self) -> list[TestFile]:
        """The files of the next stage, where there will be one."""
        return self.stages[self.stage + 1] if self.alive and self.stage + 1 < len(self.stages) else []

    def advance(self) -> None:
        """To the next stage, where all mutants of this one are judged."""
        if not self.waiting and not self.running:
            self.stage, self.waiting, self.alive = self.stage + 1, self.alive, []

    @property
    def is_done(self) -> bool:
        return self.stage == len(self.stages) or not (self.waiting or self.running or self.alive)


class MutantSession:
    """Takes the place of the loop that runs tests."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._mutants: list[dict[str, Any]] = order["mutants"]
        self._results: list[dict[str, Any]] = []
        # By the mutant's number: the seconds of the tests that were run for it.
        self._spent: dict[int, float] = {}
        # By file, the tests that have killed a mutant of it.
        self._killers: dict[str, set[int]] = {}
        self._items: list[pytest.Item] = []
        self._probes: list[Swap] = []
        # Mutants in functions that cannot be exchanged: any test may reach them.
        self._unprobed: set[int] = set()
        self._forks = Forks()
        # Of the test that runs, in a fork.
        self._failed = False
        self._reached: set[int] = set()
        self._reached_in_fixtures: set[int] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        self._items = session.items
        sites = [
            Site(number, one["path"], one["function"], one["start"], one["end"])
            for number, one in enumerate(self._mutants)
        ]
        self._functions = list_functions({site.path for site in sites})
        self._probes, self._unprobed = plan_probes(sites, self._functions)
        groups = self._list_groups()
        self._run_all(groups)
        files = {id(one): one for group in groups for stage in group.stages for one in stage}
        broken = sorted(self._items[index].nodeid for one in files.values() for index in one.broken)
        Path(self._order["results"]).write_text(json.dumps({"results": self._results, "broken": broken}))
        return True

    def _list_groups(self) -> list[Group]:
        files: dict[str, TestFile] = {}
        for index, item in enumerate(self._items):
            path = item.path.relative_to(ROOT).as_posix()
            files.setdefault(path, TestFile([])).indices.append(index)
        groups = []
        for stages in self._order["groups"]:
            listed: list[list[TestFile]] = []
            for paths in stages["tests"]:
                found = [one for path, one in files.items() if _is_below(path, paths)]
                listed.append([one for one in found if not any(one in before for before in listed)])
                listed[-1].sort(key=lambda one: -len(one.indices))
            groups.append(Group([stage for stage in listed if stage] or [[]], list(stages["mutants"])))
        # The larger first: at the end, where time is short, few are left.
        return sorted(groups, key=lambda group: -len(group.waiting))

    # -- what runs when

    def _run_all(self, groups: list[Group]) -> None:
        while not all(group.is_done for group in groups):
            if time.monotonic() > self._order["deadline"]:
                self._forks.kill_all()
                break
            if len(self._forks) >= self._order["processes"] or not self._begin(groups):
                self._forks.wait(self._order["deadline"])
        for group in groups:
            if not group.is_done:
                # What is alive has yet to be asked at the next stage.
                left = group.alive if group.stage + 1 < len(group.stages) else []
                for number in (*group.waiting, *group.running, *left):
                    self._record(number, "not run", 0, 0)

    def _begin(self, groups: Iterable[Group]) -> bool:
        """Begin what comes next; whether there was anything."""
        left = sorted((one for one in groups if not one.is_done), key=lambda one: one.stage)
        for group in left:
            for file in group.files:
                if not file.is_begun:
                    self._measure(file)
                    return True
            if group.waiting and all(file.is_ended for file in group.files):
                self._check(group, group.waiting.pop(0))
                return True
        for file in (file for group in left for file in group.following if not file.is_begun):
            self._measure(file)
            return True
        return False

    # -- which test reaches which mutant

    def _measure(self, file: TestFile) -> None:
        file.is_begun = True
        output = Path(f"{self._order['results']}.file-{file.indices[0]}")

        def on_end(code: int) -> None:
            file.is_ended = True
            if not output.exists():  # a test ended the process, so it is not known what any of them reaches
                file.broken = file.indices
                return
            found = json.loads(output.read_text())
            file.is_known, file.broken = True, found["broken"]
            file.seconds = {int(index): seconds for index, seconds in found["seconds"].items()}
            file.reach = {int(number): indices for number, indices in found["reach"].items()}

        self._forks.begin(lambda: self._run_measured(file, output), on_end)

    def _run_measured(self, file: TestFile, output: Path) -> int:
        swap(self._probes)
        seconds, broken = {}, []
        reach: dict[int, set[int]] = {}
        shared: set[int] = set()
        for place, index in enumerate(file.indices):
            self._reached_in_fixtures = set()
            self._reached = set()
            note_in(self._reached)
            began = _cpu()
            self._failed = False
            self._run(index, file.indices[place + 1] if place + 1 < len(file.indices) else None)
            seconds[index] = _cpu() - began
            if self._failed:  # by chance, on a busy machine, or always
                self._failed = False
                self._run(index, None)
            if self._failed:
                broken.append(index)
            for number in self._reached:
                reach.setdefault(number, set()).add(index)
            shared |= self._reached_in_fixtures
        # A test that asserts on what a shared fixture did may be another than the one for which it was set up.
        for number in shared:
            reach.setdefault(number, set()).update(file.indices)
        found = {number: sorted(indices) for number, indices in reach.items()}
        output.write_text(json.dumps({"reach": found, "seconds": seconds, "broken": broken}))
        return SURVIVED

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        before = set(self._reached)
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self._reached_in_fixtures |= self._reached - before

    # -- the mutants

    def _check(self, group: Group, number: int) -> None:
        files = group.files
        reaching = {index for file in files for index in file.reach.get(number, ())}
        if number in self._unprobed:
            reaching = {index for file in files for index in file.indices}
        seconds = {index: took for file in files for index, took in file.seconds.items()}
        broken = {index for file in files for index in file.broken}
        killers = self._killers.setdefault(self._mutants[number]["path"], set())
        chosen: list[int] = []
        spent = self._spent.get(number, 0.0)
        # What has killed one of the file is likely to kill the next.
        for index in sorted(reaching - broken, key=lambda one: (one not in killers, seconds[one], one)):
            if spent and spent + seconds[index] > MOST_SECONDS:
                break
            spent += seconds[index]
            chosen.append(index)
        self._spent[number] = spent
        # What one of the tests that were not asked might have noticed is not said to have survived.
        is_whole = reaching <= set(chosen) and all(file.is_known for file in files)
        alive = "survived" if is_whole else "undecided"
        killer = Path(f"{self._order['results']}.killer-{number}")

        def on_end(code: int) -> None:
            if number in group.running:
                group.running.remove(number)
            if code == SURVIVED:
                group.alive.append(number)
            elif killer.exists():
                killers.add(int(killer.read_text()))
            self._record(number, alive if code == SURVIVED else "killed", len(chosen), len(reaching))
            group.advance()

        if not chosen:
            on_end(SURVIVED)
            return
        group.running.append(number)
        self._forks.begin(lambda: self._run_mutant(number, chosen, seconds, killer), on_end)

    def _record(self, number: int, outcome: str, tests: int, of: int) -> None:
        self._results.append({"id": number, "outcome": outcome, "tests": tests, "of": of})

    def _run_mutant(self, number: int, chosen: list[int], seconds: dict[int, float], killer: Path) -> int:
        note_in(set())
        mutant = self._mutants[number]
        swaps = None
        if mutant["function"]:
            functions = self._functions[mutant["path"]]
            swaps = plan_swap(mutant["path"], mutant["function"], mutant["text"], functions)
        if swaps is None:
            return self._run_imported(mutant, number, chosen, sum(seconds[index] for index in chosen))
        swap(swaps)
        self._failed = False
        for index, following in zip(chosen, [*chosen[1:], None], strict=True):
            limit_cpu(3 + 10 * seconds[index])
            self._run(index, following)
            if self._failed:
                killer.write_text(str(index))
                return KILLED
        return SURVIVED

    def _run_imported(self, mutant: dict[str, Any], number: int, chosen: list[int], seconds: float) -> int:
        order = Path(f"{self._order['results']}.import-{number}")
        order.write_text(json.dumps({"import": {"path": mutant["path"], "text": mutant["text"]}}))
        names = Path(f"{order}.tests")
        names.write_text("\n".join(self._items[index].nodeid for index in chosen))
        command = [sys.executable, "-m", "pytest", "-p", "tests.mutants.session", "-n", "0", "-x", "-q"]
        command += ["-p", "no:cacheprovider", "--no-header", "-m", "long or not long", f"@{names}"]
        limit_cpu(23 + 10 * seconds)
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, ORDER: str(order)}, stdin=subprocess.DEVNULL
        )
        return SURVIVED if done.returncode == 0 else KILLED

    # -- one test

    def _run(self, index: int, following: int | None) -> None:
        item = self._items[index]
        after = self._items[following] if following is not None else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def limit_cpu(seconds: float) -> None:
    """End this process by a signal when it has used that much more. A mutant that never ends is one that a test would notice."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds + time.process_time()) + 1, resource.RLIM_INFINITY))


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if "mutants" in _order:
        config.pluginmanager.register(MutantSession(_order))
