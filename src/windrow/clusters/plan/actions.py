"""What the cluster controller may do, as values. Log line, event and test use the same value.

`subject` is the name of the Machine that an action is about, "" for the Cluster. Actions of one subject are executed
in the order of the plan; those of different machines side by side, after those of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Literal

from windrow.kubernetes.resources import ObjectRef


@dataclass(frozen=True, slots=True)
class _Action:
    """What all actions have. `reason` is that of the event, part of the API: it never follows the class name.

    `failure` begins the sentence that says that the action failed. `event` is None for an action without event, and
    `on_cluster` says whether the event of an action on a Machine is also recorded on the Cluster.
    """

    because: str
    reason: ClassVar[str]
    failure: ClassVar[str]
    event: ClassVar[Literal["Normal", "Warning"] | None] = "Normal"
    on_cluster: ClassVar[bool] = False

    @property
    def subject(self) -> str:
        return ""

    def __str__(self) -> str:
        return f"{self.reason}{' ' + self.subject if self.subject else ''}: {self.because}"


@dataclass(frozen=True, slots=True)
class _MachineAction(_Action):
    machine: str

    @property
    def subject(self) -> str:
        return self.machine


# -- about the cluster -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddFinalizer(_Action):
    """Add Windrow's finalizer to the Cluster."""

    reason = "AddFinalizer"
    failure = "adding the finalizer of the Cluster"
    event = None


@dataclass(frozen=True, slots=True)
class CreateSecrets(_Action):
    """Create the Secret with the certificate authorities and tokens of the cluster, once."""

    reason = "CreateSecrets"
    failure = "creating the Secret of the cluster"


@dataclass(frozen=True, slots=True)
class RecordServiceAccount(_Action):
    """Record which ServiceAccount on Harvester is going to be created for the guest cluster."""

    reason = "RecordServiceAccount"
    failure = "recording the ServiceAccount of the guest cluster"
    event = None

    namespace: str
    service_account: str
    credential: str


@dataclass(frozen=True, slots=True)
class CreateServiceAccount(_Action):
    """Create the ServiceAccount for the guest cluster on Harvester, and keep its token."""

    reason = "CreateServiceAccount"
    failure = "creating the ServiceAccount on Harvester"
    event = None


@dataclass(frozen=True, slots=True)
class CreateMachine(_Action):
    """Create a Machine object, the record of a VM to be provisioned."""

    reason = "CreateMachine"
    failure = "creating a Machine"

    pool: str
    join_server: str = ""
    is_init_server: bool = False


@dataclass(frozen=True, slots=True)
class ElectInitServer(_Action):
    """Record the one machine that starts the cluster, and its version as the one that the cluster runs.

    At most one machine ever is, by compare-and-swap.
    """

    reason = "ElectInitServer"
    failure = "electing the init server"
    on_cluster = True

    machine: str
    uid: str
    previous_uid: str = ""  # uid of the machine that was elected before

    @property
    def subject(self) -> str:
        return self.machine


@dataclass(frozen=True, slots=True)
class MarkInitialized(_Action):
    """Record that the guest API server has answered: from now on no machine starts the cluster again."""

    reason = "MarkInitialized"
    failure = "recording that the cluster is initialized"


@dataclass(frozen=True, slots=True)
class RecordGuestUID(_Action):
    """Record the uid of a guest cluster that did not report it when the cluster started."""

    reason = "RecordGuestUID"
    failure = "recording the uid of the guest cluster"
    event = None


@dataclass(frozen=True, slots=True)
class PublishKubeconfig(_Action):
    """Write the Secret with the admin kubeconfig."""

    reason = "PublishKubeconfig"
    failure = "writing the Secret with the kubeconfig"

    server: str


@dataclass(frozen=True, slots=True)
class DeleteServiceAccount(_Action):
    """Delete the ServiceAccount of the guest cluster on Harvester."""

    reason = "DeleteServiceAccount"
    failure = "deleting the ServiceAccount on Harvester"


@dataclass(frozen=True, slots=True)
class DeleteLoadBalancers(_Action):
    """Delete LoadBalancers on Harvester that services of the guest cluster had created, each with its uid."""

    reason = "DeleteLoadBalancers"
    failure = "deleting the LoadBalancers on Harvester"

    load_balancers: tuple[tuple[ObjectRef, str], ...]


@dataclass(frozen=True, slots=True)
class KeepLoadBalancers(_Action):
    """Report which LoadBalancers stay on Harvester although they carry the cluster's name."""

    reason = "KeepLoadBalancers"
    failure = "reporting which LoadBalancers stay"
    event = "Warning"


@dataclass(frozen=True, slots=True)
class DeleteSecrets(_Action):
    """Delete the Secrets of the cluster."""

    reason = "DeleteSecrets"
    failure = "deleting the Secrets of the cluster"


@dataclass(frozen=True, slots=True)
class RemoveFinalizer(_Action):
    """Remove Windrow's finalizer from the Cluster."""

    reason = "RemoveFinalizer"
    failure = "removing the finalizer of the Cluster"


# -- about one machine -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProvisionVM(_MachineAction):
    """Have the machine's VM created."""

    reason = "ProvisionVM"
    failure = "provisioning the VM"


@dataclass(frozen=True, slots=True)
class StartVM(_MachineAction):
    """Start a VM that is stopped."""

    reason = "StartVM"
    failure = "starting the VM"
    on_cluster = True


@dataclass(frozen=True, slots=True)
class LabelNode(_MachineAction):
    """Set the labels of a Node that kubelet may not set itself."""

    reason = "LabelNode"
    failure = "labelling the Node"
    event = None

    node: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ScrubBootstrapData(_MachineAction):
    """Remove the secrets from what the machine reads at its next start."""

    reason = "ScrubBootstrapData"
    failure = "removing the secrets from the machine's cloud-init data"


@dataclass(frozen=True, slots=True)
class DeleteMachine(_MachineAction):
    """Delete the Machine object; its finalizer holds it until the VM is gone."""

    reason = "DeleteMachine"
    failure = "deleting the Machine"
    on_cluster = True


@dataclass(frozen=True, slots=True)
class CordonNode(_MachineAction):
    """Make the Node unschedulable."""

    reason = "CordonNode"
    failure = "cordoning the Node"

    node: str


@dataclass(frozen=True, slots=True)
class EvictPods(_MachineAction):
    """Evict pods from the Node, as their PodDisruptionBudgets allow."""

    reason = "EvictPods"
    failure = "evicting pods from the Node"
    event = None

    pods: tuple[tuple[str, str], ...]  # (namespace, name)


@dataclass(frozen=True, slots=True)
class RemoveEtcdMember(_MachineAction):
    """Have the servers remove the machine's etcd member."""

    reason = "RemoveEtcdMember"
    failure = "removing the etcd member"
    on_cluster = True

    node: str


@dataclass(frozen=True, slots=True)
class DeleteVM(_MachineAction):
    """Have the VM deleted from Harvester, with the disks that were created with it."""

    reason = "DeleteVM"
    failure = "deleting the VM from Harvester"


@dataclass(frozen=True, slots=True)
class DeleteNode(_MachineAction):
    """Delete the Node, and the Secret with its password, from the guest cluster."""

    reason = "DeleteNode"
    failure = "deleting the Node"

    node: str


@dataclass(frozen=True, slots=True)
class RemoveMachineFinalizer(_MachineAction):
    """Remove Windrow's finalizer from the Machine: nothing of it is left outside."""

    reason = "RemoveMachineFinalizer"
    failure = "removing the finalizer of the Machine"


ClusterAction = (
    AddFinalizer
    | CreateSecrets
    | RecordServiceAccount
    | CreateServiceAccount
    | CreateMachine
    | ElectInitServer
    | MarkInitialized
    | RecordGuestUID
    | PublishKubeconfig
    | DeleteServiceAccount
    | DeleteLoadBalancers
    | KeepLoadBalancers
    | DeleteSecrets
    | RemoveFinalizer
)
MachineAction = (
    ProvisionVM
    | StartVM
    | LabelNode
    | ScrubBootstrapData
    | DeleteMachine
    | CordonNode
    | EvictPods
    | RemoveEtcdMember
    | DeleteVM
    | DeleteNode
    | RemoveMachineFinalizer
)
Action = ClusterAction | MachineAction


# -- what is waited for, and what a sub-planner returns ----------------------------------------------------------


MAX_CLAUSE = 100


def first_clause(text: str) -> str:
    """The first clause of an explanation by another program, for sentences that are read at 80 columns."""
    head = text.split("\n")[0]
    for mark in (". ", ": "):
        if len(head) > MAX_CLAUSE and mark in head[20:]:
            head = head[: head.index(mark, 20)]
    return head if len(head) <= MAX_CLAUSE else head[: MAX_CLAUSE - 1].rstrip() + "…"


@dataclass(frozen=True, slots=True)
class Wait:
    """What is waited for, and what happens then. `machine` is "" for the cluster; `until` is when to reconcile again."""

    what: str
    then: str
    machine: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Disruption:
    """An action that takes something away from a running cluster; `disruptions.admit` alone decides about it.

    * `replace` — delete a machine that is unhealthy,
    * `scale-down` — delete a machine because fewer are wanted,
    * `remove-member` — remove the etcd member of a machine that is being deleted.
    """

    kind: Literal["replace", "scale-down", "remove-member"]
    machine: str
    action: DeleteMachine | RemoveEtcdMember

    @property
    def because(self) -> str:
        return self.action.because


@dataclass(frozen=True, slots=True)
class HeldDisruption:
    """A disruption that was not admitted, and why."""

    disruption: Disruption
    because: str
    until: datetime | None = None


@dataclass(slots=True)
class PartialPlan:
    """One sub-planner's share of the plan: actions, disruptions that need to be admitted, and waits."""

    actions: list[Action] = field(default_factory=list)
    disruptions: list[Disruption] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)

    def add(self, other: PartialPlan) -> PartialPlan:
        """Append what another sub-planner has planned; returns itself."""
        self.actions += other.actions
        self.disruptions += other.disruptions
        self.waits += other.waits
        return self
