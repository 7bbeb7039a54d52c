"""Rotation of the server token: `rotateToken`. By it servers join, and by it what they share in etcd is encrypted.

| Phase | What is done |
|---|---|
| Prepare | a new password is made, and kept in the Secret of the cluster beside the present one |
| Rotate | one server is given it, and encrypts with it what the servers share; then it is the present one of the Secret |
| PostRotateRestart | all servers get the configuration with the new token at once; then their services restart, one turn after the other |
| Done, Failed | until the generation is raised |

Until a server restarts it takes the token with which it was started, and starts only with the new one; requests to it are made
with the one that it takes. Every token that may be in force is in the Secret before it is. A rotation that failed leaves the
new password there, since a server may have it: the next rotation goes on with that.

The token of agents stays: it is static, the same on all servers, and grants nothing but the certificates of a node.
"""

from __future__ import annotations

from windrow.clusters.plan.actions import PartialPlan
from windrow.clusters.plan.operations import restarts
from windrow.clusters.plan.operations.actions import (
    BeginTokenRotation,
    FailTokenRotation,
    FinishTokenRotation,
    RecordNextToken,
    RotateToken,
)
from windrow.clusters.plan.operations.restarts import TIMEOUT
from windrow.clusters.state import ClusterState
from windrow.core.formats.duration import human_duration

FIELD = "spec.rkeConfig.rotateToken"


def holds_turns(state: ClusterState) -> bool:
    """Whether no turn may begin: a server that restarted now would not start again."""
    return state.recorded.operations.token.holds_turns


def begin(state: ClusterState, partial: PartialPlan) -> None:
    """Begin what `rotateToken` asks for, or wait."""
    generation, leader = state.cluster.operations.rotate_token, restarts.find_leader(state)
    if (why := _why_never(state)) and generation:
        partial.actions.append(FailTokenRotation(f"{why}; nothing was touched", generation))
        return
    missing = restarts.why_not_begin(state) or _find_unready(state)
    if missing or leader is None:
        partial.wait(missing, "the server token is rotated")
        return
    why = f"rotateToken.generation is {generation}"
    partial.actions.append(BeginTokenRotation(why, generation, leader.name))


def _why_never(state: ClusterState) -> str:
    """Where servers without etcd ask each other at their start, through an endpoint that leads to them alone: the first one that restarts
    would have a token that the others do not take yet."""
    servers = [one for one in state.active if one.record.is_server]
    apart = [one for one in servers if not one.is_etcd]
    endpoint = state.cluster.control_plane_endpoint
    if not apart or endpoint.mode != "loadBalancer" or endpoint.join_host:
        return ""
    if any(one.is_etcd and one.record.is_control_plane for one in servers):
        return ""
    return (
        f"Machine {apart[0].name} has no etcd and joins through {endpoint.host}, which leads to servers without etcd alone: after its restart "
        "none of them would take the new token; add a pool with etcdRole and controlPlaneRole while it is rotated"
    )


def _find_unready(state: ClusterState) -> str:
    """A server that is away would come back with a token that opens nothing any more, and could not be given the new one."""
    servers = [one for one in state.active if one.record.is_server]
    paused = [one.pool for one in servers if (pool := state.cluster.find_pool(one.pool)) and pool.paused]
    if paused:
        return f"pool {paused[0]} not to be paused, whose servers get another configuration"
    away = [one for one in servers if not one.is_ready or not one.record.was_ready or one.is_going_down]
    return f"all servers to be Ready ({restarts.name_some(away)})" if away else ""


def go_on(state: ClusterState, partial: PartialPlan) -> None:
    """The next step of the rotation under way."""
    recorded = state.recorded.operations.token
    if recorded.phase == "PostRotateRestart":
        _await_restarts(state, partial)
    elif recorded.phase == "Prepare":
        partial.actions.append(RecordNextToken("it is known before a server has it"))
    else:
        _rotate(state, partial)


def _rotate(state: ClusterState, partial: PartialPlan) -> None:
    recorded = state.recorded.operations.token
    match step := restarts.find_leader_step(recorded, state):
        case "gone" | "late":
            said = f" ({recorded.message})" if recorded.message else ""
            what = "is gone" if step == "gone" else f"did not take it within {human_duration(TIMEOUT)}"
            message = f"Machine {recorded.leader}, which is given the new token, {what}{said}; {retry_hint()}"
            partial.actions.append(FailTokenRotation(message, recorded.generation))
        case "away":
            until = restarts.find_deadline(recorded, state)
            partial.wait(
                f"Machine {recorded.leader} to be Ready", "it is given the new server token", until=until
            )
        case "asked":
            what = f"Machine {recorded.leader} to take the new server token ({recorded.message})"
            partial.wait(what, "the servers restart, one after the other", until=recorded.retry_at)
        case "ask":
            why = "the new token is in the Secret of the cluster"
            partial.actions.append(RotateToken(why, recorded.leader))


def retry_hint() -> str:
    """What is to be done about one that failed, with what is kept."""
    return f"the new token is kept in the Secret of the cluster; mend it, then raise {FIELD}.generation, which goes on with that token"


def _await_restarts(state: ClusterState, partial: PartialPlan) -> None:
    left, request = restarts.list_not_restarted(state), restarts.find_request(state)
    if left and request is not None and not request.restarts:
        what = f"{len(left)} servers to have the new token on their disks ({restarts.name_some(left)})"
        partial.wait(what, "the servers restart, one after the other; until then they would not start again")
        return
    if left:
        what = f"{len(left)} servers to restart ({restarts.name_some(left)})"
        partial.wait(what, "every server has the new token")
        return
    partial.actions.append(FinishTokenRotation("every server was restarted with the new token"))
