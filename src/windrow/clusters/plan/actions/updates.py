"""Actions of changes in place: the turns of machines, and the charts of a release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from windrow.clusters.api.updates.turn import MachineUpdate
from windrow.clusters.plan.actions.base import ActionBase, MachineActionBase


@dataclass(frozen=True)
class BeginUpdate(
    MachineActionBase, reason="BeginUpdate", done="Began update of Machine {action.machine}", on_cluster=True
):
    """Record the change that is carried out on the machine, before anything is done."""

    update: MachineUpdate


@dataclass(frozen=True)
class MarkNode(MachineActionBase, reason="MarkNode"):
    """Note on the Node that its files are about to change, so that it counts as up to date no more; cordon it where asked."""

    node: str
    cordons: bool


@dataclass(frozen=True)
class RecordUpdateStep(MachineActionBase, reason="RecordUpdateStep"):
    """Record the next step of the turn of the machine."""

    update: MachineUpdate


@dataclass(frozen=True)
class PreflightUpdate(
    MachineActionBase, reason="PreflightUpdate", done="Created Job {action.job} for Machine {action.machine}"
):
    """Create the Job that asks the machine whether it can take another release; the Job that is there already is the same."""

    job: str
    node: str


@dataclass(frozen=True)
class ApplyUpdate(
    MachineActionBase, reason="ApplyUpdate", done="Created Job {action.job} for Machine {action.machine}"
):
    """Create the Job in the guest that writes the machine's files and restarts its service, with its Secret."""

    job: str
    node: str


@dataclass(frozen=True)
class DeleteFormerJobs(MachineActionBase, reason="DeleteFormerJobs"):
    """Delete the Jobs of former turns of the machine that do not run, with their Secrets."""

    present: str  # its Job now, which stays


@dataclass(frozen=True)
class PowerVM(
    MachineActionBase,
    reason="PowerVM",
    done="Requested that the VM of Machine {action.machine} is {action.wanted}",
):
    """Stop or start the VM of a machine in its turn."""

    wanted: Literal["on", "off"]


@dataclass(frozen=True)
class EditVM(MachineActionBase, reason="EditVM", done="Edited the VM of Machine {action.machine}"):
    """Give the VM what its pool asks for and a restart gives it, and record that, with the next step; or why it is refused."""

    version: str


@dataclass(frozen=True)
class FinishUpdate(
    MachineActionBase, reason="FinishUpdate", done="Updated Machine {action.machine}", on_cluster=True
):
    """Uncordon the Node, record what the machine runs now, and end its turn."""

    node: str
    uncordons: bool


@dataclass(frozen=True)
class FailUpdate(
    MachineActionBase,
    reason="UpdateFailed",
    done="Update of Machine {action.machine} failed",
    event="Warning",
    on_cluster=True,
    final=True,
):
    """Record that the turn of the machine has failed."""

    update: MachineUpdate


@dataclass(frozen=True)
class DropUpdate(
    MachineActionBase, reason="DropUpdate", done="Dropped update of Machine {action.machine}", on_cluster=True
):
    """End the turn of a machine on which nothing was changed yet."""

    node: str
    uncordons: bool


@dataclass(frozen=True)
class UpdateNode(
    MachineActionBase, reason="UpdateNode", done="Updated labels and taints of Node {action.node}"
):
    """Give the Node the labels and taints that its pool has now, take those away that it had, and record them."""

    node: str
    labels: Mapping[str, str | None]  # None: to be removed
    taints: tuple[str, ...]
    removed_taints: tuple[str, ...]
    # What the Node may have of its pool from then on, also where that asks for something else: it is recorded first.
    former: Mapping[str, str] = field(default_factory=dict)
    former_taints: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecordVersion(ActionBase, reason="RecordVersion", done="{cluster} runs {action.version}"):
    """Record the version that all machines of the cluster run now."""

    version: str


@dataclass(frozen=True)
class RecordRunning(
    MachineActionBase,
    reason="RecordRunning",
    done="Recorded that Machine {action.machine} runs {action.version}",
    event="Warning",
    on_cluster=True,
):
    """Record what the Node of the machine runs, where the record is older."""

    version: str


@dataclass(frozen=True)
class _ChartAction(ActionBase):
    """About a chart in the guest: what fails there stops nothing else."""

    deployment: str

    @property
    def subject(self) -> str:
        return "charts/" + self.deployment  # the name of no Machine


@dataclass(frozen=True)
class RelaxRollout(
    _ChartAction,
    reason="RelaxRollout",
    done="Let the rollout of Deployment kube-system/{action.deployment} in {cluster} be one pod short",
):
    """Set maxUnavailable 1 and maxSurge 0 of a Deployment whose rollout stalls; helm's next run may set them back."""

    resource_version: str


@dataclass(frozen=True)
class DeleteStalledPod(
    _ChartAction,
    reason="DeleteStalledPod",
    done="Deleted Pod kube-system/{action.pod} in {cluster}, whose place its successor needs",
):
    """Delete an old pod of a Deployment whose rollout stalls, once the deletion is recorded on that."""

    resource_version: str
    pod: str
    uid: str
    record: str


UpdateAction = (
    BeginUpdate
    | MarkNode
    | RecordUpdateStep
    | PreflightUpdate
    | ApplyUpdate
    | DeleteFormerJobs
    | PowerVM
    | EditVM
    | FinishUpdate
    | FailUpdate
    | DropUpdate
    | UpdateNode
    | RecordRunning
)
