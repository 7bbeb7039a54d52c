"""Orphans on Harvester: VMs that no Machine records, and what may be left of a deleted cluster when its last Machine is gone.

* LoadBalancers that the guest's cloud provider had created for services: a guest that is deleted as a whole deletes no
  Service, so Harvester keeps their addresses. They carry the cluster's name as a label, in the namespace of the guest's
  ServiceAccount.
* VirtualMachines with the cluster's uid that no Machine records: the management API was restored to an earlier state.
* PersistentVolumeClaims with the cluster's uid that still terminate, or whose VM is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.machine import is_machine_name
from windrow.clusters.api.status import GuestServiceAccount
from windrow.clusters.sources.volumes.dependents import Dependent
from windrow.clusters.sources.volumes.guest_volumes import VolumeClaim
from windrow.clusters.vm_addresses import NetworkAddress, configured_addresses, reported_addresses
from windrow.harvester.cloud_init_secret import read_cloud_init_secret, secret_ref
from windrow.harvester.names import (
    CLUSTER_UID,
    CREATOR,
    CREATOR_NODE_DRIVER,
    GUEST_CLUSTER,
    GUEST_UID,
    LB_OF_CLUSTER,
    MACHINE_UID,
    VM_NAME,
    is_label_value,
    label_value,
)
from windrow.harvester.resources import LOAD_BALANCER, VM
from windrow.harvester.vms import claim_volumes_of
from windrow.harvester.volumes import claim_name, vms_using
from windrow.kubernetes.objects import (
    MAX_SUBDOMAIN_LENGTH,
    annotations_of,
    finalizers_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
    time_of,
    uid_of,
)
from windrow.kubernetes.resources import PVC, ObjectRef


@dataclass(frozen=True, slots=True)
class OrphanLoadBalancer:
    """A LoadBalancer on Harvester with the cluster's name in its label. Empty texts stand for what is absent."""

    namespace: str
    name: str
    uid: str
    address: str = ""
    guest_uid: str = ""  # uid of the guest cluster, where its cloud provider annotates it
    created: datetime | None = None
    deletion_timestamp: datetime | None = None
    finalizers: tuple[str, ...] = ()

    @property
    def ref(self) -> ObjectRef:
        return LOAD_BALANCER.ref(self.name, self.namespace)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}{f' ({self.address})' if self.address else ''}"


@dataclass(frozen=True, slots=True)
class OrphanVm:
    """A VirtualMachine with a cluster's uid. `machine_uid` is that of the Machine that it was made for, `claims` are the
    names of its PersistentVolumeClaims.

    A clone on Harvester has the labels and annotations of the VM that it was made from. `unproven` says what is missing
    to prove that this VM itself was made for the cluster; such a one is neither adopted nor deleted.
    """

    namespace: str
    name: str
    uid: str
    machine_uid: str
    is_deleting: bool = False
    cluster_uid: str = ""
    unproven: str = ""
    claims: tuple[str, ...] = ()
    addresses: tuple[NetworkAddress, ...] = ()  # that it is told to have

    def is_same(self, other: OrphanVm) -> bool:
        """Whether it is that VM, made for the same machine, whatever else of it has changed."""
        return (self.uid, self.machine_uid, self.cluster_uid) == (
            other.uid,
            other.machine_uid,
            other.cluster_uid,
        )

    @property
    def ref(self) -> ObjectRef:
        return VM.ref(self.name, self.namespace)

    def __str__(self) -> str:
        return f"VirtualMachine {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ReportingVm:
    """A VM whose guest agent reports addresses, whatever it was made for; "" stands for a uid that it does not carry."""

    namespace: str
    name: str
    machine_uid: str
    cluster_uid: str
    addresses: tuple[NetworkAddress, ...]

    def __str__(self) -> str:
        return f"VirtualMachine {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class MachineClaim:
    """A PersistentVolumeClaim that was made for a machine. `is_used`: it is among the volumes of a VM.

    `unproven` says why it may be another's although it carries the uids; such a one is not deleted.
    """

    namespace: str
    name: str
    machine_uid: str
    cluster_uid: str
    is_deleting: bool = False
    finalizers: tuple[str, ...] = ()
    uid: str = ""
    is_used: bool = False
    unproven: str = ""

    @property
    def ref(self) -> ObjectRef:
        return PVC.ref(self.name, self.namespace)

    def __str__(self) -> str:
        held = f" (finalizers: {', '.join(self.finalizers)})" if self.finalizers else ""
        return f"PersistentVolumeClaim {self.namespace}/{self.name}{held}"


@dataclass(frozen=True, slots=True)
class Orphans:
    """What was listed, or in `unknown` why it could not be. `same_name_vms` are VMs of other clusters of the same name.

    `claims` are the PersistentVolumeClaims that terminate, with what holds them, `disks` those that no VM uses any more.
    """

    load_balancers: tuple[OrphanLoadBalancer, ...] = ()
    same_name_vms: tuple[str, ...] = ()
    vms: tuple[OrphanVm, ...] = ()
    claims: tuple[str, ...] = ()
    disks: tuple[MachineClaim, ...] = ()
    volumes: tuple[VolumeClaim, ...] = ()  # of the guest
    volume_dependents: tuple[Dependent, ...] = ()
    volume_dependents_unknown: str = ""  # why there may be more of them
    unknown: str = ""


def guest_account_of(cluster: Cluster) -> GuestServiceAccount | None:
    """Where the guest's cloud provider creates LoadBalancers, and the credential to list them; None where there can be none.

    It is recorded for an account that we created. With a credential of the user's it is the VM namespace, as long as
    there is a machine config.
    """
    recorded = cluster.recorded
    if not (recorded.init_server_uid or recorded.initialized) or not is_label_value(cluster.name):
        return None  # no machine was ever created
    if recorded.service_account is not None:
        return recorded.service_account
    if not cluster.cloud_config_secret or not any(pool.is_on_harvester for pool in cluster.pools):
        return None
    return GuestServiceAccount(cluster.vm_namespace, cluster.name, cluster.credential)


def location_of(cluster: Cluster) -> GuestServiceAccount | None:
    """Where its VMs are, also without a ServiceAccount there; None where none was ever created, or that is unknown."""
    account = guest_account_of(cluster)
    if account is None:
        recorded = cluster.recorded
        begun = bool(recorded.init_server_uid or recorded.initialized)
        if (
            not begun
            or not any(pool.is_on_harvester for pool in cluster.pools)
            or ":" not in cluster.credential
        ):
            return None
        account = GuestServiceAccount(cluster.vm_namespace, cluster.name, cluster.credential)
    return replace(account, harvester=account.harvester or cluster.recorded.harvester_uid)


def _uids_of(raw: Mapping[str, Any]) -> tuple[str, str]:
    """Those of the machine and of the cluster that the object was made for, "" where it names none."""
    annotations = annotations_of(raw)
    return annotations.get(MACHINE_UID, ""), annotations.get(CLUSTER_UID, "")


def read_cluster_vm(raw: Mapping[str, Any]) -> OrphanVm | None:
    """The reading; None for a VM that does not carry the uid of a cluster and of a machine."""
    machine_uid, cluster_uid = _uids_of(raw)
    if not (machine_uid and cluster_uid):
        return None
    name, made_as = name_of(raw), labels_of(raw).get(VM_NAME, "")
    unproven = (
        "" if made_as == name else f"its label {VM_NAME} is {made_as!r}, so it may be a copy of that VM"
    )
    claims = tuple(nested(claim, "claimName", default="") for claim in claim_volumes_of(raw))
    return OrphanVm(
        namespace_of(raw),
        name,
        uid_of(raw),
        machine_uid,
        is_deleting(raw),
        cluster_uid,
        unproven,
        claims,
        configured_addresses(raw),
    )


def read_reporting_vm(raw: Mapping[str, Any]) -> ReportingVm | None:
    """The reading of a VirtualMachineInstance; None for one that reports no address."""
    addresses = reported_addresses(raw)
    return ReportingVm(namespace_of(raw), name_of(raw), *_uids_of(raw), addresses) if addresses else None


def with_configured_addresses(
    vm: OrphanVm, raw: Mapping[str, Any], secret: Mapping[str, Any] | None
) -> OrphanVm:
    """The VM with the addresses of its network data, also where that is in the cloud-init Secret, as Go drivers have it."""
    in_secret = read_cloud_init_secret(secret).network_data if secret is not None else ""
    return replace(vm, addresses=configured_addresses(raw, in_secret))


def read_orphan_vm(raw: Mapping[str, Any], cluster: Cluster) -> OrphanVm | None:
    """The reading; None for a VM that does not carry the uid of this cluster and of a machine."""
    vm = read_cluster_vm(raw)
    return vm if vm is not None and vm.cluster_uid == cluster.uid else None


def prove_vm(vm: OrphanVm, cluster: Cluster, secret: Mapping[str, Any] | None) -> OrphanVm:
    """The VM with what its proof lacks, if anything. `secret` is the cloud-init Secret of its name.

    Of a VM that terminates the Secret may be gone before it, and one whose creation was cut off never had one; but they have
    disks whose names follow from its own.
    """
    if vm.unproven:
        return vm
    if not is_machine_name(cluster, vm.name):
        return replace(
            vm, unproven=f"Cluster {cluster.name} gives no machine such a name, so it may be a copy"
        )
    if secret is not None and read_cloud_init_secret(secret).owner_uid == vm.uid:
        return vm
    own = [_is_disk_of(vm.name, vm.machine_uid, name) for name in vm.claims]
    if secret is None and (any(own) if vm.is_deleting else own and all(own)):
        return vm
    what = f"Secret {secret_ref(vm.namespace, vm.name).name}"
    missing = f"{what} cannot be read" if secret is None else f"{what} belongs to another VM"
    return replace(vm, unproven=f"{missing}, so it may be a copy")


def read_machine_claim(raw: Mapping[str, Any]) -> MachineClaim | None:
    """The reading; None for a claim that does not carry the uids of a machine and of its cluster."""
    machine_uid, cluster_uid = _uids_of(raw)
    if not (machine_uid and cluster_uid):
        return None
    return MachineClaim(
        namespace_of(raw),
        name_of(raw),
        machine_uid,
        cluster_uid,
        is_deleting(raw),
        tuple(finalizers_of(raw)),
        uid_of(raw),
        is_used=bool(vms_using(raw)),
    )


def prove_claim(claim: MachineClaim, cluster: Cluster) -> MachineClaim:
    """The claim with what its proof lacks: the end of its name follows from its machine's name and uid.

    A copy has another name in the same namespace.
    """
    parts = claim.name.split("-") if len(claim.name) <= MAX_SUBDOMAIN_LENGTH else []
    for place in range(len(parts)):
        vm = "-".join(parts[:place])
        if _is_disk_of(vm, claim.machine_uid, claim.name) and is_machine_name(cluster, vm):
            return claim
    return replace(claim, unproven=f"Cluster {cluster.name} gives no disk such a name, so it may be a copy")


def is_claim_of(claim: MachineClaim, machine: str, uid: str) -> bool:
    """Whether the claim was made for this machine. A copy has its uid too, and another name."""
    return claim.machine_uid == uid and _is_disk_of(machine, uid, claim.name)


def _is_disk_of(vm: str, machine_uid: str, claim: str) -> bool:
    """Whether a disk of that VM of that machine has this name."""
    disk = claim.removeprefix(f"{vm}-").rpartition("-")[0]
    return claim_name(vm, disk, machine_uid) == claim


def without_claims_of(vms: Iterable[OrphanVm], claims: Iterable[MachineClaim]) -> list[MachineClaim]:
    """Those that are volumes of none of these VMs. Harvester's annotation on the claim, `is_used`, comes after the VM."""
    used = {(vm.namespace, name) for vm in vms for name in vm.claims}
    return [claim for claim in claims if (claim.namespace, claim.name) not in used]


def load_balancer_selector(cluster: str) -> str:
    """The selector that asks for all load balancers of a guest cluster of this name."""
    return f"{LB_OF_CLUSTER}={cluster}"


def read_orphan_load_balancer(
    raw: Mapping[str, Any], cluster: str, namespace: str
) -> OrphanLoadBalancer | None:
    """The reading; None for what is not a guest service's, of a cluster of exactly this name, in this namespace."""
    if labels_of(raw).get(LB_OF_CLUSTER, "") != cluster or namespace_of(raw) != namespace:
        return None
    if nested(raw, "spec", "workloadType") != "cluster":
        return None
    return OrphanLoadBalancer(
        namespace,
        name_of(raw),
        uid_of(raw),
        nested(raw, "status", "allocatedAddress", "ip") or nested(raw, "status", "address", default=""),
        annotations_of(raw).get(GUEST_UID, ""),
        time_of(raw, "metadata", "creationTimestamp"),
        time_of(raw, "metadata", "deletionTimestamp"),
        tuple(finalizers_of(raw)),
    )


def same_name_selectors(cluster: str) -> tuple[str, str]:
    """The selectors of VMs that may be of a cluster of this name: those with its label, and those from before the label."""
    return (
        f"{GUEST_CLUSTER}={label_value(cluster)}",
        f"{CREATOR}={CREATOR_NODE_DRIVER},!{GUEST_CLUSTER}",
    )


def belongs_to_same_name_cluster(vm: Mapping[str, Any], cluster: Cluster) -> bool:
    """Whether the VM belongs to another cluster of the same name.

    It is called `<cluster>-…` also where its driver was too old to label it with its cluster.
    """
    if annotations_of(vm).get(CLUSTER_UID, "") == cluster.uid:
        return False
    labelled = labels_of(vm).get(GUEST_CLUSTER)
    if labelled is None:
        return name_of(vm).startswith(f"{cluster.name}-")
    return labelled == label_value(cluster.name)
