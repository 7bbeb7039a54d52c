"""How much a cluster writes to the management API: bounds on a driven clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from benchmarks.status_writes import run
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.clusters.controller import ClusterController
from windrow.clusters.execute.machine_actions import MachineActions
from windrow.controller.outcomes import Outcome
from windrow.kubernetes.resources import ObjectRef

from .cluster_rig import ALL, a_cluster, a_pool, machines_of, post, stock


def test_a_machine_costs_eight_writes_from_creation_to_ready_and_none_afterwards() -> None:
    writes = run_driven(run(servers=3, workers=17))

    # To be made, made, the first address, Ready.
    assert max(writes.machine_statuses.values()) <= 4
    assert writes.per_machine("Event of Machine") <= 2.1
    assert sum(writes.counts[kind] for kind in ("Machine", "Machine status", "Event of Machine")) <= 8 * 20
    assert writes.idle_writes == 0


def test_the_driver_config_that_a_driver_returned_is_written_before_the_next_reconcile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A foreign driver's config cannot be found out again; a crash while others are made must not lose it."""
    returned: dict[str, Mapping[str, Any]] = {}
    lost: list[str] = []

    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, ALL), a_pool("workers", 3))
        async with simulation(seed=3, with_manager=False) as sim:
            provision, reconcile = MachineActions.provision_vm, ClusterController.reconcile

            async def note_config(self: MachineActions, action: Any, state: Any) -> None:
                await provision(self, action, state)
                record = next(machine.record for machine in state.machines if machine.name == action.machine)
                returned[action.machine] = self._context.with_unwritten_status(record).driver_config or {}

            async def compare_records(self: ClusterController, key: ObjectRef) -> Outcome:
                outcome = await reconcile(self, key)
                for raw in await machines_of(sim, key):
                    name, stored = (
                        raw["metadata"]["name"],
                        (raw.get("status") or {}).get("driverConfig") or {},
                    )
                    config = returned.get(name)
                    if config and stored.get("WindrowVMUID") != config["WindrowVMUID"]:
                        lost.append(f"{name} after {outcome}")
                return outcome

            monkeypatch.setattr(MachineActions, "provision_vm", note_config)
            monkeypatch.setattr(ClusterController, "reconcile", compare_records)
            sim.start_manager()
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()

    run_driven(story())
    assert len(returned) == 4
    assert lost == []
