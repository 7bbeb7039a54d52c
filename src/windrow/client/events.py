"""Writing Events, with the correlation of client-go: counting, aggregation and a rate limit per object.

| The same object, type and reason                        | Written                                              |
|---------------------------------------------------------|------------------------------------------------------|
| and the same message                                    | the first Event's count and lastTimestamp are patched |
| with the tenth and later message within ten minutes     | one Event "(combined from similar events): …", counted |

Each object, with its uid, has a budget of 25 writes that refills by one every five minutes. What is beyond it is dropped,
and the first dropped of an object is logged. Final Events, of what is left once the object is gone, and the main
ones of an object's life are neither combined nor dropped for others: each reason of them has a budget of its own. An Event that cannot be written is logged and lost: Events
never hold up work.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from windrow.client.client import Client
from windrow.core.clock import Clock, format_time
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError, NotFound, is_namespace_terminating, is_not_found
from windrow.kubernetes.objects import new_object, uid_of
from windrow.kubernetes.resources import EVENT, ApiResource, ObjectRef, ref_of

log = with_values(logging.getLogger(__name__))

SPAM_BURST = 25
SPAM_REFILL = timedelta(minutes=5)
MAX_SIMILAR = 10
SIMILAR_INTERVAL = timedelta(minutes=10)
COMBINED = "(combined from similar events): "
CACHE_ENTRIES = 4096
# What is remembered of an Event or an object that nothing more was written about; API servers keep Events for an hour.
REMEMBERED = timedelta(hours=1)
MAX_QUEUED = 10_000
MAX_MESSAGE_LENGTH = 1024

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class EventNote:
    """What an Event says about an object; `uid` ties it to this very object.

    `final` Events are about what an object leaves when it goes, or the main ones of its life: no other place says it later.
    """

    involved_object: ObjectRef
    uid: str
    reason: str
    message: str
    type: EventType = "Normal"
    final: bool = False

    @classmethod
    def about(
        cls, kind: ApiResource, raw: Mapping[str, Any], reason: str, message: str, type: EventType = "Normal"
    ) -> EventNote:
        """The note about the object `raw` of that kind."""
        return cls(ref_of(kind, dict(raw)), uid_of(raw), reason, message, type)


_AggregationKey = tuple[ObjectRef, str, str, EventType]
# The object, its uid, and the reason of a final Event.
_BudgetKey = tuple[ObjectRef, str, str]


@dataclass(slots=True)
class _Similar:
    """The messages of one object, type and reason, and when the last of them came."""

    last: timedelta
    messages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _TokenBucket:
    last: timedelta  # the latest write, or try
    tokens: float
    has_dropped: bool = False


@dataclass(frozen=True, slots=True)
class _Recorded:
    """An Event that was written: its name, how often, and when last."""

    last: timedelta
    name: str
    count: int


class EventRecorder:
    """Writes Events in the name of `component`.

    `record` queues and returns; its owner runs `run` as a task, which writes in the same order. What is queued when
    `run` ends is lost. `write` writes at once, for those who have no task.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        clock: Clock,
        rng: Rng,
        *,
        burst: int = SPAM_BURST,
        refill: timedelta = SPAM_REFILL,
    ) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._rng = rng
        self._burst = burst
        self._refill = refill
        self._queue: deque[EventNote] = deque(maxlen=MAX_QUEUED)
        self._queued = asyncio.Event()
        self._recorded: OrderedDict[EventNote, _Recorded] = OrderedDict()
        self._similar: OrderedDict[_AggregationKey, _Similar] = OrderedDict()
        self._buckets: OrderedDict[_BudgetKey, _TokenBucket] = OrderedDict()

    def record(self, note: EventNote) -> None:
        """Queue the Event; of more than 10,000 the oldest are dropped."""
        self._queue.append(note)
        self._queued.set()

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        while True:
            await self._queued.wait()
            self._queued.clear()
            while self._queue:
                await self.write(self._queue.popleft())

    async def write(self, note: EventNote) -> None:
        """Write, count or drop the Event. Never raises a KubeError."""
        note = replace(note, message=note.message[:MAX_MESSAGE_LENGTH])
        key, message = self._aggregate(note)
        if not self._is_allowed(note):
            return
        log.info("%s: %s", note.reason, message, object=note.involved_object)
        try:
            await self._create_or_count(key, message)
        except KubeError as error:
            namespace = note.involved_object.namespace
            if is_namespace_terminating(error) or (namespace and is_not_found(error, namespace)):
                return  # what it is about goes with its namespace
            log.warning("Event %s not written: %s", note.reason, error, object=note.involved_object)

    def _aggregate(self, note: EventNote) -> tuple[EventNote, str]:
        """What identifies the Event to count on, and the message to write."""
        key = (note.involved_object, note.uid, note.reason, note.type)
        if note.final:
            return note, note.message
        now = self._clock.monotonic()
        similar = self._similar.setdefault(key, _Similar(now))
        if now - similar.last > SIMILAR_INTERVAL:
            similar.messages.clear()
        similar.last = now
        self._similar.move_to_end(key)
        _bound(self._similar, now)
        if note.message in similar.messages or len(similar.messages) < MAX_SIMILAR - 1:
            similar.messages.add(note.message)
            return note, note.message
        return replace(note, message=COMBINED), f"{COMBINED}{note.message}"

    def _is_allowed(self, note: EventNote) -> bool:
        now = self._clock.monotonic()
        key = (note.involved_object, note.uid, note.reason if note.final else "")
        bucket = self._buckets.setdefault(key, _TokenBucket(now, self._burst))
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.last) / self._refill)
        bucket.last = now
        self._buckets.move_to_end(key)
        _bound(self._buckets, now, max(REMEMBERED, self._burst * self._refill))
        if bucket.tokens < 1:
            self._log_first_drop(note, bucket)
            return False
        bucket.tokens -= 1
        return True

    def _log_first_drop(self, note: EventNote, bucket: _TokenBucket) -> None:
        if bucket.has_dropped:
            return
        bucket.has_dropped = True
        log.warning(
            "Event %s not written: %s; no more than %d at once and one every %d s are written about an object, "
            "and the others are dropped without a further log line",
            note.reason,
            note.message,
            self._burst,
            self._refill.total_seconds(),
            object=note.involved_object,
        )

    async def _create_or_count(self, key: EventNote, message: str) -> None:
        now = format_time(self._clock.now())
        # Events about cluster-scoped objects are in `default`.
        namespace = key.involved_object.namespace or "default"
        if key in self._recorded and await self._count(key, message, namespace, now):
            return
        ref = key.involved_object
        # Lists are ordered by name, so names begin with the time.
        instant = int(self._clock.now().timestamp() * 1e6)
        event_name = f"{ref.name}.{instant:014x}{self._rng.name_suffix(5)}"
        involved = {
            "kind": ref.kind.kind,
            "apiVersion": ref.kind.api_version,
            "name": ref.name,
            "namespace": ref.namespace,
            "uid": key.uid,
        }
        event = new_object(
            EVENT,
            event_name,
            namespace,
            involvedObject={name: value for name, value in involved.items() if value},
            reason=key.reason,
            message=message,
            type=key.type,
            source={"component": self._component},
            reportingComponent=self._component,
            firstTimestamp=now,
            lastTimestamp=now,
            count=1,
        )
        await self._client.create(EVENT, event)
        self._recorded[key] = _Recorded(self._clock.monotonic(), event_name, 1)
        _bound(self._recorded, self._clock.monotonic())

    async def _count(self, key: EventNote, message: str, namespace: str, now: str) -> bool:
        """Count the Event once more; False when it has expired (API servers keep Events for an hour)."""
        recorded = self._recorded[key]
        change: dict[str, Any] = {"count": recorded.count + 1, "lastTimestamp": now}
        if key.message == COMBINED:
            change["message"] = message
        try:
            await self._client.patch(EVENT.ref(recorded.name, namespace), change)
        except NotFound:
            del self._recorded[key]
            return False
        self._recorded[key] = _Recorded(self._clock.monotonic(), recorded.name, recorded.count + 1)
        self._recorded.move_to_end(key)
        return True


def _bound(cache: OrderedDict[Any, Any], now: timedelta, remembered: timedelta = REMEMBERED) -> None:
    """Forget what is older, and the oldest of too many; the entries are in the order of their last use."""
    while cache:
        oldest = next(iter(cache.values()))
        if len(cache) <= CACHE_ENTRIES and now - oldest.last <= remembered:
            return
        cache.popitem(last=False)
