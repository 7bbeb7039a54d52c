"""What a Node has yet to show of its turn. That the Job is complete is not enough: its pod is on the Node whose kubelet restarts."""

from __future__ import annotations

from datetime import datetime, timedelta

from windrow.clusters.api.updates.turn import LIVE, SERVICE_RESTART, MachineUpdate
from windrow.clusters.plan.actions import PartialPlan, first_clause
from windrow.clusters.state import ClusterState, MachineState, unreachable_reason

# From when the Node is Ready.
VOTES_WITHIN = timedelta(minutes=2)


def mark_of(update: MachineUpdate) -> str:
    """What the Node's annotation says while its files are not known to be those of any revision."""
    return f"updating-{update.id}"


def why_not_applied(machine: MachineState, update: MachineUpdate, state: ClusterState) -> str:
    """What the Node has yet to show, "" once it runs what was asked for."""
    node, job = machine.node, machine.update_job
    if not state.guest.is_reachable:
        return f"the guest API server ({unreachable_reason(state.guest)})"
    if node is None:
        return f"Node {machine.node_name} to be there again"
    is_marked = node.applied_revision == (update.config_hash or "unknown")
    if not is_marked and (job is None or job.state != "succeeded"):
        return _describe_job(machine, update)
    if node.kubelet_version != update.version and update.change == SERVICE_RESTART:
        return (
            f"Node {node.name} to report kubelet {update.version} (now {node.kubelet_version or 'unknown'})"
        )
    if not node.ready:
        return f"Node {node.name} to become Ready again ({first_clause(node.ready_message)})"
    if awaits_vote(machine, update, state):
        return f"the etcd member of Node {node.name} to vote"
    if machine.record.is_control_plane and not is_marked and update.change == SERVICE_RESTART:
        if machine.outdated_static_pods is None:
            return f"the static pods of Node {node.name} to be listed"
        if machine.outdated_static_pods:
            return f"static pod {machine.outdated_static_pods[0]} to run {update.version}"
        if machine.api_problem is None:
            return f"the API server of Node {node.name} to be asked whether it is ready"
        if machine.api_problem:
            return f"the API server of Node {node.name} to be ready ({first_clause(machine.api_problem)})"
    return ""


def awaits_vote(machine: MachineState, update: MachineUpdate, state: ClusterState) -> bool:
    """Whether the etcd member of the machine has yet to vote. A Node that does not say so is believed after VOTES_WITHIN, where those
    of other members do: the condition may be gone with the Node, or come late."""
    if not machine.is_etcd or machine.node is None:
        return False
    if machine.node.etcd_voter is not None:
        return not machine.node.etcd_voter
    return find_vote_end(machine, update, state) is not None


def find_vote_end(machine: MachineState, update: MachineUpdate, state: ClusterState) -> datetime | None:
    """Until when a Node that does not say whether its etcd member votes is waited for; None where it is not."""
    node, others = machine.node, [one for one in state.etcd_members if one.name != machine.name]
    if node is None or not machine.is_etcd or node.etcd_voter is not None:
        return None
    if not any(one.node is not None and one.node.etcd_voter is not None for one in others):
        return None
    since = node.since if node.since is not None and node.since <= state.now else update.step_since
    end = (since or state.now) + VOTES_WITHIN
    return end if state.now < end else None


def is_applied_already(machine: MachineState, update: MachineUpdate, state: ClusterState) -> bool:
    """Whether the Node showed before anything was done in this turn what was asked for: its record is older than what was done.
    A request to restart cannot be told so."""
    node, is_told = machine.node, update.change in (SERVICE_RESTART, LIVE) and not update.restart
    if not (is_told and update.config_hash and node) or node.applied_revision != update.config_hash:
        return False
    return not why_not_applied(machine, update, state)


def _describe_job(machine: MachineState, update: MachineUpdate) -> str:
    job = machine.update_job
    if job is None:
        return f"Job kube-system/{update.job} to be observed"
    if job.state == "absent":
        return f"Job kube-system/{update.job} to be created"
    if job.state == "waiting":
        why = f" ({first_clause(job.message)})" if job.message else ""
        return f"the pod of Job kube-system/{update.job} to run{why}"
    if update.restarts_by_request:
        return f"Job kube-system/{update.job} to restart the service"
    ends = " and restart the service" if update.change == SERVICE_RESTART else ""
    return f"Job kube-system/{update.job} to write the files{ends}"


def describe_end(machine: MachineState, update: MachineUpdate) -> str:
    """What is true once the turn is over."""
    if update.version != machine.record.version:
        return f"it runs {update.version}"
    if update.restarts_by_request:
        return "its service was restarted"
    return "its configuration is applied"


def await_guest(machine: MachineState, then: str, state: ClusterState, partial: PartialPlan) -> None:
    """Wait for the guest API server, without which nothing is known of the Node."""
    partial.wait(f"the guest API server ({unreachable_reason(state.guest)})", then, machine.name)
