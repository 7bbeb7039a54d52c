"""How much a cluster writes to the management API: bounds on a driven clock."""

from __future__ import annotations

from benchmarks.status_writes import run
from tests.support.clock import run_driven


def test_a_machine_costs_eight_writes_from_creation_to_ready_and_none_afterwards() -> None:
    writes = run_driven(run(servers=3, workers=17))

    # To be made, made, the first address, Ready.
    assert max(writes.machine_statuses.values()) <= 4
    assert writes.per_machine("Event of Machine") <= 2.1
    assert sum(writes.counts[kind] for kind in ("Machine", "Machine status", "Event of Machine")) <= 8 * 20
    assert writes.idle_writes == 0
