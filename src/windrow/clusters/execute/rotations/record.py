"""The record of a rotation in the status of its Cluster: phase, leader, and what was said and when it is tried again.

What is said belongs to a phase, and is gone with it: each phase begins without message and without a time of another try.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from windrow.clusters.api.operations.rotations import RecordedRotation
from windrow.clusters.context import ReconcileContext
from windrow.clusters.state import ClusterState
from windrow.core.clock import format_time

MAX_MESSAGE = 400


class RotationRecord:
    """Of one field of `rkeConfig`, such as rotateToken: `find` reads what is recorded of it. A phase is recorded by compare-and-swap, so that
    none begins twice; what is said in it is merged. Raises StalePlan."""

    def __init__(
        self, context: ReconcileContext, field: str, find: Callable[[ClusterState], RecordedRotation]
    ) -> None:
        self._context, self._field, self._find = context, field, find

    async def begin(
        self, run_id: str, generation: int, leader: str, state: ClusterState, **said: Any
    ) -> None:
        """Record phase Prepare of a run, without what the one before has left."""
        change = {
            self._field: {"generation": generation},
            f"{self._field}Phase": "Prepare",
            f"{self._field}Leader": leader,
            f"{self._field}Run": {"id": run_id, **self._new_phase(), **said},
        }
        await self._context.patch_observed_cluster(state, change)

    async def set_phase(self, phase: str, state: ClusterState, **said: Any) -> None:
        change = {f"{self._field}Phase": phase, f"{self._field}Run": {**self._new_phase(), **said}}
        await self._context.patch_observed_cluster(state, change)

    def _new_phase(self) -> dict[str, Any]:
        return {"since": format_time(self._context.clock.now()), "message": None, "retryAt": None}

    async def retry(self, message: str, after: timedelta, state: ClusterState) -> None:
        """Record why a step is not done, and when it is tried again."""
        due = format_time(self._context.clock.now() + after)
        await self.say(state, message=message[:MAX_MESSAGE], retryAt=due)

    async def say(self, state: ClusterState, **said: Any) -> None:
        """Merge fields into the run."""
        await self._context.patch_cluster_status(state, {f"{self._field}Run": said})

    async def fail(self, message: str, state: ClusterState, generation: int | None = None) -> None:
        """Record the end of a generation, that which is recorded unless another is given. `since` stays that of the phase that failed."""
        if generation is None:
            generation = self._find(state).generation
        change = {
            self._field: {"generation": generation},
            f"{self._field}Phase": "Failed",
            f"{self._field}Run": {"message": message[: 2 * MAX_MESSAGE], "retryAt": None},
        }
        await self._context.patch_observed_cluster(state, change)
