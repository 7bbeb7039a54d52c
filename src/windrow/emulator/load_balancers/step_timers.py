"""Delays of a controller's steps, counted from the first reconcile that finds the step due."""

from __future__ import annotations

from datetime import datetime

from windrow.emulator.delays import ScaledClock


class StepTimers:
    """The instants at which steps are done, by object uid and step."""

    def __init__(self, clock: ScaledClock) -> None:
        self._clock = clock
        self._done_at: dict[tuple[str, str], datetime] = {}

    def due(self, uid: str, step: str, seconds: float) -> datetime | None:
        """None once the step has taken its `seconds` of simulated time; else the instant when it will have."""
        at = self._done_at.setdefault((uid, step), self._clock.after(seconds))
        return None if self._clock.now() >= at else at

    def restart(self, uid: str, step: str) -> None:
        """Count the step's delay again from its next call."""
        self._done_at.pop((uid, step), None)

    def forget(self, uid: str) -> None:
        self._done_at = {key: at for key, at in self._done_at.items() if key[0] != uid}
