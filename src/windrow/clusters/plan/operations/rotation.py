"""Which rotation has its turn: that of encryption keys, of the server token, or of certificates. They never overlap."""

from __future__ import annotations

from windrow.clusters.plan.actions import PartialPlan
from windrow.clusters.plan.operations import certificates, key_rotation, restore, token_rotation
from windrow.clusters.plan.operations.actions import BeginKeyRotation, BeginRenewal, BeginTokenRotation
from windrow.clusters.state import ClusterState


def holds_turns(state: ClusterState) -> bool:
    """Whether no turn may begin: keys are about to be rotated, or being rotated."""
    return state.recorded.operations.rotation.holds_turns or token_rotation.holds_turns(state)


def begins(partial: PartialPlan) -> bool:
    """Whether a rotation begins with this plan: neither a turn nor a replacement may begin beside it."""
    return any(
        isinstance(one, BeginKeyRotation | BeginTokenRotation | BeginRenewal) for one in partial.actions
    )


def plan(state: ClusterState) -> PartialPlan:
    """The next step of the rotation under way, of whatever; else that of the first which is asked for."""
    partial, recorded, asked = PartialPlan(), state.recorded.operations, state.cluster.operations
    if not state.recorded.initialized or restore.is_under_way(state):
        return partial
    if recorded.renewal.id:
        certificates.go_on(state, partial)
    elif recorded.token.is_under_way:
        token_rotation.go_on(state, partial)
    elif recorded.rotation.is_under_way:
        key_rotation.go_on(state, partial)
    elif asked.rotate_keys > recorded.rotation.generation:
        key_rotation.begin(state, partial)
    elif asked.rotate_token > recorded.token.generation:
        token_rotation.begin(state, partial)
    elif asked.rotate_certificates > recorded.renewal.generation:
        certificates.begin(state, partial)
    else:
        certificates.watch_ends(state, partial)
    return partial
