"""The manager may be killed before and after each write while a host is in maintenance: no machine is replaced, no Node stays
cordoned, no VM stays off."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.stories.cluster_phases import Scenario, run_scenario
from tests.stories.crashes import EveryWriteBetween
from tests.stories.test_crashes import RunBranches, branches, check_branches

__all__ = ["branches"]  # a fixture


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_manager_killed_while_a_host_is_in_maintenance_ends_as_one_that_lives(
    branches: RunBranches,
) -> None:
    """The phase itself waits until nothing of the maintenance is left, on Machines and on Nodes."""
    scenario = Scenario(("bootstrap", "maintain a host", "delete"), short=True)
    chapter = next(one for one in run_scenario(scenario).chapters if one.phase == "maintain a host")
    calm, deaths = branches(scenario, EveryWriteBetween(chapter.first, chapter.last))
    check_branches(scenario, calm, deaths)
    assert deaths
    for branch in deaths:
        assert branch.life is not None
        made = Counter(one.what for one in branch.life.writes if one.made_something)
        assert made["harvester POST virtualmachines"] == 2, branch.moment
