"""Names of Machines that are going to be created: reserved in the Cluster before the first of them is.

The reservation is a write under the resourceVersion of the Cluster that was observed. A manager that has not noticed that
another leads now, by whatever clock, is refused there; and one that was stopped after it creates Machines under names that
its successor uses too, so that each exists once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windrow.clusters.api.status import ReservedName
from windrow.clusters.change.revisions import is_recorded
from windrow.clusters.change.rollout import find_replicas
from windrow.clusters.plan.actions import Action, CreateMachine, ReserveMachineNames
from windrow.clusters.state import ClusterState

MAX_RESERVED = 64  # at a time


@dataclass(frozen=True, slots=True)
class Wanted:
    """Machines that a pool lacks."""

    pool: str
    count: int
    because: str
    join_server: str = ""
    is_init_server: bool = False


def list_reserved(state: ClusterState, pool: str = "") -> tuple[ReservedName, ...]:
    """The reserved names without a Machine, of one pool or of all; of pools that ask for more machines only."""
    names = {machine.name for machine in state.machines}
    asking = {one.name for one in state.cluster.pools if len(state.of_pool(one)) < find_replicas(one, state)}
    return tuple(
        one
        for one in state.recorded.creating
        if one.name not in names and one.pool in asking and pool in ("", one.pool)
    )


def plan_creation(wanted: Sequence[Wanted], state: ClusterState) -> list[Action]:
    """Create Machines under the names that are reserved, and reserve those that are lacking; first record the revisions that
    they are created with."""
    create: list[Action] = []
    unrecorded = [one.pool for one in wanted if not is_recorded(one.pool, state)]
    lacking: list[tuple[str, int]] = []
    for one in wanted:
        reserved = list_reserved(state, one.pool)[: one.count]
        create += [
            CreateMachine(one.because, one.pool, name.name, one.join_server, one.is_init_server)
            for name in reserved
            if one.pool not in unrecorded
        ]
        if count := min(one.count - len(reserved), MAX_RESERVED):
            lacking.append((one.pool, count))
    if not lacking and not unrecorded:
        return create
    why = "the names of Machines are recorded before they are created"
    return [ReserveMachineNames(why, tuple(lacking)), *create]
