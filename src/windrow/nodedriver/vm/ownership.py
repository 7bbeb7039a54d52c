"""Whose VM it is that stands under a machine's name.

A machine of ours carries its uid on everything it made. The Go driver marks nothing: for a configuration that it
wrote, the labels it gives every VM have to do, and a VM with marks of ours is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from windrow.harvester.identity import is_owned_by, owner_annotations
from windrow.harvester.names import CLUSTER_UID, CREATOR, CREATOR_NODE_DRIVER, MACHINE_UID, VM_NAME
from windrow.harvester.problems import Problem
from windrow.harvester.vms import read_vm
from windrow.harvester.volumes import owned_claims, vms_using
from windrow.kubernetes.objects import annotations_of, labels_of, name_of, uid_of
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.errors import Refused

Owner = Literal["mine", "another's", "unclear"]


def owner_of(configuration: Configuration, raw_vm: Mapping[str, Any]) -> Owner:
    """ "another's" is a proof that this machine's own VM does not exist: a name belongs to one VM only.

    Without a uid on record there is no such proof: the Go driver also drops our keys from a record of ours.
    """
    if configuration.machine_uid:
        if is_owned_by(raw_vm, configuration.cluster_uid, configuration.machine_uid):
            return "mine"
        return "unclear" if uid_of(raw_vm) == configuration.vm_uid else "another's"
    labels = labels_of(raw_vm)
    has_driver_labels = (
        labels.get(CREATOR) == CREATOR_NODE_DRIVER and labels.get(VM_NAME) == configuration.machine_name
    )
    return "mine" if has_driver_labels and not _owner_annotations(raw_vm) else "unclear"


def require_owner(configuration: Configuration, raw_vm: Mapping[str, Any], *, creating: bool = False) -> None:
    """Return where the VM is this machine's. Raises Refused where it is not, or where nothing tells.

    `making` says that the machine is only to be made, under this name.
    """
    if problem := ownership_problem(configuration, raw_vm, creating=creating):
        raise Refused(problem)


def ownership_problem(
    configuration: Configuration, raw_vm: Mapping[str, Any], *, creating: bool = False
) -> Problem | None:
    """Why the VM may not be touched for this machine; None where it is its own."""
    match owner_of(configuration, raw_vm):
        case "unclear":
            return ownership_unknown(configuration, raw_vm)
        case "another's":
            return name_taken(configuration, raw_vm) if creating else owned_by_other(configuration, raw_vm)
        case "mine":
            return None


def ownership_unknown(configuration: Configuration, raw_vm: Mapping[str, Any] | None = None) -> Problem:
    """Nothing proves the VM to be this machine's, and nothing that it is not; so it is left alone."""
    described = f"VM {configuration.vm_namespace}/{configuration.machine_name}"
    forget = "delete this machine from its host's records"
    if configuration.machine_uid:
        return Problem(
            f"{described} is the one that was made for this machine, but its annotations do not say so any more",
            f"set {MACHINE_UID} to {configuration.machine_uid} and {CLUSTER_UID} to {configuration.cluster_uid} "
            "on it, or delete it by hand",
        )
    if found := _owner_annotations(raw_vm or {}):
        uid = found.get(MACHINE_UID, "")
        return Problem(
            f"{described} was made for the machine with the uid {uid}, and this machine's record names no uid",
            f'put "WindrowMachineUID": "{uid}" into the record if it is the same machine, else {forget}',
        )
    return Problem(
        f"{described} does not bear the label {CREATOR}: {CREATOR_NODE_DRIVER} that this machine's VM was given",
        f"put the label back if it is this machine's VM, else {forget}",
    )


def _owner_annotations(raw_vm: Mapping[str, Any]) -> dict[str, str]:
    found = annotations_of(raw_vm)
    return {name: found[name] for name in (MACHINE_UID, CLUSTER_UID) if name in found}


def owned_by_other(configuration: Configuration, raw_vm: Mapping[str, Any]) -> Problem:
    """Another has the name of a machine that was made, so its own VM is gone."""
    return Problem(_describe_owner(configuration, raw_vm), "replace this machine: its own VM is gone", "name")


def name_taken(configuration: Configuration, raw_vm: Mapping[str, Any]) -> Problem:
    """Another has the name that a new machine is to get."""
    return Problem(
        _describe_owner(configuration, raw_vm),
        "choose another name, or remove that VM",
        "name",
        go=f"machine {configuration.machine_name} already exists in namespace {configuration.vm_namespace}",
    )


def _describe_owner(configuration: Configuration, raw_vm: Mapping[str, Any]) -> str:
    creator = labels_of(raw_vm).get(CREATOR) or "somebody unknown"
    uid = annotations_of(raw_vm).get(MACHINE_UID)
    machine = f", for machine {uid}" if uid else ""
    return (
        f"a VM {configuration.vm_namespace}/{configuration.machine_name} exists and is not this machine's: "
        f"it was made by {creator}{machine}"
    )


def claims_to_delete(configuration: Configuration, raw_vm: Mapping[str, Any]) -> frozenset[str]:
    """The claims that its VM takes along when it goes: those it was made with, and that are still in it.

    The Go driver does not record what it made; for its VMs these are all disks but the hot-pluggable ones, as it
    does itself.
    """
    vm = read_vm(raw_vm)
    if not configuration.machine_uid:
        return frozenset(vm.claims) - vm.hotplugged
    annotated = owned_claims(raw_vm, configuration.cluster_uid, configuration.machine_uid)
    return (annotated | frozenset(configuration.claims)) & frozenset(vm.claims)


def claims_owned_by_others(
    configuration: Configuration, raw_claims: Iterable[Mapping[str, Any]]
) -> frozenset[str]:
    """Those of the claims that another machine or cluster has marked, or that stand in another VM.

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
