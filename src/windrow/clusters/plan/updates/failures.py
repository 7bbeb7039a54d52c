"""Turns that fail: what is late, and how a turn is tried again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from windrow.clusters.api.names import RETRY_UPDATE
from windrow.clusters.api.updates.turn import MachineUpdate, UpdateFailure
from windrow.clusters.plan.actions import FailUpdate, PartialPlan, RecordUpdateStep, first_clause
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.formats.duration import human_duration
from windrow.kubernetes.kubectl import render_kubectl

RECHECK = timedelta(seconds=5)
# How long the image of the Job may be out of reach, and its pod may not run for any other reason.
IMAGE_TIMEOUT = timedelta(minutes=2)
POD_TIMEOUT = timedelta(minutes=5)
# How long a Node may be away after its service was restarted.
NODE_TIMEOUT = timedelta(minutes=10)
# Of the step as a whole; longer than what the script itself waits for.
APPLY_TIMEOUT = timedelta(minutes=30)


def _deadlines(
    machine: MachineState, update: MachineUpdate, state: ClusterState
) -> Iterable[tuple[datetime, str]]:
    """Until when what is waited for may take, and what is said of it then."""
    since, job = update.step_since or state.now, machine.update_job
    yield since + APPLY_TIMEOUT, f"the update took longer than {human_duration(APPLY_TIMEOUT)}"
    if state.guest.is_reachable and job is not None and job.state == "waiting":
        what = f"the pod of Job kube-system/{update.job} does not run"
        if job.is_image_missing:
            yield since + IMAGE_TIMEOUT, f"{what} ({job.message})"
        yield since + POD_TIMEOUT, f"{what}{f' ({job.message})' if job.message else ''}"
    ready = machine.record.find_condition("Ready")
    if not machine.is_ready and ready is not None and ready.status != "True" and ready.since is not None:
        away = max(since, ready.since)
        yield (
            away + NODE_TIMEOUT,
            f"Node {machine.node_name} was not Ready for {human_duration(NODE_TIMEOUT)} after its service was restarted"
            + (f" ({first_clause(machine.node.ready_message)})" if machine.node else ""),
        )


def next_deadline(machine: MachineState, update: MachineUpdate, state: ClusterState) -> datetime:
    """When something is late if it has not come; sooner where what is waited for is not watched."""
    deadlines = [limit for limit, *_ in _deadlines(machine, update, state)]
    later = [one for one in deadlines if one > state.now]
    until = min(later, default=state.now + RECHECK)
    if machine.outdated_static_pods != () or machine.api_problem != "":
        job = machine.update_job
        if job is not None and job.state == "succeeded":
            return min(until, state.now + RECHECK)  # neither pods nor its API server are watched
    return until


def fail_late(
    machine: MachineState, update: MachineUpdate, state: ClusterState, partial: PartialPlan
) -> bool:
    """Fail a turn whose Job has failed, or that is late. Whether it has failed."""
    job = machine.update_job
    hint = mend_hint(machine)
    if job is not None and job.state == "failed":
        message = f"Job kube-system/{update.job} failed on Node {machine.node_name}: {job.message}"
        fail(machine, update, "Apply", message, hint, state, partial)
        return True
    late = next((words for limit, words in _deadlines(machine, update, state) if state.now >= limit), "")
    if late and job is not None and job.state in ("waiting", "absent"):
        # A Job whose pod has yet to run would restart the service at any later time, out of its turn.
        withdrawn = replace(update, step="Withdraw", step_since=state.now, refused=late)
        partial.actions.append(RecordUpdateStep(f"its Job is late: {late}", machine.name, withdrawn))
    elif late:
        fail(machine, update, "Apply", late, hint, state, partial)
    return bool(late)


def mend_hint(machine: MachineState) -> str:
    """How one goes on after a step Apply that has failed."""
    return f"set another version; or mend it, then {retry_hint(machine)}"


def retry_hint(machine: MachineState) -> str:
    """How its turn is tried again."""
    command = render_kubectl(f"annotate machine {machine.name} {RETRY_UPDATE}=", machine.record.namespace)
    return f"have it tried again: {command}"


def fail(
    machine: MachineState,
    update: MachineUpdate,
    step: str,
    message: str,
    hint: str,
    state: ClusterState,
    partial: PartialPlan,
) -> None:
    """Record the failure: no other turn begins until it is mended."""
    failure = UpdateFailure(step, message, hint, state.now)
    because = f"step {step}: {message}; {hint}"
    partial.actions.append(FailUpdate(because, machine.name, replace(update, failure=failure)))
