"""Actions about the Cluster and what belongs to it."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.clusters.api.addresses import IPAddress
from windrow.clusters.api.endpoint import EndpointBalancer, Purpose
from windrow.clusters.api.guest_volumes import GuestVolumes
from windrow.clusters.endpoint_balancer import ObservedBalancer
from windrow.clusters.orphans import MachineClaim, OrphanVm
from windrow.clusters.plan.actions.base import ActionBase, MachineActionBase
from windrow.clusters.plan.actions.updates import DeleteStalledPod, RecordVersion, RelaxRollout
from windrow.clusters.sources.volumes.dependents import Dependent
from windrow.clusters.sources.volumes.guest_volumes import VolumeClaim
from windrow.kubernetes.resources import ObjectRef


@dataclass(frozen=True)
class AddFinalizer(ActionBase, reason="AddFinalizer"):
    """Add Windrow's finalizer to the Cluster."""


@dataclass(frozen=True)
class CreateSecrets(ActionBase, reason="CreateSecrets", done="Created Secrets of {cluster}"):
    """Create the Secret with the certificate authorities and tokens of the cluster, once."""


@dataclass(frozen=True)
class RecordServiceAccount(ActionBase, reason="RecordServiceAccount"):
    """Record which ServiceAccount on Harvester is going to be created for the guest cluster."""

    namespace: str
    service_account: str
    credential: str


@dataclass(frozen=True)
class CreateServiceAccount(ActionBase, reason="CreateServiceAccount"):
    """Create the ServiceAccount for the guest cluster on Harvester, and keep its token."""


@dataclass(frozen=True)
class RecreateServiceAccount(
    ActionBase,
    reason="RecreateServiceAccount",
    done="Recreating ServiceAccount {cluster.recorded.service_account} on Harvester",
    event="Warning",
):
    """Give up the token of a ServiceAccount that is gone, and record which Machines hold it; a new one is created then."""

    machines: tuple[str, ...]


@dataclass(frozen=True)
class RecordHarvester(ActionBase, reason="RecordHarvester"):
    """Record which Harvester the cluster is on, before anything is made there."""

    credential: str


@dataclass(frozen=True)
class ReleaseUnusedAddresses(
    ActionBase,
    reason="ReleaseUnusedAddresses",
    done="Released IPAddresses of {cluster}",
    event="Warning",
):
    """Delete IPAddresses whose Machine does not exist any more."""

    addresses: tuple[IPAddress, ...]


@dataclass(frozen=True)
class RecordLoadBalancers(ActionBase, reason="RecordLoadBalancers"):
    """Record which LoadBalancers on Harvester are going to be created for the control plane endpoint."""

    namespace: str
    credential: str
    pool: str
    balancers: tuple[EndpointBalancer, ...]


@dataclass(frozen=True)
class CreateLoadBalancer(
    ActionBase,
    reason="CreateLoadBalancer",
    done="Created LoadBalancer {action.balancer} of {cluster} on Harvester",
):
    """Create a LoadBalancer on Harvester in front of the servers."""

    balancer: EndpointBalancer
    servers: tuple[str, ...]


@dataclass(frozen=True)
class RecordEndpointHost(
    ActionBase, reason="RecordEndpoint", done="Recorded endpoint {action.host} of {cluster}"
):
    """Record the address that a LoadBalancer was given: from now on it is that of the cluster."""

    purpose: Purpose
    host: str


@dataclass(frozen=True)
class UpdateLoadBalancer(ActionBase, reason="UpdateLoadBalancer"):
    """Name the VMs behind a LoadBalancer anew."""

    balancer: ObservedBalancer
    servers: tuple[str, ...]


@dataclass(frozen=True)
class DeleteEndpoint(ActionBase, reason="DeleteEndpoint", done="Deleted {action.balancer} of {cluster}"):
    """Delete a LoadBalancer of the control plane endpoint, with the address that it holds."""

    balancer: ObservedBalancer


@dataclass(frozen=True)
class ReserveMachineNames(ActionBase, reason="ReserveMachineNames"):
    """Record the names of the Machines that are going to be created, by compare-and-swap on the Cluster as observed.

    So a decision about an earlier state creates nothing, and two managers that follow the same decision create the same.
    """

    counts: tuple[tuple[str, int], ...]  # by pool


@dataclass(frozen=True)
class CreateMachine(ActionBase, reason="CreateMachine", done="Created Machine of pool {action.pool}"):
    """Create a Machine object, the record of a VM to be provisioned, under its reserved name."""

    pool: str
    name: str
    join_server: str = ""
    is_init_server: bool = False


@dataclass(frozen=True)
class AdoptVM(
    ActionBase, reason="AdoptVM", done="Adopted {action.vm} into pool {action.pool}", event="Warning"
):
    """Create the Machine object of a VM of this Cluster that no Machine records."""

    vm: OrphanVm
    pool: str
    join_server: str = ""


@dataclass(frozen=True)
class ElectInitServer(
    MachineActionBase, reason="ElectInitServer", done="Elected init server {action.machine}", on_cluster=True
):
    """Record the one machine that starts the cluster, and its version as the one that the cluster runs.

    At most one machine ever is, by compare-and-swap.
    """

    uid: str
    previous_uid: str = ""  # uid of the machine that was elected before


@dataclass(frozen=True)
class MarkInitialized(ActionBase, reason="MarkInitialized", done="Initialized {cluster}"):
    """Record that the guest API server has answered: from now on no machine starts the cluster again."""


@dataclass(frozen=True)
class RecordGuestUID(ActionBase, reason="RecordGuestUID"):
    """Record the uid of a guest cluster that did not report it when the cluster started."""


@dataclass(frozen=True)
class RecordImmutableConfig(ActionBase, reason="RecordImmutableConfig"):
    """Record what servers share of a cluster that began before that was recorded."""

    pool: str


@dataclass(frozen=True)
class PublishKubeconfig(ActionBase, reason="PublishKubeconfig", done="Published kubeconfig of {cluster}"):
    """Write the Secret with the admin kubeconfig."""

    server: str


@dataclass(frozen=True)
class DeleteServiceAccount(
    ActionBase,
    reason="DeleteServiceAccount",
    done="Deleted ServiceAccount {cluster.recorded.service_account} on Harvester",
):
    """Delete the ServiceAccount of the guest cluster on Harvester."""


@dataclass(frozen=True)
class DeleteLoadBalancers(
    ActionBase,
    reason="DeleteLoadBalancers",
    done="Deleted LoadBalancers of {cluster} on Harvester",
    final=True,
):
    """Delete LoadBalancers on Harvester that services of the guest cluster had created, each with its uid."""

    load_balancers: tuple[tuple[ObjectRef, str], ...]


@dataclass(frozen=True)
class KeepLoadBalancers(
    ActionBase,
    reason="KeepLoadBalancers",
    done="Kept LoadBalancers of {cluster} on Harvester",
    event="Warning",
    final=True,
):
    """Report which LoadBalancers stay on Harvester although they carry the cluster's name."""


@dataclass(frozen=True)
class KeepVMs(
    ActionBase,
    reason="KeepVMs",
    done="Kept VirtualMachines of {cluster} on Harvester",
    event="Warning",
    final=True,
):
    """Report which VMs stay on Harvester with their disks although they carry the Cluster's uid."""


@dataclass(frozen=True)
class KeepClaims(
    ActionBase,
    reason="KeepClaims",
    done="Kept PersistentVolumeClaims of {cluster} on Harvester",
    event="Warning",
    final=True,
):
    """Report which disks stay on Harvester although they carry the Cluster's uid."""


@dataclass(frozen=True)
class DeleteUnrecordedVMs(
    ActionBase,
    reason="DeleteUnrecordedVMs",
    done="Deleted unrecorded VMs of {cluster}",
    event="Warning",
    final=True,
):
    """Delete VMs on Harvester that carry the uid of the deleted Cluster and that no Machine records."""

    vms: tuple[OrphanVm, ...]


@dataclass(frozen=True)
class DeleteUnrecordedClaims(
    ActionBase,
    reason="DeleteUnrecordedClaims",
    done="Deleted unrecorded disks of {cluster}",
    event="Warning",
    final=True,
):
    """Delete PersistentVolumeClaims on Harvester that were made for machines of the deleted Cluster that nothing records."""

    claims: tuple[MachineClaim, ...]


@dataclass(frozen=True)
class RecordVolumes(ActionBase, reason="RecordVolumes"):
    """Record the volumes of a guest cluster that is deleted, and their reclaim policies, while its API answers."""

    volumes: GuestVolumes


@dataclass(frozen=True)
class DeleteVolumes(
    ActionBase, reason="DeleteVolumes", done="Deleted volumes of {cluster} on Harvester", final=True
):
    """Delete PersistentVolumeClaims on Harvester that are volumes of the deleted guest cluster, and what was made of them, each with
    its uid."""

    claims: tuple[VolumeClaim | Dependent, ...]


@dataclass(frozen=True)
class KeepVolumes(
    ActionBase, reason="KeepVolumes", done="Kept volumes of {cluster} on Harvester", final=True
):
    """Report which volumes stay on Harvester as their reclaim policy says."""


@dataclass(frozen=True)
class DeleteSecrets(ActionBase, reason="DeleteSecrets", done="Deleted Secrets of {cluster}", final=True):
    """Delete the Secrets of the cluster."""


@dataclass(frozen=True)
class RemoveFinalizer(
    ActionBase, reason="RemoveFinalizer", done="Removed finalizer of {cluster}", final=True
):
    """Remove Windrow's finalizer from the Cluster."""


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
