"""Delays of a controller's steps, counted from the first reconcile that finds the step due."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

from windrow.emulator.delays import ScaledClock


class StepTimers:
    """The monotonic instants at which steps began, by object uid and step."""

    def __init__(self, clock: ScaledClock) -> None:
        self._clock = clock
        self._began: dict[str, dict[str, timedelta]] = defaultdict(dict)

    def due(self, uid: str, step: str, seconds: float) -> timedelta | None:
        """None once the step has taken its `seconds` of simulated time; else the instant when it will have."""
        now = self._clock.monotonic()
        at = self._clock.after(seconds, self._began[uid].setdefault(step, now))
        return at if now < at else None

    def restart(self, uid: str, step: str) -> None:
        """Count the step's delay again from its next call."""
        self._began[uid].pop(step, None)

    def forget(self, uid: str) -> None:
        self._began.pop(uid, None)
