"""Changes in place: the version and the configuration of machines that exist, one turn after the other.

A turn has steps, each of which is recorded in `status.update` of the Machine or visible in the guest, so that a restarted
controller goes on where it was:

    begin     recorded on the Machine, before anything is done
    Drain     the Node is marked, cordoned for another version, and drained where `upgradeStrategy` asks for it
    Apply     a Job on the Node writes the files and restarts the service; the Node shows that it runs what was asked for
    finish    the Node is uncordoned, and the Machine says as what it runs now

That the Job is complete is not enough: its pod is on the Node whose kubelet restarts. What counts is the Node: its kubelet's
version, that it is Ready, that its etcd member votes, and the images of its static pods.

At the first failure no other turn begins. It goes on by itself once the Node shows that it is well after all, with a spec
that asks for something else, or when the Machine is annotated to be tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from windrow.clusters.api.names import RETRY_UPDATE
from windrow.clusters.api.updates.strategy import DrainOptions
from windrow.clusters.api.updates.turn import (
    LIVE,
    SERVICE_RESTART,
    VM_RESTART,
    MachineUpdate,
    UpdateFailure,
    job_name,
    read_upgrade_snapshot,
    update_id,
)
from windrow.clusters.api.version_steps import VERSION
from windrow.clusters.change.pending import MachineChange, pending_changes
from windrow.clusters.plan.actions import (
    ApplyUpdate,
    BeginUpdate,
    DeleteFormerJobs,
    DropUpdate,
    EvictPods,
    FailUpdate,
    FinishUpdate,
    MarkNode,
    PartialPlan,
    RecordUpdateStep,
    RecordVersion,
    UpdateNode,
    first_clause,
)
from windrow.clusters.plan.operations import rotation
from windrow.clusters.plan.operations.actions import SaveUpgradeSnapshot
from windrow.clusters.plan.updates.gates import has_turn, tier_of, why_not_go_on
from windrow.clusters.plan.updates.vm_turns import VmStep, find_vm_step
from windrow.clusters.state import ClusterState, MachineState, Node, unreachable_reason
from windrow.core.formats.duration import human_duration
from windrow.core.formats.json import dumps
from windrow.kubernetes.kubectl import render_kubectl
from windrow.machines.port import Problem

RECHECK = timedelta(seconds=5)
# How long the image of the Job may be out of reach, and its pod may not run for any other reason.
IMAGE_TIMEOUT = timedelta(minutes=2)
POD_TIMEOUT = timedelta(minutes=5)
# How long a Node may be away after its service was restarted.
NODE_TIMEOUT = timedelta(minutes=10)
# Of the step as a whole; longer than what the script itself waits for.
APPLY_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class WantedUpdate:
    """What a machine is to run after its turn."""

    machine: str
    change: str
    version: str
    config_hash: str
    because: str
    options: str = field(default="", repr=False)  # what its VM is to have, as one text
    restart: str = ""  # the order to restart its service, where nothing else is asked for

    @property
    def id(self) -> str:
        return update_id(self.change, self.version, self.config_hash, self.options or self.restart)


def plan(state: ClusterState) -> PartialPlan:
    """The next step of each turn under way, and the turns that are to begin."""
    partial = PartialPlan()
    if not state.recorded.initialized:
        return partial
    wanted = {one.machine: one for one in list_wanted(state)}
    for machine in state.active:
        update = machine.record.update
        if update is not None and update.is_in_place:
            _continue(machine, update, wanted.get(machine.name), state, partial)
    _begin(wanted, state, partial)
    if state.guest.is_reachable and not state.cluster.paused:
        _plan_nodes(state, partial)
    return partial


# -- what is wanted ----------------------------------------------------------------------------------------------


def list_wanted(state: ClusterState) -> tuple[WantedUpdate, ...]:
    """What is to be changed in place, in the order of turns. A machine whose turn has begun, and of which nothing else is asked
    any more, is to be what it was."""
    problem, by_name = find_version_problem(state), state.machines_by_name
    found = []
    for one in pending_changes(state).turns:
        machine = by_name[one.machine]
        is_upgrade = one.version != machine.record.version
        if one.change == VM_RESTART and machine.record.was_ready:
            found.append(_want_vm_restart(one, machine, state))
        if one.change == SERVICE_RESTART and machine.record.was_ready and not (is_upgrade and problem):
            found.append(
                WantedUpdate(one.machine, SERVICE_RESTART, one.version, one.config_hash, _why(one, machine))
            )
    found += _list_restarts({one.machine for one in found}, state)
    found += _list_live(state)
    named = {one.machine for one in found}
    for machine in state.active:
        update, record = machine.record.update, machine.record
        if update is not None and update.is_in_place and machine.name not in named:
            why = "what it runs is asked for again"
            found.append(WantedUpdate(machine.name, update.change, record.version, record.config_hash, why))
    return tuple(found)


def _list_restarts(named: set[str], state: ClusterState) -> Iterator[WantedUpdate]:
    """Machines whose service is to be restarted, and which have no other turn before that."""
    order = rotation.find_restart_order(state)
    for machine in rotation.list_not_restarted(state):
        record = machine.record
        if machine.name not in named:
            why = rotation.describe_restart(state)
            yield WantedUpdate(
                machine.name, SERVICE_RESTART, record.version, record.config_hash, why, restart=order
            )


def _want_vm_restart(change: MachineChange, machine: MachineState, state: ClusterState) -> WantedUpdate:
    """The version and the configuration stay; what else is asked for has the next turn."""
    record, pool = machine.record, state.cluster.find_pool(machine.pool)
    options = pool.options if pool is not None and pool.options is not None else {}
    text = dumps(dict(sorted(options.items()))).decode()
    why = f"{change.changed} changed"
    return WantedUpdate(machine.name, VM_RESTART, record.version, record.config_hash, why, text)


def _list_live(state: ClusterState) -> Iterator[WantedUpdate]:
    """API servers whose files are not those of the present configuration, though nothing of it needs a restart: what they apply
    to the cluster by themselves, as they would again when they restart."""
    pending = pending_changes(state)
    for machine in state.active:
        record = machine.record
        if not (record.is_control_plane and record.was_ready) or pending.find(machine.name) is not None:
            continue
        is_running = record.version == state.recorded.version
        wanted = (state.config_hashes if is_running else state.wanted_hashes).get(machine.pool, "")
        is_known = record.config_hash in state.recorded.revisions
        if wanted and is_known and wanted != record.config_hash:
            why = "what it applies to the cluster changed"
            yield WantedUpdate(machine.name, LIVE, record.version, wanted, why)


def _why(change: MachineChange, machine: MachineState) -> str:
    """Which fields are asked for otherwise."""
    if change.version != machine.record.version:
        return f"kubernetesVersion is {change.version}, it runs {machine.record.version}"
    return f"{change.changed} changed"


def find_version_problem(state: ClusterState) -> Problem | None:
    """Why no machine goes to the version of the spec now; None where they may."""
    if state.recorded.version == state.cluster.version:
        return None
    if state.version_problems is None:
        return Problem("the version is not compared with that of Harvester yet", "", VERSION)
    refused = (
        one
        for one in (*state.problems, *state.version_problems)
        if one.severity == "error" and one.field == VERSION and not _is_of_running(one, state)
    )
    return next(refused, None)


def _is_of_running(problem: Problem, state: ClusterState) -> bool:
    """Whether it is one of the version that the cluster goes away from."""
    return state.recorded.version in problem.message and state.cluster.version not in problem.message


# -- turns that begin --------------------------------------------------------------------------------------------


def _begin(wanted: Mapping[str, WantedUpdate], state: ClusterState, partial: PartialPlan) -> None:
    if not state.recorded.provisioned:
        return  # it is still being built, by what it began with
    in_turn = [machine for machine in state.active if machine.record.update is not None]
    by_name = state.machines_by_name
    waiting = [by_name[name] for name in wanted if by_name[name].record.update is None]
    if not waiting and not in_turn and not state.deleting:
        _record_version(state, partial)
        return
    if state.cluster.paused or rotation.holds_turns(state):
        return
    _begin_live(waiting, wanted, state, partial)
    waiting = [machine for machine in waiting if wanted[machine.name].change != LIVE]
    in_turn = [machine for machine in in_turn if not _is_live(machine)]
    if not waiting or any(not has_turn(machine) for machine in in_turn):
        return
    version = next((one.version for one in wanted.values() if one.version != state.recorded.version), "")
    if not _has_snapshot(waiting[0], version, state, partial):
        return
    first = min(tier_of(machine) for machine in (*waiting, *in_turn))
    for machine in waiting:
        pool = state.cluster.find_pool(machine.pool)
        if tier_of(machine) == first and pool is not None and not pool.paused:
            one = wanted[machine.name]
            partial.propose(
                "update", BeginUpdate(one.because, machine.name, _new_update(machine, one, state))
            )


def _has_snapshot(machine: MachineState, version: str, state: ClusterState, partial: PartialPlan) -> bool:
    """Whether the first machine may change to another version: the way back is an etcd snapshot of the version before it. Where
    snapshots are disabled, or the release cannot be asked for one, there is none."""
    if version in ("", state.recorded.version) or state.cluster.etcd.get("disableSnapshots"):
        return True
    if any(_has_reached(one, version) for one in state.active):
        return True
    made = read_upgrade_snapshot(state.recorded.raw)
    is_of_this = (made.version, made.generation) == (version, state.cluster.generation)
    if is_of_this and (made.name or made.retry_at is None):
        return True
    members = [one for one in state.etcd_members if state.is_healthy_etcd_member(one) and one.address]
    if is_of_this and made.retry_at is not None and state.now < made.retry_at:
        what = f"an etcd snapshot before the upgrade to {version} ({made.message})"
        then = "the first machine is updated; etcd.disableSnapshots: true does without"
        partial.wait(what, then, until=made.retry_at)
        return False
    if members and state.guest.is_reachable:
        name = f"upgrade-{version.replace('+', '-')}-{state.cluster.generation}"
        why = f"kubernetesVersion is {version}, and {machine.name} runs {machine.record.version}"
        save = SaveUpgradeSnapshot(why, members[0].name, version, name, state.cluster.generation)
        if not any(isinstance(one, SaveUpgradeSnapshot) for one in partial.actions):
            partial.actions.append(save)
        return False
    # A turn that has failed may be what broke etcd: the way out of it waits for no snapshot.
    return machine.record.update is not None and machine.record.update.failure is not None


def _has_reached(machine: MachineState, version: str) -> bool:
    """Whether the machine runs that version, or is just being given it. A turn that failed before its Node showed the version
    says nothing: the version may not even exist."""
    update, node = machine.record.update, machine.node
    is_applied = update is not None and update.step != "Drain" and update.failure is None
    applied = update.version if update is not None and is_applied else ""
    return version in (machine.record.version, node.kubelet_version if node else "", applied)


def _is_live(machine: MachineState) -> bool:
    update = machine.record.update
    return update is not None and update.change == LIVE


def _begin_live(
    waiting: Iterable[MachineState],
    wanted: Mapping[str, WantedUpdate],
    state: ClusterState,
    partial: PartialPlan,
) -> None:
    """Files are written without disrupting anything, so that no turn is waited for."""
    for machine in waiting:
        one, pool = wanted[machine.name], state.cluster.find_pool(machine.pool)
        may = state.guest.is_reachable and machine.is_ready and pool is not None and not pool.paused
        if one.change == LIVE and may:
            partial.actions.append(BeginUpdate(one.because, machine.name, _new_update(machine, one, state)))


def _plan_nodes(state: ClusterState, partial: PartialPlan) -> None:
    """Labels and taints of pools are those of their Nodes at once. A Machine of an earlier release does not record them."""
    for machine in state.active:
        record, node, pool = machine.record, machine.node, state.cluster.find_pool(machine.pool)
        if node is None or pool is None or pool.paused or record.labels is None or record.taints is None:
            continue
        if record.labels == pool.labels and set(record.taints) == set(pool.taints):
            continue
        labels: dict[str, str | None] = dict.fromkeys(record.labels.keys() - pool.labels.keys())
        gone = tuple(taint for taint in record.taints if taint not in pool.taints)
        why = f"labels or taints of pool {pool.name} changed"
        partial.actions.append(
            UpdateNode(why, machine.name, node.name, labels | dict(pool.labels), tuple(pool.taints), gone)
        )


def _record_version(state: ClusterState, partial: PartialPlan) -> None:
    version = state.cluster.version
    if state.recorded.version == version or find_version_problem(state) is not None:
        return
    if state.active and all(machine.record.version == version for machine in state.active):
        partial.actions.append(RecordVersion("all its machines do", version))


def _new_update(machine: MachineState, wanted: WantedUpdate, state: ClusterState) -> MachineUpdate:
    before, node = machine.record.update, machine.node
    attempt = before.attempt + 1 if before is not None and before.id == wanted.id else 1
    was_cordoned = before is not None and before.cordoned
    cordons = _must_cordon(machine, wanted, state) and node is not None and not node.unschedulable
    return MachineUpdate(
        id=wanted.id,
        change=wanted.change,
        version=wanted.version,
        config_hash=wanted.config_hash,
        step="Drain",
        since=state.now,
        step_since=state.now,
        job=job_name(machine.record.uid, wanted.id, attempt, state.now),
        attempt=attempt,
        cordoned=was_cordoned or cordons,
        restart=wanted.restart,
        boot=node.boot_id if node is not None and wanted.change == VM_RESTART else "",
    )


def _must_cordon(machine: MachineState, wanted: WantedUpdate, state: ClusterState) -> bool:
    """For another version, where other Nodes can take the pods: a lone Node is never cordoned, since what its new release
    installs needs a Node, too."""
    if machine.record.version == wanted.version and wanted.change != VM_RESTART:
        return False
    others = (one for one in state.active if one.name != machine.name)
    return any(one.is_ready and one.node is not None and not one.node.unschedulable for one in others)


# -- a turn under way --------------------------------------------------------------------------------------------


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
        _apply(machine, update, state, partial)
    elif update.step in ("Stop", "Start"):
        _restart_vm(machine, update, state, partial)
    elif wanted is None or wanted.id != update.id:
        _begin_otherwise(machine, update, wanted, state, partial)
    else:
        _drain(machine, update, state, partial)


def mark_of(update: MachineUpdate) -> str:
    """What the Node's annotation says while its files are not known to be those of any revision."""
    return f"updating-{update.id}"


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
    if is_as_recorded and (update.step == "Drain" or update.change == VM_RESTART):
        if not state.guest.is_reachable:
            _await_guest(machine, "its turn ends", state, partial)
            return
        if _await_former_jobs(machine, update, state, partial):
            return
        why = (
            "the spec asks for what it runs"
            if wanted is not None
            else "the version is not asked for any more"
        )
        partial.actions.append(DropUpdate(why, machine.name, machine.node_name, update.cordoned))
    elif wanted is not None and _has_snapshot(machine, wanted.version, state, partial):
        partial.actions.append(BeginUpdate(wanted.because, machine.name, _new_update(machine, wanted, state)))


def _await_guest(machine: MachineState, then: str, state: ClusterState, partial: PartialPlan) -> None:
    partial.wait(f"the guest API server ({unreachable_reason(state.guest)})", then, machine.name)


def drain_options(machine: MachineState, state: ClusterState) -> DrainOptions:
    strategy = state.cluster.upgrade_strategy
    return strategy.control_plane_drain if machine.record.is_server else strategy.worker_drain


def must_drain(machine: MachineState, update: MachineUpdate, state: ClusterState) -> bool:
    """Whether its pods are evicted first: for another version, where that is asked for and the Node was cordoned for it; before its
    VM stops always, where other Nodes can take them."""
    is_asked = update.change == VM_RESTART or drain_options(machine, state).enabled
    return update.cordoned and update.step == "Drain" and is_asked


def _drain(machine: MachineState, update: MachineUpdate, state: ClusterState, partial: PartialPlan) -> None:
    node = machine.node
    if node is None or not state.guest.is_reachable:
        _await_guest(machine, "its Node is drained", state, partial)
        return
    if node.applied_revision != mark_of(update) or (update.cordoned and not node.unschedulable):
        why = f"Machine {machine.name} is updated"
        partial.actions.append(MarkNode(why, machine.name, node.name, update.cordoned))
        return
    if must_drain(machine, update, state) and machine.pods and machine.is_ready:
        _evict(machine, node, update, state, partial)
        return
    _begin_apply(machine, update, "its Node is ready for it", state, partial)


def _begin_apply(
    machine: MachineState, update: MachineUpdate, because: str, state: ClusterState, partial: PartialPlan
) -> None:
    if (held := why_not_go_on(machine, state)) and update.change != LIVE:
        partial.wait(held, "its service or its VM restarts", machine.name)
        return
    if _await_former_jobs(machine, update, state, partial):
        return
    step = "Stop" if update.change == VM_RESTART else "Apply"
    changed = replace(update, step=step, step_since=state.now)
    partial.actions.append(RecordUpdateStep(because, machine.name, changed))


def _evict(
    machine: MachineState, node: Node, update: MachineUpdate, state: ClusterState, partial: PartialPlan
) -> None:
    options = drain_options(machine, state)
    until = (update.step_since or state.now) + options.timeout
    named = ", ".join(f"{pod.namespace}/{pod.name}" for pod in machine.pods[:3])
    more = f" and {len(machine.pods) - 3} more" if len(machine.pods) > 3 else ""
    if state.now >= until:
        if options.ignore_errors:
            why = f"ignoreErrors: {named}{more} did not leave within {human_duration(options.timeout)}"
            _begin_apply(machine, update, why, state, partial)
            return
        message = f"{named}{more} did not leave Node {node.name} within {human_duration(options.timeout)}"
        hint = (
            "see why their PodDisruptionBudgets hold them; or set ignoreErrors (go on) or disableEviction (delete them) in its "
            "drain options; then " + retry_hint(machine)
        )
        _fail(machine, update, "Drain", message, hint, state, partial)
        return
    to_evict = tuple((pod.namespace, pod.name) for pod in machine.pods if not pod.is_deleting)
    if to_evict:
        why = "the Node is drained before it is updated"
        partial.actions.append(EvictPods(why, machine.name, to_evict, options.disable_eviction))
    partial.wait(
        f"{len(machine.pods)} pods to be evicted from Node {node.name} ({named}{more})",
        f"it is updated to {update.version}; its turn fails if that takes longer than {human_duration(options.timeout)}",
        machine.name,
        min(until, state.now + RECHECK),
    )


def _apply(machine: MachineState, update: MachineUpdate, state: ClusterState, partial: PartialPlan) -> None:
    if missing := why_not_applied(machine, update, state):
        if _fail_late(machine, update, state, partial):
            return
        partial.wait(
            missing, _describe_end(machine, update), machine.name, _next_look(machine, update, state)
        )
        job = machine.update_job
        if job is not None and job.state == "absent" and _may_create_job(machine, update, state):
            if _await_former_jobs(machine, update, state, partial):
                return
            why = f"it writes the files for {update.version}"
            why += " and restarts the service" if update.change == SERVICE_RESTART else ""
            why = "it restarts the service" if update.restart else why
            partial.actions.append(ApplyUpdate(why, machine.name, update.job, machine.node_name))
        return
    _finish(machine, update, partial)


def _await_former_jobs(
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
        _fail(machine, update, update.step, message, hint, state, partial)
        return True
    if any(one.state not in ("running", "absent") for one in machine.former_jobs):
        why = "no Job of a former turn may run out of turn"
        partial.actions.append(DeleteFormerJobs(why, machine.name, update.job))
    partial.wait(
        f"Job kube-system/{job} of a former turn to be gone", "its turn goes on", machine.name, until
    )
    return True


def _restart_vm(
    machine: MachineState, update: MachineUpdate, state: ClusterState, partial: PartialPlan
) -> None:
    step = find_vm_step(machine, update, state)
    hint = f"have the machine replaced; or mend it, then {retry_hint(machine)}"
    if step.failed:
        _fail(machine, update, update.step, step.failed, hint, state, partial)
    elif step.waiting_for:
        then = "it is edited and started" if update.step == "Stop" else "its turn ends"
        partial.wait(step.waiting_for, then, machine.name, step.until)
        partial.actions += [step.action] if step.action is not None else []
    elif update.refused:
        correct = "set the field back, or correct what it says; a spec that asks for something else begins another turn"
        _fail(machine, update, "Edit", update.refused, correct, state, partial)
    else:
        what = "its VM runs as its pool asks"
        partial.actions.append(FinishUpdate(what, machine.name, machine.node_name, update.cordoned))


def _may_create_job(machine: MachineState, update: MachineUpdate, state: ClusterState) -> bool:
    """Not where it is done already, and only the Node is waited for."""
    node = machine.node
    return node is not None and state.guest.is_reachable and node.applied_revision == mark_of(update)


def _finish(machine: MachineState, update: MachineUpdate, partial: PartialPlan) -> None:
    what = _describe_end(machine, update)
    partial.actions.append(FinishUpdate(what, machine.name, machine.node_name, update.cordoned))


def _describe_end(machine: MachineState, update: MachineUpdate) -> str:
    if update.version != machine.record.version:
        return f"it runs {update.version}"
    if update.restart:
        return "its service was restarted"
    return "its configuration is applied"


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
    if machine.is_etcd and node.etcd_voter is False:
        return f"the etcd member of Node {node.name} to vote"
    if machine.record.is_control_plane and not is_marked and update.change == SERVICE_RESTART:
        if machine.outdated_static_pods is None:
            return f"the static pods of Node {node.name} to be listed"
        if machine.outdated_static_pods:
            return f"static pod {machine.outdated_static_pods[0]} to run {update.version}"
    return ""


def _describe_job(machine: MachineState, update: MachineUpdate) -> str:
    job = machine.update_job
    if job is None:
        return f"Job kube-system/{update.job} to be observed"
    if job.state == "absent":
        return f"Job kube-system/{update.job} to be created"
    if job.state == "waiting":
        why = f" ({first_clause(job.message)})" if job.message else ""
        return f"the pod of Job kube-system/{update.job} to run{why}"
    if update.restart:
        return f"Job kube-system/{update.job} to restart the service"
    ends = " and restart the service" if update.change == SERVICE_RESTART else ""
    return f"Job kube-system/{update.job} to write the files{ends}"


def _next_look(machine: MachineState, update: MachineUpdate, state: ClusterState) -> datetime:
    """When something is late if it has not come."""
    deadlines = [limit for limit, *_ in _deadlines(machine, update, state)]
    later = [one for one in deadlines if one > state.now]
    until = min(later, default=state.now + RECHECK)
    if machine.outdated_static_pods or machine.outdated_static_pods is None:
        job = machine.update_job
        if job is not None and job.state == "succeeded":
            return min(until, state.now + RECHECK)  # pods are not watched
    return until


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


def _fail_late(
    machine: MachineState, update: MachineUpdate, state: ClusterState, partial: PartialPlan
) -> bool:
    """Fail a turn whose Job has failed, or that is late. Whether it has failed."""
    job = machine.update_job
    hint = f"set another version; or mend it, then {retry_hint(machine)}"
    if job is not None and job.state == "failed":
        message = f"Job kube-system/{update.job} failed on Node {machine.node_name}: {job.message}"
        _fail(machine, update, "Apply", message, hint, state, partial)
        return True
    late = next((words for limit, words in _deadlines(machine, update, state) if state.now >= limit), "")
    if late:
        _fail(machine, update, "Apply", late, hint, state, partial)
    return bool(late)


def retry_hint(machine: MachineState) -> str:
    """How its turn is tried again."""
    command = render_kubectl(f"annotate machine {machine.name} {RETRY_UPDATE}=", machine.record.namespace)
    return f"have it tried again: {command}"


def _fail(
    machine: MachineState,
    update: MachineUpdate,
    step: str,
    message: str,
    hint: str,
    state: ClusterState,
    partial: PartialPlan,
) -> None:
    failure = UpdateFailure(step, message, hint, state.now)
    because = f"step {step}: {message}; {hint}"
    partial.actions.append(FailUpdate(because, machine.name, replace(update, failure=failure)))


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
        _finish(machine, update, partial)
    elif (wanted is None and update.step == "Drain") or (
        wanted is not None and (wanted.id != update.id or machine.record.retry_update)
    ):
        _begin_otherwise(machine, update, wanted, state, partial)
    else:
        partial.wait(
            f"its update to be mended (step {failure.step}; condition RollingOut says why)",
            "its turn goes on, and those of the others",
            machine.name,
        )
