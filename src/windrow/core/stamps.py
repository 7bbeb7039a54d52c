"""Stamps on objects, aged by the monotonic clock (client-go's lease and the node lifecycle controller do the same).

A stamp is compared with the wall clock once, when it is first observed; from then on its age grows by the monotonic
clock. So a wall clock that is set while the process runs makes nothing due, and delays nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from windrow.core.clock import Clock

# Within this a stamp is left as it was written: stamps have whole seconds, and NTP slews.
TOLERANCE = timedelta(seconds=5)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ObservedStamps:
    """The stamps of objects, by uid and field. `forget` an object that is gone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By uid, then by field: the stamp, and the instant of the monotonic clock that it stands for.
        self._observed: dict[str, dict[str, tuple[datetime, timedelta]]] = {}

    @property
    def wall_clock_ahead(self) -> timedelta:
        """How far the wall clock is ahead of the monotonic one. While that stays, each stamp is read as it was before."""
        return self._clock.now() - _EPOCH - self._clock.monotonic()

    def read(self, uid: str, field: str, stamp: datetime | None) -> datetime | None:
        """`stamp` as the wall clock of now would have written it; one from the future counts from its first observation."""
        if stamp is None:
            return None
        now, elapsed = self._clock.now(), self._clock.monotonic()
        known = self._known(uid, field, stamp, elapsed - max(now - stamp, timedelta()))
        return self._by_wall_clock(stamp, now - (elapsed - known))

    def read_observed(self, uid: str, field: str, stamp: datetime) -> datetime:
        """Since when this process knows of `field`, as the wall clock of now would have written it. Never before it was first
        observed, whatever `stamp` says: what happened while no process was there is not counted."""
        now, elapsed = self._clock.now(), self._clock.monotonic()
        known = self._known(uid, field, stamp, elapsed)
        return self._by_wall_clock(stamp, now - (elapsed - known))

    def _known(self, uid: str, field: str, stamp: datetime, at_first: timedelta) -> timedelta:
        """The instant of the monotonic clock that the stamp stands for: `at_first` where it is new."""
        fields = self._observed.setdefault(uid, {})
        known = fields.get(field)
        if known is None or known[0] != stamp:
            known = fields[field] = stamp, at_first
        return known[1]

    @staticmethod
    def _by_wall_clock(stamp: datetime, current: datetime) -> datetime:
        return stamp if abs(current - stamp) < TOLERANCE else current

    def forget(self, uid: str) -> None:
        self._observed.pop(uid, None)
