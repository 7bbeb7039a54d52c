"""Execution of what is done for machines whose host on Harvester is in maintenance. All may be repeated."""

from __future__ import annotations

from typing import assert_never

from windrow.clusters.api.updates.maintenance import HOST_MAINTENANCE, render_maintenance
from windrow.clusters.context import ReconcileContext, get_machine, patch_observed_node
from windrow.clusters.execute.cordons import render_uncordon
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
        found = get_machine(action.machine, state)
        record = found.record
        match action:
            case RecordMaintenance(maintenance=maintenance) | RecordHostBack(maintenance=maintenance):
                change = {HOST_MAINTENANCE: render_maintenance(maintenance)}
                await self._context.patch_observed_machine(record, change)
            case EndMaintenance():
                if action.uncordons and (change := render_uncordon(found.node)):
                    # First: a restart in between repeats it.
                    await patch_observed_node(self._guests, state, found.node, action.node, change)
                await self._context.patch_observed_machine(record, {HOST_MAINTENANCE: None})
            case _:
                assert_never(action)
