"""Requests to restart the service of machines, where nothing of what they run is changed: rotations give them, turns carry them out.

A request has an id, which is recorded on each machine at the end of its turn, so that none restarts twice for it. There is one
request at a time: no rotation begins before the one before it is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from windrow.clusters.api.operations.rotations import AGENT_SERVICES, RecordedRotation
from windrow.clusters.change.rollout import find_outgoing_server
from windrow.clusters.plan.operations.snapshots import find_runtime
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.text import join_some

# Between two requests to a leader, and in all.
RETRY = timedelta(seconds=15)
TIMEOUT = timedelta(minutes=30)
LeaderStep = Literal["gone", "late", "away", "asked", "ask"]
_OF_OTHERS = {"rke2": "k3s-", "k3s": "rke2-"}


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """Restart machines that are older than `since`; servers only, but for certificates, which workers have, too.

    With `writes_files` their configuration is written before, since what is secret of it has changed; without `restarts`
    that is all. With `makes_keys` their certificates get new keys before: those of `services`, or of all without one.
    """

    id: str
    because: str
    since: datetime | None
    servers_only: bool = True
    writes_files: bool = False
    restarts: bool = True
    then: str | None = None  # the id of the request after it: who has followed that needs this no more
    makes_keys: bool = False
    services: tuple[str, ...] = ()

    def list_services(self, machine: MachineState, runtime: str) -> tuple[str, ...]:
        """Those of the named services that a machine has."""
        return tuple(
            one
            for one in self.services
            if (machine.record.is_server or one in AGENT_SERVICES)
            and not one.startswith(_OF_OTHERS.get(runtime, "-"))
        )


def find_request(state: ClusterState) -> RestartRequest | None:
    """The request that is being carried out."""
    recorded = state.recorded.operations
    if (keys := recorded.rotation).phase == "PostRotateRestart":
        return RestartRequest(keys.id, "encryption keys were rotated", keys.since)
    if (renewal := recorded.renewal).id:
        because = "its certificates get new keys" if renewal.makes_keys else "certificates are renewed"
        return RestartRequest(
            renewal.id,
            because,
            renewal.since,
            servers_only=False,
            makes_keys=renewal.makes_keys,
            services=renewal.services,
        )
    if recorded.token.phase == "PostRotateRestart":
        return _find_token_request(state)
    return None


def _find_token_request(state: ClusterState) -> RestartRequest:
    """Every server has the new token on its disk before the first one restarts: whichever starts by itself then starts with that."""
    token, because = state.recorded.operations.token, "the server token was rotated"
    request = RestartRequest(token.id, because, token.since, writes_files=True)
    files = replace(request, id=f"{token.id}-files", restarts=False, then=request.id)
    updates = [one.record.update for one in state.active]
    has_begun = any(update is not None and update.restart == request.id for update in updates)
    return files if _list_open(files, state) and not has_begun else request


def list_not_restarted(state: ClusterState) -> list[MachineState]:
    """The machines that have yet to follow the request. Those that were made since have nothing old."""
    request = find_request(state)
    return [] if request is None else _list_open(request, state)


def _list_open(request: RestartRequest, state: ClusterState) -> list[MachineState]:
    runtime = find_runtime(state)
    return [
        one
        for one in state.active
        if (one.record.is_server or not request.servers_only)
        and (not request.services or request.list_services(one, runtime))
        and one.record.was_ready
        and one.record.restarted not in (request.id, request.then)
        and (request.since is None or one.record.created <= request.since)
    ]


def name_some(machines: Sequence[MachineState]) -> str:
    """Their names, the first three of many."""
    return join_some([one.name for one in machines])


def find_leader(state: ClusterState) -> MachineState | None:
    """The oldest server with an API that can be asked."""
    servers = [one for one in state.active if one.record.is_control_plane and one.is_ready and one.address]
    return (
        min(servers, key=lambda one: (one.record.created, one.name)) if answers(state) and servers else None
    )


def find_leader_step(recorded: RecordedRotation, state: ClusterState) -> LeaderStep:
    """How it stands with the leader of a rotation in phase Rotate: it is asked with "ask" alone, and given up with "gone" and "late".

    After an absence of the manager it is asked once more: it may have finished long ago.
    """
    leader, until = state.machines_by_name.get(recorded.leader), find_deadline(recorded, state)
    if leader is None:
        return "gone"
    is_there = leader.is_ready and leader.address and answers(state)
    was_asked = recorded.retry_at is not None and recorded.retry_at >= until
    if state.now >= until and (was_asked or not is_there):
        return "late"
    if not is_there:
        return "away"
    return "asked" if recorded.retry_at is not None and state.now < recorded.retry_at else "ask"


def find_deadline(recorded: RecordedRotation, state: ClusterState) -> datetime:
    """When a leader that has not done it is late."""
    return (recorded.since or state.now) + TIMEOUT


def answers(state: ClusterState) -> bool:
    """Whether the guest answers at this moment."""
    return state.guest.is_reachable and not state.guest.interruption


def why_not_begin(state: ClusterState) -> str:
    """What is waited for before a rotation begins, "" where it may."""
    turns = [one.name for one in state.active if one.record.update is not None]
    if turns:
        return f"the turn of Machine {turns[0]} to end"
    if not state.recorded.provisioned:
        return "all machines to join"
    if outgoing := find_outgoing_server(state):  # a restart of one of two etcd members is one without quorum
        return f"Machine {outgoing} to be replaced"
    if find_leader(state) is None:
        return "a server to be Ready, and the guest API to answer"
    return "spec.paused to be unset" if state.cluster.paused else ""
