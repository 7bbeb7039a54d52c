"""What state a VM is in, from what KubeVirt says of it and of its instance. Pure.

`Stopped` is read with care: a VM that is new, or that failed and is being started again, shows it for a moment too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windrow.harvester.vmis import Vmi
from windrow.harvester.vms import Vm

VmState = Literal[
    "provisioning", "starting", "running", "stopping", "stopped", "failed", "migrating", "deleting"
]


@dataclass(frozen=True, slots=True)
class ObservedState:
    """A state, and KubeVirt's own words about it where there are any."""

    state: VmState
    because: str = ""


_RESTARTING = frozenset({"Always", "RerunOnFailure"})
_EARLY_PHASES = frozenset({"", "Pending", "Scheduling", "Scheduled", "WaitingForSync"})
_PROVISIONING = {
    "Provisioning": "its disks are being filled",
    "WaitingForVolumeBinding": "its disks are not bound yet",
    "ErrorPvcNotFound": "a disk does not exist yet",
    "ErrorUnschedulable": "no host can take it",
    "ErrImagePull": "the launcher image cannot be pulled",
    "ImagePullBackOff": "the launcher image cannot be pulled",
    "DataVolumeError": "a disk failed to be filled",
}


def read_state(vm: Vm, vmi: Vmi | None) -> ObservedState:
    """The state of a VM that exists, with its instance if there is one."""
    if vm.is_deleting:
        return ObservedState("deleting", "Harvester is removing the VM")
    if vm.halted_by_quota:
        return ObservedState("failed", f"Harvester has halted the VM: {vm.halted_by_quota}")
    if vmi is not None and vmi.is_deleting:
        return ObservedState("stopping")
    if vmi is None or vmi.phase == "Succeeded":
        return _without_instance(vm)
    if vmi.phase == "Failed":
        return _failed(vm, vmi)
    if vmi.phase in _EARLY_PHASES:
        return _early(vm, vmi)
    if vmi.is_migrating:
        return ObservedState("migrating", "the VM is moving to another host")
    if vm.status == "Stopping":
        return ObservedState("stopping")
    return ObservedState("running", _pending_while_running(vmi))


def read_instance_state(vmi: Vmi) -> ObservedState:
    """The state as far as the instance alone tells it; only the VM knows whether another one comes after it."""
    if vmi.is_deleting:
        return ObservedState("stopping")
    if vmi.phase == "Succeeded":
        return ObservedState("stopped", "its guest has powered off")
    if vmi.phase == "Failed":
        return ObservedState("failed", vmi.reason or "its domain crashed")
    if vmi.phase in _EARLY_PHASES:
        return ObservedState("starting", vmi.pending_reason)
    if vmi.is_migrating:
        return ObservedState("migrating", "the VM is moving to another host")
    return ObservedState("running", _pending_while_running(vmi))


def _without_instance(vm: Vm) -> ObservedState:
    if vm.status in _PROVISIONING:
        return ObservedState("provisioning", vm.failure or _PROVISIONING[vm.status])
    if vm.status == "CrashLoopBackOff":
        return ObservedState(
            "failed", f"the VM crashes at every start; the next try is at {vm.retry_at or 'a later time'}"
        )
    if vm.failure:
        return ObservedState("failed", vm.failure)
    if vm.run_strategy == "Halted":
        return ObservedState("stopped")
    if not vm.status or vm.observed_run_strategy != vm.run_strategy:
        return ObservedState("provisioning", "Harvester has not started the VM yet")
    if vm.start_requested or vm.status == "Starting" or vm.run_strategy == "Always":
        return ObservedState("starting")
    if vm.status == "Stopping":
        return ObservedState("stopping")
    return ObservedState("stopped")


def _failed(vm: Vm, vmi: Vmi) -> ObservedState:
    reason = vmi.reason or "its domain crashed"
    if vm.run_strategy in _RESTARTING:
        return ObservedState("starting", f"the VM failed ({reason}) and is being started again")
    return ObservedState("failed", reason)


def _early(vm: Vm, vmi: Vmi) -> ObservedState:
    if vm.status in _PROVISIONING:
        return ObservedState("provisioning", vmi.pending_reason or _PROVISIONING[vm.status])
    return ObservedState("starting", vmi.pending_reason)


def _pending_while_running(vmi: Vmi) -> str:
    if vmi.is_paused:
        return "the VM is paused"
    if vmi.addresses:
        return ""
    if not vmi.agent_connected:
        return "its guest agent has not answered yet"
    return "its guest agent reports no address yet"
