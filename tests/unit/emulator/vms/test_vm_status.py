"""`printableStatus` and conditions, derived: reference 05 §2.2 and §2.4."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from windrow.emulator.vms.status import PRINTABLE, derive_status, printable_status, set_phase
from windrow.kubernetes.conditions import find_condition

from ..objects import a_vm

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_vmi(phase="Running", *, deleting=False, conditions=(), **status):
    metadata = {"name": "m-1", "namespace": "ns", "uid": "vmi-1"}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    spec = a_vm()["spec"]["template"]["spec"]
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase, "conditions": list(conditions), **status},
    }


def a_condition(type, status, reason=""):
    return {"type": type, "status": status, "reason": reason, "lastTransitionTime": None}


def vm(**status):
    raw = a_vm()
    raw["metadata"]["uid"] = "vm-1"
    if status:
        raw["status"] = status
    return raw


LACKS_CLAIM = (
    a_condition("Synchronized", "False", "FailedPvcNotFound"),
    a_condition("PodScheduled", "False", "Unschedulable"),
)


@pytest.mark.parametrize(
    ("wanted", "vmi"),
    [
        ("Running", a_vmi()),
        ("Stopping", a_vmi(deleting=True)),
        ("Migrating", a_vmi(migrationState={"completed": False})),
        ("Running", a_vmi(migrationState={"completed": True})),
        ("Paused", a_vmi(conditions=[a_condition("Paused", "True")])),
        ("ErrorPvcNotFound", a_vmi("Pending", conditions=LACKS_CLAIM)),
        ("ErrorUnschedulable", a_vmi("Scheduling", conditions=LACKS_CLAIM[1:])),
        ("Starting", a_vmi("Pending")),
        ("Starting", a_vmi("Scheduled")),
        ("Stopped", a_vmi("Succeeded")),
        ("Stopped", a_vmi("Failed", deleting=True)),
        ("Stopped", None),
        ("Unknown", a_vmi("WaitingForSync")),
    ],
)
def test_the_first_row_that_holds_is_shown(wanted, vmi):
    assert wanted == printable_status(vm(), vmi, NOON)


def test_deletion_comes_before_everything():
    raw = vm()
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"

    assert printable_status(raw, a_vmi(), NOON) == "Terminating"


def test_a_stop_request_shows_as_stopping_before_the_instance_is_touched():
    asked = vm(stateChangeRequests=[{"action": "Stop", "uid": "vmi-1"}])

    assert printable_status(asked, a_vmi(), NOON) == "Stopping"


def test_back_off_shows_until_it_is_over():
    raw = vm(startFailure={"consecutiveFailCount": 1, "retryAfterTimestamp": "2026-01-01T12:00:10Z"})

    assert printable_status(raw, None, NOON) == "CrashLoopBackOff"
    assert printable_status(raw, None, NOON.replace(second=10)) == "Stopped"


def test_the_table_is_in_kubevirts_order():
    order = [
        "Terminating",
        "Stopping",
        "Migrating",
        "Paused",
        "Running",
        "ErrorPvcNotFound",
        "ErrorUnschedulable",
    ]

    assert order == [name for name, _ in PRINTABLE][: len(order)]


def test_without_an_instance_the_vm_is_not_ready_with_a_reason():
    status = derive_status(vm(), None, NOON)

    ready = find_condition(status["conditions"], "Ready")
    assert (ready.status, ready.reason, ready.message) == ("False", "VMINotExists", "VMI does not exist")
    assert "ready" not in status
    assert "created" not in status


def test_conditions_of_the_instance_are_copied_and_times_may_be_null():
    status = derive_status(
        vm(), a_vmi(conditions=[a_condition("Ready", "True"), a_condition("AgentConnected", "True")]), NOON
    )

    assert status["ready"] is True
    assert find_condition(status["conditions"], "AgentConnected").status == "True"
    assert all(raw["lastProbeTime"] is None for raw in status["conditions"])


def test_requests_that_are_done_are_dropped_and_open_ones_stay():
    restart = vm(stateChangeRequests=[{"action": "Stop", "uid": "vmi-1"}, {"action": "Start"}])

    assert len(derive_status(restart, a_vmi(), NOON)["stateChangeRequests"]) == 2
    assert derive_status(restart, None, NOON)["stateChangeRequests"] == [{"action": "Start"}]


def test_deriving_again_changes_nothing():
    raw = vm()
    raw["status"] = derive_status(raw, a_vmi(conditions=[a_condition("Ready", "True")]), NOON)

    assert raw["status"] == derive_status(
        raw, a_vmi(conditions=[a_condition("Ready", "True")]), NOON.replace(minute=5)
    )


def test_a_changed_template_needs_a_restart_and_a_plugged_volume_does_not():
    raw = vm()
    raw["spec"]["template"]["spec"]["volumes"].append({"name": "more"})
    assert find_condition(derive_status(raw, a_vmi(), NOON)["conditions"], "RestartRequired") is None

    raw["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": 8}
    assert find_condition(derive_status(raw, a_vmi(), NOON)["conditions"], "RestartRequired").status == "True"


def test_each_phase_has_a_transition_timestamp():
    vmi = {}
    set_phase(vmi, "Pending", NOON)
    set_phase(vmi, "Running", NOON.replace(second=9))

    status = vmi["status"]
    assert status["phase"] == "Running"
    assert status["phaseTransitionTimestamps"] == [
        {"phase": "Pending", "phaseTransitionTimestamp": "2026-01-01T12:00:00Z"},
        {"phase": "Running", "phaseTransitionTimestamp": "2026-01-01T12:00:09Z"},
    ]
