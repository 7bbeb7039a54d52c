"""Events: what a controller tells people about an object, damped so that a loop cannot flood the cluster.

As in client-go: an identical event is counted on the first one instead of written anew; and each object has an
allowance of 25 events that fills up by one each five minutes. Losing an event is never an error.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from windrow.client.client import Client
from windrow.core.clock import Clock, format_time
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError, NotFound
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import EVENT, ObjectRef

log = logging.getLogger(__name__)

SPAM_BURST = 25
SPAM_REFILL = timedelta(minutes=5)
CACHE_ENTRIES = 4096

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class EventNote:
    """What is said about which object. `uid` ties the event to this very object."""

    involved_object: ObjectRef
    uid: str
    reason: str
    message: str
    type: EventType = "Normal"


@dataclass(slots=True)
class _TokenBucket:
    tokens: float
    refilled_at: datetime


class EventRecorder:
    """Writes events in the name of `component`."""

    def __init__(self, client: Client, component: str, clock: Clock, rng: Rng) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._rng = rng
        self._recorded: OrderedDict[EventNote, tuple[str, int]] = OrderedDict()
        self._buckets: OrderedDict[ObjectRef, _TokenBucket] = OrderedDict()

    async def record(self, note: EventNote) -> None:
        """Write or count the event. Never raises a KubeError."""
        if not self._is_allowed(note.involved_object):
            return
        try:
            await self._write(note)
        except KubeError as error:
            log.warning("event %s of %s was not written: %s", note.reason, note.involved_object, error)

    def _is_allowed(self, involved_object: ObjectRef) -> bool:
        now = self._clock.now()
        bucket = self._buckets.setdefault(involved_object, _TokenBucket(SPAM_BURST, now))
        bucket.tokens = min(SPAM_BURST, bucket.tokens + (now - bucket.refilled_at) / SPAM_REFILL)
        bucket.refilled_at = now
        if len(self._buckets) > CACHE_ENTRIES:
            self._buckets.popitem(last=False)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    async def _write(self, note: EventNote) -> None:
        now = format_time(self._clock.now())
        # Events of cluster-scoped objects live in `default`.
        namespace = note.involved_object.namespace or "default"
        if note in self._recorded and await self._count(note, namespace, now):
            return
        # Lists come in the order of names, so these begin with the time.
        instant = int(self._clock.now().timestamp() * 1e6)
        name = f"{note.involved_object.name}.{instant:014x}{self._rng.name_suffix(5)}"
        involved = {
            "kind": note.involved_object.kind.kind,
            "apiVersion": note.involved_object.kind.api_version,
            "name": note.involved_object.name,
            "namespace": note.involved_object.namespace,
            "uid": note.uid,
        }
        event = new_object(
            EVENT,
            name,
            namespace,
            involvedObject={key: value for key, value in involved.items() if value},
            reason=note.reason,
            message=note.message,
            type=note.type,
            source={"component": self._component},
            reportingComponent=self._component,
            firstTimestamp=now,
            lastTimestamp=now,
            count=1,
        )
        await self._client.create(EVENT, event)
        self._recorded[note] = (name, 1)
        if len(self._recorded) > CACHE_ENTRIES:
            self._recorded.popitem(last=False)

    async def _count(self, note: EventNote, namespace: str, now: str) -> bool:
        """Count the event once more; False when it has expired meanwhile (servers keep events for an hour)."""
        name, count = self._recorded[note]
        try:
            await self._client.patch(EVENT.ref(name, namespace), {"count": count + 1, "lastTimestamp": now})
        except NotFound:
            del self._recorded[note]
            return False
        self._recorded[note] = (name, count + 1)
        return True
