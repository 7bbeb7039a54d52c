"""Execution of rotations of the server token. Each step may be repeated, and no token is in force that is not in the Secret.

What is written last of a rotation is the Secret: a password that is the next one there was perhaps given to a server, and one
that is the present one was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windrow.bootstrap.pki import new_password
from windrow.clusters.api.names import secrets_name
from windrow.clusters.api.operations.snapshot import find_password, token_hash
from windrow.clusters.api.secrets import render_next_password, render_server_password
from windrow.clusters.context import ReconcileContext, StalePlan, get_machine
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.plan.operations.restarts import RETRY
from windrow.clusters.plan.operations.token_rotation import FIELD, retry_hint
from windrow.clusters.sources.servers.supervisor import (
    EndpointNotServed,
    Supervisor,
    SupervisorError,
    TokenRejected,
)
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.clock import format_time
from windrow.kubernetes.errors import Conflict, NotFound
from windrow.kubernetes.resources import SECRET

MAX_MESSAGE = 400


class TokenRotation:
    """One method for each action. None decides more than what the server says."""

    def __init__(
        self, context: ReconcileContext, supervisor: Callable[[MachineState, ClusterState], Supervisor]
    ) -> None:
        self._context, self._supervisor = context, supervisor

    async def begin(self, action: do.BeginTokenRotation, state: ClusterState) -> None:
        now = self._context.clock.now()
        run: dict[str, Any] = {
            "id": f"token-{action.generation}-{int(now.timestamp())}",
            "since": format_time(now),
            **dict.fromkeys(("message", "retryAt")),
        }
        change = {
            "rotateToken": {"generation": action.generation},
            "rotateTokenPhase": "Prepare",
            "rotateTokenLeader": action.leader,
            "rotateTokenRun": run,
        }
        await self._context.patch_observed_cluster(state, change)

    async def record_next(self, state: ClusterState) -> None:
        if state.secrets is None:
            raise StalePlan
        if not state.secrets.next_server_password:
            await self._write_secret(render_next_password(new_password()), state)
        await self.set_phase("Rotate", state)

    async def _write_secret(self, data: dict[str, str | None], state: ClusterState) -> None:
        """Raises StalePlan where someone else has written the Secret since it was read."""
        context, ref = self._context, SECRET.ref(secrets_name(state.cluster.name), state.cluster.namespace)
        found = context.secrets.get(ref)
        if found is None:
            raise StalePlan
        change = {"metadata": {"resourceVersion": found.resource_version}, "data": data}
        try:
            context.secrets.mutated(await context.api.patch(ref, change))
        except (Conflict, NotFound) as error:
            raise StalePlan from error

    async def rotate(self, action: do.RotateToken, state: ClusterState) -> None:
        """The request may have been made before: the same token is given again then, which changes nothing."""
        secrets, recorded = state.secrets, state.recorded.operations.token
        if secrets is None:
            raise StalePlan
        upcoming = secrets.next_server_password
        if not upcoming and secrets.rotation == recorded.id:
            await self.set_phase("PostRotateRestart", state)
            return
        if not upcoming:
            what = f"Secret {secrets_name(state.cluster.name)} does not hold the new token any more"
            await self.fail(f"{what}; was it restored? Raise {FIELD}.generation", state)
            return
        if problem := await self._give(action, upcoming, state):
            await self._retry(problem, state)
            return
        await self._write_secret(render_server_password(secrets, upcoming, recorded.id), state)
        await self.set_phase("PostRotateRestart", state)

    async def _give(
        self, action: do.RotateToken, password: str, state: ClusterState
    ) -> SupervisorError | None:
        supervisor = self._supervisor(get_machine(action.leader, state), state)
        try:
            await supervisor.rotate_token(password)
        except SupervisorError as error:
            return error
        finally:
            await supervisor.aclose()
        return None

    async def _retry(self, error: SupervisorError, state: ClusterState) -> None:
        if isinstance(error, EndpointNotServed):
            await self._write_secret(render_next_password(None), state)
            await self.fail(f"{error}; nothing was touched", state)
            return
        if isinstance(error, TokenRejected):
            await self.fail(f"{error}; {retry_hint()}", state)
            return
        due = format_time(self._context.clock.now() + RETRY)
        run = {"message": str(error)[:MAX_MESSAGE], "retryAt": due}
        await self._context.patch_cluster_status(state, {"rotateTokenRun": run})

    async def fail(self, message: str, state: ClusterState) -> None:
        change = {
            "rotateTokenPhase": "Failed",
            "rotateTokenRun": {"message": message[: 2 * MAX_MESSAGE], "retryAt": None},
        }
        await self._context.patch_observed_cluster(state, change)

    async def set_phase(self, phase: str, state: ClusterState) -> None:
        since = format_time(self._context.clock.now())
        run = {"since": since, "message": None, "retryAt": None}
        await self._context.patch_observed_cluster(state, {"rotateTokenPhase": phase, "rotateTokenRun": run})

    async def go_back(self, digest: str, state: ClusterState) -> None:
        """Make the server token with this digest the present one: a snapshot of its time is restored. Nothing where it is, or is not
        known."""
        secrets = state.secrets
        if secrets is None or not digest or token_hash(secrets.server_password) == digest:
            return
        if password := find_password(digest, secrets.server_passwords):
            await self._write_secret(render_server_password(secrets, password, ""), state)
