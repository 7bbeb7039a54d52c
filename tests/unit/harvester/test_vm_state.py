"""The state of a VM, as a table; `Stopped` in it never means dead."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.harvester.status import read_state
from windrow.harvester.vmis import read_vmi
from windrow.harvester.vms import read_vm


def a_vm(status: str = "", *, acted: bool = True, strategy: str = "RerunOnFailure", **rest: Any) -> Any:
    metadata = {"name": "vm", "namespace": "d", **rest.pop("metadata", {})}
    shown = {"printableStatus": status, "runStrategy": strategy if acted else ""} if status else {}
    return read_vm({"metadata": metadata, "spec": {"runStrategy": strategy}, "status": {**shown, **rest}})


def a_vmi(phase: str = "Running", *, deleting: bool = False, **status: Any) -> Any:
    metadata = {"name": "vm", "namespace": "d"} | ({"deletionTimestamp": "x"} if deleting else {})
    return read_vmi({"metadata": metadata, "status": {"phase": phase, **status}})


START = [{"action": "Start"}]
UNSCHEDULABLE = [
    {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }
]
CARD = [{"name": "nic-0", "ipAddress": "10.0.0.5"}]
AGENT = [{"type": "AgentConnected", "status": "True"}]


@pytest.mark.parametrize(
    ("vm", "vmi", "state", "words"),
    [
        (a_vm(), None, "provisioning", "not started"),
        (a_vm("Stopped", acted=False), None, "provisioning", "not started"),
        (a_vm("Provisioning"), None, "provisioning", "disks"),
        (a_vm("WaitingForVolumeBinding"), a_vmi("Pending"), "provisioning", "not bound"),
        (a_vm("ErrorPvcNotFound"), a_vmi("Pending"), "provisioning", "does not exist"),
        (
            a_vm("ErrorUnschedulable"),
            a_vmi("Scheduling", conditions=UNSCHEDULABLE),
            "provisioning",
            "0/3 nodes",
        ),
        (a_vm("Starting"), a_vmi("Scheduled"), "starting", ""),
        (a_vm("Starting"), None, "starting", ""),
        (a_vm("Running"), a_vmi(interfaces=CARD, conditions=AGENT), "running", ""),
        (a_vm("Running"), a_vmi(), "running", "agent has not answered"),
        (a_vm("Running"), a_vmi(conditions=AGENT), "running", "no address yet"),
        (a_vm("Paused"), a_vmi(conditions=[{"type": "Paused", "status": "True"}]), "running", "paused"),
        (a_vm("Migrating"), a_vmi(migrationState={"migrationUid": "x"}), "migrating", "another host"),
        (a_vm("Running"), a_vmi(migrationState={"completed": True}, interfaces=CARD), "running", ""),
        (a_vm("Stopping"), a_vmi(deleting=True), "stopping", ""),
        (a_vm("Stopping"), a_vmi("Succeeded", deleting=True), "stopping", ""),
        (a_vm("Stopping"), None, "stopping", ""),
        (a_vm("Stopped"), None, "stopped", ""),
        (a_vm("Stopped"), a_vmi("Succeeded"), "stopped", ""),
        (a_vm("Stopped", stateChangeRequests=START), None, "starting", ""),
        (a_vm("Stopped", strategy="Always"), None, "starting", ""),
        (a_vm("Stopped", strategy="Halted"), None, "stopped", ""),
        (a_vm("Stopped"), a_vmi("Failed"), "starting", "being started again"),
        (
            a_vm("Stopped", strategy="Manual"),
            a_vmi("Failed", reason="NodeUnresponsive"),
            "failed",
            "NodeUnresponsive",
        ),
        (
            a_vm("CrashLoopBackOff", startFailure={"retryAfterTimestamp": "12:05"}),
            None,
            "failed",
            "12:05",
        ),
        (
            a_vm("Stopped", conditions=[{"type": "Failure", "status": "True", "message": "exceeded quota"}]),
            None,
            "failed",
            "exceeded quota",
        ),
        (
            a_vm(
                "Stopped",
                strategy="Halted",
                metadata={
                    "annotations": {"harvesterhci.io/insufficient-resource-quota": "memory insufficient"}
                },
            ),
            None,
            "failed",
            "memory insufficient",
        ),
        (a_vm("Running", metadata={"deletionTimestamp": "x"}), a_vmi(), "deleting", "removing"),
    ],
)
def test_what_a_vm_and_its_instance_make_of_a_state(vm: Any, vmi: Any, state: str, words: str) -> None:
    shown = read_state(vm, vmi)
    assert shown.state == state
    assert words in shown.because
    assert bool(words) == bool(shown.because)
