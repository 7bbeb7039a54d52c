"""What a sub-planner returns: actions, disruptions that are to be admitted, and what is waited for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from windrow.clusters.plan.actions.base import OperationAction
from windrow.clusters.plan.actions.cluster import ClusterAction
from windrow.clusters.plan.actions.machines import DeleteMachine, MachineAction, RemoveEtcdMember
from windrow.clusters.plan.actions.updates import BeginUpdate

Action = ClusterAction | MachineAction | OperationAction

MAX_CLAUSE = 100
_NO_HOST = re.compile(r"\d+/\d+ nodes are available: ")


def first_clause(text: str) -> str:
    """The first clause of an explanation by another program, for sentences that are read at 80 columns.

    It ends at a colon where it is too long; kube-scheduler's does not, since its reasons follow there.
    """
    head = text.split("\n")[0]
    for mark in (". ",) if _NO_HOST.match(head) else (". ", ": "):
        if len(head) > MAX_CLAUSE and mark in head[20:]:
            head = head[: head.index(mark, 20)]
    return head if len(head) <= MAX_CLAUSE else head[: MAX_CLAUSE - 1].rstrip() + "…"


@dataclass(frozen=True, slots=True)
class Wait:
    """What is waited for, and what happens then. `machine` is "" for the cluster; `until` is when to reconcile again."""

    what: str
    then: str
    machine: str = ""
    until: datetime | None = None


DisruptionKind = Literal["replace", "scale-down", "remove-member", "update", "roll"]


@dataclass(frozen=True, slots=True)
class Disruption:
    """An action that takes something away from a running cluster; `disruptions.admit` alone decides about it.

    * `replace` — delete a machine that is unhealthy,
    * `scale-down` — delete a machine because fewer are wanted,
    * `roll` — delete a machine because one that is made as the Cluster asks now takes its place,
    * `remove-member` — remove the etcd member of a machine that is being deleted,
    * `update` — begin the turn of a machine whose service is restarted.
    """

    kind: DisruptionKind
    action: DeleteMachine | RemoveEtcdMember | BeginUpdate

    @property
    def machine(self) -> str:
        return self.action.machine


@dataclass(frozen=True, slots=True)
class HeldDisruption:
    """A disruption that was not admitted, and why. `hint`: the commands that end the wait, where only a person can. `gate`
    is what metrics call the gate that held it."""

    disruption: Disruption
    because: str
    until: datetime | None = None
    hint: str = ""
    gate: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.because}; {self.hint}" if self.hint else self.because


@dataclass(slots=True)
class PartialPlan:
    """One sub-planner's share of the plan: actions, disruptions that need to be admitted, and waits."""

    actions: list[Action] = field(default_factory=list)
    disruptions: list[Disruption] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)

    def wait(self, what: str, then: str, machine: str = "", until: datetime | None = None) -> None:
        self.waits.append(Wait(what, then, machine, until))

    def propose(self, kind: DisruptionKind, action: DeleteMachine | RemoveEtcdMember | BeginUpdate) -> None:
        self.disruptions.append(Disruption(kind, action))

    def add(self, other: PartialPlan) -> PartialPlan:
        """Append what another sub-planner has planned; returns itself."""
        self.actions += other.actions
        self.disruptions += other.disruptions
        self.waits += other.waits
        return self
