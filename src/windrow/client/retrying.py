"""A transport that repeats what is safe to repeat, by the table in `kube.repeating`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from windrow.client.transport import Transport
from windrow.kube.errors import KubeError
from windrow.kube.repeating import asked_s, is_worth_repeating, survives
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
            except KubeError as error:
                if not survives(error, request):
                    raise
                asked = 0.0
            else:
                if not is_worth_repeating(request, reply):
                    return reply
                asked = asked_s(reply)
            await self._back_off(attempt, asked)
        return await self._inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        return self._inner.stream(request)

    async def _back_off(self, attempt: int, asked_s: float) -> None:
        plain = min(FIRST_S * 2 ** (attempt - 1), MOST_S)
        await pause(self._clock, timedelta(seconds=max(asked_s, plain) * self._chance.between(1.0, 1.5)))
