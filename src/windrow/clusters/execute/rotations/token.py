"""Execution of rotations of the server token. Each step may be repeated, and no token is in force that is not in the Secret.

What is written last of a rotation is the Secret: a password that is the next one there was perhaps given to a server, and one
that is the present one was.
"""

from __future__ import annotations

from collections.abc import Callable

from windrow.bootstrap.pki import new_password
from windrow.clusters.api.names import secrets_name
from windrow.clusters.api.operations.snapshot import find_password, token_hash
from windrow.clusters.api.secrets import render_next_password, render_server_password
from windrow.clusters.context import ReconcileContext, StalePlan, get_machine
from windrow.clusters.execute.rotations.record import RotationRecord
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
from windrow.kubernetes.errors import Conflict, NotFound
from windrow.kubernetes.resources import SECRET


class TokenRotation:
    """One method for each action. None decides more than what the server says."""

    def __init__(
        self, context: ReconcileContext, supervisor: Callable[[MachineState, ClusterState], Supervisor]
    ) -> None:
        self._context, self._supervisor = context, supervisor
        self.record = RotationRecord(context, "rotateToken", lambda state: state.recorded.operations.token)

    async def begin(self, action: do.BeginTokenRotation, state: ClusterState) -> None:
        run_id = f"token-{action.generation}-{int(self._context.clock.now().timestamp())}"
        await self.record.begin(run_id, action.generation, action.leader, state)

    async def record_next(self, state: ClusterState) -> None:
        if state.secrets is None:
            raise StalePlan
        if not state.secrets.next_server_password:
            await self._write_secret(render_next_password(new_password()), state)
        await self.record.set_phase("Rotate", state)

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
            await self.record.set_phase("PostRotateRestart", state)
            return
        if not upcoming:
            what = f"Secret {secrets_name(state.cluster.name)} does not hold the new token any more"
            await self.record.fail(f"{what}; was it restored? Raise {FIELD}.generation", state)
            return
        if problem := await self._give(action, upcoming, state):
            await self._retry(problem, state)
            return
        await self._write_secret(render_server_password(secrets, upcoming, recorded.id), state)
        await self.record.set_phase("PostRotateRestart", state)

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
            await self.record.fail(f"{error}; nothing was touched", state)
            return
        if isinstance(error, TokenRejected):
            await self.record.fail(f"{error}; {retry_hint()}", state)
            return
        await self.record.retry(str(error), RETRY, state)

    async def go_back(self, digest: str, state: ClusterState) -> None:
        """Make the server token with this digest the present one: a snapshot of its time is restored. Nothing where it is, or is not
        known."""
        secrets = state.secrets
        if secrets is None or not digest or token_hash(secrets.server_password) == digest:
            return
        if password := find_password(digest, secrets.server_passwords):
            await self._write_secret(render_server_password(secrets, password, ""), state)
