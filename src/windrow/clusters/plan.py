"""One look in, one plan out. Pure: no clock, no chance, no waiting."""

from __future__ import annotations

from dataclasses import dataclass, field

from windrow.clusters import access, birth, pools, removal, repair
from windrow.clusters.actions import Action, Retire, Wait
from windrow.clusters.admission import admit
from windrow.clusters.parts import Held, Part, joined
from windrow.clusters.seen import Seen
from windrow.machines.port import Problem


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, what not and why, what is waited for, and what only the user can change."""

    actions: tuple[Action, ...] = ()
    held: tuple[Held, ...] = ()
    waits: tuple[Wait, ...] = ()
    refused: tuple[Problem, ...] = field(default=())


def plan_cluster(seen: Seen) -> Plan:
    """The plan for one Cluster."""
    if seen.cluster.deleting is not None:
        return _decided(removal.plan_end(seen), seen)
    refused = find_refusals(seen)
    if refused:
        # What was given up before is still removed; nothing new is begun.
        return _decided(removal.plan(seen), seen, refused)
    preparation = joined([birth.plan_preparation(seen), access.plan(seen)])
    if not birth.is_prepared(seen):
        return _decided(joined([preparation, removal.plan(seen)]), seen)
    strays = Part(actions=tuple(birth.plan_strays(seen)))
    return _decided(
        joined(
            [preparation, birth.plan(seen), strays, repair.plan(seen), removal.plan(seen), pools.plan(seen)]
        ),
        seen,
    )


def find_refusals(seen: Seen) -> tuple[Problem, ...]:
    """The errors that stop everything. Before the cluster has started all do; later it must go on living."""
    errors = [problem for problem in (*seen.problems, *(seen.preflight or ())) if problem.severity == "error"]
    if seen.standing.initialized:
        errors = [problem for problem in errors if not _is_bearable(problem)]
    return tuple(errors)


def _is_bearable(problem: Problem) -> bool:
    return problem.field == "spec.kubernetesVersion" or problem.field.endswith(
        ("machineConfigRef", "machineConfigRef.kind")
    )


def _decided(part: Part, seen: Seen, refused: tuple[Problem, ...] = ()) -> Plan:
    admitted, held = admit(part.asked, seen)
    actions = _without_doubles((*part.actions, *(disruption.action for disruption in admitted)))
    return Plan(actions, tuple(held), part.waits, refused)


def _without_doubles(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Two rooms may give up one machine for two reasons; the first reason stands."""
    retired: set[str] = set()
    kept: list[Action] = []
    for action in actions:
        if isinstance(action, Retire):
            if action.machine in retired:
                continue
            retired.add(action.machine)
        kept.append(action)
    return tuple(action for action in kept if isinstance(action, Retire) or action.subject not in retired)
