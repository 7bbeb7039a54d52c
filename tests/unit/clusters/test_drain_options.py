"""Rancher's drain options: each does what `kubectl drain` does with it, or it is told that it does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from windrow.clusters.api.fields import Fields, ProblemCollector
from windrow.clusters.api.updates.strategy import DrainOptions, read_upgrade_strategy
from windrow.clusters.api.updates.turn import VM_RESTART
from windrow.clusters.plan.actions import EvictPods, FailUpdate, RecordUpdateStep
from windrow.clusters.plan.planner import Plan
from windrow.clusters.state import Pod

from .builders import NOON, a_machine, of_kind
from .test_update_turns import SERVERS, WORKERS, a_turn, an_update, in_turn, upgraded

CART, CACHE = Pod("shop", "cart-0"), Pod("shop", "cache-0", has_empty_dir=True)
BARE, BARE_CACHE = Pod("shop", "debug", is_bare=True), Pod("shop", "tmp", is_bare=True, has_empty_dir=True)
ALL_PODS = (CART, CACHE, BARE, BARE_CACHE)


def read(**options: Any) -> tuple[DrainOptions, list[str]]:
    problems = ProblemCollector()
    fields = Fields({"upgradeStrategy": {"workerDrainOptions": options}}, "spec.rkeConfig", problems)
    return read_upgrade_strategy(fields).worker_drain, [str(one) for one in problems.found]


def drained(*pods: Pod, change: str = "", passed: float = 0, **options: Any) -> Plan:
    """The plan for a worker at its step Drain, with these pods on its Node and these options as a user writes them."""
    found, problems = read(**options)
    assert problems == []
    update = an_update(cordoned=True, **({"change": change} if change else {}))
    machine = in_turn(a_machine("w1", WORKERS), update, pods=pods, former_jobs=())
    strategy = upgraded().upgrade_strategy
    cluster = upgraded(SERVERS, WORKERS, upgrade_strategy=replace(strategy, worker_drain=found))
    return a_turn(machine, cluster, now=NOON + timedelta(seconds=passed))


def evicted(plan: Plan) -> list[str]:
    return [name for one in of_kind(plan, EvictPods) for _, name in one.pods]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "pods"),
    [
        ({"enabled": False}, []),
        ({"enabled": True, "deleteEmptyDirData": True}, ["cart-0", "cache-0"]),
        ({"enabled": True, "deleteEmptyDirData": True, "force": True}, ["cart-0", "cache-0", "debug", "tmp"]),
        ({"enabled": True}, []),
        ({"enabled": True, "deleteEmptyDirData": False}, []),
        ({"enabled": True, "ignoreDaemonSets": True, "deleteEmptyDirData": True}, ["cart-0", "cache-0"]),
    ],
)
def test_each_drain_option_is_honoured_as_kubectl_does(options: dict[str, Any], pods: list[str]) -> None:
    assert evicted(drained(*ALL_PODS, **options)) == pods


@pytest.mark.parametrize(
    ("options", "seconds", "deletes"),
    [
        ({}, None, False),
        ({"gracePeriod": -1}, None, False),
        ({"gracePeriod": 0}, 0, False),
        ({"gracePeriod": 30, "disableEviction": True}, 30, True),
    ],
)
def test_pods_have_the_grace_period_that_is_asked_for_or_their_own(
    options: dict[str, Any], seconds: int | None, deletes: bool
) -> None:
    (evict,) = of_kind(drained(CART, enabled=True, **options), EvictPods)
    assert (evict.grace_period, evict.deletes) == (seconds, deletes)  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", ["30", True, 10**9])
def test_a_grace_period_that_is_none_is_a_fault(value: Any) -> None:
    found, problems = read(gracePeriod=value)
    assert found.grace_period in (None, 0)
    assert any("gracePeriod" in one for one in problems)


def test_a_grace_period_and_a_timeout_may_be_a_week() -> None:
    week = 7 * 24 * 3600
    found, problems = read(gracePeriod=week, timeout=week)
    assert (found.grace_period, found.timeout, problems) == (week, timedelta(seconds=week), [])
    assert len(read(gracePeriod=week + 1, timeout=week + 1)[1]) == 2


def test_a_pod_with_an_empty_dir_holds_the_turn_and_is_named_until_a_person_consents() -> None:
    plan = drained(*ALL_PODS, enabled=True)
    (wait,) = [one for one in plan.waits if one.machine == "w1"]
    assert wait.what.startswith("shop/cache-0 to leave Node w1: emptyDir, and deleteEmptyDirData is not set")
    assert wait.until == NOON + timedelta(seconds=5)
    assert (
        "shop/cache-0, shop/tmp to leave"
        in drained(*ALL_PODS, enabled=True, force=True).waits_by_machine["w1"].what
    )
    assert evicted(drained(CART, BARE_CACHE, enabled=True)) == ["cart-0"], (
        "a bare pod stays, and its data with it"
    )


def test_a_pod_with_an_empty_dir_that_stays_fails_the_turn_in_the_drains_timeout_and_no_pod_was_evicted() -> (
    None
):
    early = drained(CART, CACHE, passed=119, enabled=True, timeout=120)
    assert of_kind(early, FailUpdate, EvictPods) == []
    assert early.waits_by_machine["w1"].until == NOON + timedelta(seconds=120)
    late = drained(CART, CACHE, passed=120, enabled=True, timeout=120)
    (failed,) = of_kind(late, FailUpdate)
    failure = failed.update.failure  # type: ignore[attr-defined]
    assert failure.message.startswith("shop/cache-0 on Node w1 keep data in an emptyDir")
    assert "set deleteEmptyDirData in its drain options" in failure.hint
    assert evicted(late) == []
    (step,) = of_kind(
        drained(CART, CACHE, passed=120, enabled=True, timeout=120, ignoreErrors=True), RecordUpdateStep
    )
    assert step.update.step == "Apply"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "pods"),
    [
        ({}, ["cart-0", "cache-0"]),
        ({"deleteEmptyDirData": False}, ["cart-0"]),
        ({"deleteEmptyDirData": True, "force": True}, ["cart-0", "cache-0", "debug", "tmp"]),
        ({"enabled": True, "deleteEmptyDirData": False}, []),
    ],
)
def test_before_a_vm_stops_data_is_kept_where_that_is_said(options: dict[str, Any], pods: list[str]) -> None:
    assert evicted(drained(*ALL_PODS, change=VM_RESTART, **options)) == pods
