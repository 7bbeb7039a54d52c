"""A pytest plugin: pytest-xdist's distribution by groups, made fit for pytest 9.2 and for a worker that ends in a test.

The groups are lines of `one_worker` in pyproject.toml: each names files or tests that run on one worker, one after the
other, because they share a program that is started once. Groups begin first, in that order; every other test is a group
of its own.

pytest-xdist 3.8 knows a test's group by a suffix that it gives to the test's node id, and pytest 9.2 leaves node ids
alone: the mark `xdist_group` is silently ignored (pytest-xdist#1386). So the groups are read from the configuration.

pytest-xdist 3.8 also runs the test that ended its worker again, on the worker that replaces it. And that one waits for
ever: a worker begins a test when it knows the next or that there is none, and a new worker is given one test and no more
word.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController


def find_group(nodeid: str, groups: Sequence[Sequence[str]]) -> int | None:
    """The place of the first group that names the test, its function or its file."""
    path, _, function = nodeid.partition("[")[0].partition("::")
    for place, names in enumerate(groups):
        if path in names or f"{path}::{function}" in names or nodeid in names:
            return place
    return None


def read_groups(config: pytest.Config) -> list[list[str]]:
    return [line.split() for line in config.getini("one_worker")]


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Each group of tests on one worker; a test that ends its worker has failed, and the others of its group run."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # which would begin with the group of most tests
        self._groups = read_groups(config)

    def _split_scope(self, nodeid: str) -> str:
        place = find_group(nodeid, self._groups)
        return nodeid if place is None else f"group {place}"

    def schedule(self) -> None:
        super().schedule()
        # The second unit of work for a new worker, or the word that there is none.
        for node in self.nodes:
            self._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        workload = self.assigned_work.pop(node)
        pending = [
            (scope, nodeid) for scope, unit in workload.items() for nodeid, done in unit.items() if not done
        ]
        if not pending:
            return None
        crashed: str = pending[0][1]
        for scope, nodeid in pending[1:]:
            self.workqueue.setdefault(scope, {})[nodeid] = False
        for other in self.nodes:
            self._reschedule(other)
        return crashed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("one_worker", "files and tests that run on one worker, a group per line", type="linelist")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Groups first, each in one piece, also where one process runs all."""
    groups = read_groups(config)
    places = {item: find_group(item.nodeid, groups) for item in items}
    items.sort(key=lambda item: len(groups) if (place := places[item]) is None else place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.getoption("dist") == "loadgroup" else None
