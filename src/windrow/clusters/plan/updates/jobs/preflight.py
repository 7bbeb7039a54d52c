"""The step Preflight: a Job asks the machine whether it can take another release, before its Node is cordoned or drained.

What only the machine knows is asked there: its disk, and whether the images of the release can be had. A machine that cannot
take it is left as it is, with all its pods, and the turn has failed.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from windrow.clusters.api.updates.turn import MachineUpdate
from windrow.clusters.plan.actions import PartialPlan, PreflightUpdate, RecordUpdateStep, first_clause
from windrow.clusters.plan.updates.apply import finish
from windrow.clusters.plan.updates.evidence import await_guest, is_applied_already
from windrow.clusters.plan.updates.failures import IMAGE_TIMEOUT, POD_TIMEOUT, fail, mend_hint
from windrow.clusters.plan.updates.jobs.former_jobs import await_former_jobs
from windrow.clusters.plan.updates.wanted import cordons
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.formats.duration import human_duration

# Of the step as a whole: its pod, and the pull of an image, which the script bounds.
PREFLIGHT_TIMEOUT = timedelta(minutes=10)


def preflight(
    machine: MachineState, update: MachineUpdate, state: ClusterState, partial: PartialPlan
) -> None:
    """Create the Job once; go on to Drain when it has succeeded, and fail the turn where it has not, or is late."""
    if machine.node is None or not state.guest.is_reachable:
        await_guest(machine, "it is asked whether it can take the release", state, partial)
        return
    if is_applied_already(machine, update, state):
        finish(machine, update, partial)
        return
    job = machine.update_job
    if job is not None and job.state == "succeeded":
        cordoned = update.cordoned or cordons(machine, update.change, update.version, state)
        changed = replace(update, step="Drain", step_since=state.now, cordoned=cordoned)
        why = f"it can take {update.version}"
        partial.actions.append(RecordUpdateStep(why, machine.name, changed))
        return
    if why := _why_failed(machine, update, state):
        fail(machine, update, "Preflight", why, mend_hint(machine), state, partial)
        return
    if await_former_jobs(machine, update, state, partial):
        return
    if job is not None and job.state == "absent":
        why = f"it is to take {update.version}"
        partial.actions.append(PreflightUpdate(why, machine.name, update.preflight_job, machine.node.name))
    told = f" ({first_clause(job.message)})" if job is not None and job.message else ""
    what = f"Job kube-system/{update.preflight_job} to ask Node {machine.node.name} for disk and images{told}"
    partial.wait(what, "its turn goes on", machine.name, _find_limit(machine, update, state))


def _find_limit(machine: MachineState, update: MachineUpdate, state: ClusterState) -> datetime:
    """Until when the Job may take: less long where its pod does not run."""
    job, limit = machine.update_job, PREFLIGHT_TIMEOUT
    if job is not None and job.state == "waiting":
        limit = IMAGE_TIMEOUT if job.is_image_missing else POD_TIMEOUT
    return (update.step_since or state.now) + limit


def _why_failed(machine: MachineState, update: MachineUpdate, state: ClusterState) -> str:
    job, limit = machine.update_job, _find_limit(machine, update, state)
    what = f"Job kube-system/{update.preflight_job}"
    if job is not None and job.state == "failed":
        return f"{what} failed on Node {machine.node_name}: {job.message}"
    if state.now < limit:
        return ""
    told = f" ({job.message})" if job is not None and job.message else ""
    passed = human_duration(limit - (update.step_since or state.now))
    return f"{what} was not over after {passed}{told}; nothing was changed"
