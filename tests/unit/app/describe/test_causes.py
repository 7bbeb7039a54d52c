"""The chain from a cluster to its first cause, link by link, from plain objects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from windrow.app.describe.causes import (
    HarvesterObjects,
    explain_cluster,
    explain_machine,
    find_waiting_machine,
)

AT = "2026-01-01T12:00:00Z"


def a_condition(type: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": AT}


def a_cluster(wait: str = "", *conditions: dict[str, Any], **spec: Any) -> dict[str, Any]:
    found = conditions or (a_condition("Ready", "False", "InProgress", f"waiting for {wait}"),)
    waiting = {"for": wait, "since": AT, "next": "it goes on"} if wait else None
    return {
        "metadata": {"name": "orchard", "namespace": "fleet-default"},
        "spec": spec,
        "status": {"waiting": waiting, "conditions": list(found)},
    }


def a_machine(name: str, wait: str = "", **status: Any) -> dict[str, Any]:
    waiting = {"for": wait, "since": AT, "next": "it joins"} if wait else None
    return {
        "metadata": {"name": name, "namespace": "fleet-default"},
        "spec": {"clusterName": "orchard"},
        "status": {"waiting": waiting, **status},
    }


def a_vm(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "m-1", "namespace": "default", "uid": "u", "creationTimestamp": AT},
        "spec": {
            "runStrategy": "RerunOnFailure",
            "template": {"spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "m-1-disk"}}]}},
        },
        "status": {"printableStatus": "Provisioning", **status},
    }


def causes(**seen: Any) -> tuple[str, str]:
    """Object and message of the last link of a machine with these objects on Harvester."""
    machine = a_machine("m-1", "VirtualMachine default/m-1 to run (now provisioning)")
    last = explain_machine(machine, HarvesterObjects("m-1", "default", **seen))[-1]
    assert last.hint
    return last.object, last.message


def test_the_machine_whose_wait_the_cluster_repeats_is_the_one_it_waits_for():
    machines = [a_machine("m-1", "an address"), a_machine("m-2", "Node m-2 to become Ready")]

    found = find_waiting_machine(a_cluster("Node m-2 to become Ready (and 1 more)"), machines)

    assert found is machines[1]


def test_a_machine_that_the_sentence_names_is_found_by_its_whole_name():
    machines = [a_machine("m-1"), a_machine("m-12")]

    assert find_waiting_machine(a_cluster("Machine m-12 to recover"), machines) is machines[1]
    assert find_waiting_machine(a_cluster("Machine m-123 to recover"), machines) is None


def test_a_machine_of_a_cluster_of_the_same_name_elsewhere_is_not_it():
    foreign = a_machine("m-1", "an address")
    foreign["metadata"]["namespace"] = "elsewhere"

    assert find_waiting_machine(a_cluster("an address"), [foreign]) is None


@pytest.mark.parametrize(
    ("wait", "condition", "object", "message", "hint"),
    [
        (
            "the spec or Harvester to be corrected: no etcd",
            a_condition("Accepted", "False", "Invalid", "no etcd; add a pool with etcdRole\nno credential; name one"),
            "Condition Accepted",
            "is False (Invalid): no etcd (and 1 more)",
            "add a pool with etcdRole",
        ),
        (
            "a valid Harvester credential: expired",
            a_condition("CredentialValid", "False", "Rejected", "the token is expired; put another one there"),
            "Secret cattle-global-data/cc",
            "the token is expired",
            "put another one there",
        ),
        (
            "Lease default/x to be released by manager b",
            a_condition("LeaseHeld", "False", "AnotherManager", "Lease default/x is held by b; stop it"),
            "Condition LeaseHeld",
            "is False (AnotherManager): Lease default/x is held by b",
            "stop it",
        ),
    ],
)  # fmt: skip
def test_a_condition_that_decides_ends_the_chain_with_its_hint(
    wait: str, condition: dict[str, Any], object: str, message: str, hint: str
):
    ready = a_condition("Ready", "False", "InProgress", f"waiting for {wait}")
    cluster = a_cluster(wait, ready, condition, cloudCredentialSecretName="cattle-global-data:cc")

    first, cause = explain_cluster(cluster, [a_machine("m-1", wait)])

    assert (first.object, first.message) == (
        "Cluster fleet-default/orchard",
        "condition Ready is False (InProgress)",
    )
    assert (cause.object, cause.message, cause.hint) == (object, message, hint)
    assert cause.since == datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_condition_that_does_not_decide_is_no_cause():
    held = a_condition("LeaseHeld", "False", "AnotherManager", "x")
    cluster = a_cluster("an address", a_condition("Ready", "False"), held)

    assert [one.kind for one in explain_cluster(cluster, [a_machine("m-1", "an address")])] == [
        "Cluster",
        "Machine",
    ]


@pytest.mark.parametrize(
    ("wait", "object", "hint"),
    [
        ("PersistentVolumeClaim default/data to be deleted", "PersistentVolumeClaim default/data", "finalizer"),
        ("the guest API server (refused)", "Cluster fleet-default/orchard", "windrow machine list fleet-default/orchard"),
        ("machine pool workers to be complete: 1 of 2", "Cluster fleet-default/orchard", "windrow events fleet-default/orchard"),
        ("anything else", "Cluster fleet-default/orchard", "windrow events fleet-default/orchard"),
    ],
)  # fmt: skip
def test_a_wait_for_no_machine_names_the_object_of_its_sentence(wait: str, object: str, hint: str):
    cause = explain_cluster(a_cluster(wait), [])[-1]

    assert (cause.object, cause.message) == (object, f"waits for {wait}; then it goes on")
    assert hint in cause.hint


def test_without_the_right_to_see_the_vm_the_chain_ends_there_and_says_so():
    assert causes(hidden="forbidden") == (
        "VirtualMachine default/m-1",
        "cannot be read: forbidden",
    )


def test_a_vm_that_does_not_exist_ends_the_chain():
    assert causes() == ("VirtualMachine default/m-1", "does not exist on Harvester")


def test_an_image_that_failed_to_import_is_the_cause_of_a_vm_that_is_provisioned():
    failed = a_condition("Imported", "False", "ImportFailed", "404 not found")
    image = {
        "metadata": {"name": "leap", "namespace": "default"},
        "spec": {},
        "status": {"conditions": [failed]},
    }

    assert causes(vm=a_vm(), images=(image,)) == (
        "VirtualMachineImage default/leap",
        "failed to import: 404 not found",
    )


def test_a_claim_that_is_not_bound_is_named_with_its_image():
    claim = {
        "metadata": {
            "name": "m-1-disk",
            "namespace": "default",
            "annotations": {"harvesterhci.io/imageId": "default/leap"},
        },
        "status": {"phase": "Pending"},
    }

    assert causes(vm=a_vm(), claims=(claim,)) == (
        "PersistentVolumeClaim default/m-1-disk",
        "is Pending, of image default/leap",
    )


def test_a_vm_without_a_host_says_what_the_scheduler_says():
    vmi = {
        "metadata": {"name": "m-1", "namespace": "default", "uid": "v"},
        "status": {"phase": "Scheduling", "conditions": [a_condition("PodScheduled", "False", "Unschedulable", "0/3 nodes")]},
    }  # fmt: skip

    assert causes(vm=a_vm(printableStatus="ErrorUnschedulable"), vmi=vmi) == (
        "VirtualMachineInstance default/m-1",
        "is not scheduled: 0/3 nodes",
    )


def test_a_quota_that_may_not_be_read_is_still_the_cause_by_the_vms_own_words():
    vm = a_vm(printableStatus="Stopped")
    vm["metadata"]["annotations"] = {"harvesterhci.io/insufficient-resource-quota": "cpu over quota"}

    assert causes(vm=vm) == ("ResourceQuota default/(hidden)", "allows no more: cpu over quota")


def test_a_host_in_maintenance_needs_nothing_to_be_done():
    host = {
        "metadata": {"name": "node-1", "annotations": {"harvesterhci.io/maintain-status": "running"}},
        "status": {"conditions": [a_condition("Ready", "True")]},
    }

    assert causes(vm=a_vm(), host=host) == ("Host node-1", "is in maintenance")


@pytest.mark.parametrize(
    "line",
    ["No bootable device.", "[  9.1] cloud-init: FATAL no datasource", "Kernel panic - not syncing: VFS"],
)
def test_the_last_line_of_the_console_that_tells_of_trouble_is_the_cause(line: str):
    object, message = causes(vm=a_vm(printableStatus="Running"), console=("Linux 6.8", line, "login: "))

    assert object == "Console default/m-1"
    assert message == f"says: {line}"


def test_a_quiet_console_is_no_cause():
    assert causes(vm=a_vm(printableStatus="Running"), console=("Linux 6.8", "login: "))[0].startswith(
        "VirtualMachine "
    )


def test_a_machine_whose_node_exists_ends_in_the_guest():
    machine = a_machine(
        "m-1", "Node m-1 to become Ready (cni plugin not initialized)", nodeRef={"name": "m-1"}
    )

    (link,) = explain_machine(machine, HarvesterObjects("m-1", "default"))

    assert link.hint == "in the guest cluster: kubectl describe node m-1"


@pytest.mark.parametrize("status", [{}, {"conditions": None, "waiting": "soon"}, {"waiting": {"for": 7}}])
def test_objects_of_another_shape_are_shown_not_refused(status: dict[str, Any]):
    cluster = {"metadata": {"name": "orchard", "namespace": "fleet-default"}, "status": status}

    assert explain_cluster(cluster, [])[0].object == "Cluster fleet-default/orchard"
