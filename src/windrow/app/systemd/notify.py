"""sd_notify(3): a service tells systemd that it serves, what it does, and that its event loop still turns.

Each message is a datagram to the socket that $NOTIFY_SOCKET names. Without that variable nothing is sent. A message that
cannot be sent is never an error of the service: the first is logged, and systemd's own timeouts decide.

Facts: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

from windrow.core.clock import Clock, sleep
from windrow.core.text import printable

_log = logging.getLogger(__name__)

# What a status line may have, in letters; systemd keeps it in memory and shows it in one line.
MAX_STATUS = 200
# A shorter interval is no watchdog's: a busy computer would end a service that works.
LEAST_WATCHDOG = timedelta(seconds=1)


class Notifier:
    """Sends messages to the service manager that $NOTIFY_SOCKET of `env` names, if any. No method raises."""

    def __init__(self, env: Mapping[str, str], pid: int | None = None) -> None:
        self._address = _address(env.get("NOTIFY_SOCKET", ""))
        self._failed = False
        self.watchdog = _watchdog(env, os.getpid() if pid is None else pid) if self._address else None

    def ready(self, status: str) -> None:
        """The service serves."""
        self._send("READY=1", _status(status))

    def status(self, status: str) -> None:
        """What the service does, for `systemctl status`."""
        self._send(_status(status))

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=stopping")

    async def feed_watchdog(self, clock: Clock) -> None:
        """Say twice in each interval that the event loop turns, until cancelled; return where no watchdog is set."""
        if self.watchdog is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await sleep(clock, self.watchdog / 2)

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link:
                link.setblocking(False)
                link.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if not self._failed:
                _log.warning("systemd cannot be told %s: %s", lines[0], error.strerror or error)
            self._failed = True


@asynccontextmanager
async def notifying(env: Mapping[str, str], clock: Clock) -> AsyncIterator[Notifier]:
    """A Notifier while the block runs; the watchdog is fed meanwhile, and the end of the block is told."""
    notifier = Notifier(env)
    feeding = asyncio.create_task(notifier.feed_watchdog(clock))
    try:
        yield notifier
    finally:
        notifier.stopping()
        feeding.cancel()
        await asyncio.wait([feeding])


def _address(named: str) -> str | None:
    """The socket's address for Python: an abstract one begins with a zero byte there. None where none is named."""
    if named.startswith("@") and len(named) > 1:
        return f"\0{named[1:]}"
    if named and not named.startswith("/"):
        _log.warning("NOTIFY_SOCKET is neither a path nor an abstract socket: systemd is told nothing")
    return named if named.startswith("/") else None


def _watchdog(env: Mapping[str, str], pid: int) -> timedelta | None:
    """The interval of the watchdog, None where it is off or another process's."""
    text, of = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if of not in ("", str(pid)) or not (text.isascii() and text.isdigit()) or len(text) > 15:
        return None
    interval = timedelta(microseconds=int(text))
    return interval if interval >= LEAST_WATCHDOG else None


def _status(text: str) -> str:
    return f"STATUS={printable(text)[:MAX_STATUS]}"
