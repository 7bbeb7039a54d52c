"""HandleCrash, as Kubernetes' util/runtime has it: an unexpected error is logged with its stack, and the block is left.

It stands where work for one object, or with one server, must not end what works for the others. What happens next, a
wait or a status, is the caller's: an error that is swallowed in a loop without a wait would spin.

    while True:
        with handle_crash(log, "the watch failed; trying again in %s", RETRY_INTERVAL, node=name):
            await watch()
        await sleep(clock, RETRY_INTERVAL)
"""

from __future__ import annotations

import logging
from types import TracebackType

from windrow.core.logs import FieldLogger, with_values


class handle_crash:
    """`with handle_crash(log, message, *args, **fields) as crash:` what the block raised is `crash.error` afterwards.

    Cancellation and the end of the process pass. An error that is no defect is caught inside the block.
    """

    __slots__ = ("_args", "_fields", "_log", "_message", "error")

    def __init__(
        self, log: logging.Logger | FieldLogger, message: str, *args: object, **fields: object
    ) -> None:
        self._log, self._message, self._args, self._fields = log, message, args, fields
        self.error: Exception | None = None

    def __enter__(self) -> handle_crash:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = error
        with_values(self._log, **self._fields).exception(self._message, *self._args, exc_info=error)
        return True
