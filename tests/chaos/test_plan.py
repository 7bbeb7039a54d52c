"""The plan of a chaos run is a function of its seed."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path

import pytest
from tests.chaos.faults import (
    DRAWS,
    SETUPS,
    Create,
    Delete,
    DeleteMachine,
    KillManager,
    LoseVms,
    Model,
    Operation,
    Rest,
    Round,
    Scale,
    Setup,
    SilenceConnections,
    StopVms,
    describe,
    plan_rounds,
)


@pytest.mark.parametrize("setup", SETUPS)
def test_a_seed_is_one_plan(setup: Setup) -> None:
    first, again, other = (list(islice(plan_rounds(seed, setup), 12)) for seed in (7, 7, 8))

    assert first == again
    assert first != other


@pytest.mark.parametrize("setup", SETUPS)
def test_every_fault_and_operation_comes_up(setup: Setup) -> None:
    rounds = list(islice(plan_rounds(1, setup), 400))

    faults = Counter(type(fault).__name__ for one in rounds for fault in one.faults)
    assert set(faults) == {name.split()[0] for name, draw in DRAWS.items() if setup in draw.setups}
    assert {type(one.operation) for one in rounds} == {Create, Scale, DeleteMachine, Delete, Rest}


def test_a_round_begins_with_what_the_one_before_asked_for() -> None:
    rounds = list(islice(plan_rounds(3, "embedded"), 100))

    assert rounds[0].before == Model()
    assert all(one.wanted == following.before for one, following in pairwise(rounds))
    assert all(isinstance(one.operation, Create) for one in rounds if not one.before.servers)


def test_limits_and_deletions_follow_from_the_operation() -> None:
    before = Model(servers=3, workers=4)

    assert Round(1, before, Scale("workers", 1), ()).limits == {"servers": 4, "workers": 5}
    assert Round(1, before, Scale("workers", 1), ()).deletions == 3
    assert Round(1, before, DeleteMachine(6), ()).deletions == 1
    assert Round(1, before, Rest(), ()).deletions == 0
    assert Round(1, before, Delete(), ()).wanted.pools == {}


def test_a_fault_is_described_with_its_time() -> None:
    assert describe(KillManager(0.4, 1.25)) == "KillManager at 0.4 s for 1.25 s"
    assert describe(Scale("workers", 3)) == "Scale pool=workers quantity=3"


@pytest.mark.parametrize(
    ("before", "lost", "doomed"),
    [
        (Model(3, 0), (1,), False),
        (Model(3, 0), (1, 1), True),
        (Model(3, 0), (2,), True),
        (Model(1, 0), (1,), True),
    ],
)
def test_a_cluster_that_may_have_lost_its_quorum_is_deleted_next(
    before: Model, lost: tuple[int, ...], doomed: bool
) -> None:
    faults = tuple(LoseVms(0, "servers", number, 0) for number in lost)

    assert Round(1, before, Rest(), faults).wanted.doomed is doomed
    assert not Round(1, before, Delete(), faults).wanted.doomed


def test_of_three_servers_that_become_one_the_lost_one_may_be_the_one_that_stays() -> None:
    one = LoseVms(0, "servers", 1, 0)

    assert Round(1, Model(3, 0), Scale("servers", 1), (one,)).wanted.doomed
    assert not Round(1, Model(3, 0), Scale("workers", 1), (one,)).wanted.doomed


@pytest.mark.parametrize(
    ("operation", "fault", "deletions"),
    [
        (Create(3, 2), LoseVms(0, "servers", 1, 0), 5),  # all were told to join through it
        (Create(3, 2), LoseVms(0, "workers", 2, 0), 2),
        (Create(1, 2), StopVms(0, "workers", 1, 0), 1),
        (Scale("workers", 4), StopVms(0, "workers", 1, 0), 1),  # it may be the new one, in its first boot
        (Rest(), StopVms(0, "workers", 1, 0), 0),
        (Scale("workers", 0), StopVms(0, "servers", 1, 0), 2),
    ],
)
def test_what_is_struck_in_its_first_boot_may_be_replaced(
    operation: Operation, fault: LoseVms | StopVms, deletions: int
) -> None:
    before = Model() if isinstance(operation, Create) else Model(1, 2)

    assert Round(1, before, operation, (fault,)).deletions == deletions


@pytest.mark.parametrize(
    ("operation", "others", "deletions"),
    [
        (DeleteMachine(0), (), 1 + 1),  # the one in its place was told to join through the lost server
        (Scale("workers", 4), (), 2),
        (Scale("workers", 1), (), 1),
        (Rest(), (), 0),
        (Rest(), (LoseVms(0, "workers", 2, 0),), 2),
    ],
)
def test_what_was_told_to_join_through_a_lost_server_may_be_replaced(
    operation: Operation, others: tuple[LoseVms, ...], deletions: int
) -> None:
    faults = (LoseVms(2, "servers", 1, 0), *others)

    assert Round(1, Model(3, 2), operation, faults).deletions == deletions


def test_the_rounds_of_ci_are_varied_and_short() -> None:
    script = (Path(__file__).parents[2] / ".ci" / "run").read_text()
    found = re.search(r"make chaos ARGS=\"--seed (\d+) --rounds (\d+) ", script)
    assert found
    seed, number = map(int, found.groups())

    faults = [
        fault for setup in SETUPS for one in islice(plan_rounds(seed, setup), number) for fault in one.faults
    ]

    assert len({type(fault) for fault in faults}) >= 12
    assert not any(isinstance(fault, SilenceConnections) for fault in faults)
    assert sum(getattr(fault, "for_s", 0) for fault in faults) < 30
