"""Execution of what is done for machines whose host on Harvester is in maintenance. All may be repeated."""

from __future__ import annotations

from typing import assert_never

from windrow.clusters.api.updates.maintenance import HOST_MAINTENANCE, render_maintenance
from windrow.clusters.context import ReconcileContext, get_connection, get_machine
from windrow.clusters.plan.actions import (
    EndMaintenance,
    MaintenanceAction,
    RecordHostBack,
    RecordMaintenance,
)
from windrow.clusters.sources.guest_api import GuestClusterCache
from windrow.clusters.state import ClusterState


class MaintenanceActions:
    """Records are written by compare-and-swap: of two managers one begins, and no Node is cordoned unrecorded."""

    def __init__(self, context: ReconcileContext, guests: GuestClusterCache) -> None:
        self._context, self._guests = context, guests

    async def execute(self, action: MaintenanceAction, state: ClusterState) -> None:
        """Raises StalePlan where the Machine was changed since it was observed."""
        record = get_machine(action.machine, state).record
        match action:
            case RecordMaintenance(maintenance=maintenance) | RecordHostBack(maintenance=maintenance):
                change = {HOST_MAINTENANCE: render_maintenance(maintenance)}
                await self._context.patch_observed_machine(record, change)
            case EndMaintenance():
                if action.uncordons:  # first: a restart in between repeats it
                    connection = get_connection(self._guests, state)
                    await connection.patch_node(action.node, {"spec": {"unschedulable": None}})
                await self._context.patch_observed_machine(record, {HOST_MAINTENANCE: None})
            case _:
                assert_never(action)
