"""The RPC connection to a plugin on an event loop: requests, their answers, and the heartbeat.

It consists of callbacks, so there is no task to leak or to await.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from windrow.protocols.dockermachine import DEFAULT_LIMITS
from windrow.protocols.gob import EMPTY, Type
from windrow.protocols.netrpc import Client, Response


class ConnectionLost(Exception):
    """The connection ended, or the peer violated the protocol."""


class RpcConnection(asyncio.Protocol):
    """The connection: requests, their answers, and the heartbeat."""

    def __init__(self) -> None:
        self._rpc = Client(DEFAULT_LIMITS)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, asyncio.Future[Response]] = {}
        self._lost_reason = ""
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._last_heartbeat: asyncio.Future[Response] | None = None
        # Known once heartbeats are sent.
        self._last_answered: float
        self._may_run: Callable[[], bool]

    def call(self, method: str, argument: Type, value: Any) -> asyncio.Future[Response]:
        """Send a request; the future fails with ConnectionLost when no answer can come any more."""
        future: asyncio.Future[Response] = self._loop.create_future()
        if self._transport is None or self._lost_reason:
            future.set_exception(ConnectionLost(self._lost_reason or "the connection is closed"))
            return future
        seq = self._rpc.call(method, argument, value)
        self._pending[seq] = future
        future.add_done_callback(lambda done: self._pending.pop(seq, None))
        self._transport.write(self._rpc.data_to_send())
        return future

    def start_heartbeat(
        self, method: str, interval_s: float, timeout_s: float, may_run: Callable[[], bool] = lambda: True
    ) -> None:
        """Send heartbeats from now on. One that stays unanswered for longer than `timeout_s` ends the connection.

        None is sent while `may_run` says no: the plugin ends by itself then.
        """
        self._last_answered = self._loop.time()
        self._may_run = may_run
        self._heartbeat(method, interval_s, timeout_s)

    def stop_heartbeat(self) -> None:
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
            self._heartbeat_timer = None

    def abort(self) -> None:
        """Close the connection at once."""
        self._fail_pending("the connection is closed")
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio's side -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not of asyncio's class, but behave like it.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._rpc.data_to_send())

    def data_received(self, data: bytes) -> None:
        if self._lost_reason:
            return
        try:
            answers = self._rpc.feed(data)
        except ValueError as error:
            assert self._transport is not None
            self._fail_pending(f"it sent data that is not the plugin protocol ({error})")
            self._transport.abort()
            return
        assert self._transport is not None
        self._transport.write(self._rpc.data_to_send())
        for answer in answers:
            future = self._pending.get(answer.seq)
            if future is not None and not future.done():
                future.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail_pending(f"the connection broke ({error})" if error else "the connection ended")

    def _fail_pending(self, reason: str) -> None:
        self._lost_reason = self._lost_reason or reason
        self.stop_heartbeat()
        for future in list(self._pending.values()):
            if not future.done():
                future.set_exception(ConnectionLost(self._lost_reason))
                future.exception()  # there may be no waiter any more

    # --- the heartbeat --------------------------------------------------------------------------------------------

    def _heartbeat(self, method: str, interval_s: float, timeout_s: float) -> None:
        now = self._loop.time()
        previous = self._last_heartbeat
        if not self._may_run():
            self._last_answered = now
        elif previous is None or previous.done():
            self._last_answered = now
            self._last_heartbeat = self.call(method, EMPTY, {})
            self._last_heartbeat.add_done_callback(_ignore_result)
        elif now - self._last_answered > timeout_s:
            self._fail_pending(f"it has answered no heartbeat for {timeout_s:g} s")
            return
        self._heartbeat_timer = self._loop.call_later(
            interval_s, self._heartbeat, method, interval_s, timeout_s
        )


def _ignore_result(done: asyncio.Future[Response]) -> None:
    if not done.cancelled():
        done.exception()
