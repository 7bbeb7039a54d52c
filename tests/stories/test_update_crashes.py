"""The manager may be killed before and after each write of an upgrade: the same end, no machine upgraded twice, none forgotten."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.stories.cluster_phases import Scenario, run_scenario
from tests.stories.crashes import EveryWriteBetween, TheseWrites
from tests.stories.test_crashes import RunBranches, branches, check_branches

__all__ = ["branches"]  # a fixture

UPGRADE = Scenario(("bootstrap", "upgrade", "delete"), short=True)


def numbers_of(scenario: Scenario, phase: str, *, of_each_kind: int | None = None) -> list[int]:
    """Of the writes of the phase, as a life without deaths makes them; of each kind the first ones alone."""
    life = run_scenario(scenario)
    chapter = next(one for one in life.chapters if one.phase == phase)
    seen: Counter[str] = Counter()
    found = []
    for write in life.writes[chapter.first - 1 : chapter.last]:
        seen[write.what] += 1
        if of_each_kind is None or seen[write.what] <= of_each_kind:
            found.append(write.number)
    assert found
    return found


def check_deaths(scenario: Scenario, numbers: list[int], run_branches: RunBranches, **made: int) -> None:
    """That each life with a death comes to the same end, by the machines' own consoles too, and makes as many objects as said."""
    calm, deaths = run_branches(scenario, TheseWrites(numbers))
    check_branches(scenario, calm, deaths)
    assert {branch.moment.write for branch in deaths if branch.moment.when == "after"} == set(numbers)
    for branch in deaths:
        assert branch.life is not None
        counts = Counter(one.what for one in branch.life.writes if one.made_something)
        assert {what: counts[what] for what in made} == made, branch.moment


# Of a machine that goes to another version two Jobs: the one that asks, and the one that changes it.
JOBS, VMS = "guest POST jobs", "harvester POST virtualmachines"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_manager_killed_at_each_kind_of_write_of_an_upgrade_upgrades_each_machine_once(
    branches: RunBranches,
) -> None:
    check_deaths(UPGRADE, numbers_of(UPGRADE, "upgrade", of_each_kind=1), branches, **{JOBS: 4})


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_manager_killed_at_any_write_of_an_upgrade_upgrades_each_machine_once(
    branches: RunBranches,
) -> None:
    check_deaths(UPGRADE, numbers_of(UPGRADE, "upgrade"), branches, **{JOBS: 4})


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("phase", "made"),
    [("upgrade", {JOBS: 8}), ("restart servers", {VMS: 4}), ("roll servers", {VMS: 7})],
    ids=["upgrade", "restart", "roll"],
)
def test_a_manager_of_three_servers_killed_while_they_change_keeps_their_quorum(
    branches: RunBranches, phase: str, made: dict[str, int]
) -> None:
    scenario = Scenario(("bootstrap", phase, "delete"), servers=3, workers=1, short=True)
    check_deaths(scenario, numbers_of(scenario, phase)[::3], branches, **made)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("phase", "vms"), [("restart VMs", 2), ("roll", 3)])
def test_a_manager_killed_while_a_worker_is_restarted_or_replaced_makes_no_vm_too_many(
    branches: RunBranches, phase: str, vms: int
) -> None:
    scenario = Scenario(("bootstrap", phase, "delete"), short=True)
    check_deaths(scenario, numbers_of(scenario, phase), branches, **{VMS: vms})


def check_rotation(branches: RunBranches, phase: str, jobs: int, writes: int | None) -> None:
    """With deaths at so many writes, from the first; None: at all."""
    scenario = Scenario(("bootstrap", phase, "delete"), short=True)
    chapter = next(one for one in run_scenario(scenario).chapters if one.phase == phase)
    last = chapter.last if writes is None else chapter.first + writes - 1
    calm, deaths = branches(scenario, EveryWriteBetween(chapter.first, last))
    check_branches(scenario, calm, deaths)
    assert deaths
    for branch in deaths:
        assert branch.life is not None
        made = Counter(one.what for one in branch.life.writes if one.made_something)
        assert made["guest POST jobs"] == jobs, branch.moment


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("phase", "jobs", "writes"),
    [("rotate keys", 1, 7), ("rotate token", 2, 14), ("rotate certificates", 2, 3)],
)
def test_a_manager_killed_in_a_rotation_restarts_each_machine_once(
    branches: RunBranches, phase: str, jobs: int, writes: int
) -> None:
    check_rotation(branches, phase, jobs, writes)


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("phase", "jobs"), [("rotate keys", 1), ("rotate token", 2), ("rotate certificates", 2)]
)
def test_a_manager_killed_at_any_write_of_a_rotation_restarts_each_machine_once(
    branches: RunBranches, phase: str, jobs: int
) -> None:
    check_rotation(branches, phase, jobs, None)
