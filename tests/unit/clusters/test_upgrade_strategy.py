"""`spec.rkeConfig.upgradeStrategy` as Rancher writes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from windrow.clusters.api.fields import Fields, ProblemCollector
from windrow.clusters.api.updates.int_or_percent import IntOrPercent
from windrow.clusters.api.updates.strategy import (
    DrainOptions,
    UpgradeStrategy,
    read_upgrade_strategy,
)


def read(**strategy: Any) -> tuple[UpgradeStrategy, list[str]]:
    problems = ProblemCollector()
    found = read_upgrade_strategy(Fields({"upgradeStrategy": strategy}, "spec.rkeConfig", problems))
    return found, [str(problem) for problem in problems.found]


def test_a_strategy_is_read_as_rancher_writes_it() -> None:
    drain = {
        "enabled": True,
        "timeout": 120,
        "ignoreErrors": True,
        "disableEviction": True,
        "force": True,
        "gracePeriod": -1,
    }

    found, problems = read(
        controlPlaneConcurrency="2",
        workerConcurrency="10%",
        controlPlaneDrainOptions={"enabled": True, "timeout": 0},
        workerDrainOptions=drain,
    )

    assert problems == []
    assert found == UpgradeStrategy(
        IntOrPercent(None, 2),
        IntOrPercent(10),
        DrainOptions(enabled=True, timeout=timedelta(seconds=600)),
        DrainOptions(True, timedelta(seconds=120), ignore_errors=True, disable_eviction=True, force=True),
    )


def test_one_machine_at_a_time_is_the_default() -> None:
    assert read(workerConcurrency="") == (UpgradeStrategy(), [])
    assert UpgradeStrategy().workers.resolve_concurrency(9) == 1


@pytest.mark.parametrize("text", ["-1", "110%", "0%", "many", "1.5"])
def test_what_is_no_number_of_machines_is_a_fault(text: str) -> None:
    found, (problem,) = read(workerConcurrency=text)

    assert found.workers == UpgradeStrategy().workers
    assert f"workerConcurrency is '{text}'" in problem


@pytest.mark.parametrize(
    ("concurrency", "total", "most"),
    [
        (IntOrPercent(None, 3), 10, 3),
        (IntOrPercent(None, 0), 10, 10),
        (IntOrPercent(None, 0), 0, 1),
        (IntOrPercent(25), 10, 2),
        (IntOrPercent(1), 10, 1),
        (IntOrPercent(100), 7, 7),
    ],
)
def test_a_percentage_is_rounded_down_to_one_at_least_and_0_is_all(
    concurrency: IntOrPercent, total: int, most: int
) -> None:
    assert concurrency.resolve_concurrency(total) == most


def test_a_concurrency_is_told_as_it_was_written() -> None:
    assert (str(IntOrPercent(None, 3)), str(IntOrPercent(25))) == ("3", "25%")
