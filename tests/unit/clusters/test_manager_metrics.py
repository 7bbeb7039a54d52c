"""What the manager does, as metrics: decisions, reconciles, requests, and what others than its objects say."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

import pytest
from tests.support.clock import NOON, LoopClock, run_driven

from windrow.clusters.api.addresses import IPPool
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.metrics.manager import ManagerMetrics, ObservedPool, Sources
from windrow.clusters.plan.actions import DeleteMachine, Disruption, HeldDisruption, StartVM
from windrow.controller.outcomes import SETTLED, Changed, Failed, Outcome, Refused, Waiting
from windrow.core.formats.cidr import Range
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import ObjectRef

REF = CLUSTER.ref("orchard", "fleet-default")
OTHER = CLUSTER.ref("meadow", "fleet-default")


class StoppedClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.elapsed = timedelta()

    def now(self):
        return NOON + self.elapsed

    def monotonic(self) -> timedelta:
        return self.elapsed

    async def sleep_until(self, instant) -> None:
        raise NotImplementedError


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def metrics(clock: StoppedClock) -> ManagerMetrics:
    return ManagerMetrics(clock)


def held(machine: str, gate: str = "Breaker", kind: str = "replace") -> HeldDisruption:
    disruption = Disruption(kind, DeleteMachine("it is due", machine))  # type: ignore[arg-type]
    return HeldDisruption(disruption, "it is held", gate=gate)


def test_a_disruption_that_stays_held_counts_once_and_is_held_until_it_is_not(metrics: ManagerMetrics):
    value = metrics.registry.value
    labels = {"kind": "replace", "reason": "Breaker"}
    for _ in range(3):
        metrics.on_planned(REF, [held("w1"), held("w2")], None)

    assert value("windrow_disruptions_total", decision="held", **labels) == 2
    of_cluster = {"namespace": REF.namespace, "cluster": REF.name}
    assert value("windrow_disruptions_held", **of_cluster, **labels) == 2

    metrics.on_planned(REF, [held("w2", "EtcdQuorum")], None)

    assert value("windrow_disruptions_held", **of_cluster, **labels) == 0
    assert value("windrow_disruptions_held", **of_cluster, kind="replace", reason="EtcdQuorum") == 1
    assert value("windrow_disruptions_total", decision="held", kind="replace", reason="EtcdQuorum") == 1


def test_what_is_held_names_its_cluster_and_ends_with_it(metrics: ManagerMetrics):
    metrics.on_planned(REF, [held("w1")], None)
    metrics.on_planned(OTHER, [held("w1")], None)
    held_of = partial(metrics.registry.value, "windrow_disruptions_held", kind="replace", reason="Breaker")
    assert held_of(namespace=REF.namespace, cluster=REF.name) == 1

    metrics.forget(REF)
    metrics.forget(REF)

    assert held_of(namespace=REF.namespace, cluster=REF.name) == 0
    assert held_of(namespace=OTHER.namespace, cluster=OTHER.name) == 1


def test_admitted_disruptions_and_actions_are_counted(metrics: ManagerMetrics):
    metrics.on_admitted([held("w1").disruption, held("w2", kind="roll").disruption])
    metrics.on_action(StartVM("it is stopped", "w1"), True)
    metrics.on_action(StartVM("it is stopped", "w1"), False)
    value = metrics.registry.value

    assert value("windrow_disruptions_total", kind="roll", decision="admitted", reason="") == 1
    assert value("windrow_actions_total", reason=StartVM.reason, result="done") == 1
    assert value("windrow_actions_total", reason=StartVM.reason, result="failed") == 1


def test_the_reaction_is_counted_from_the_first_change_until_the_plan(
    metrics: ManagerMetrics, clock: StoppedClock
):
    value = metrics.registry.value
    metrics.on_change(REF)
    clock.elapsed += timedelta(seconds=3)
    metrics.on_added(REF)
    clock.elapsed += timedelta(seconds=1)
    metrics.on_planned(REF, [], None)
    metrics.on_planned(REF, [], None)

    assert value("windrow_cluster_reaction_seconds_count") == 1
    assert value("windrow_cluster_reaction_seconds_sum") == 4
    assert value("workqueue_adds_total", name="clusters") == 1


def test_a_cluster_that_is_gone_waits_for_no_plan(metrics: ManagerMetrics, clock: StoppedClock):
    metrics.on_change(REF)
    metrics.forget(REF)
    metrics.on_planned(REF, [], None)

    assert metrics.registry.value("windrow_cluster_reaction_seconds_count") == 0


def test_the_end_of_a_credential_is_shown_while_a_cluster_uses_it(metrics: ManagerMetrics):
    labels = {"namespace": "cattle-global-data", "secret": "cc"}
    name = "windrow_credential_expiration_timestamp_seconds"
    metrics.on_planned(REF, [], ("cattle-global-data:cc", NOON))
    assert metrics.registry.value(name, **labels) == NOON.timestamp()

    metrics.on_planned(REF, [], None)

    assert metrics.registry.value(name, **labels) == 0
    assert f"{name}{{" not in metrics.registry.render()


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (SETTLED, "success"),
        (Refused("no", "do"), "success"),
        (Waiting("x", NOON, "y"), "success"),
        (Waiting("x", NOON, "y", NOON), "requeue_after"),
        (Changed("1 action"), "requeue"),
        (Failed(ValueError()), "error"),
    ],
)
def test_reconciles_are_counted_by_what_comes_next(
    metrics: ManagerMetrics, clock: StoppedClock, outcome: Outcome, result: str
):
    async def reconcile(key: ObjectRef) -> Outcome:
        clock.elapsed += timedelta(seconds=2)
        return outcome

    assert asyncio.run(metrics.timed("clusters", reconcile)(REF)) == outcome  # type: ignore[arg-type]

    value = metrics.registry.value
    assert value("controller_runtime_reconcile_total", controller="clusters", result=result) == 1
    assert value("controller_runtime_reconcile_time_seconds_sum", controller="clusters") == 2


def test_a_reconcile_that_raises_is_an_error_and_raises(metrics: ManagerMetrics):
    async def reconcile(key: ObjectRef) -> Outcome:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        asyncio.run(metrics.timed("clusters", reconcile)(REF))  # type: ignore[arg-type]

    value = metrics.registry.value
    assert value("controller_runtime_reconcile_total", controller="clusters", result="error") == 1


def test_requests_are_counted_by_api_method_and_code_and_a_watch_is_a_verb_of_durations(
    metrics: ManagerMetrics,
):
    observe = metrics.on_request("harvester")
    observe(Request("GET", "/api/v1/nodes"), "200", 0.5)
    observe(Request("GET", "/api/v1/nodes", (("watch", "true"),)), "<error>", 1.0)
    value = metrics.registry.value

    assert value("rest_client_requests_total", host="harvester", method="GET", code="200") == 1
    assert value("rest_client_requests_total", host="harvester", method="GET", code="<error>") == 1
    assert value("rest_client_request_duration_seconds_count", host="harvester", verb="WATCH") == 1
    assert value("rest_client_request_duration_seconds_sum", host="harvester", verb="GET") == 0.5


def test_pools_watches_lag_queue_and_leader_are_read_at_each_scrape(metrics: ManagerMetrics):
    ranges = (Range.parse("10.0.0.10-10.0.0.19"), Range.parse("10.0.1.1"))
    pool = IPPool("lan", ranges, allocated=(("10.0.0.10", "default/lb"), ("10.0.0.11", "default/b")))
    metrics.sources = Sources(
        ip_pools=lambda: [ObservedPool("team:cc", pool)],
        watching=lambda: {"clusters": True, "machines": False},
        watch_lag_s=lambda: 7.5,
    )
    metrics.register_queue("clusters", lambda: 4)
    metrics.register_leader("windrow-manager", lambda: True)
    value = metrics.registry.value
    labels = {"namespace": "team", "secret": "cc", "pool": "lan"}

    assert value("windrow_ip_pool_addresses", state="total", **labels) == 11
    assert value("windrow_ip_pool_addresses", state="allocated", **labels) == 2
    assert (
        value("windrow_watching", resource="clusters"),
        value("windrow_watching", resource="machines"),
    ) == (1, 0)
    assert value("windrow_watch_lag_seconds") == 7.5
    assert value("workqueue_depth", name="clusters") == 4
    assert value("leader_election_master_status", name="windrow-manager") == 1


def test_a_wall_clock_that_is_set_back_changes_no_duration():
    async def story() -> None:
        clock = LoopClock()
        metrics = ManagerMetrics(clock)
        metrics.on_change(REF)
        clock.set_wall(timedelta(days=-400))
        await asyncio.sleep(2)
        metrics.on_planned(REF, [], None)
        assert metrics.registry.value("windrow_cluster_reaction_seconds_sum") == pytest.approx(2, abs=0.01)

    run_driven(story())
