"""What makes work on a node's volumes safe to repeat: one operation at a time for each volume, and it outlives its caller.

kubelet gives a call two minutes and then repeats it. A check of a large filesystem takes longer; if it ended with its caller
it would never end at all. So it goes on, the repeated call is Aborted meanwhile, and the first after its end finds it done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from windrow.csi.errors import Aborted, printable
from windrow.csi.waits import waits_for

T = TypeVar("T")

# How much of an id is shown.
_SHOWN = 128


class VolumeOperations:
    """Owns the operations that run; `aclose` ends them."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._abandoned: set[str] = set()

    async def run(self, volume_id: str, what: str, operation: Coroutine[Any, Any, T]) -> T:
        """The result of the operation, or Aborted where another works on the volume."""
        before = self._running.get(volume_id)
        if before is not None:
            operation.close()
            raise Aborted(
                f"volume {volume_id[:_SHOWN]!r}: {before.get_name()} is under way", "repeat the same call"
            )
        task = asyncio.create_task(operation, name=what)
        self._running[volume_id] = task
        task.add_done_callback(lambda done: self._ended(volume_id, done))
        waits_for(f"{what} of volume {volume_id[:_SHOWN]!r}, which goes on")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self._abandoned.add(volume_id)
                self._log.info("%s of volume %r goes on without its caller", what, volume_id[:_SHOWN])
            raise

    async def aclose(self) -> None:
        """Cancel what runs, and wait for its end. The next driver continues from what it left."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, volume_id: str, task: asyncio.Task[Any]) -> None:
        del self._running[volume_id]
        if volume_id not in self._abandoned:
            return
        self._abandoned.discard(volume_id)
        outcome = "was cancelled" if task.cancelled() else printable(str(task.exception() or "is done"))
        self._log.info("%s of volume %r: %s", task.get_name(), volume_id[:_SHOWN], outcome)
