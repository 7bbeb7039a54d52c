"""The connection to a plugin on an event loop: requests out, answers to whoever waits, and the heartbeat beside them.

All of it is callbacks, so there is no task that could be lost or would have to be waited for.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from windrow.wire.dockermachine import DEFAULT_LIMITS
from windrow.wire.gob import EMPTY, Type
from windrow.wire.netrpc import Answer, Client


class Lost(Exception):
    """The connection ended, or what came over it made no sense."""


class Line(asyncio.Protocol):
    """The connection: requests out, answers to whoever waits for them, and the heartbeat."""

    def __init__(self) -> None:
        self._rpc = Client(DEFAULT_LIMITS)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._lost = ""
        self._alarm: asyncio.TimerHandle | None = None
        self._unanswered: asyncio.Future[Answer] | None = None
        self._heard = 0.0

    def ask(self, method: str, argument: Type, value: Any) -> asyncio.Future[Answer]:
        """Send a request; the future fails with Lost when no answer can come any more."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        if self._transport is None or self._lost:
            answer.set_exception(Lost(self._lost or "the connection is closed"))
            return answer
        number = self._rpc.call(method, argument, value)
        self._waiting[number] = answer
        answer.add_done_callback(lambda done: self._waiting.pop(number, None))
        self._transport.write(self._rpc.take())
        return answer

    def beat(self, method: str, every: float, silence: float) -> None:
        """Send heartbeats from now on. A plugin that leaves them unanswered for longer than `silence` counts as lost."""
        self._heard = self._loop.time()
        self._beat(method, every, silence)

    def stop_beating(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def drop(self) -> None:
        """End the connection at once."""
        self._lose("the connection is closed")
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio's side -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every loop's transports are of asyncio's class; all of them behave so.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._rpc.take())

    def data_received(self, data: bytes) -> None:
        if self._lost:
            return
        try:
            answers = self._rpc.feed(data)
        except ValueError as error:
            assert self._transport is not None
            self._lose(f"what it sent is not the plugin protocol ({error})")
            self._transport.abort()
            return
        assert self._transport is not None
        self._transport.write(self._rpc.take())
        for answer in answers:
            waiting = self._waiting.get(answer.seq)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(f"the connection broke ({error})" if error else "the connection ended")

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why
        self.stop_beating()
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(Lost(self._lost))
                waiting.exception()  # nobody need be waiting any more

    # --- the heartbeat --------------------------------------------------------------------------------------------

    def _beat(self, method: str, every: float, silence: float) -> None:
        now = self._loop.time()
        last = self._unanswered
        if last is None or last.done():
            self._heard = now
            self._unanswered = self.ask(method, EMPTY, {})
            self._unanswered.add_done_callback(_quietly)
        elif now - self._heard > silence:
            self._lose(f"it has answered no heartbeat for {silence:g} s")
            return
        self._alarm = self._loop.call_later(every, self._beat, method, every, silence)


def _quietly(done: asyncio.Future[Answer]) -> None:
    if not done.cancelled():
        done.exception()
