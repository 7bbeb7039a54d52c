"""Changes in place: the version and the configuration of machines that exist, one turn after the other.

A turn has steps, each of which is recorded in `status.update` of the Machine or visible in the guest, so that a restarted
controller goes on where it was:

    begin     recorded on the Machine, before anything is done
    Preflight a Job on the Node asks whether it can take another release: its disk, and the images
    Drain     the Node is marked, cordoned for another version, and drained where `upgradeStrategy` asks for it
    Apply     a Job on the Node writes the files and restarts the service; the Node shows that it runs what was asked for
    Withdraw  only where that is late and its pod never ran: the Job is deleted, and gone, before the turn fails
    finish    the Node is uncordoned, and the Machine says as what it runs now

That the Job is complete is not enough: its pod is on the Node whose kubelet restarts. What counts is the Node: its kubelet's
version, that it is Ready, that its etcd member votes, and the images of its static pods.

At the first failure no other turn begins. It goes on by itself once the Node shows that it is well after all, with a spec
that asks for something else, or when the Machine is annotated to be tried again.
"""

from __future__ import annotations

from dataclasses import replace

from windrow.clusters.api.updates.turn import VM_RESTART, MachineUpdate, UpdateFailure
from windrow.clusters.plan.actions import BeginUpdate, DropUpdate, FinishUpdate, PartialPlan, RecordUpdateStep
from windrow.clusters.plan.updates.apply import apply, finish
from windrow.clusters.plan.updates.begin import begin, is_revision_recorded
from windrow.clusters.plan.updates.drain import drain
from windrow.clusters.plan.updates.evidence import await_guest, why_not_applied
from windrow.clusters.plan.updates.failures import fail, retry_hint
from windrow.clusters.plan.updates.jobs.former_jobs import await_former_jobs, withdraw
from windrow.clusters.plan.updates.jobs.preflight import preflight
from windrow.clusters.plan.updates.live_changes import plan_cordons, plan_nodes
from windrow.clusters.plan.updates.records import correct_records
from windrow.clusters.plan.updates.upgrade_snapshot import has_upgrade_snapshot
from windrow.clusters.plan.updates.vm_turns import VmStep, find_vm_step, is_about_to_stop, is_uncordoned
from windrow.clusters.plan.updates.wanted import WantedUpdate, list_wanted, new_update
from windrow.clusters.state import ClusterState, MachineState


def plan(state: ClusterState, *, may_begin: bool = True) -> PartialPlan:
    """The next step of each turn under way, and, if `may_begin`, the turns that are to begin, once it is recorded what machines run."""
    partial = PartialPlan()
    if not state.recorded.initialized:
        return partial
    wanted = {one.machine: one for one in list_wanted(state)}
    for machine in state.active:
        update = machine.record.update
        if update is not None and update.is_in_place:
            _continue(machine, update, wanted.get(machine.name), state, partial)
    if not correct_records(state, partial) and may_begin:
        begin(wanted, state, partial)
    if state.guest.is_reachable and not state.cluster.paused:
        plan_nodes(state, partial)
        plan_cordons(state, partial)
    return partial


def _continue(
    machine: MachineState,
    update: MachineUpdate,
    wanted: WantedUpdate | None,
    state: ClusterState,
    partial: PartialPlan,
) -> None:
    if update.failure is not None:
        _after_failure(machine, update, update.failure, wanted, state, partial)
    elif update.step == "Apply":
        apply(machine, update, state, partial)
    elif update.step == "Withdraw":
        withdraw(machine, update, state, partial)
    elif update.step in ("Stop", "Start"):
        _restart_vm(machine, update, state, partial)
    elif wanted is None or wanted.id != update.id:
        _begin_otherwise(machine, update, wanted, state, partial)
    elif update.step == "Preflight":
        preflight(machine, update, state, partial)
    else:
        drain(machine, update, state, partial)


def _begin_otherwise(
    machine: MachineState,
    update: MachineUpdate,
    wanted: WantedUpdate | None,
    state: ClusterState,
    partial: PartialPlan,
) -> None:
    """The spec asks for something else before anything was written on the machine, or after its turn has failed."""
    is_as_recorded = wanted is None or (
        not wanted.restart
        and wanted.version == machine.record.version
        and wanted.config_hash == machine.record.config_hash
    )
    if is_as_recorded and (update.is_preparing or update.change == VM_RESTART):
        if not state.guest.is_reachable:
            await_guest(machine, "its turn ends", state, partial)
            return
        if await_former_jobs(machine, update, state, partial):
            return
        why = (
            "the spec asks for what it runs"
            if wanted is not None
            else "the version is not asked for any more"
        )
        partial.actions.append(DropUpdate(why, machine.name, machine.node_name, update.cordoned))
    elif wanted is not None and not is_revision_recorded(wanted, state):
        partial.wait("status.revisions to be written", "its turn goes on", machine.name)
    elif wanted is not None and has_upgrade_snapshot(machine, wanted.version, state, partial):
        partial.actions.append(BeginUpdate(wanted.because, machine.name, new_update(machine, wanted, state)))


def _restart_vm(
    machine: MachineState, update: MachineUpdate, state: ClusterState, partial: PartialPlan
) -> None:
    if is_about_to_stop(machine, update) and not state.guest.is_reachable:
        await_guest(machine, "its VM is stopped, if its Node is drained", state, partial)
        return
    if is_about_to_stop(machine, update) and is_uncordoned(machine, update):
        drained = replace(update, step="Drain", step_since=state.now)
        why = f"Node {machine.node_name} takes workloads, though it was cordoned"
        partial.actions.append(RecordUpdateStep(why, machine.name, drained))
        return
    step = find_vm_step(machine, update, state)
    hint = f"have the machine replaced; or mend it, then {retry_hint(machine)}"
    if step.failed:
        fail(machine, update, update.step, step.failed, hint, state, partial)
    elif step.waiting_for:
        then = "it is edited and started" if update.step == "Stop" else "its turn ends"
        partial.wait(step.waiting_for, then, machine.name, step.until)
        partial.actions += [step.action] if step.action is not None else []
    elif update.refused:
        correct = "set the field back, or correct what it says; a spec that asks for something else begins another turn"
        fail(machine, update, "Edit", update.refused, correct, state, partial)
    else:
        what = "its VM runs as its pool asks"
        partial.actions.append(FinishUpdate(what, machine.name, machine.node_name, update.cordoned))


def _after_failure(
    machine: MachineState,
    update: MachineUpdate,
    failure: UpdateFailure,
    wanted: WantedUpdate | None,
    state: ClusterState,
    partial: PartialPlan,
) -> None:
    is_well = update.step == "Apply" and not why_not_applied(machine, update, state)
    if is_well or (
        update.step == "Start" and not update.refused and find_vm_step(machine, update, state) == VmStep()
    ):
        finish(machine, update, partial)
    elif (wanted is None and update.is_preparing) or (
        wanted is not None and (wanted.id != update.id or machine.record.retry_update)
    ):
        _begin_otherwise(machine, update, wanted, state, partial)
    else:
        partial.wait(
            f"its update to be mended (step {failure.step}; condition RollingOut says why)",
            "its turn goes on, and those of the others",
            machine.name,
        )
