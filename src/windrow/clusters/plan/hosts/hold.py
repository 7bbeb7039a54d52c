"""What is not done to machines whose host on Harvester is in maintenance: repair, turns, replacement for a change.

It is held for HOST_TIMEOUT at most, from when the maintenance was recorded, and never for a machine whose VM is deleted, nor for
one that a user wants to be replaced. When the host is back, a Node has as long to become Ready again as any.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from windrow.clusters.api.cluster import UNHEALTHY_TIMEOUT
from windrow.clusters.state import ClusterState, MachineState

# A host takes an hour at most, with its restart; one that is repaired takes days.
HOST_TIMEOUT = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a machine is not repaired now, what it waits for, and until when at most."""

    because: str
    until: datetime


def find_hold(
    machine: MachineState, health: Literal["stopped", "unhealthy", "waiting"], state: ClusterState
) -> Hold | None:
    """Why a machine that is not well is left alone; None where it is not."""
    live, record = machine.maintenance, machine.record.maintenance
    if machine.presence == "missing" or machine.record.replace_now:
        return None
    since = record.since if record is not None and record.since is not None else state.now
    if live is not None or (record is not None and record.ended is None and not machine.are_hosts_known):
        until = since + HOST_TIMEOUT
        # What could have migrated, and is off all the same, runs elsewhere as soon as it is started.
        starts = health == "stopped" and record is not None and not record.shutdown
        because = str(live or record)
        return None if starts or state.now >= until else Hold(because, until)
    if record is None or health == "stopped":
        return None
    pool = state.cluster.find_pool(machine.pool)
    until = (record.ended or state.now) + (pool.unhealthy_timeout if pool else UNHEALTHY_TIMEOUT)
    host = f"host {record.host} was in maintenance until just now ({record.because})"
    return None if state.now >= until else Hold(host, until)


def is_expired(machine: MachineState, state: ClusterState) -> bool:
    """Whether what is recorded is older than anything is held for: of its host nothing may ever be known again."""
    record = machine.record.maintenance
    return record is not None and record.since is not None and state.now >= record.since + HOST_TIMEOUT


def why_not_disrupted(machine: MachineState) -> str:
    """Why no turn of the machine begins, and it is not replaced for a change; "" where it may be."""
    record = machine.record.maintenance
    if machine.maintenance is not None:
        return str(machine.maintenance)
    if record is None:
        return ""
    return str(record) if record.ended is None else f"host {record.host} was in maintenance until just now"


def is_shutting_down(machine: MachineState) -> bool:
    """Whether its VM runs, and is going to be shut down for its host."""
    record = machine.record.maintenance
    return record is not None and record.ended is None and bool(record.shutdown)
