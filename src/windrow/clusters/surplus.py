"""Machines of a pool beyond its quantity: which of them are deleted, and in which order.

The order is decided here alone. A machine that is recorded now is told to join through a server that stays by this order.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace
from enum import IntEnum

from windrow.clusters.change.rollout import is_outdated
from windrow.clusters.state import ClusterState, MachineState


class Progress(IntEnum):
    """How far a machine has come; surplus machines are deleted in this order."""

    STOPPED = 0
    NOT_JOINED = 1
    NOT_READY = 2
    LAST_KNOWN_READY = 3  # while the guest API server does not answer
    NOT_INITIALIZED = 4
    INITIALIZED = 5


def find_progress(machine: MachineState, state: ClusterState) -> Progress:
    if machine.is_going_down:
        return Progress.STOPPED
    if machine.is_ready:
        return Progress.INITIALIZED if state.is_initialized(machine) else Progress.NOT_INITIALIZED
    if not state.guest.is_reachable and machine.node is not None:
        as_last_known = replace(machine, node=replace(machine.node, ready=machine.record.was_ready))
        if state.is_initialized(as_last_known):
            return Progress.LAST_KNOWN_READY
    return Progress.NOT_READY if machine.node is not None or machine.record.was_ready else Progress.NOT_JOINED


def choose_machines_to_delete(
    machines: Iterable[MachineState], count: int, state: ClusterState, needed: Set[str] = frozenset()
) -> list[MachineState]:
    """`count` machines: annotated ones first, then those that have come the least far, then those that are to be replaced, then
    the oldest; of those that are as far, servers that a machine is just joining through (`needed`) go last."""
    if count <= 0:
        return []
    return sorted(
        machines,
        key=lambda machine: (
            not machine.record.delete_first,
            find_progress(machine, state),
            not is_outdated(machine, state),
            machine.name in needed,
            machine.record.created,
            machine.name,
        ),
    )[:count]
