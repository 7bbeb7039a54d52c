"""The manager may be killed before and after any write, without a lasting effect.

A life without deaths shows every write that the manager makes, to the management API, to Harvester and to the guest.
At each of them the world branches twice: the manager is killed before the write is sent, and after it was carried out
but before its answer was heard. Further lives: three servers, fifty random instants, and one death after the other.

The comparison is strict. At rest, the world must satisfy `invariants`; and over the whole life no object may have been
made that the undisturbed life did not make, not even one that was cleared away later.

A complaint names its moment. To see one of them alone: `run_scenario(replace(WHOLE, fates=(AtWrite(17, "after"),)))`.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from site import addsitedir

import pytest
from tests.support.seeds import sampled

from windrow.core.rng import Rng

from .branches import Branch, run_branches
from .cluster_phases import Life, Scenario, run_scenario
from .crashes import AtInstants, EveryWrite, EveryWriteFrom, EveryWriteSince, Fate, SomeWrites

SEED = 20260101
# A dead manager costs its absence, and a request that was forgotten is repeated after two minutes.
LATE_S = 150.0

WHOLE = Scenario(("bootstrap", "grow", "shrink", "lose a worker", "delete"))
# `make test` branches at some of the writes, `make test-long` at each.
SAMPLE = pytest.param(lambda: SomeWrites(40, Rng(SEED)), id="some")
RunBranches = Callable[[Scenario, Fate], tuple[Life, list[Branch]]]


@pytest.fixture(scope="module")
def branches() -> Iterator[RunBranches]:
    """`run_branches` in a process of its own, which has no threads."""
    # It finds the function by the name that pytest gave its module, from the folder of all tests.
    tests = str(Path(__file__).parents[run_scenario.__module__.count(".")])
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=addsitedir, initargs=(tests,)) as pool:
        yield lambda scenario, fate: pool.submit(run_branches, scenario, fate).result()


def find_differences(life: Life, calm: Life, down_s: float) -> list[str]:
    """What sets this life apart from the calm one."""
    if life.faults:
        return life.faults
    found = [] if life.deaths else ["the manager did not die"]
    calmly = {chapter.phase: chapter for chapter in calm.chapters}
    for chapter in life.chapters:
        like = calmly[chapter.phase]
        found += [
            f"{chapter.phase}: made {chapter.made[what]} times, not {like.made[what]}: {what}"
            for what in sorted(chapter.made | like.made)
            if chapter.made[what] != like.made[what]
        ]
        if chapter.seconds > like.seconds + len(life.deaths) * (down_s + LATE_S):
            found.append(f"{chapter.phase} took {chapter.seconds:.0f} s instead of {like.seconds:.0f} s")
    if life.most_frequent_event > calm.most_frequent_event + len(life.deaths):
        found.append(f"one event was recorded {life.most_frequent_event} times")
    return found


def check_branches(scenario: Scenario, calm: Life, branches: list[Branch]) -> None:
    assert calm.faults == []
    found = [
        f"{branch.moment}: {difference}"
        for branch in branches
        for difference in (
            find_differences(branch.life, calm, scenario.down_s) if branch.life else [branch.broken]
        )
    ]
    print(calm.print_writes())
    assert not found, f"{len(found)} differences in {len(branches)} deaths:\n" + "\n".join(found)


@pytest.mark.parametrize("fate", [SAMPLE, pytest.param(EveryWrite, marks=pytest.mark.long, id="every")])
@pytest.mark.timeout(600)
def test_a_manager_killed_at_any_write_goes_on_as_if_nothing_had_happened(
    branches: RunBranches, fate: Callable[[], Fate]
) -> None:
    scenario = replace(WHOLE, short=True)
    calm, deaths = branches(scenario, fate())
    check_branches(scenario, calm, deaths)
    afterwards = {branch.moment.write for branch in deaths if branch.moment.when == "after"}
    assert afterwards
    if fate is EveryWrite:
        assert afterwards == {write.number for write in calm.writes}


@pytest.mark.parametrize(
    "fate", [SAMPLE, pytest.param(lambda: EveryWrite(but=" events"), marks=pytest.mark.long, id="every")]
)
@pytest.mark.timeout(600)
def test_a_cluster_deleted_at_the_manager_s_death_leaves_nothing_behind(
    branches: RunBranches, fate: Callable[[], Fate]
) -> None:
    scenario = replace(WHOLE, hasty=True)
    calm, deaths = branches(scenario, fate())
    check_branches(scenario, calm, deaths)
    assert deaths


@pytest.mark.timeout(600)
def test_a_manager_killed_while_load_balancers_go_leaves_none_behind(branches: RunBranches) -> None:
    scenario = Scenario(("bootstrap", "serve", "delete"))
    calm, deaths = branches(scenario, EveryWriteFrom("harvester DELETE loadbalancers"))
    check_branches(scenario, calm, deaths)
    assert {branch.moment.when for branch in deaths if "loadbalancers" in branch.moment.what} == {
        "before",
        "after",
    }


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_manager_killed_at_any_write_of_a_snapshot_makes_one_of_each_member(branches: RunBranches) -> None:
    scenario = Scenario(("bootstrap", "snapshot"), servers=3, workers=0)
    first = run_scenario(scenario).chapters[-1].first
    calm, deaths = branches(scenario, EveryWriteSince(first))
    check_branches(scenario, calm, deaths)
    assert {branch.moment.when for branch in deaths if "snapshot" in branch.moment.what} == {
        "before",
        "after",
    }


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_manager_killed_at_writes_of_a_restore_restores_once(branches: RunBranches) -> None:
    scenario = Scenario(("bootstrap", "snapshot", "restore"), servers=1, workers=1, bucket=True)
    first = run_scenario(scenario).chapters[-1].first
    calm, deaths = branches(scenario, EveryWriteSince(first, each=3, but=" events"))
    check_branches(scenario, calm, deaths)
    assert {branch.moment.when for branch in deaths} == {"before", "after"}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_manager_of_three_servers_killed_at_some_writes_keeps_all_members(branches: RunBranches) -> None:
    scenario = Scenario(("bootstrap", "lose a server", "grow", "delete"), servers=3, workers=1, short=True)
    calm, deaths = branches(scenario, SomeWrites(30, Rng(SEED)))
    check_branches(scenario, calm, deaths)
    assert deaths


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_manager_killed_at_fifty_instants_goes_on_as_if_nothing_had_happened(branches: RunBranches) -> None:
    rng = Rng(SEED)
    instants = [(rng.uniform(0, 390), rng.below(20)) for _ in range(50)]
    scenario = replace(WHOLE, short=True)
    calm, deaths = branches(scenario, AtInstants(instants))
    check_branches(scenario, calm, deaths)
    assert len(deaths) == 50


@pytest.mark.parametrize("seed", sampled(range(4), 1))
def test_a_manager_killed_again_and_again_gets_there_in_the_end(seed: int) -> None:
    rng = Rng(f"{SEED}/{seed}")
    calm = run_scenario(WHOLE)
    instants = [(rng.uniform(0, 500), rng.below(20)) for _ in range(12)]
    scenario = Scenario(WHOLE.phases, (AtInstants(instants),), down_s=rng.uniform(0, 20), seed=seed)
    life = run_scenario(scenario)
    assert find_differences(life, calm, scenario.down_s) == [], f"seed {seed}: {instants}"
