"""A transport that repeats what is safe to repeat.

| What came back                           | a read   | a write                               |
|------------------------------------------|----------|---------------------------------------|
| Unreachable (never sent)                 | again    | again                                 |
| NotTrusted                               | raised   | raised: it will not change            |
| Unanswered                               | again    | raised: look before you repeat        |
| 429, 503 (not carried out)               | again    | again, but not a refused eviction     |
| other 5xx with Retry-After               | again    | again: the server asks for it         |
| other 5xx                                | again    | returned: it may have been carried out |
| a denial by an admission webhook, any status | returned | returned: it will not change      |
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from windrow.client.transport import Transport
from windrow.kube.errors import Denied, NotTrusted, Unanswered, Unreachable, error_for
from windrow.kube.requests import Event, Reply, Request
from windrow.values.chance import Chance
from windrow.values.clock import Clock, pause

ATTEMPTS = 5
FIRST_S = 0.25
MOST_S = 10.0


class RetryingTransport:
    """Wraps `inner`. Gives up after `attempts` and passes on the last answer or error. Watches go straight through."""

    def __init__(self, inner: Transport, clock: Clock, chance: Chance, attempts: int = ATTEMPTS) -> None:
        self._inner = inner
        self._clock = clock
        self._chance = chance
        self._attempts = attempts

    async def send(self, request: Request) -> Reply:
        for attempt in range(1, self._attempts):
            try:
                reply = await self._inner.send(request)
            except NotTrusted:
                raise
            except Unreachable:
                asked = 0.0
            except Unanswered:
                if not request.is_read:
                    raise
                asked = 0.0
            else:
                if not _is_worth_repeating(request, reply):
                    return reply
                asked = _asked_s(reply)
            await self._back_off(attempt, asked)
        return await self._inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        return self._inner.stream(request)

    async def _back_off(self, attempt: int, asked_s: float) -> None:
        plain = min(FIRST_S * 2 ** (attempt - 1), MOST_S)
        await pause(self._clock, timedelta(seconds=max(asked_s, plain) * self._chance.between(1.0, 1.5)))


def _asked_s(reply: Reply) -> float:
    error = error_for(reply)
    asked = error.retry_after_s if error is not None else None
    return asked or 0.0


def _is_worth_repeating(request: Request, reply: Reply) -> bool:
    if reply.status != 429 and reply.status < 500:
        return False
    if isinstance(error_for(reply), Denied):
        return False
    if reply.status == 429:
        # A blocked eviction answers 429, too: a budget says no, and asking again at once does not help.
        return not request.path.endswith("/eviction")
    return request.is_read or reply.status == 503 or _asked_s(reply) > 0
