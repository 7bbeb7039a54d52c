"""Actions about one machine, from its addresses to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from windrow.clusters.api.addresses import IPAddress
from windrow.clusters.plan.actions.base import MachineActionBase
from windrow.clusters.plan.actions.hosts import MaintenanceAction
from windrow.clusters.plan.actions.updates import UpdateAction


@dataclass(frozen=True)
class ClaimAddresses(MachineActionBase, reason="ClaimAddresses"):
    """Create the IPAddresses of a machine: the record comes before the VM that has them."""

    addresses: tuple[IPAddress, ...]


@dataclass(frozen=True)
class ReleaseAddresses(MachineActionBase, reason="ReleaseAddresses"):
    """Delete the IPAddresses of a machine that is gone."""

    addresses: tuple[IPAddress, ...]


@dataclass(frozen=True)
class ProvisionVM(MachineActionBase, reason="ProvisionVM", done="Provisioned {machine.vm_ref}"):
    """Have the machine's VM created."""


@dataclass(frozen=True)
class StartVM(MachineActionBase, reason="StartVM", done="Started {machine.vm_ref}", on_cluster=True):
    """Start a VM that is stopped."""


@dataclass(frozen=True)
class LabelNode(MachineActionBase, reason="LabelNode"):
    """Set the labels of a Node that kubelet may not set itself."""

    node: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class ScrubBootstrapData(
    MachineActionBase, reason="ScrubBootstrapData", done="Scrubbed bootstrap data of Machine {action.machine}"
):
    """Remove the secrets from what the machine reads at its next start."""


@dataclass(frozen=True)
class DeleteMachine(
    MachineActionBase, reason="DeleteMachine", done="Deleted Machine {action.machine}", on_cluster=True
):
    """Delete the Machine object; its finalizer holds it until the VM is gone."""

    # The Machines whose etcd members the decision counts as healthy: their VMs are read again before it is executed.
    counted: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaintNode(
    MachineActionBase,
    reason="TaintNode",
    done="Tainted Node {action.node} as out of service",
    event="Warning",
    on_cluster=True,
):
    """Give the Node of a machine that was shut down the taint out-of-service, so that its pods and volumes are released."""

    node: str
    uid: str


@dataclass(frozen=True)
class UntaintNode(
    MachineActionBase,
    reason="UntaintNode",
    done="Removed taint out-of-service of Node {action.node}",
    on_cluster=True,
):
    """Remove the taint out-of-service that the manager has set."""

    node: str
    uid: str


@dataclass(frozen=True)
class CordonNode(MachineActionBase, reason="CordonNode", done="Cordoned Node {action.node}"):
    """Make the Node unschedulable."""

    node: str


@dataclass(frozen=True)
class UncordonNode(MachineActionBase, reason="UncordonNode", done="Uncordoned Node {action.node}"):
    """Make the Node schedulable again, and take the mark away that the manager has cordoned it."""

    node: str


@dataclass(frozen=True)
class EvictPods(MachineActionBase, reason="EvictPods"):
    """Evict pods from the Node, as their PodDisruptionBudgets allow; or delete them, with no regard to these. They have
    `grace_period` seconds to end, or None for what each has itself."""

    pods: tuple[tuple[str, str], ...]  # (namespace, name)
    deletes: bool = False
    grace_period: int | None = None


@dataclass(frozen=True)
class RemoveEtcdMember(
    MachineActionBase,
    reason="RemoveEtcdMember",
    done="Requested removal of etcd member {action.node}",
    on_cluster=True,
):
    """Have the servers remove the machine's etcd member."""

    node: str
    counted: tuple[str, ...] = ()  # as of DeleteMachine


@dataclass(frozen=True)
class DeleteVM(MachineActionBase, reason="DeleteVM", done="Requested deletion of {machine.vm_ref}"):
    """Have the VM deleted from Harvester, with the disks that were created with it."""


@dataclass(frozen=True)
class DeleteNode(MachineActionBase, reason="DeleteNode", done="Deleted Node {action.node}"):
    """Delete the Node, and the Secret with its password, from the guest cluster."""

    node: str


@dataclass(frozen=True)
class DeleteNodePassword(MachineActionBase, reason="DeleteNodePassword"):
    """Delete the Secret with the password of a Node that was not registered, from the guest cluster, where there is one."""


@dataclass(frozen=True)
class RemoveMachineFinalizer(
    MachineActionBase, reason="RemoveMachineFinalizer", done="Removed finalizer of Machine {action.machine}"
):
    """Remove Windrow's finalizer from the Machine: nothing of it is left outside."""


MachineAction = (
    ClaimAddresses
    | ReleaseAddresses
    | ProvisionVM
    | StartVM
    | LabelNode
    | ScrubBootstrapData
    | DeleteMachine
    | TaintNode
    | UntaintNode
    | CordonNode
    | UncordonNode
    | EvictPods
    | RemoveEtcdMember
    | DeleteVM
    | DeleteNode
    | DeleteNodePassword
    | RemoveMachineFinalizer
    | MaintenanceAction
    | UpdateAction
)
