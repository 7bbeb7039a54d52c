"""What state a VM is in, from what KubeVirt says of it and of its instance. Pure.

`Stopped` is read with care: a VM that is new, or that failed and is being started again, shows it for a moment too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windrow.harvester.instances import Vmi
from windrow.harvester.vms import Vm

State = Literal[
    "provisioning", "starting", "running", "stopping", "stopped", "failed", "migrating", "deleting"
]


@dataclass(frozen=True, slots=True)
class Shown:
    """A state, and KubeVirt's own words about it where there are any."""

    state: State
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


def judge_state(vm: Vm, vmi: Vmi | None) -> Shown:
    """The state of a VM that exists, with its instance if there is one."""
    if vm.is_deleting:
        return Shown("deleting", "Harvester is removing the VM")
    if vm.halted_by_quota:
        return Shown("failed", f"Harvester has halted the VM: {vm.halted_by_quota}")
    if vmi is not None and vmi.is_deleting:
        return Shown("stopping")
    if vmi is None or vmi.phase == "Succeeded":
        return _without_instance(vm)
    if vmi.phase == "Failed":
        return _failed(vm, vmi)
    if vmi.phase in _EARLY_PHASES:
        return _early(vm, vmi)
    if vmi.is_migrating:
        return Shown("migrating", "the VM is moving to another host")
    if vm.status == "Stopping":
        return Shown("stopping")
    return Shown("running", _waits_while_running(vmi))


def judge_instance(vmi: Vmi) -> Shown:
    """The state as far as the instance alone tells it; only the VM knows whether another one comes after it."""
    if vmi.is_deleting:
        return Shown("stopping")
    if vmi.phase == "Succeeded":
        return Shown("stopped", "its guest has powered off")
    if vmi.phase == "Failed":
        return Shown("failed", vmi.reason or "its domain crashed")
    if vmi.phase in _EARLY_PHASES:
        return Shown("starting", vmi.waits_for)
    if vmi.is_migrating:
        return Shown("migrating", "the VM is moving to another host")
    return Shown("running", _waits_while_running(vmi))


def _without_instance(vm: Vm) -> Shown:
    if vm.status in _PROVISIONING:
        return Shown("provisioning", vm.failure or _PROVISIONING[vm.status])
    if vm.status == "CrashLoopBackOff":
        return Shown(
            "failed", f"the VM crashes at every start; the next try is at {vm.retry_at or 'a later time'}"
        )
    if vm.failure:
        return Shown("failed", vm.failure)
    if vm.run_strategy == "Halted":
        return Shown("stopped")
    if not vm.status or vm.started_strategy != vm.run_strategy:
        return Shown("provisioning", "Harvester has not started the VM yet")
    if vm.awaits_start or vm.status == "Starting" or vm.run_strategy == "Always":
        return Shown("starting")
    if vm.status == "Stopping":
        return Shown("stopping")
    return Shown("stopped")


def _failed(vm: Vm, vmi: Vmi) -> Shown:
    reason = vmi.reason or "its domain crashed"
    if vm.run_strategy in _RESTARTING:
        return Shown("starting", f"the VM failed ({reason}) and is being started again")
    return Shown("failed", reason)


def _early(vm: Vm, vmi: Vmi) -> Shown:
    if vm.status in _PROVISIONING:
        return Shown("provisioning", vmi.waits_for or _PROVISIONING[vm.status])
    return Shown("starting", vmi.waits_for)


def _waits_while_running(vmi: Vmi) -> str:
    if vmi.is_paused:
        return "the VM is paused"
    if vmi.addresses:
        return ""
    if not vmi.agent_connected:
        return "its guest agent has not answered yet"
    return "its guest agent reports no address yet"
