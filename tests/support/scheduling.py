"""A pytest plugin: pytest-xdist's distribution by groups, made fit for a worker that ends in the middle of a test.

pytest-xdist 3.8 runs the test that ended its worker again, on the worker that replaces it. And that one waits for ever:
a worker begins a test when it knows the next or that there is none, and a new worker is given one test and no more word.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class GroupScheduling(LoadGroupScheduling):  # type: ignore[misc]
    """Each group of tests on one worker; a test that ends its worker has failed, and the others of its group run."""

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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.getoption("dist") == "loadgroup" else None
