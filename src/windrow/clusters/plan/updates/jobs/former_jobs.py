"""Jobs that may not run any more: those of former turns, and one that is late, before its turn is called failed (step Withdraw).

A pod that has yet to run would otherwise restart the service whenever its image comes, while nothing expects it: another
server may just be away. One that has begun to run meanwhile has its turn after all.
"""

from __future__ import annotations

from dataclasses import replace

from windrow.clusters.api.updates.turn import VM_RESTART, MachineUpdate
from windrow.clusters.plan.actions import DeleteFormerJobs, PartialPlan, RecordUpdateStep
from windrow.clusters.plan.updates.evidence import await_guest
from windrow.clusters.plan.updates.failures import APPLY_TIMEOUT, fail, mend_hint, retry_hint
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.formats.duration import human_duration

# By then its activeDeadlineSeconds is over as well, so that it cannot begin any more.
NOT_GONE = f"; its pod is not gone after {human_duration(APPLY_TIMEOUT)}"


def await_former_jobs(
    machine: MachineState, update: MachineUpdate, state: ClusterState, partial: PartialPlan
) -> bool:
    """Whether something is left of its former turns: one that runs is waited for, the others are deleted. What is not known yet
    is asked again before there is another Job."""
    if machine.former_jobs is None:
        if update.change == VM_RESTART:
            partial.wait("the Jobs of its former turns to be listed", "its turn goes on", machine.name)
        return update.change == VM_RESTART
    if not machine.former_jobs:
        return False
    job = machine.former_jobs[0].name
    until = (update.step_since or state.now) + APPLY_TIMEOUT
    if state.now >= until and update.failure is None:
        message = f"Job kube-system/{job} of a former turn is not gone after {human_duration(APPLY_TIMEOUT)}"
        hint = f"see why its pod does not end, or delete it; then {retry_hint(machine)}"
        fail(machine, update, update.step, message, hint, state, partial)
        return True
    if any(one.state not in ("running", "absent") for one in machine.former_jobs):
        why = "no Job of a former turn may run out of turn"
        partial.actions.append(DeleteFormerJobs(why, machine.name, update.job))
    partial.wait(
        f"Job kube-system/{job} of a former turn to be gone", "its turn goes on", machine.name, until
    )
    return True


def withdraw(machine: MachineState, update: MachineUpdate, state: ClusterState, partial: PartialPlan) -> None:
    """Delete the machine's Jobs, and fail the turn once they and their pods are gone. `machine.former_jobs` are all that it has."""
    jobs = machine.former_jobs
    if jobs is None or not state.guest.is_reachable:
        await_guest(machine, "its Job is withdrawn", state, partial)
        return
    if any(one.name == update.job and one.state in ("running", "succeeded") for one in jobs):
        begun = replace(update, step="Apply", step_since=state.now, refused="")
        partial.actions.append(RecordUpdateStep("its Job has begun to run after all", machine.name, begun))
        return
    until = (update.step_since or state.now) + APPLY_TIMEOUT
    left = "" if state.now < until else NOT_GONE
    if not jobs or left:
        failed = replace(update, step="Apply", refused="")
        fail(machine, failed, "Apply", f"{update.refused}{left}", mend_hint(machine), state, partial)
        return
    if any(one.state not in ("running", "absent") for one in jobs):
        why = "it is late, and must not run out of turn"
        partial.actions.append(DeleteFormerJobs(why, machine.name, ""))
    partial.wait(f"Job kube-system/{jobs[0].name} to be gone", "its turn has failed", machine.name, until)
