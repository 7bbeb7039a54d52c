"""The steps of a turn that restarts a VM: once its Node is drained it is stopped, edited and started.

    Stop      the VM is stopped, and edited once it does not run: so nothing is migrated or plugged for the change
    Start     the VM is started, also where the edit was refused, and its Node is Ready after another boot

An edit that Harvester refuses changes nothing: the VM starts as it was, and then the turn fails with what Harvester said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from windrow.clusters.api.updates.turn import VM_RESTART, MachineUpdate
from windrow.clusters.plan.actions import EditVM, PowerVM, first_clause
from windrow.clusters.plan.updates.evidence import awaits_vote, find_vote_end
from windrow.clusters.plan.updates.failures import RECHECK
from windrow.clusters.state import STOPPED_STATES, ClusterState, MachineState, unreachable_reason
from windrow.core.formats.duration import human_duration

# A guest has its grace period to shut down, and is cut off then (reference/05 §3).
STOP_TIMEOUT = timedelta(minutes=10)
# From the start of the VM until its Node is Ready.
START_TIMEOUT = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class VmStep:
    """What the step waits for ("" once it is over), what is to be done now, and why it has failed, where it has."""

    waiting_for: str = ""
    action: PowerVM | EditVM | None = None
    failed: str = ""
    until: datetime | None = None


def is_vm_restart(machine: MachineState) -> bool:
    """Whether its VM is stopped and started in its turn: then nothing else starts it."""
    update = machine.record.update
    return update is not None and update.change == VM_RESTART and update.failure is None


def is_about_to_stop(machine: MachineState, update: MachineUpdate) -> bool:
    """Whether its VM runs and is to be stopped next."""
    is_stopped = machine.vm is not None and machine.vm.state in (*STOPPED_STATES, "stopping")
    return update.step == "Stop" and machine.presence == "present" and not is_stopped


def is_uncordoned(machine: MachineState, update: MachineUpdate) -> bool:
    """Whether its Node takes workloads though it was cordoned in this turn: pods may have come back."""
    return update.cordoned and machine.node is not None and not machine.node.unschedulable


def find_vm_step(machine: MachineState, update: MachineUpdate, state: ClusterState) -> VmStep:
    """Where the turn is: of the steps Stop and Start."""
    if machine.presence == "missing":
        return VmStep(failed=f"{machine.vm_ref} is gone")
    if machine.presence == "unknown":
        why = machine.vm.because if machine.vm and machine.vm.because else "not observed yet"
        return VmStep(f"the state of {machine.vm_ref} ({why})")
    is_stopped = machine.vm is not None and machine.vm.state in STOPPED_STATES
    return (_stop if update.step == "Stop" else _start)(machine, update, is_stopped, state)


def _stop(machine: MachineState, update: MachineUpdate, is_stopped: bool, state: ClusterState) -> VmStep:
    until = (update.step_since or state.now) + STOP_TIMEOUT
    if is_stopped:
        return VmStep(
            f"{machine.vm_ref} to be edited",
            EditVM("it is stopped", machine.name, update.version),
            until=until,
        )
    if state.now >= until:
        return VmStep(failed=f"{machine.vm_ref} did not stop within {human_duration(STOP_TIMEOUT)}")
    stopping = machine.vm is not None and machine.vm.state == "stopping"
    action = None if stopping else PowerVM("it is edited while it does not run", machine.name, "off")
    return VmStep(f"{machine.vm_ref} to stop", action, until=until)


def _start(machine: MachineState, update: MachineUpdate, is_stopped: bool, state: ClusterState) -> VmStep:
    missing = next(_list_missing(machine, update, state), "")
    if not missing:
        return VmStep()
    until = (update.step_since or state.now) + START_TIMEOUT
    if state.now >= until:
        return VmStep(failed=f"after {human_duration(START_TIMEOUT)} the turn still waits for {missing}")
    action = PowerVM("it is edited", machine.name, "on") if is_stopped else None
    is_back = machine.node is not None and machine.node.ready
    if is_back and machine.record.is_control_plane and machine.api_problem != "":
        until = min(until, state.now + RECHECK)  # its API server is not watched
    if end := find_vote_end(machine, update, state):
        until = min(until, end)
    return VmStep(missing, action, until=until)


def _list_missing(machine: MachineState, update: MachineUpdate, state: ClusterState) -> Iterator[str]:
    """What is yet to be seen before the VM and its Node are back."""
    node = machine.node
    if machine.vm is None or machine.vm.state != "running":
        yield f"{machine.vm_ref} to run"
    if not state.guest.is_reachable:
        yield f"the guest API server ({unreachable_reason(state.guest)})"
    if node is None:
        yield f"Node {machine.node_name} to be there again"
        return
    if node.boot_id == update.boot and update.boot:
        yield f"Node {node.name} to report that it has booted"
    if not node.ready:
        yield f"Node {node.name} to become Ready again ({first_clause(node.ready_message)})"
    if awaits_vote(machine, update, state):
        yield f"the etcd member of Node {node.name} to vote"
    if (
        machine.record.is_control_plane and machine.api_problem != ""
    ):  # its Node is Ready before, by another API server
        why = f" ({first_clause(machine.api_problem)})" if machine.api_problem else ""
        yield f"the API server of Node {node.name} to be ready{why}"
