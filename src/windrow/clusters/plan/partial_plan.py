"""What a room hands to the plan: harmless actions, disruptions it asks for, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from windrow.clusters.plan.actions import Action, Wait


@dataclass(frozen=True, slots=True)
class Disruption:
    """An action that takes something away from a living cluster. Rooms ask; `admission.admit` alone decides.

    * `replace` — give up a machine that is judged lost,
    * `shrink` — give up a machine because fewer are wanted,
    * `leave` — drop the etcd member of a machine that was given up.
    """

    kind: Literal["replace", "shrink", "leave"]
    machine: str
    action: Action

    @property
    def because(self) -> str:
        return self.action.because


@dataclass(frozen=True, slots=True)
class HeldDisruption:
    """A disruption that was not admitted, and why."""

    disruption: Disruption
    because: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class PartialPlan:
    """One room's share of the plan."""

    actions: tuple[Action, ...] = ()
    disruptions: tuple[Disruption, ...] = ()
    waits: tuple[Wait, ...] = ()


@dataclass(slots=True)
class PlanBuilder:
    """A part being written."""

    actions: list[Action] = field(default_factory=list)
    disruptions: list[Disruption] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)

    def build(self) -> PartialPlan:
        return PartialPlan(tuple(self.actions), tuple(self.disruptions), tuple(self.waits))


def merge_plans(parts: Iterable[PartialPlan]) -> PartialPlan:
    builder = PlanBuilder()
    for part in parts:
        builder.actions += part.actions
        builder.disruptions += part.disruptions
        builder.waits += part.waits
    return builder.build()
