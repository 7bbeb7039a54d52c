"""Which Jobs of a machine are those of its turn, and which are left of former ones."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from windrow.clusters.updates.observation import with_updates
from windrow.clusters.updates.observed import ObservedJob

from .builders import a_machine, look
from .test_update_turns import JOB, SERVERS, WORKERS, an_update, in_turn, upgraded

ASKED, FORMER = f"{JOB}-preflight", "windrow-update-before"


class Jobs:
    """All have succeeded."""

    names = (JOB, ASKED, FORMER)

    def observe(self, name: str) -> ObservedJob:
        return ObservedJob(name, "succeeded")

    def find_former(self, machine_uid: str, present: str) -> tuple[ObservedJob, ...]:
        return tuple(self.observe(name) for name in self.names if name != present)


@pytest.mark.parametrize(
    ("step", "present", "former"),
    [
        ("Preflight", ASKED, [JOB, FORMER]),
        ("Drain", None, [FORMER]),
        ("Apply", JOB, [FORMER]),
        ("Withdraw", None, [JOB, ASKED, FORMER]),
    ],
)
def test_the_job_that_asked_is_none_of_a_former_turn_and_is_withdrawn_with_the_other(
    step: str, present: str | None, former: list[str]
) -> None:
    machine = in_turn(a_machine("w1", WORKERS), an_update(step=step))
    connection: Any = SimpleNamespace(updates=Jobs(), charts=SimpleNamespace(observe=lambda: None))
    state = asyncio.run(with_updates(look(upgraded(SERVERS, WORKERS), [machine]), connection))
    (found,) = state.machines
    assert (found.update_job.name if found.update_job else None) == present
    assert [one.name for one in found.former_jobs or ()] == former
