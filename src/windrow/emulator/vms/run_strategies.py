"""Run strategies: whether a VirtualMachine should have an instance now, and why. Pure.

The table of reference 05 §2.5 E as KubeVirt's VM controller reads it. One request of `stateChangeRequests` is handled
at a time: the first that is not done yet. `acted_on` (status.runStrategy) distinguishes a new strategy from one that has
had its first start; that is why a RerunOnFailure machine stays down after its guest powered off.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from windrow.emulator.kit.vm_readings import Instance, Request, Vm

Because = str


@dataclass(frozen=True, slots=True)
class CreateInstance:
    """Create the instance."""

    because: Because


@dataclass(frozen=True, slots=True)
class DeleteInstance:
    """Delete the instance. `then_start` also adds a Start request."""

    because: Because
    then_start: bool = False


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Create the instance, but not before `until`."""

    until: datetime
    because: Because


@dataclass(frozen=True, slots=True)
class NoChange:
    """Leave the instance as it is."""

    because: Because = "as requested"


Step = CreateInstance | DeleteInstance | WaitUntil | NoChange


def open_requests(vm: Vm, instance: Instance | None) -> tuple[Request, ...]:
    """The requests that are not done yet."""
    left = list(vm.requests)
    while left and _is_done(left[0], instance):
        left.pop(0)
    return tuple(left)


def _is_done(request: Request, instance: Instance | None) -> bool:
    match request.action:
        case "Stop":
            return instance is None or instance.uid != request.uid
        case "Start":
            return instance is not None and not instance.deleting and not instance.is_final
        case _:
            return True


def plan_instance(vm: Vm, instance: Instance | None, now: datetime) -> Step:
    """The step that the VM's strategy and requests require."""
    if vm.deleting:
        return NoChange("the VM is being deleted; its instance is garbage-collected")
    if instance is not None and instance.deleting:
        return NoChange("the instance is being deleted")
    first = next((one.action for one in open_requests(vm, instance)), "")
    match (vm.strategy, instance.phase if instance is not None else None):
        case ("Always", None):
            return _create(vm, now, "run strategy Always")
        case ("RerunOnFailure" | "Manual", None) if first == "Start":
            return _create(vm, now, "a start was requested")
        case ("RerunOnFailure" | "Once", None) if vm.acted_on != vm.strategy:
            return _create(vm, now, f"first start under {vm.strategy}")
        case (_, None):
            return NoChange("stopped, no start was requested")
        case ("Halted", _):
            return DeleteInstance("run strategy Halted")
        case ("Always" | "RerunOnFailure" | "Manual", _) if first == "Stop":
            return DeleteInstance("a stop or restart was requested")
        case ("Always", "Succeeded" | "Failed" as phase):
            return DeleteInstance(f"the instance has {phase.lower()} and run strategy is Always")
        case ("RerunOnFailure", "Failed"):
            return DeleteInstance("the instance has failed", then_start=first != "Start")
        case ("RerunOnFailure", "Succeeded"):
            return DeleteInstance("the guest powered itself off")
        case _:
            return NoChange()


def _create(vm: Vm, now: datetime, because: str) -> Step:
    if vm.retry_at is not None and now < vm.retry_at:
        return WaitUntil(vm.retry_at, f"{vm.failures} early failures in a row")
    return CreateInstance(because)


def backoff(failures: int, step_s: float, cap_s: float, spread: float) -> timedelta:
    """The wait after `failures` early failures in a row; `spread` (0 to 0.5) is its random part."""
    return timedelta(seconds=min(step_s * failures * failures * (1 + spread), cap_s))
