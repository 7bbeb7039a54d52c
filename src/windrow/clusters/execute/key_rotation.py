"""Execution of rotations of encryption keys and certificates. Each step is recorded before the next, and may be repeated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from windrow.clusters.context import ReconcileContext, get_machine
from windrow.clusters.execute.servers.requests import LongRequests
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.plan.operations.restarts import RETRY
from windrow.clusters.plan.operations.rotation import BETWEEN, FIELD, FINISHED, ROTATION_REQUEST
from windrow.clusters.sources.servers.supervisor import (
    EncryptionStatus,
    ServerUnreachable,
    Supervisor,
    SupervisorError,
)
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.clock import format_time

MAX_MESSAGE = 400
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

    async def begin(self, action: do.BeginKeyRotation, state: ClusterState) -> None:
        supervisor = self._supervisor(get_machine(action.leader, state), state)
        try:
            status = await supervisor.read_encryption_status()
        except ServerUnreachable:
            raise
        except SupervisorError as error:
            await self.fail(f"{error}; nothing was touched", state, action.generation)
            return
        finally:
            await supervisor.aclose()
        if why := why_not(status):
            await self.fail(f"{why}; then raise {FIELD}.generation", state, action.generation)
            return
        now = self._context.clock.now()
        run = {
            "id": f"{action.generation}-{int(now.timestamp())}",
            "activeKey": status.active_key,
            "since": format_time(now),
            **dict.fromkeys(("snapshot", "message", "retryAt")),
        }
        change = {
            "rotateEncryptionKeys": {"generation": action.generation},
            "rotateEncryptionKeysPhase": "Prepare",
            "rotateEncryptionKeysLeader": action.leader,
            "rotateEncryptionKeysRun": run,
        }
        await self._context.patch_observed_cluster(state, change)

    async def rotate(self, action: do.RotateKeys, state: ClusterState) -> None:
        """Asked first: the request before may have been carried out, or still be."""
        recorded = state.recorded.operations.rotation
        supervisor = self._supervisor(get_machine(action.leader, state), state)
        try:
            status = await supervisor.read_encryption_status()
        except SupervisorError as error:
            await self._retry(str(error), state)
            return
        finally:
            await supervisor.aclose()
        if status.active_key == recorded.active_key and status.stage in BETWEEN:
            asking = partial(self._ask, self._supervisor(get_machine(action.leader, state), state), state)
            self._requests.begin(state.cluster.uid, ROTATION_REQUEST, asking)
        elif _is_rotated(status, state):
            await self.set_phase("PostRotateRestart", state, message=None, retryAt=None)
        else:
            await self._retry(f"stage {status.stage}", state)

    async def _ask(self, supervisor: Supervisor, state: ClusterState) -> None:
        """Beside the reconciles. What is done then is found by the next one."""
        try:
            await supervisor.set_encryption_stage(ROTATE_KEYS)
            status = await supervisor.read_encryption_status()
        except SupervisorError as error:
            await self._retry(str(error), state)
            return
        finally:
            await supervisor.aclose()
        if not _is_rotated(status, state):
            await self._retry(f"stage {status.stage}", state)

    async def _retry(self, message: str, state: ClusterState) -> None:
        due = format_time(self._context.clock.now() + RETRY)
        run = {"message": message[:MAX_MESSAGE], "retryAt": due}
        await self._context.patch_cluster_status(state, {"rotateEncryptionKeysRun": run})

    async def fail(self, message: str, state: ClusterState, generation: int | None = None) -> None:
        if generation is None:
            generation = state.recorded.operations.rotation.generation
        change = {
            "rotateEncryptionKeys": {"generation": generation},
            "rotateEncryptionKeysPhase": "Failed",
            "rotateEncryptionKeysRun": {"message": message[: 2 * MAX_MESSAGE], "retryAt": None},
        }
        await self._context.patch_observed_cluster(state, change)

    async def set_phase(self, phase: str, state: ClusterState, **said: Any) -> None:
        run = {"since": format_time(self._context.clock.now()), **said}
        change = {"rotateEncryptionKeysPhase": phase, "rotateEncryptionKeysRun": run}
        await self._context.patch_observed_cluster(state, change)

    # -- certificates

    async def begin_renewal(self, action: do.BeginRenewal, state: ClusterState) -> None:
        now = self._context.clock.now()
        kind = "certificates" if action.makes_keys else "renewal"
        run = {
            "generation": action.generation,
            "id": f"{kind}-{action.generation}-{int(now.timestamp())}",
            "since": format_time(now),
            "newKeys": action.makes_keys or None,
            "services": list(action.services) or None,
            "expiryDate": None if action.expiry is None else format_time(action.expiry),
        }
        await self._context.patch_observed_cluster(state, {"certificateRotationRun": run})

    async def warn(self, action: do.WarnOfCertificates, state: ClusterState) -> None:
        said = {"expiryDate": format_time(action.expiry), "days": action.days}
        await self._context.patch_cluster_status(state, {"certificatesWarned": said})

    async def finish_renewal(self, generation: int, state: ClusterState) -> None:
        """What was done is kept for the condition; without an id nothing is under way."""
        change = {"certificateRotationGeneration": generation, "certificateRotationRun": {"id": None}}
        await self._context.patch_observed_cluster(state, change)


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
