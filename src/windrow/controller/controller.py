"""The controller: calls a reconcile function for each key of a work queue, and again as its outcome says.

Promises: one key is never reconciled twice at once; different keys run side by side, `max_concurrent` at most; a failing
key waits longer each time and does not hold up the others, nor do the keys of one flow those of another; nothing
outlives `run`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from windrow.controller.outcomes import Changed, Failed, Outcome, Refused, Settled, Waiting
from windrow.core.clock import CLOCK_TOLERANCE, Clock
from windrow.core.crash import handle_crash
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.core.work_queue import MaxConcurrent, WorkQueue
from windrow.kubernetes.errors import KubeError

K = TypeVar("K", bound=Hashable)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after the n-th failure in a row: doubling from `first` to `most`, a tenth of jitter."""

    initial: timedelta = timedelta(milliseconds=500)
    maximum: timedelta = timedelta(minutes=2)

    def delay(self, failures: int, rng: Rng) -> timedelta:
        doublings = min(max(failures - 1, 0), 32)
        plain = min(self.initial * float(2**doublings), self.maximum)
        return plain * rng.uniform(0.9, 1.1)


# A reconcile that always returns Changed is a defect; from this count on it is slowed down like a failure,
# so that it does not starve the other keys.
MAX_IMMEDIATE_REQUEUES = 20

EIGHT_WORKERS = MaxConcurrent(total=8, per_flow=8)


class Controller(Generic[K]):
    """Reconciles keys from `queue`. Its owner runs `run` as a task.

    `flow_of` is the flow of a key, of which `max_concurrent` has a bound. `on_outcome` is called with every outcome, and
    `on_added` with every key that is added to the queue.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Outcome]],
        clock: Clock,
        rng: Rng,
        *,
        max_concurrent: MaxConcurrent = EIGHT_WORKERS,
        flow_of: Callable[[K], Hashable] | None = None,
        backoff: Backoff | None = None,
        on_outcome: Callable[[K, Outcome], None] | None = None,
        on_added: Callable[[K], None] | None = None,
    ) -> None:
        self.name = name
        self._log = with_values(_log, controller=name)
        self.queue: WorkQueue[K] = WorkQueue(clock, on_added, max_concurrent=max_concurrent, flow_of=flow_of)
        self._reconcile = reconcile
        self._clock, self._rng = clock, rng
        self._backoff = backoff or Backoff()
        self._on_outcome = on_outcome
        self._failures: dict[K, int] = {}
        self._changes: dict[K, int] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                key = await self.queue.get()
                group.create_task(self._work(key), name=f"{self.name} {key}")

    async def _work(self, key: K) -> None:
        began = self._clock.now(), self._clock.monotonic()
        try:
            outcome = await self._attempt(key)
            self._requeue(key, outcome, *began)
            if self._on_outcome is not None:
                self._on_outcome(key, outcome)
        finally:
            self.queue.done(key)

    async def _attempt(self, key: K) -> Outcome:
        message = "reconcile failed with an unexpected error; trying again"
        with handle_crash(self._log, message, key=key) as crash:
            try:
                return await self._reconcile(key)
            except KubeError as error:
                self._log.warning("reconcile failed: %s; trying again", error, key=key)
                return Failed(error)
        assert crash.error is not None
        return Failed(crash.error)

    def _until(self, instant: datetime, began: datetime, began_elapsed: timedelta) -> timedelta:
        """How long until `instant`, which the attempt took from the wall clock. Where that was set during the attempt, by
        whichever of the two clocks is sooner: to reconcile early does no harm."""
        now = self._clock.now()
        left, as_begun = instant - now, instant - began - (self._clock.monotonic() - began_elapsed)
        return left if abs(left - as_begun) < CLOCK_TOLERANCE else min(left, as_begun)

    def _requeue(self, key: K, outcome: Outcome, began: datetime, began_elapsed: timedelta) -> None:
        if not isinstance(outcome, Failed):
            self._failures.pop(key, None)
        if not isinstance(outcome, Changed):
            self._changes.pop(key, None)
        match outcome:
            case Settled() | Refused() | Waiting(until=None):
                pass  # the next change brings it back
            case Waiting(until=instant) if instant is not None:
                self.queue.add_after(key, self._until(instant, began, began_elapsed))
            case Changed():
                count = self._changes[key] = self._changes.get(key, 0) + 1
                if count <= MAX_IMMEDIATE_REQUEUES:
                    self.queue.add(key)
                else:
                    self.queue.add_after(key, self._backoff.delay(count - MAX_IMMEDIATE_REQUEUES, self._rng))
            case Failed(error=error):
                count = self._failures[key] = self._failures.get(key, 0) + 1
                retry_after_s = error.retry_after_s if isinstance(error, KubeError) else None
                wait = max(self._backoff.delay(count, self._rng), timedelta(seconds=retry_after_s or 0))
                self.queue.add_after(key, wait)
