"""Event expiry: an Event is removed an hour after it was last written, as by kube-apiserver's --event-ttl.

Nothing has to be watched: an Event that is written after a pass expires later than an hour from that pass. So one timer
waits for the earliest expiry, and for a minute at least, as kube-apiserver lets the Events of a minute share an etcd
lease. The time of a write is the latest that the Event names; one from the future counts from when it was noticed.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from windrow.apiserver.context import ServerContext
from windrow.apiserver.controllers.loop import PeriodicController
from windrow.apiserver.storage.port import Entry, Rev, RevisionMismatch
from windrow.core.clock import parse_time
from windrow.core.wait import yield_turn
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import EVENT

Raw = dict[str, Any]

_log = logging.getLogger(__name__)

EVENT_TTL = timedelta(hours=1)
SHARED = timedelta(minutes=1)  # by which an Event may outlive its time
_TIMES = (
    ("metadata", "creationTimestamp"),
    ("lastTimestamp",),
    ("eventTime",),
    ("series", "lastObservedTime"),
)


class EventExpiry(PeriodicController):
    """Removes expired Events directly, as a lease does: no finalizer holds them, and watches see DELETED."""

    def __init__(self, context: ServerContext, ttl: timedelta = EVENT_TTL) -> None:
        super().__init__(context.clock)
        self._context = context
        self._ttl = ttl
        self._written: dict[str, tuple[Rev, datetime]] = {}  # by store key, as of the last pass

    async def run_once(self) -> datetime:
        """Remove what has expired; when to do so again."""
        now = self._context.clock.now()
        again = now + self._ttl
        written: dict[str, tuple[Rev, datetime]] = {}
        for entry in await self._context.entries(EVENT):
            written[entry.key] = entry.rev, self._last_written(entry, now)
            expires = written[entry.key][1] + self._ttl
            if expires > now:
                again = min(again, expires)
                continue
            await yield_turn()
            try:
                with suppress(RevisionMismatch):  # written at this moment
                    await self._context.store.commit(entry.key, None, entry.rev)
            except KubeError as error:  # the disk is full: tried again with the next ones
                _log.warning("cannot remove expired Events: %s", error)
                break
        self._written = written
        return max(again, now + SHARED)

    def _last_written(self, entry: Entry, now: datetime) -> datetime:
        rev, noticed = self._written.get(entry.key, (0, now))
        return min(_last_written(entry.raw, now), noticed if rev == entry.rev else now)


def _last_written(raw: Raw, default: datetime) -> datetime:
    """The latest time that the Event names; `default` where it names none."""
    times = (_parse(nested(raw, *path)) for path in _TIMES)
    return max((time for time in times if time is not None), default=default)


def _parse(text: object) -> datetime | None:
    try:
        return parse_time(text) if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None
