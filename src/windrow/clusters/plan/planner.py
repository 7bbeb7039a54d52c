"""One look in, one plan out. Pure: no clock, no chance, no waiting."""

from __future__ import annotations

from dataclasses import dataclass, field

from windrow.clusters.plan import bootstrap, deletion, guest_access, pools, remediation
from windrow.clusters.plan.actions import Action, DeleteMachine, Wait
from windrow.clusters.plan.disruptions import admit
from windrow.clusters.plan.partial_plan import HeldDisruption, PartialPlan, merge_plans
from windrow.clusters.state import ClusterState
from windrow.machines.port import Problem


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, what not and why, what is waited for, and what only the user can change."""

    actions: tuple[Action, ...] = ()
    held: tuple[HeldDisruption, ...] = ()
    waits: tuple[Wait, ...] = ()
    refused: tuple[Problem, ...] = field(default=())


def plan_cluster(state: ClusterState) -> Plan:
    """The plan for one Cluster."""
    if state.cluster.deletion_timestamp is not None:
        return _with_admitted(deletion.plan_deletion(state), state)
    refused = find_refusals(state)
    if refused:
        # What was given up before is still removed; nothing new is begun.
        return _with_admitted(deletion.plan(state), state, refused)
    preparation = merge_plans([bootstrap.plan_preparation(state), guest_access.plan(state)])
    if not bootstrap.is_prepared(state):
        return _with_admitted(merge_plans([preparation, deletion.plan(state)]), state)
    strays = PartialPlan(actions=tuple(bootstrap.plan_superseded(state)))
    return _with_admitted(
        merge_plans(
            [
                preparation,
                bootstrap.plan(state),
                strays,
                remediation.plan(state),
                deletion.plan(state),
                pools.plan(state),
            ]
        ),
        state,
    )


def find_refusals(state: ClusterState) -> tuple[Problem, ...]:
    """The errors that stop everything. Before the cluster has started all do; later it must go on living."""
    errors = [
        problem for problem in (*state.problems, *(state.preflight or ())) if problem.severity == "error"
    ]
    if state.recorded.initialized:
        errors = [problem for problem in errors if not _is_tolerable(problem)]
    return tuple(errors)


def _is_tolerable(problem: Problem) -> bool:
    return problem.field == "spec.kubernetesVersion" or problem.field.endswith(
        ("machineConfigRef", "machineConfigRef.kind")
    )


def _with_admitted(part: PartialPlan, state: ClusterState, refused: tuple[Problem, ...] = ()) -> Plan:
    admitted, held = admit(part.disruptions, state)
    actions = _without_duplicates((*part.actions, *(disruption.action for disruption in admitted)))
    return Plan(actions, tuple(held), part.waits, refused)


def _without_duplicates(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Two rooms may give up one machine for two reasons; the first reason stands."""
    retired: set[str] = set()
    kept: list[Action] = []
    for action in actions:
        if isinstance(action, DeleteMachine):
            if action.machine in retired:
                continue
            retired.add(action.machine)
        kept.append(action)
    return tuple(
        action for action in kept if isinstance(action, DeleteMachine) or action.subject not in retired
    )
