"""The manager may be killed before and after each write of an upgrade: the same end, no machine upgraded twice, none forgotten."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.stories.cluster_phases import Scenario, run_scenario
from tests.stories.crashes import EveryWriteBetween
from tests.stories.test_crashes import RunBranches, branches, check_branches

__all__ = ["branches"]  # a fixture

UPGRADE = Scenario(("bootstrap", "upgrade", "delete"), short=True)


@pytest.fixture(scope="module")
def numbers() -> tuple[int, int]:
    """Of the first and the last write of the upgrade, as a life without deaths makes them."""
    chapter = next(one for one in run_scenario(UPGRADE).chapters if one.phase == "upgrade")
    return chapter.first, chapter.last


def check_upgrade(scenario: Scenario, first: int, last: int, run_branches: RunBranches) -> None:
    calm, deaths = run_branches(scenario, EveryWriteBetween(first, last))
    check_branches(scenario, calm, deaths)
    assert deaths
    for branch in deaths:
        assert branch.life is not None
        jobs: Counter[str] = Counter(one.what for one in branch.life.writes if one.made_something)
        assert jobs["guest POST jobs"] == 2, branch.moment  # one for each machine


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_manager_killed_while_the_first_machine_has_its_turn_upgrades_each_machine_once(
    branches: RunBranches, numbers: tuple[int, int]
) -> None:
    first, _ = numbers
    check_upgrade(UPGRADE, first + 3, first + 12, branches)


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_manager_killed_at_any_write_of_an_upgrade_upgrades_each_machine_once(
    branches: RunBranches, numbers: tuple[int, int]
) -> None:
    check_upgrade(UPGRADE, *numbers, branches)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("phase", "vms"), [("restart VMs", 2), ("roll", 3)])
def test_a_manager_killed_while_a_worker_is_restarted_or_replaced_makes_no_vm_too_many(
    branches: RunBranches, phase: str, vms: int
) -> None:
    scenario = Scenario(("bootstrap", phase, "delete"), short=True)
    chapter = next(one for one in run_scenario(scenario).chapters if one.phase == phase)
    calm, deaths = branches(scenario, EveryWriteBetween(chapter.first, chapter.last))
    check_branches(scenario, calm, deaths)
    assert deaths
    for branch in deaths:
        assert branch.life is not None
        made = Counter(one.what for one in branch.life.writes if one.made_something)
        assert made["harvester POST virtualmachines"] == vms, branch.moment


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
@pytest.mark.parametrize(("phase", "jobs", "writes"), [("rotate keys", 1, 7), ("rotate token", 1, 7)])
def test_a_manager_killed_in_a_rotation_restarts_the_server_once(
    branches: RunBranches, phase: str, jobs: int, writes: int
) -> None:
    check_rotation(branches, phase, jobs, writes)


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("phase", "jobs"), [("rotate keys", 1), ("rotate token", 1), ("rotate certificates", 2)]
)
def test_a_manager_killed_at_any_write_of_a_rotation_restarts_each_machine_once(
    branches: RunBranches, phase: str, jobs: int
) -> None:
    check_rotation(branches, phase, jobs, None)
