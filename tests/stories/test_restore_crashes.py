"""The manager may be killed before and after each write of a restore: the same end, restored once, no server too many."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.stories.cluster_phases import Scenario, run_scenario
from tests.stories.crashes import EveryWriteBetween, EveryWriteOf, EveryWriteSince, Fate
from tests.stories.test_crashes import RunBranches, branches, check_branches

__all__ = ["branches"]  # a fixture

IN_PLACE = Scenario(("bootstrap", "snapshot", "restore in place"), servers=2, workers=0, short=True)
COPY = Scenario(("bootstrap", "snapshot", "copy"), servers=1, workers=0, bucket=True, short=True)
FROM_S3 = Scenario(("bootstrap", "snapshot", "restore"), servers=1, workers=0, bucket=True, short=True)
LOST_QUORUM = Scenario(("bootstrap", "reset quorum"), servers=2, workers=0, short=True)


def check(scenario: Scenario, branches: RunBranches, sampled: Fate | None = None, vms: int = 3) -> None:
    """With deaths at each write of the restore, or as `sampled` says, so many VMs are made in each life."""
    chapter = run_scenario(scenario).chapters[-1]
    fate = sampled or EveryWriteBetween(chapter.first, chapter.last)
    calm, deaths = branches(scenario, fate)
    check_branches(scenario, calm, deaths)
    assert deaths
    for branch in deaths:
        assert branch.life is not None
        made: Counter[str] = Counter(one.what for one in branch.life.writes if one.made_something)
        assert made["harvester POST virtualmachines"] == vms, branch.moment


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", [IN_PLACE, LOST_QUORUM], ids=["in place", "lost quorum"])
def test_a_manager_killed_at_some_writes_of_a_restore_in_place_restores_once(
    branches: RunBranches, scenario: Scenario
) -> None:
    first = run_scenario(scenario).chapters[-1].first
    check(scenario, branches, EveryWriteSince(first, each=11, but=" events"))


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_manager_killed_at_any_write_of_a_restore_from_s3_makes_one_first_server(
    branches: RunBranches,
) -> None:
    check(FROM_S3, branches, vms=2)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_manager_killed_while_nodes_without_a_machine_go_leaves_no_password_of_them(
    branches: RunBranches,
) -> None:
    check(LOST_QUORUM, branches, EveryWriteOf("guest DELETE"))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_manager_killed_at_some_writes_of_a_copy_makes_one_first_server_and_separates_it(
    branches: RunBranches,
) -> None:
    first = run_scenario(COPY).chapters[-1].first
    check_copy(branches, EveryWriteSince(first, each=9, but=" events"))


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_manager_killed_at_any_write_of_a_copy_makes_one_first_server_and_separates_it(
    branches: RunBranches,
) -> None:
    chapter = run_scenario(COPY).chapters[-1]
    check_copy(branches, EveryWriteBetween(chapter.first, chapter.last))


def check_copy(branches: RunBranches, fate: Fate) -> None:
    """Two clusters are alike to the invariants of one, so that the faults of the calm life are those of each other."""
    calm, deaths = branches(COPY, fate)
    assert deaths
    assert not calm.complaints
    found = []
    for branch in deaths:
        life = branch.life
        if life is None:
            found.append(f"{branch.moment}: {branch.broken}")
            continue
        made = [chapter.made for chapter in life.chapters]
        if life.complaints or made != [chapter.made for chapter in calm.chapters]:
            found.append(f"{branch.moment}: {life.complaints} {made[-1]}")
        if len(life.faults) != len(calm.faults):
            found.append(f"{branch.moment}: {life.faults}")
    assert not found, "\n".join(found)


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("scenario", [IN_PLACE, LOST_QUORUM], ids=["in place", "lost quorum"])
def test_a_manager_killed_at_any_write_of_a_restore_in_place_restores_once(
    branches: RunBranches, scenario: Scenario
) -> None:
    check(scenario, branches)
