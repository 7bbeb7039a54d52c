"""One scrape of a manager with 1,000 Clusters and 10,000 Machines: its CPU time, for which the event loop waits, and its size.

The first scrape reads every status; those that follow only the ones that have changed, here one in a hundred.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from benchmarks import Figure
from windrow.app.clock import SystemClock
from windrow.clusters.api.machine import Machine
from windrow.clusters.metrics.manager import ManagerMetrics, Sources
from windrow.core.clock import format_time
from windrow.kubernetes.objects import Raw

CLUSTERS, MACHINES, SCRAPES = 1000, 10_000, 20
NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
_TYPES = ("Ready", "Accepted", "PreflightPassed", "Provisioned", "UpToDate", "RemediationAllowed")


def measure() -> Iterator[Figure]:
    clusters, machines = [a_cluster(n) for n in range(CLUSTERS)], [a_machine(n) for n in range(MACHINES)]
    metrics = ManagerMetrics(SystemClock())
    metrics.sources = Sources(clusters=lambda: clusters, machines=lambda: machines)
    first, page = _timed(metrics)
    later = []
    for scrape in range(SCRAPES):
        for number in range(scrape, MACHINES, 100):
            machines[number] = replace(machines[number], status={**machines[number].status})
        later.append(_timed(metrics)[0])
    yield Figure("first scrape", first * 1000, "ms", 500.0, "own")
    yield Figure("scrape, median", statistics.median(later) * 1000, "ms", 50.0, "issue 15")
    yield Figure("page", len(page) / 1000, "kB", 450.0, "own")


def _timed(metrics: ManagerMetrics) -> tuple[float, str]:
    began = time.process_time()
    page = metrics.registry.render()
    return time.process_time() - began, page


def _status() -> dict[str, Any]:
    since = format_time(NOON)
    conditions = [
        {"type": one, "status": "True", "reason": one, "lastTransitionTime": since} for one in _TYPES
    ]
    return {"phase": "Ready", "conditions": conditions, "certificatesExpiryDate": since}


def a_cluster(number: int) -> Raw:
    metadata = {"name": f"cluster-{number}", "namespace": "fleet-default", "uid": f"uid-{number}"}
    return {"metadata": metadata, "status": _status()}


def a_machine(number: int) -> Machine:
    cluster = f"cluster-{number % CLUSTERS}"
    name = f"{cluster}-workers-{number}"
    return Machine(
        "fleet-default", name, name, cluster, cluster, "workers", frozenset(), NOON, status=_status()
    )
