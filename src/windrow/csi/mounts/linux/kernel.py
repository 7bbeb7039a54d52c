"""Calls of the kernel that change something, with the errors of the port Mounts."""

from __future__ import annotations

import errno
from collections.abc import Callable
from datetime import timedelta

from windrow.csi.mounts.commands import BlockingCalls
from windrow.csi.mounts.port import DeviceBusy, ToolFailed

SYSCALL_TIMEOUT = timedelta(seconds=60)
PROBE_TIMEOUT = timedelta(seconds=30)
STATS_TIMEOUT = timedelta(seconds=5)


class KernelCalls(BlockingCalls):
    """Calls in threads, in bounded time."""

    async def change(self, what: str, call: Callable[[], None]) -> None:
        """Raises DeviceBusy, ToolFailed, NotAnswering."""
        try:
            await self.run(what, SYSCALL_TIMEOUT, call)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise DeviceBusy(
                    f"{what}: in use", "a process on the node has files open there: end it"
                ) from error
            raise ToolFailed(f"{what}: {error.strerror}", "see the node's kernel log") from error
