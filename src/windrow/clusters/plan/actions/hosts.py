"""Actions about machines whose host on Harvester is in maintenance."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.clusters.api.updates.maintenance import RecordedMaintenance
from windrow.clusters.plan.actions.base import MachineActionBase


@dataclass(frozen=True)
class RecordMaintenance(
    MachineActionBase,
    reason="HostMaintenance",
    done="Holding repair of Machine {action.machine}",
    on_cluster=True,
):
    """Record that the host of the machine is in maintenance, before anything is done for that."""

    maintenance: RecordedMaintenance


@dataclass(frozen=True)
class RecordHostBack(MachineActionBase, reason="RecordHostBack"):
    """Record when the host of the machine was found to be back."""

    maintenance: RecordedMaintenance


@dataclass(frozen=True)
class EndMaintenance(
    MachineActionBase,
    reason="HostMaintenanceOver",
    done="Machine {action.machine} is over the maintenance of its host",
    on_cluster=True,
):
    """Uncordon the Node where it was cordoned for that, and forget the maintenance."""

    node: str
    uncordons: bool


MaintenanceAction = RecordMaintenance | RecordHostBack | EndMaintenance
