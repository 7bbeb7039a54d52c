"""What the cluster controller may do, as values. Log line, event and test use the same value.

`subject` is the name of the Machine that an action is about, "" for the Cluster. Actions of one subject are executed
in the order of the plan; those of different machines side by side, after those of the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Literal

from windrow.client.events import EventType
from windrow.clusters.api.addresses import IPAddress
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.endpoint import EndpointBalancer, Purpose
from windrow.clusters.api.guest_volumes import GuestVolumes
from windrow.clusters.api.updates.maintenance import RecordedMaintenance
from windrow.clusters.api.updates.turn import MachineUpdate
from windrow.clusters.endpoint_balancer import ObservedBalancer
from windrow.clusters.orphans import MachineClaim, OrphanVm
from windrow.clusters.sources.volumes.dependents import Dependent
from windrow.clusters.sources.volumes.guest_volumes import VolumeClaim
from windrow.clusters.state import MachineState
from windrow.kubernetes.resources import ObjectRef


@dataclass(frozen=True)
class _Action:
    """What all actions have.

    `reason` is that of the event, part of the API: it never follows the class name. `done` begins the message of the
    event, as a format string of the `action`, its `cluster` and its `machine`; without it there is no event.
    `on_cluster` says whether the event of an action on a Machine is also recorded on the Cluster; `final` whether that on
    the Cluster is one of its last or of its main ones, which many events before it must not keep from being written.
    """

    because: str
    reason: ClassVar[str]
    done: ClassVar[str]
    event: ClassVar[EventType]
    on_cluster: ClassVar[bool]
    final: ClassVar[bool]

    def __init_subclass__(
        cls,
        reason: str = "",
        done: str = "",
        event: EventType = "Normal",
        on_cluster: bool = False,
        final: bool = False,
    ) -> None:
        cls.reason, cls.done, cls.event, cls.on_cluster, cls.final = reason, done, event, on_cluster, final

    @property
    def subject(self) -> str:
        return ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.because}"

    def message(self, cluster: Cluster, machine: MachineState | None) -> str:
        """What was done to which object, and why."""
        return f"{self.done.format(action=self, cluster=cluster, machine=machine)}: {self.because}"


@dataclass(frozen=True)
class _MachineAction(_Action):
    machine: str

    @property
    def subject(self) -> str:
        return self.machine


# -- about the cluster -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AddFinalizer(_Action, reason="AddFinalizer"):
    """Add Windrow's finalizer to the Cluster."""


@dataclass(frozen=True)
class CreateSecrets(_Action, reason="CreateSecrets", done="Created Secrets of {cluster}"):
    """Create the Secret with the certificate authorities and tokens of the cluster, once."""


@dataclass(frozen=True)
class RecordServiceAccount(_Action, reason="RecordServiceAccount"):
    """Record which ServiceAccount on Harvester is going to be created for the guest cluster."""

    namespace: str
    service_account: str
    credential: str


@dataclass(frozen=True)
class CreateServiceAccount(_Action, reason="CreateServiceAccount"):
    """Create the ServiceAccount for the guest cluster on Harvester, and keep its token."""


@dataclass(frozen=True)
class RecreateServiceAccount(
    _Action,
    reason="RecreateServiceAccount",
    done="Recreating ServiceAccount {cluster.recorded.service_account} on Harvester",
    event="Warning",
):
    """Give up the token of a ServiceAccount that is gone, and record which Machines hold it; a new one is created then."""

    machines: tuple[str, ...]


@dataclass(frozen=True)
class RecordHarvester(_Action, reason="RecordHarvester"):
    """Record which Harvester the cluster is on, before anything is made there."""

    credential: str


@dataclass(frozen=True)
class ReleaseUnusedAddresses(
    _Action,
    reason="ReleaseUnusedAddresses",
    done="Released IPAddresses of {cluster}",
    event="Warning",
):
    """Delete IPAddresses whose Machine does not exist any more."""

    addresses: tuple[IPAddress, ...]


@dataclass(frozen=True)
class RecordLoadBalancers(_Action, reason="RecordLoadBalancers"):
    """Record which LoadBalancers on Harvester are going to be created for the control plane endpoint."""

    namespace: str
    credential: str
    pool: str
    balancers: tuple[EndpointBalancer, ...]


@dataclass(frozen=True)
class CreateLoadBalancer(
    _Action,
    reason="CreateLoadBalancer",
    done="Created LoadBalancer {action.balancer} of {cluster} on Harvester",
):
    """Create a LoadBalancer on Harvester in front of the servers."""

    balancer: EndpointBalancer
    servers: tuple[str, ...]


@dataclass(frozen=True)
class RecordEndpointHost(
    _Action, reason="RecordEndpoint", done="Recorded endpoint {action.host} of {cluster}"
):
    """Record the address that a LoadBalancer was given: from now on it is that of the cluster."""

    purpose: Purpose
    host: str


@dataclass(frozen=True)
class UpdateLoadBalancer(_Action, reason="UpdateLoadBalancer"):
    """Name the VMs behind a LoadBalancer anew."""

    balancer: ObservedBalancer
    servers: tuple[str, ...]


@dataclass(frozen=True)
class DeleteEndpoint(_Action, reason="DeleteEndpoint", done="Deleted {action.balancer} of {cluster}"):
    """Delete a LoadBalancer of the control plane endpoint, with the address that it holds."""

    balancer: ObservedBalancer


@dataclass(frozen=True)
class ReserveMachineNames(_Action, reason="ReserveMachineNames"):
    """Record the names of the Machines that are going to be created, by compare-and-swap on the Cluster as observed.

    So a decision about an earlier state creates nothing, and two managers that follow the same decision create the same.
    """

    counts: tuple[tuple[str, int], ...]  # by pool


@dataclass(frozen=True)
class CreateMachine(_Action, reason="CreateMachine", done="Created Machine of pool {action.pool}"):
    """Create a Machine object, the record of a VM to be provisioned, under its reserved name."""

    pool: str
    name: str
    join_server: str = ""
    is_init_server: bool = False


@dataclass(frozen=True)
class AdoptVM(_Action, reason="AdoptVM", done="Adopted {action.vm} into pool {action.pool}", event="Warning"):
    """Create the Machine object of a VM of this Cluster that no Machine records."""

    vm: OrphanVm
    pool: str
    join_server: str = ""


@dataclass(frozen=True)
class ElectInitServer(
    _MachineAction, reason="ElectInitServer", done="Elected init server {action.machine}", on_cluster=True
):
    """Record the one machine that starts the cluster, and its version as the one that the cluster runs.

    At most one machine ever is, by compare-and-swap.
    """

    uid: str
    previous_uid: str = ""  # uid of the machine that was elected before


@dataclass(frozen=True)
class MarkInitialized(_Action, reason="MarkInitialized", done="Initialized {cluster}"):
    """Record that the guest API server has answered: from now on no machine starts the cluster again."""


@dataclass(frozen=True)
class RecordGuestUID(_Action, reason="RecordGuestUID"):
    """Record the uid of a guest cluster that did not report it when the cluster started."""


@dataclass(frozen=True)
class RecordImmutableConfig(_Action, reason="RecordImmutableConfig"):
    """Record what servers share of a cluster that began before that was recorded."""

    pool: str


@dataclass(frozen=True)
class PublishKubeconfig(_Action, reason="PublishKubeconfig", done="Published kubeconfig of {cluster}"):
    """Write the Secret with the admin kubeconfig."""

    server: str


@dataclass(frozen=True)
class DeleteServiceAccount(
    _Action,
    reason="DeleteServiceAccount",
    done="Deleted ServiceAccount {cluster.recorded.service_account} on Harvester",
):
    """Delete the ServiceAccount of the guest cluster on Harvester."""


@dataclass(frozen=True)
class DeleteLoadBalancers(
    _Action, reason="DeleteLoadBalancers", done="Deleted LoadBalancers of {cluster} on Harvester", final=True
):
    """Delete LoadBalancers on Harvester that services of the guest cluster had created, each with its uid."""

    load_balancers: tuple[tuple[ObjectRef, str], ...]


@dataclass(frozen=True)
class KeepLoadBalancers(
    _Action,
    reason="KeepLoadBalancers",
    done="Kept LoadBalancers of {cluster} on Harvester",
    event="Warning",
    final=True,
):
    """Report which LoadBalancers stay on Harvester although they carry the cluster's name."""


@dataclass(frozen=True)
class KeepVMs(
    _Action,
    reason="KeepVMs",
    done="Kept VirtualMachines of {cluster} on Harvester",
    event="Warning",
    final=True,
):
    """Report which VMs stay on Harvester with their disks although they carry the Cluster's uid."""


@dataclass(frozen=True)
class KeepClaims(
    _Action,
    reason="KeepClaims",
    done="Kept PersistentVolumeClaims of {cluster} on Harvester",
    event="Warning",
    final=True,
):
    """Report which disks stay on Harvester although they carry the Cluster's uid."""


@dataclass(frozen=True)
class DeleteUnrecordedVMs(
    _Action,
    reason="DeleteUnrecordedVMs",
    done="Deleted unrecorded VMs of {cluster}",
    event="Warning",
    final=True,
):
    """Delete VMs on Harvester that carry the uid of the deleted Cluster and that no Machine records."""

    vms: tuple[OrphanVm, ...]


@dataclass(frozen=True)
class DeleteUnrecordedClaims(
    _Action,
    reason="DeleteUnrecordedClaims",
    done="Deleted unrecorded disks of {cluster}",
    event="Warning",
    final=True,
):
    """Delete PersistentVolumeClaims on Harvester that were made for machines of the deleted Cluster that nothing records."""

    claims: tuple[MachineClaim, ...]


@dataclass(frozen=True)
class RecordVolumes(_Action, reason="RecordVolumes"):
    """Record the volumes of a guest cluster that is deleted, and their reclaim policies, while its API answers."""

    volumes: GuestVolumes


@dataclass(frozen=True)
class DeleteVolumes(
    _Action, reason="DeleteVolumes", done="Deleted volumes of {cluster} on Harvester", final=True
):
    """Delete PersistentVolumeClaims on Harvester that are volumes of the deleted guest cluster, and what was made of them, each with
    its uid."""

    claims: tuple[VolumeClaim | Dependent, ...]


@dataclass(frozen=True)
class KeepVolumes(_Action, reason="KeepVolumes", done="Kept volumes of {cluster} on Harvester", final=True):
    """Report which volumes stay on Harvester as their reclaim policy says."""


@dataclass(frozen=True)
class DeleteSecrets(_Action, reason="DeleteSecrets", done="Deleted Secrets of {cluster}", final=True):
    """Delete the Secrets of the cluster."""


@dataclass(frozen=True)
class RemoveFinalizer(_Action, reason="RemoveFinalizer", done="Removed finalizer of {cluster}", final=True):
    """Remove Windrow's finalizer from the Cluster."""


# -- about one machine -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClaimAddresses(_MachineAction, reason="ClaimAddresses"):
    """Create the IPAddresses of a machine: the record comes before the VM that has them."""

    addresses: tuple[IPAddress, ...]


@dataclass(frozen=True)
class ReleaseAddresses(_MachineAction, reason="ReleaseAddresses"):
    """Delete the IPAddresses of a machine that is gone."""

    addresses: tuple[IPAddress, ...]


@dataclass(frozen=True)
class ProvisionVM(_MachineAction, reason="ProvisionVM", done="Provisioned {machine.vm_ref}"):
    """Have the machine's VM created."""


@dataclass(frozen=True)
class StartVM(_MachineAction, reason="StartVM", done="Started {machine.vm_ref}", on_cluster=True):
    """Start a VM that is stopped."""


@dataclass(frozen=True)
class LabelNode(_MachineAction, reason="LabelNode"):
    """Set the labels of a Node that kubelet may not set itself."""

    node: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class ScrubBootstrapData(
    _MachineAction, reason="ScrubBootstrapData", done="Scrubbed bootstrap data of Machine {action.machine}"
):
    """Remove the secrets from what the machine reads at its next start."""


@dataclass(frozen=True)
class DeleteMachine(
    _MachineAction, reason="DeleteMachine", done="Deleted Machine {action.machine}", on_cluster=True
):
    """Delete the Machine object; its finalizer holds it until the VM is gone."""

    # The Machines whose etcd members the decision counts as healthy: their VMs are read again before it is executed.
    counted: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaintNode(
    _MachineAction,
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
    _MachineAction,
    reason="UntaintNode",
    done="Removed taint out-of-service of Node {action.node}",
    on_cluster=True,
):
    """Remove the taint out-of-service that the manager has set."""

    node: str
    uid: str


@dataclass(frozen=True)
class CordonNode(_MachineAction, reason="CordonNode", done="Cordoned Node {action.node}"):
    """Make the Node unschedulable."""

    node: str


@dataclass(frozen=True)
class EvictPods(_MachineAction, reason="EvictPods"):
    """Evict pods from the Node, as their PodDisruptionBudgets allow; or delete them, with no regard to these."""

    pods: tuple[tuple[str, str], ...]  # (namespace, name)
    deletes: bool = False


@dataclass(frozen=True)
class RemoveEtcdMember(
    _MachineAction,
    reason="RemoveEtcdMember",
    done="Requested removal of etcd member {action.node}",
    on_cluster=True,
):
    """Have the servers remove the machine's etcd member."""

    node: str
    counted: tuple[str, ...] = ()  # as of DeleteMachine


@dataclass(frozen=True)
class DeleteVM(_MachineAction, reason="DeleteVM", done="Requested deletion of {machine.vm_ref}"):
    """Have the VM deleted from Harvester, with the disks that were created with it."""


@dataclass(frozen=True)
class DeleteNode(_MachineAction, reason="DeleteNode", done="Deleted Node {action.node}"):
    """Delete the Node, and the Secret with its password, from the guest cluster."""

    node: str


@dataclass(frozen=True)
class DeleteNodePassword(_MachineAction, reason="DeleteNodePassword"):
    """Delete the Secret with the password of a Node that was not registered, from the guest cluster, where there is one."""


@dataclass(frozen=True)
class RemoveMachineFinalizer(
    _MachineAction, reason="RemoveMachineFinalizer", done="Removed finalizer of Machine {action.machine}"
):
    """Remove Windrow's finalizer from the Machine: nothing of it is left outside."""


# -- about what is done once ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OperationAction(_Action, reason="Operation"):
    """A step of what a user asks for once, such as a snapshot; each of them is in `operations/actions.py`."""


# -- hosts of Harvester in maintenance -------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordMaintenance(
    _MachineAction,
    reason="HostMaintenance",
    done="Holding repair of Machine {action.machine}",
    on_cluster=True,
):
    """Record that the host of the machine is in maintenance, before anything is done for that."""

    maintenance: RecordedMaintenance


@dataclass(frozen=True)
class RecordHostBack(_MachineAction, reason="RecordHostBack"):
    """Record when the host of the machine was found to be back."""

    maintenance: RecordedMaintenance


@dataclass(frozen=True)
class EndMaintenance(
    _MachineAction,
    reason="HostMaintenanceOver",
    done="Machine {action.machine} is over the maintenance of its host",
    on_cluster=True,
):
    """Uncordon the Node where it was cordoned for that, and forget the maintenance."""

    node: str
    uncordons: bool


# -- changes in place ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BeginUpdate(
    _MachineAction, reason="BeginUpdate", done="Began update of Machine {action.machine}", on_cluster=True
):
    """Record the change that is carried out on the machine, before anything is done."""

    update: MachineUpdate


@dataclass(frozen=True)
class MarkNode(_MachineAction, reason="MarkNode"):
    """Note on the Node that its files are about to change, so that it counts as up to date no more; cordon it where asked."""

    node: str
    cordons: bool


@dataclass(frozen=True)
class RecordUpdateStep(_MachineAction, reason="RecordUpdateStep"):
    """Record the next step of the turn of the machine."""

    update: MachineUpdate


@dataclass(frozen=True)
class ApplyUpdate(
    _MachineAction, reason="ApplyUpdate", done="Created Job {action.job} for Machine {action.machine}"
):
    """Create the Job in the guest that writes the machine's files and restarts its service, with its Secret."""

    job: str
    node: str


@dataclass(frozen=True)
class DeleteFormerJobs(_MachineAction, reason="DeleteFormerJobs"):
    """Delete the Jobs of former turns of the machine that do not run, with their Secrets."""

    present: str  # its Job now, which stays


@dataclass(frozen=True)
class PowerVM(
    _MachineAction,
    reason="PowerVM",
    done="Requested that the VM of Machine {action.machine} is {action.wanted}",
):
    """Stop or start the VM of a machine in its turn."""

    wanted: Literal["on", "off"]


@dataclass(frozen=True)
class EditVM(_MachineAction, reason="EditVM", done="Edited the VM of Machine {action.machine}"):
    """Give the VM what its pool asks for and a restart gives it, and record that, with the next step; or why it is refused."""

    version: str


@dataclass(frozen=True)
class FinishUpdate(
    _MachineAction, reason="FinishUpdate", done="Updated Machine {action.machine}", on_cluster=True
):
    """Uncordon the Node, record what the machine runs now, and end its turn."""

    node: str
    uncordons: bool


@dataclass(frozen=True)
class FailUpdate(
    _MachineAction,
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
    _MachineAction, reason="DropUpdate", done="Dropped update of Machine {action.machine}", on_cluster=True
):
    """End the turn of a machine on which nothing was changed yet."""

    node: str
    uncordons: bool


@dataclass(frozen=True)
class UpdateNode(_MachineAction, reason="UpdateNode", done="Updated labels and taints of Node {action.node}"):
    """Give the Node the labels and taints that its pool has now, take those away that it had, and record them."""

    node: str
    labels: Mapping[str, str | None]  # None: to be removed
    taints: tuple[str, ...]
    removed_taints: tuple[str, ...]
    former: Mapping[str, str] = field(default_factory=dict)  # labels that a restart would bring back


@dataclass(frozen=True)
class RecordVersion(_Action, reason="RecordVersion", done="{cluster} runs {action.version}"):
    """Record the version that all machines of the cluster run now."""

    version: str


@dataclass(frozen=True)
class RecordRunning(
    _MachineAction,
    reason="RecordRunning",
    done="Recorded that Machine {action.machine} runs {action.version}",
    event="Warning",
    on_cluster=True,
):
    """Record what the Node of the machine runs, where the record is older."""

    version: str


@dataclass(frozen=True)
class _ChartAction(_Action):
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


ClusterAction = (
    RelaxRollout
    | DeleteStalledPod
    | AddFinalizer
    | CreateSecrets
    | RecordServiceAccount
    | CreateServiceAccount
    | RecreateServiceAccount
    | RecordHarvester
    | ReleaseUnusedAddresses
    | RecordLoadBalancers
    | CreateLoadBalancer
    | RecordEndpointHost
    | UpdateLoadBalancer
    | DeleteEndpoint
    | ReserveMachineNames
    | CreateMachine
    | AdoptVM
    | ElectInitServer
    | MarkInitialized
    | RecordGuestUID
    | RecordImmutableConfig
    | PublishKubeconfig
    | DeleteServiceAccount
    | DeleteLoadBalancers
    | KeepLoadBalancers
    | KeepVMs
    | KeepClaims
    | DeleteUnrecordedVMs
    | DeleteUnrecordedClaims
    | RecordVolumes
    | DeleteVolumes
    | KeepVolumes
    | DeleteSecrets
    | RemoveFinalizer
    | RecordVersion
)
MaintenanceAction = RecordMaintenance | RecordHostBack | EndMaintenance
UpdateAction = (
    BeginUpdate
    | MarkNode
    | RecordUpdateStep
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
    | EvictPods
    | RemoveEtcdMember
    | DeleteVM
    | DeleteNode
    | DeleteNodePassword
    | RemoveMachineFinalizer
    | MaintenanceAction
    | UpdateAction
)
Action = ClusterAction | MachineAction | OperationAction


# -- what is waited for, and what a sub-planner returns ----------------------------------------------------------


MAX_CLAUSE = 100
_NO_HOST = re.compile(r"\d+/\d+ nodes are available: ")


def first_clause(text: str) -> str:
    """The first clause of an explanation by another program, for sentences that are read at 80 columns.

    It ends at a colon where it is too long; kube-scheduler's does not, since its reasons follow there.
    """
    head = text.split("\n")[0]
    for mark in (". ",) if _NO_HOST.match(head) else (". ", ": "):
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


DisruptionKind = Literal["replace", "scale-down", "remove-member", "update", "roll"]


@dataclass(frozen=True, slots=True)
class Disruption:
    """An action that takes something away from a running cluster; `disruptions.admit` alone decides about it.

    * `replace` — delete a machine that is unhealthy,
    * `scale-down` — delete a machine because fewer are wanted,
    * `roll` — delete a machine because one that is made as the Cluster asks now takes its place,
    * `remove-member` — remove the etcd member of a machine that is being deleted,
    * `update` — begin the turn of a machine whose service is restarted.
    """

    kind: DisruptionKind
    action: DeleteMachine | RemoveEtcdMember | BeginUpdate

    @property
    def machine(self) -> str:
        return self.action.machine


@dataclass(frozen=True, slots=True)
class HeldDisruption:
    """A disruption that was not admitted, and why. `hint`: the commands that end the wait, where only a person can."""

    disruption: Disruption
    because: str
    until: datetime | None = None
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.because}; {self.hint}" if self.hint else self.because


@dataclass(slots=True)
class PartialPlan:
    """One sub-planner's share of the plan: actions, disruptions that need to be admitted, and waits."""

    actions: list[Action] = field(default_factory=list)
    disruptions: list[Disruption] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)

    def wait(self, what: str, then: str, machine: str = "", until: datetime | None = None) -> None:
        self.waits.append(Wait(what, then, machine, until))

    def propose(self, kind: DisruptionKind, action: DeleteMachine | RemoveEtcdMember | BeginUpdate) -> None:
        self.disruptions.append(Disruption(kind, action))

    def add(self, other: PartialPlan) -> PartialPlan:
        """Append what another sub-planner has planned; returns itself."""
        self.actions += other.actions
        self.disruptions += other.disruptions
        self.waits += other.waits
        return self
