"""Execution of rotations of encryption keys. Each step is recorded before the next, and may be repeated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from windrow.clusters.context import ReconcileContext, get_machine
from windrow.clusters.execute.rotations.record import RotationRecord
from windrow.clusters.execute.servers.requests import LongRequests
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.plan.operations.key_rotation import BETWEEN, FIELD, FINISHED, ROTATION_REQUEST
from windrow.clusters.plan.operations.restarts import RETRY
from windrow.clusters.sources.servers.supervisor import (
    EncryptionStatus,
    ServerUnreachable,
    Supervisor,
    SupervisorError,
)
from windrow.clusters.state import ClusterState, MachineState

ROTATE_KEYS = "rotate_keys"  # all stages in one, in the words of the distributions


class KeyRotation:
    """One method for each action. None decides more than what the server says."""

    def __init__(
        self,
        context: ReconcileContext,
        supervisor: Callable[[MachineState, ClusterState], Supervisor],
        requests: LongRequests,
    ) -> None:
        self._context, self._supervisor, self._requests = context, supervisor, requests
        self.record = RotationRecord(
            context, "rotateEncryptionKeys", lambda state: state.recorded.operations.rotation
        )

    async def begin(self, action: do.BeginKeyRotation, state: ClusterState) -> None:
        supervisor = self._supervisor(get_machine(action.leader, state), state)
        try:
            status = await supervisor.read_encryption_status()
        except ServerUnreachable:
            raise
        except SupervisorError as error:
            await self.record.fail(f"{error}; nothing was touched", state, action.generation)
            return
        finally:
            await supervisor.aclose()
        if why := why_not(status):
            await self.record.fail(f"{why}; then raise {FIELD}.generation", state, action.generation)
            return
        run_id = f"{action.generation}-{int(self._context.clock.now().timestamp())}"
        key = {"activeKey": status.active_key, "snapshot": None}
        await self.record.begin(run_id, action.generation, action.leader, state, **key)

    async def rotate(self, action: do.RotateKeys, state: ClusterState) -> None:
        """Asked first: the request before may have been carried out, or still be."""
        recorded = state.recorded.operations.rotation
        supervisor = self._supervisor(get_machine(action.leader, state), state)
        try:
            status = await supervisor.read_encryption_status()
        except SupervisorError as error:
            await self.record.retry(str(error), RETRY, state)
            return
        finally:
            await supervisor.aclose()
        if status.active_key == recorded.active_key and status.stage in BETWEEN:
            asking = partial(self._ask, get_machine(action.leader, state), state)
            self._requests.begin(state.cluster.uid, ROTATION_REQUEST, asking)
        elif _is_rotated(status, state):
            await self.record.set_phase("PostRotateRestart", state)
        else:
            await self.record.retry(f"stage {status.stage}", RETRY, state)

    async def _ask(self, leader: MachineState, state: ClusterState) -> None:
        """Beside the reconciles. What is done then is found by the next one."""
        supervisor = self._supervisor(leader, state)
        try:
            await supervisor.set_encryption_stage(ROTATE_KEYS)
            status = await supervisor.read_encryption_status()
        except SupervisorError as error:
            await self.record.retry(str(error), RETRY, state)
            return
        finally:
            await supervisor.aclose()
        if not _is_rotated(status, state):
            await self.record.retry(f"stage {status.stage}", RETRY, state)


def _is_rotated(status: EncryptionStatus, state: ClusterState) -> bool:
    is_new = status.active_key != state.recorded.operations.rotation.active_key
    return is_new and status.stage == FINISHED


def why_not(status: EncryptionStatus) -> str:
    """Why keys cannot be rotated now, with what to do; "" where they can."""
    if not status.enabled:
        return (
            "Secrets are not encrypted in etcd, so that there is no key to rotate; nothing was touched; write "
            "secrets-encryption: true into machineGlobalConfig of a new cluster"
        )
    if not status.hashes_match:
        return f"the servers use different keys ({status.hash_error or 'no hash'}); nothing was touched; restart them"
    if status.stage not in BETWEEN:
        return (
            f"a rotation that someone else began is at stage {status.stage}; nothing was touched; finish it"
        )
    return ""
