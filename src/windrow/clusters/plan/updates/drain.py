"""The step Drain: the Node is marked, cordoned and drained, and then the turn goes on to what restarts something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from windrow.clusters.api.updates.strategy import DrainOptions
from windrow.clusters.api.updates.turn import LIVE, VM_RESTART, MachineUpdate
from windrow.clusters.plan.actions import EvictPods, MarkNode, PartialPlan, RecordUpdateStep
from windrow.clusters.plan.updates.apply import finish
from windrow.clusters.plan.updates.evidence import await_guest, is_applied_already, mark_of
from windrow.clusters.plan.updates.failures import RECHECK, fail, retry_hint
from windrow.clusters.plan.updates.gates import why_not_go_on
from windrow.clusters.plan.updates.jobs.former_jobs import await_former_jobs
from windrow.clusters.state import ClusterState, MachineState, Node, Pod
from windrow.core.formats.duration import human_duration
from windrow.core.text import join_some


def drain_options(machine: MachineState, state: ClusterState) -> DrainOptions:
    """Those of `upgradeStrategy` for servers or for workers."""
    strategy = state.cluster.upgrade_strategy
    return strategy.control_plane_drain if machine.record.is_server else strategy.worker_drain


def list_leaving(machine: MachineState, state: ClusterState) -> tuple[Pod, ...]:
    """The pods that leave its Node: without `force` those without a controller stay, since nothing would create them again, and with
    `deleteEmptyDirData: false` those with an emptyDir, whose data would be gone. They run beside a service that restarts, and come
    back with a VM."""
    options = drain_options(machine, state)
    keeps_data = options.delete_empty_dir_data is False
    return tuple(
        pod
        for pod in machine.pods
        if (options.force or not pod.is_bare) and not (keeps_data and pod.has_empty_dir)
    )


def list_holding(machine: MachineState, state: ClusterState) -> tuple[Pod, ...]:
    """The pods for which a drain that was asked for (`enabled`) does not begin, as with `kubectl drain`: they have an emptyDir, and
    that its data may go is not said."""
    options = drain_options(machine, state)
    if not options.enabled or options.delete_empty_dir_data:
        return ()
    return tuple(pod for pod in machine.pods if pod.has_empty_dir and (options.force or not pod.is_bare))


def must_drain(machine: MachineState, update: MachineUpdate, state: ClusterState) -> bool:
    """Whether its pods are evicted first: for another version, where that is asked for and the Node was cordoned for it; before its
    VM stops always, where other Nodes can take them."""
    is_asked = update.change == VM_RESTART or drain_options(machine, state).enabled
    return update.cordoned and update.step == "Drain" and is_asked


def drain(machine: MachineState, update: MachineUpdate, state: ClusterState, partial: PartialPlan) -> None:
    """Mark and cordon the Node, then evict its pods where that is asked for, then go on to Apply or Stop."""
    node = machine.node
    if node is None or not state.guest.is_reachable:
        await_guest(machine, "its Node is drained", state, partial)
        return
    if is_applied_already(machine, update, state):
        finish(machine, update, partial)
        return
    if node.applied_revision != mark_of(update) or (update.cordoned and not node.unschedulable):
        why = f"Machine {machine.name} is updated"
        partial.actions.append(MarkNode(why, machine.name, node.name, update.cordoned))
        return
    if must_drain(machine, update, state) and machine.is_ready:
        if holding := list_holding(machine, state):
            _await_consent(machine, node, holding, update, state, partial)
            return
        if leaving := list_leaving(machine, state):
            _evict(machine, node, leaving, update, state, partial)
            return
    _begin_apply(machine, update, "its Node is ready for it", state, partial)


def _begin_apply(
    machine: MachineState, update: MachineUpdate, because: str, state: ClusterState, partial: PartialPlan
) -> None:
    if (held := why_not_go_on(machine, state)) and update.change != LIVE:
        partial.wait(held, "its service or its VM restarts", machine.name)
        return
    if await_former_jobs(machine, update, state, partial):
        return
    step = "Stop" if update.change == VM_RESTART else "Apply"
    changed = replace(update, step=step, step_since=state.now)
    partial.actions.append(RecordUpdateStep(because, machine.name, changed))


def _await_consent(
    machine: MachineState,
    node: Node,
    pods: Sequence[Pod],
    update: MachineUpdate,
    state: ClusterState,
    partial: PartialPlan,
) -> None:
    """No pod is evicted before a person says that data may go, or moves it."""
    options, named = drain_options(machine, state), _join_names(pods)
    until = (update.step_since or state.now) + options.timeout
    if state.now < until:
        what = f"{named} to leave Node {node.name}: emptyDir, and deleteEmptyDirData is not set in its drain options"
        partial.wait(what, _describe_limit(update, options), machine.name, min(until, state.now + RECHECK))
        return
    if options.ignore_errors:
        _begin_apply(
            machine, update, f"ignoreErrors: {named} on Node {node.name} with emptyDir", state, partial
        )
        return
    message = (
        f"{named} on Node {node.name} keep data in an emptyDir, which an eviction deletes; no pod was evicted"
    )
    hint = (
        "set deleteEmptyDirData in its drain options, or save the data and delete the pods; then "
        + retry_hint(machine)
    )
    fail(machine, update, "Drain", message, hint, state, partial)


def _join_names(pods: Sequence[Pod]) -> str:
    return join_some([f"{pod.namespace}/{pod.name}" for pod in pods])


def _describe_limit(update: MachineUpdate, options: DrainOptions) -> str:
    return f"it is updated to {update.version}; its turn fails if that takes longer than {human_duration(options.timeout)}"


def _evict(
    machine: MachineState,
    node: Node,
    pods: Sequence[Pod],
    update: MachineUpdate,
    state: ClusterState,
    partial: PartialPlan,
) -> None:
    options = drain_options(machine, state)
    until = (update.step_since or state.now) + options.timeout
    named = _join_names(pods)
    if state.now >= until:
        if options.ignore_errors:
            why = f"ignoreErrors: {named} did not leave within {human_duration(options.timeout)}"
            _begin_apply(machine, update, why, state, partial)
            return
        message = f"{named} did not leave Node {node.name} within {human_duration(options.timeout)}"
        hint = (
            "see why their PodDisruptionBudgets hold them; or set ignoreErrors (go on) or disableEviction (delete them) in its "
            "drain options; then " + retry_hint(machine)
        )
        fail(machine, update, "Drain", message, hint, state, partial)
        return
    to_evict = tuple((pod.namespace, pod.name) for pod in pods if not pod.is_deleting)
    if to_evict:
        why = "the Node is drained before it is updated"
        partial.actions.append(
            EvictPods(why, machine.name, to_evict, options.disable_eviction, options.grace_period)
        )
    partial.wait(
        f"{len(pods)} pods to be evicted from Node {node.name} ({named})",
        _describe_limit(update, options),
        machine.name,
        min(until, state.now + RECHECK),
    )
