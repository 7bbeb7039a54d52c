"""What Clusters and Machines say, as metrics: bounded, whatever is in their statuses."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.unit.clusters.builders import NOON

from windrow.app.clock import SystemClock
from windrow.clusters.api.machine import Machine
from windrow.clusters.metrics.fleet import Fleet, read_status
from windrow.clusters.metrics.manager import ManagerMetrics, Sources
from windrow.core.clock import format_time
from windrow.kubernetes.objects import Raw

SINCE = format_time(NOON)


def a_condition(type: str, status: str = "True", reason: str = "") -> dict[str, str]:
    return {"type": type, "status": status, "reason": reason or type, "lastTransitionTime": SINCE}


def a_cluster(name: str, namespace: str = "fleet-default", **status: Any) -> Raw:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    ready = a_condition("Ready", reason="MachinesReady")
    return {"metadata": metadata, "status": {"phase": "Ready", "conditions": [ready], **status}}


def a_machine(name: str, cluster: str = "orchard", **status: Any) -> Machine:
    wanted = {"phase": "Ready", "conditions": [a_condition("Ready"), a_condition("Joined")], **status}
    return Machine(
        "fleet-default",
        name,
        f"uid-{name}",
        cluster,
        f"uid-{cluster}",
        "workers",
        frozenset(),
        NOON,
        status=wanted,
    )


def scrape(clusters: list[Raw], machines: list[Machine]) -> str:
    metrics = ManagerMetrics(SystemClock())
    metrics.sources = Sources(clusters=lambda: clusters, machines=lambda: machines)
    return metrics.registry.render()


def test_clusters_and_machines_are_counted_by_phase():
    text = scrape(
        [a_cluster("orchard"), a_cluster("meadow", phase="Degraded")],
        [a_machine("a"), a_machine("b"), a_machine("c", phase="NotReady")],
    )

    assert 'windrow_clusters{phase="Degraded"} 1\n' in text
    assert 'windrow_machines{phase="Ready"} 2\n' in text
    assert (
        'windrow_cluster_machines{namespace="fleet-default",cluster="orchard",phase="NotReady"} 1\n' in text
    )


def test_a_condition_that_is_not_true_has_its_cluster_and_since_when():
    text = scrape([a_cluster("orchard", conditions=[a_condition("Ready", "False", "Degraded")])], [])

    labels = 'namespace="fleet-default",cluster="orchard",condition="Ready",status="False",reason="Degraded"'
    assert f"windrow_cluster_condition_since_timestamp_seconds{{{labels}}} {NOON.timestamp()}" in text
    assert 'windrow_cluster_conditions{condition="Ready",status="False",reason="Degraded"} 1\n' in text


def test_waits_have_the_reason_of_ready_and_the_date_of_the_oldest():
    waiting = {"for": "its Node to be Ready", "since": SINCE, "next": "it is well"}
    later = {**waiting, "since": "2027-01-01T00:00:00Z"}
    not_ready = [a_condition("Ready", "False", "Joining")]
    text = scrape(
        [],
        [
            a_machine("a", conditions=not_ready, waiting=later),
            a_machine("b", conditions=not_ready, waiting=waiting),
            a_machine("c", conditions=not_ready, waiting=later),
        ],
    )

    assert 'windrow_waits{kind="Machine",reason="Joining"} 3\n' in text
    oldest = 'windrow_waits_oldest_timestamp_seconds{kind="Machine",reason="Joining"}'
    assert f"{oldest} {NOON.timestamp()}\n" in text


def test_a_tripped_breaker_and_the_end_of_certificates_name_their_cluster():
    pools = [
        {"name": "workers", "breaker": {"tripped": True}},
        {"name": "servers", "breaker": {"tripped": False}},
    ]
    text = scrape([a_cluster("orchard", pools=pools, certificatesExpiryDate=SINCE)], [])

    assert text.count("windrow_pool_breaker_tripped{") == 1
    assert (
        'windrow_pool_breaker_tripped{namespace="fleet-default",cluster="orchard",pool="workers"} 1\n' in text
    )
    name = 'windrow_cluster_certificate_expiration_timestamp_seconds{namespace="fleet-default",cluster="orchard"}'
    assert f"{name} {NOON.timestamp()}\n" in text


def test_conditions_that_are_true_are_counted_and_have_no_date():
    text = scrape([], [a_machine("a"), a_machine("b")])

    assert 'windrow_machine_conditions{condition="Joined",status="True",reason="Joined"} 2\n' in text
    assert "windrow_machine_conditions_oldest_timestamp_seconds{" not in text


def test_a_cluster_that_has_no_status_yet_is_counted():
    raw = a_cluster("orchard")
    del raw["status"]

    assert 'windrow_clusters{phase="Other"} 1\n' in scrape([raw], [])
    assert read_status({}).waits_since == 0


def test_what_has_not_changed_is_not_read_again():
    fleet, cluster = Fleet(), a_cluster("orchard")
    fleet.count([cluster], [])
    cluster["status"]["phase"] = "Degraded"  # no cache changes an object that it has given out

    assert fleet.count([cluster], []).clusters == {("Ready",): 1}


def test_what_has_gone_has_no_series_any_more():
    clusters = [a_cluster("orchard")]
    metrics = ManagerMetrics(SystemClock())
    metrics.sources = Sources(clusters=lambda: clusters)
    assert "orchard" in metrics.registry.render()

    clusters.clear()

    assert "orchard" not in metrics.registry.render()


def test_a_status_that_has_changed_is_read_again():
    fleet = Fleet()
    fleet.count([a_cluster("orchard")], [])

    assert fleet.count([a_cluster("orchard", phase="Degraded")], []).clusters == {("Degraded",): 1}


@pytest.mark.parametrize(
    "status",
    [
        None,
        "text",
        [],
        {"phase": ["a"], "conditions": "none", "waiting": 3},
        {"phase": "x" * 10_000, "conditions": [None, 7, {"type": {}, "status": 1, "reason": "a b"}]},
        {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "yesterday"}]},
        {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": 12}]},
        {"waiting": {"for": "x", "since": "9999999-01-01T00:00:00Z"}},
        {"phase": 'a"} 1\nwindrow_forged 1'},
    ],
)
def test_whatever_is_in_a_status_is_counted_under_a_plain_word(status: Any):
    reading = read_status(status)

    words = [reading.phase, reading.waits or "x", *(word for labels in reading.conditions for word in labels)]
    assert all(word.isascii() and word.isalnum() and len(word) <= 64 for word in words)


def test_a_hostile_status_makes_a_bounded_number_of_series():
    conditions = [a_condition(f"Type{number}", "False") for number in range(10_000)]
    text = scrape([a_cluster(f"c{one}", conditions=conditions) for one in range(50)], [])

    assert text.count("windrow_cluster_condition_since_timestamp_seconds{") == 50 * 40
    assert text.count("windrow_cluster_conditions{") == 40


def test_what_is_beyond_the_most_series_of_a_metric_is_left_out_and_said():
    clusters = [
        a_cluster(f"c{one}", conditions=[a_condition(f"Type{one}x{number}", "False") for number in range(40)])
        for one in range(300)
    ]
    text = scrape(clusters, [])

    assert text.count("windrow_cluster_condition_since_timestamp_seconds{") == 10_000
    assert text.count("windrow_cluster_conditions{") == 1000
    dropped = 300 * 40 - 10_000 + 2 * (300 * 40 - 1000)
    assert f"windrow_metrics_dropped_series {dropped}\n" in text


def test_a_thousand_clusters_of_ten_thousand_machines_are_a_page_of_few_series_in_little_time():
    clusters = [a_cluster(f"c{one}", certificatesExpiryDate=SINCE) for one in range(1000)]
    machines = [a_machine(f"m{one}", f"c{one % 1000}") for one in range(10_000)]
    metrics = ManagerMetrics(SystemClock())
    metrics.sources = Sources(clusters=lambda: clusters, machines=lambda: machines)
    metrics.registry.render()

    began = time.process_time()
    text = metrics.registry.render()
    took = time.process_time() - began

    series = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(series) < 3200
    assert len(text) < 450_000
    assert not any("m42" in line for line in series)
    assert took < 0.25, f"{took * 1000:.0f} ms"  # 20 ms on an idle core, benchmarks/scrape.py
