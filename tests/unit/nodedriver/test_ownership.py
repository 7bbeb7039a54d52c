"""Whose a VM is, and which claims go with it: the table of everything that is recorded and found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windrow.core.formats.json import dumps
from windrow.harvester.identity import owner_annotations, ssh_key_digest
from windrow.harvester.names import (
    CLUSTER_UID,
    CREATOR,
    CREATOR_NODE_DRIVER,
    GUEST_CLUSTER,
    MACHINE_UID,
    OWNED_BY,
    SSH_KEY,
    VM_NAME,
)
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.vm.ownership import (
    claims_owned_by_others,
    claims_to_delete,
    owner_of,
    ownership_problem,
    require_owner,
    with_uid_of,
)

KEY, OTHER_KEY = "ssh-rsa QkJC", "ssh-rsa QUFB"
OURS = Configuration(
    machine_name="m", vm_namespace="ns", cluster_name="c", machine_uid="m-1", cluster_uid="c-1", vm_uid="vm-1"
)
# As the Go driver leaves config.json: without uids.
BARE = Configuration(machine_name="m", vm_namespace="ns", cluster_name="c", ssh_public_key=KEY)
LABELS = {CREATOR: CREATOR_NODE_DRIVER, VM_NAME: "m", GUEST_CLUSTER: "c"}


def a_vm(
    annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, uid: str = "vm-1"
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "m",
            "namespace": "ns",
            "uid": uid,
            "annotations": annotations or {},
            "labels": LABELS if labels is None else labels,
        }
    }


MARKED = owner_annotations("c-1", "m-1")


@pytest.mark.parametrize(
    ("raw_vm", "owner"),
    [
        (a_vm(MARKED), "this machine"),
        (a_vm(MARKED, uid="vm-2"), "this machine"),
        (a_vm(owner_annotations("c-1", "m-2")), "unknown"),
        (a_vm(owner_annotations("c-2", "m-1")), "unknown"),
        (a_vm(), "unknown"),
        (a_vm(owner_annotations("c-1", "m-2"), uid="vm-2"), "another"),
        (a_vm(owner_annotations("c-2", "m-1"), uid="vm-2"), "another"),
        (a_vm(uid="vm-2"), "another"),
    ],
)
def test_with_a_recorded_uid_only_its_annotations_prove_a_vm(raw_vm: Any, owner: str) -> None:
    assert owner_of(OURS, raw_vm) == owner


def keyed(key: str) -> dict[str, str]:
    return {SSH_KEY: ssh_key_digest(key)}


OTHER_CLUSTER = {**LABELS, GUEST_CLUSTER: "d"}
NO_CLUSTER = {CREATOR: CREATOR_NODE_DRIVER, VM_NAME: "m"}


@pytest.mark.parametrize(
    ("raw_vm", "owner"),
    [
        (a_vm(), "this machine"),
        (a_vm(labels=OTHER_CLUSTER), "this machine"),
        (a_vm(keyed(KEY)), "this machine"),
        (a_vm(keyed(OTHER_KEY)), "another"),
        (a_vm({MACHINE_UID: "m-9"}), "this machine"),
        (a_vm({MACHINE_UID: "m-9"}, OTHER_CLUSTER), "unknown"),
        (a_vm({MACHINE_UID: "m-9"}, NO_CLUSTER), "unknown"),
        (a_vm({MACHINE_UID: "m-9", **keyed(OTHER_KEY)}), "another"),
        (a_vm({CLUSTER_UID: "c-9"}), "unknown"),
        (a_vm({CLUSTER_UID: "c-9", **keyed(OTHER_KEY)}), "unknown"),
        (a_vm(labels={}), "unknown"),
        (a_vm(keyed(OTHER_KEY), labels={}), "unknown"),
        (a_vm(labels={**LABELS, CREATOR: "harvester"}), "unknown"),
        (a_vm(labels={**LABELS, VM_NAME: "another"}), "unknown"),
    ],
)
def test_without_a_recorded_uid_labels_key_and_cluster_tell(raw_vm: Any, owner: str) -> None:
    assert owner_of(BARE, raw_vm) == owner


def test_without_a_key_no_key_is_another_and_without_a_cluster_no_cluster_is_the_same() -> None:
    assert owner_of(replace(BARE, ssh_public_key=""), a_vm(keyed(OTHER_KEY))) == "this machine"
    alone = replace(BARE, cluster_name="")
    assert owner_of(alone, a_vm({MACHINE_UID: "m-9"}, NO_CLUSTER)) == "this machine"
    assert owner_of(alone, a_vm({MACHINE_UID: "m-9"})) == "unknown"


@pytest.mark.parametrize(
    ("configuration", "raw_vm", "uid"),
    [
        (OURS, a_vm(owner_annotations("c-1", "m-2")), "m-1"),
        (BARE, a_vm({MACHINE_UID: "m-9"}), "m-9"),
        (BARE, a_vm(), ""),
        (BARE, a_vm({MACHINE_UID: "m-9"}, OTHER_CLUSTER), ""),
    ],
)
def test_a_dropped_uid_is_taken_from_the_machines_own_vm_only(
    configuration: Configuration, raw_vm: Any, uid: str
) -> None:
    assert with_uid_of(configuration, raw_vm).machine_uid == uid


@pytest.mark.parametrize(
    ("configuration", "raw_vm", "message", "hint"),
    [
        (
            OURS,
            a_vm(),
            "VM ns/m has the uid recorded for this machine, but not its owner annotations",
            f"set {MACHINE_UID} to m-1 and {CLUSTER_UID} to c-1 on it, or delete it by hand",
        ),
        (
            BARE,
            a_vm({MACHINE_UID: "m-9"}, OTHER_CLUSTER),
            "VM ns/m was created for the machine with uid m-9, and this machine's config.json has no uid",
            'put "WindrowMachineUID": "m-9" into config.json if it is the same machine, else delete this machine from its '
            "host's records",
        ),
        (
            BARE,
            a_vm({CLUSTER_UID: "c-9", MACHINE_UID: "m-9"}, {}),
            "VM ns/m was created for the machine with uid m-9, and this machine's config.json has no uid",
            'put "WindrowMachineUID": "m-9" into config.json if it is the same machine, else delete this machine from its '
            "host's records",
        ),
        (
            BARE,
            a_vm({MACHINE_UID: "m-9"}, {}),
            f"VM ns/m lacks the label {CREATOR}: {CREATOR_NODE_DRIVER}, which this machine's VM was given",
            "put the label back if it is this machine's VM, else delete this machine from its host's records",
        ),
        (
            BARE,
            a_vm(keyed(OTHER_KEY)),
            f"a VM ns/m exists and is not this machine's: it was created by {CREATOR_NODE_DRIVER}",
            "replace this machine: its own VM is gone",
        ),
        (
            OURS,
            a_vm(owner_annotations("c-1", "m-2"), {}, "vm-2"),
            "a VM ns/m exists and is not this machine's: it was created by an unknown program, for machine m-2",
            "replace this machine: its own VM is gone",
        ),
    ],
)
def test_a_vm_that_is_not_proven_is_refused_with_the_way_out(
    configuration: Configuration, raw_vm: Any, message: str, hint: str
) -> None:
    problem = ownership_problem(configuration, raw_vm)
    assert problem is not None
    assert (problem.message, problem.hint) == (message, hint)
    with pytest.raises(Refused):
        require_owner(configuration, raw_vm)


def test_a_taken_name_is_said_as_the_go_driver_says_it_while_creating_only() -> None:
    another = a_vm(uid="vm-2")
    taken, gone = ownership_problem(OURS, another, creating=True), ownership_problem(OURS, another)
    assert taken is not None
    assert gone is not None
    assert (taken.field, taken.hint) == ("name", "choose another name, or remove that VM")
    assert (taken.go, gone.go) == ("machine m already exists in namespace ns", "")
    with pytest.raises(Refused, match="choose another name"):
        require_owner(OURS, another, creating=True)
    with pytest.raises(Refused, match="replace this machine"):
        require_owner(OURS, another)
    assert ownership_problem(OURS, a_vm(MARKED)) is None
    assert ownership_problem(OURS, a_vm(MARKED), creating=True) is None


# -- claims


def with_disks(raw_vm: dict[str, Any]) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [
        {"name": n, "persistentVolumeClaim": {"claimName": n}} for n in ("own", "csi")
    ]
    volumes.append({"name": "hot", "persistentVolumeClaim": {"claimName": "hot", "hotpluggable": True}})
    return {**raw_vm, "spec": {"template": {"spec": {"volumes": volumes}}}}


@pytest.mark.parametrize(
    ("configuration", "raw_vm", "claims"),
    [
        (replace(OURS, claims=("own", "moved")), a_vm(MARKED), {"own"}),
        (OURS, a_vm(MARKED), set()),
        (BARE, a_vm(), {"own", "csi"}),
        (BARE, a_vm({MACHINE_UID: "m-9"}), set()),
        (replace(BARE, claims=("own",)), a_vm({MACHINE_UID: "m-9"}), {"own"}),
    ],
)
def test_the_claims_that_go_with_a_vm(configuration: Configuration, raw_vm: Any, claims: set[str]) -> None:
    assert claims_to_delete(configuration, with_disks(raw_vm)) == claims


def a_claim(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": annotations}}


def in_vms(*vms: str) -> dict[str, str]:
    return {OWNED_BY: dumps([{"schema": "kubevirt.io.virtualmachine", "refs": list(vms)}]).decode()}


def test_claims_of_other_machines_and_in_other_vms_are_others() -> None:
    claims = {
        "plain": {},
        "own": MARKED,
        "of-the-cluster": {CLUSTER_UID: "c-1"},
        "in-this": in_vms("ns/m", "ns/other"),
        "of-another": {MACHINE_UID: "m-2"},
        "of-another-cluster": owner_annotations("c-2", "m-1"),
        "in-another": in_vms("ns/other"),
        "in-a-namesake": in_vms("other/m"),
    }
    found = claims_owned_by_others(OURS, [a_claim(name, marks) for name, marks in claims.items()])
    assert found == {"of-another", "of-another-cluster", "in-another", "in-a-namesake"}
