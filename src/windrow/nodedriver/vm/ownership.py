"""The owner of the VM that has a machine's name.

This driver annotates everything it creates with the machine's uid. The Go driver annotates nothing, and drops the uid
from each config.json that it saves. For a configuration without any uid the name and namespace must do, with the labels
that both drivers give every VM, and the SSH key, which both keep in config.json: its digest is on the VM. A VM that a
cluster manager annotated is not touched, since that has records of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from windrow.harvester.identity import is_owned_by, owner_annotations, ssh_key_digest
from windrow.harvester.names import (
    CLUSTER_UID,
    CREATOR,
    CREATOR_NODE_DRIVER,
    GUEST_CLUSTER,
    MACHINE_UID,
    SSH_KEY,
    VM_NAME,
    label_value,
)
from windrow.harvester.problems import Problem
from windrow.harvester.vms import read_vm
from windrow.harvester.volumes import owned_claims, vms_using
from windrow.kubernetes.objects import annotations_of, labels_of, name_of, uid_of
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.errors import Refused

Owner = Literal["this machine", "another", "unknown"]


def owner_of(configuration: Configuration, raw_vm: Mapping[str, Any]) -> Owner:
    """Who owns the VM. "another" proves that this machine's own VM does not exist: a name belongs to one VM only.

    Without a recorded machine uid, which the Go driver drops from config.json, only another SSH key is such a proof.
    """
    if configuration.machine_uid:
        if is_owned_by(raw_vm, configuration.cluster_uid, configuration.machine_uid):
            return "this machine"
        return "unknown" if uid_of(raw_vm) == configuration.vm_uid else "another"
    found = _owner_annotations(raw_vm)
    if CLUSTER_UID in found or not _has_driver_labels(configuration, raw_vm):
        return "unknown"
    if _has_another_key(configuration, raw_vm):
        return "another"
    return "this machine" if not found or _is_in_cluster(configuration, raw_vm) else "unknown"


def with_uid_of(configuration: Configuration, raw_vm: Mapping[str, Any]) -> Configuration:
    """The configuration with the machine uid of its own VM, where the Go driver dropped it from config.json."""
    if owner_of(configuration, raw_vm) != "this machine":
        return configuration
    return replace(configuration, machine_uid=annotations_of(raw_vm).get(MACHINE_UID, ""))


def _has_driver_labels(configuration: Configuration, raw_vm: Mapping[str, Any]) -> bool:
    """Whether a node driver made the VM for a machine of this name."""
    labels = labels_of(raw_vm)
    return labels.get(CREATOR) == CREATOR_NODE_DRIVER and labels.get(VM_NAME) == configuration.machine_name


def _has_another_key(configuration: Configuration, raw_vm: Mapping[str, Any]) -> bool:
    """Whether the VM was created for a machine with another SSH key. A host makes one for each machine, before its VM."""
    recorded, found = ssh_key_digest(configuration.ssh_public_key), annotations_of(raw_vm).get(SSH_KEY)
    return bool(recorded and found) and recorded != found


def _is_in_cluster(configuration: Configuration, raw_vm: Mapping[str, Any]) -> bool:
    """Whether it is a machine of the cluster that config.json names; every driver keeps that."""
    cluster = label_value(configuration.cluster_name) if configuration.cluster_name else ""
    return (labels_of(raw_vm).get(GUEST_CLUSTER) or "") == cluster


def require_owner(configuration: Configuration, raw_vm: Mapping[str, Any], *, creating: bool = False) -> None:
    """Return where the VM is this machine's. Raises Refused where it is not, or where its owner is unknown.

    `creating`: the machine is to be created under this name.
    """
    if problem := ownership_problem(configuration, raw_vm, creating=creating):
        raise Refused(problem)


def ownership_problem(
    configuration: Configuration, raw_vm: Mapping[str, Any], *, creating: bool = False
) -> Problem | None:
    """Why the VM may not be touched for this machine; None where it is its own."""
    match owner_of(configuration, raw_vm):
        case "unknown":
            return ownership_unknown(configuration, raw_vm)
        case "another":
            return name_taken(configuration, raw_vm) if creating else owned_by_other(configuration, raw_vm)
        case "this machine":
            return None


def ownership_unknown(configuration: Configuration, raw_vm: Mapping[str, Any]) -> Problem:
    """The problem of a VM whose owner is "unknown": it may be this machine's and may not, and is not touched."""
    described = f"VM {configuration.vm_namespace}/{configuration.machine_name}"
    forget = "delete this machine from its host's records"
    if configuration.machine_uid:
        return Problem(
            f"{described} has the uid recorded for this machine, but not its owner annotations",
            f"set {MACHINE_UID} to {configuration.machine_uid} and {CLUSTER_UID} to {configuration.cluster_uid} "
            "on it, or delete it by hand",
        )
    found = _owner_annotations(raw_vm)
    if CLUSTER_UID in found or _has_driver_labels(configuration, raw_vm):
        uid = found.get(MACHINE_UID, "")
        return Problem(
            f"{described} was created for the machine with uid {uid}, and this machine's config.json has no uid",
            f'put "WindrowMachineUID": "{uid}" into config.json if it is the same machine, else {forget}',
        )
    return Problem(
        f"{described} lacks the label {CREATOR}: {CREATOR_NODE_DRIVER}, which this machine's VM was given",
        f"put the label back if it is this machine's VM, else {forget}",
    )


def _owner_annotations(raw_vm: Mapping[str, Any]) -> dict[str, str]:
    found = annotations_of(raw_vm)
    return {name: found[name] for name in (MACHINE_UID, CLUSTER_UID) if name in found}


def owned_by_other(configuration: Configuration, raw_vm: Mapping[str, Any]) -> Problem:
    """Another machine's VM has the name of this machine, so its own VM is gone."""
    return Problem(_describe_owner(configuration, raw_vm), "replace this machine: its own VM is gone", "name")


def name_taken(configuration: Configuration, raw_vm: Mapping[str, Any]) -> Problem:
    """Another VM has the name of the machine to be created."""
    return Problem(
        _describe_owner(configuration, raw_vm),
        "choose another name, or remove that VM",
        "name",
        go=f"machine {configuration.machine_name} already exists in namespace {configuration.vm_namespace}",
    )


def _describe_owner(configuration: Configuration, raw_vm: Mapping[str, Any]) -> str:
    creator = labels_of(raw_vm).get(CREATOR) or "an unknown program"
    uid = annotations_of(raw_vm).get(MACHINE_UID)
    machine = f", for machine {uid}" if uid else ""
    return (
        f"a VM {configuration.vm_namespace}/{configuration.machine_name} exists and is not this machine's: "
        f"it was created by {creator}{machine}"
    )


def claims_to_delete(configuration: Configuration, raw_vm: Mapping[str, Any]) -> frozenset[str]:
    """The claims to delete with the VM: those it was created with, and that are still in it.

    The Go driver records none; for its VMs these are all disks but the hot-pluggable ones, as it does itself.
    """
    vm = read_vm(raw_vm)
    configuration = with_uid_of(configuration, raw_vm)
    if not configuration.machine_uid:
        return frozenset(vm.claims) - vm.hotplugged
    annotated = owned_claims(raw_vm, configuration.cluster_uid, configuration.machine_uid)
    return (annotated | frozenset(configuration.claims)) & frozenset(vm.claims)


def claims_owned_by_others(
    configuration: Configuration, raw_claims: Iterable[Mapping[str, Any]]
) -> frozenset[str]:
    """Those of the claims that carry the owner annotations of another machine or cluster, or that are in another VM.

    The label with a cluster's name proves little: two managers may have a cluster of one name in one namespace. A
    volume in another VM of the same cluster goes with that one.
    """
    return frozenset(name_of(claim) for claim in raw_claims if _is_owned_by_other(configuration, claim))


def _is_owned_by_other(configuration: Configuration, raw_claim: Mapping[str, Any]) -> bool:
    ours = owner_annotations(configuration.cluster_uid, configuration.machine_uid)
    if any(ours.get(name, "") != uid for name, uid in _owner_annotations(raw_claim).items()):
        return True
    vms = vms_using(raw_claim)
    return bool(vms) and f"{configuration.vm_namespace}/{configuration.machine_name}" not in vms
