"""Jobs of former turns: nothing of them may run out of turn."""

from __future__ import annotations

from windrow.clusters.api.updates.turn import VM_RESTART, MachineUpdate
from windrow.clusters.plan.actions import DeleteFormerJobs, PartialPlan
from windrow.clusters.plan.updates.failures import APPLY_TIMEOUT, fail, retry_hint
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.formats.duration import human_duration


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
