"""Watchdog: ends the process with its host.

| What happens                                    | Exit code |
|-------------------------------------------------|-----------|
| the host calls Close                            | 0         |
| its last connection has closed, nothing running | 0         |
| its last connection has closed, calls running   | 1         |
| no heartbeat for ten seconds                    | 1         |

A host may die in the middle of Create or Remove. Ending then is safe, and better than going on: the machine's uid was in
the configuration that the host saved before it called Create, and everything that Create makes has that uid or the
machine's name, so the next `rm` or `create` finds it; a deletion that was requested is completed by Harvester. Going on
would let two processes act on one machine, once the host is started again.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition

# Some hosts close one connection and open another; none waits long in between.
GRACE_S = 0.25


class Watchdog:
    """Threads report calls and connections of the host; the main thread waits here."""

    def __init__(self, monotonic: Callable[[], float], started: float, silence_s: float) -> None:
        self._monotonic = monotonic
        self._silence_s = silence_s
        self._changed = Condition()
        self._last_heartbeat = started
        self._disconnected_at: float | None = None  # when the last connection closed
        self._connections = 0
        self._calls = 0
        self._code: int | None = None

    def heartbeat(self) -> None:
        """A heartbeat came."""
        with self._changed:
            self._last_heartbeat = self._monotonic()

    def connected(self) -> None:
        with self._changed:
            self._connections += 1
            self._disconnected_at = None

    def disconnected(self) -> None:
        with self._changed:
            self._connections -= 1
            if not self._connections:
                self._disconnected_at = self._monotonic()
                self._changed.notify()

    def call_started(self) -> None:
        with self._changed:
            self._calls += 1

    def call_ended(self) -> None:
        with self._changed:
            self._calls -= 1

    def stop(self) -> None:
        """The host called Close."""
        with self._changed:
            self._code = 0
            self._changed.notify()

    def wait(self) -> int:
        """Return the exit code when it is time to end."""
        with self._changed:
            while self._code is None:
                now = self._monotonic()
                if self._last_heartbeat + self._silence_s <= now:
                    return 1
                deadline = self._last_heartbeat + self._silence_s
                if self._disconnected_at is not None:
                    if self._disconnected_at + GRACE_S <= now:
                        return 1 if self._calls else 0
                    deadline = min(deadline, self._disconnected_at + GRACE_S)
                self._changed.wait(deadline - now)
            return self._code
