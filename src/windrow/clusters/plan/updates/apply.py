"""The step Apply: a Job writes the files and restarts the service. No Job of a former turn may run beside it."""

from __future__ import annotations

from windrow.clusters.api.updates.turn import SERVICE_RESTART, MachineUpdate
from windrow.clusters.plan.actions import ApplyUpdate, FinishUpdate, PartialPlan
from windrow.clusters.plan.updates.evidence import describe_end, find_vote_end, mark_of, why_not_applied
from windrow.clusters.plan.updates.failures import fail_late, next_deadline
from windrow.clusters.plan.updates.jobs.former_jobs import await_former_jobs
from windrow.clusters.state import ClusterState, MachineState


def apply(machine: MachineState, update: MachineUpdate, state: ClusterState, partial: PartialPlan) -> None:
    """Create the Job once, and finish the turn once the Node shows what was asked for; fail it where that is late."""
    if missing := why_not_applied(machine, update, state):
        if fail_late(machine, update, state, partial):
            return
        until = find_vote_end(machine, update, state) or next_deadline(machine, update, state)
        partial.wait(missing, describe_end(machine, update), machine.name, until)
        job = machine.update_job
        if job is not None and job.state == "absent" and _may_create_job(machine, update, state):
            if await_former_jobs(machine, update, state, partial):
                return
            why = f"it writes the files for {update.version}"
            why += " and restarts the service" if update.change == SERVICE_RESTART else ""
            why = "it restarts the service" if update.restarts_by_request else why
            partial.actions.append(ApplyUpdate(why, machine.name, update.job, machine.node_name))
        return
    finish(machine, update, partial)


def _may_create_job(machine: MachineState, update: MachineUpdate, state: ClusterState) -> bool:
    """Not where it is done already, and only the Node is waited for."""
    node = machine.node
    return node is not None and state.guest.is_reachable and node.applied_revision == mark_of(update)


def finish(machine: MachineState, update: MachineUpdate, partial: PartialPlan) -> None:
    """Uncordon the Node and record as what the machine runs now."""
    what = describe_end(machine, update)
    partial.actions.append(FinishUpdate(what, machine.name, machine.node_name, update.cordoned))
