"""A transport that repeats what is safe to repeat, by the table in `windrow.kubernetes.retry`."""

from __future__ import annotations

from datetime import timedelta

from windrow.client.transport import Transport, TransportMiddleware
from windrow.core.clock import Clock, sleep
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.retry import is_retryable, is_retryable_reply, retry_after_s

ATTEMPTS = 5
INITIAL_BACKOFF_S = 0.25
# A server that comes back is met soon; longer waits are the caller's.
MAX_BACKOFF_S = 1.0
# A server that does not answer at all costs a time-out for each attempt; after this time there is no other.
RETRY_WINDOW = timedelta(seconds=30)


class RetryingTransport(TransportMiddleware):
    """Wraps `inner`. After `attempts`, or where one begins after RETRY_WINDOW, the last reply or error is passed on.

    Watches are not repeated.
    """

    def __init__(self, inner: Transport, clock: Clock, rng: Rng, attempts: int = ATTEMPTS) -> None:
        super().__init__(inner)
        self._clock = clock
        self._rng = rng
        self._attempts = attempts

    async def send(self, request: Request) -> Reply:
        end = self._clock.monotonic() + RETRY_WINDOW
        for attempt in range(1, self._attempts):
            try:
                reply = await self._inner.send(request)
            except KubeError as error:
                if not is_retryable(error, request) or self._clock.monotonic() >= end:
                    raise
                retry_after = 0.0
            else:
                if not is_retryable_reply(request, reply):
                    return reply
                retry_after = retry_after_s(reply)
            await self._wait_backoff(attempt, retry_after)
        return await self._inner.send(request)

    async def _wait_backoff(self, attempt: int, retry_after_s: float) -> None:
        delay_s = min(INITIAL_BACKOFF_S * 2 ** (attempt - 1), MAX_BACKOFF_S)
        await sleep(self._clock, timedelta(seconds=max(retry_after_s, delay_s) * self._rng.uniform(1.0, 1.5)))
