"""EventRecorder: Events of the simulated control plane (reference 05 §2.10)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from windrow.core.clock import Clock, format_time
from windrow.core.rng import Rng
from windrow.emulator.kit.client import AdminClient
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, name_of, namespace_of, new_object, resource_version_of, uid_of
from windrow.kubernetes.resources import EVENT, ObjectRef, ref_of

EVENT_TTL = timedelta(hours=1)


class EventRecorder:
    """Writes Events and deletes them after an hour. A repeated one increments the count of the first."""

    def __init__(self, client: AdminClient, clock: Clock, rng: Rng) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._recorded: dict[tuple[str, str, str], str] = {}
        self._written: deque[tuple[timedelta, tuple[str, str, str], ObjectRef]] = deque()

    async def record(
        self, about: Mapping[str, Any], reason: str, message: str, component: str, type: str = "Normal"
    ) -> None:
        """Record an event about `about`. Errors of the API are ignored."""
        namespace = namespace_of(about) or "default"
        known = self._recorded.get((uid_of(about), reason, message))
        try:
            await self._remove_old()
            if known is not None and await self._client.mutate(EVENT.ref(known, namespace), self._count):
                return
            raw = self._event(about, namespace, reason, message, component, type)
            await self._client.create(EVENT, raw)
        except KubeError:
            return
        self._recorded[uid_of(about), reason, message] = name_of(raw)
        self._written.append((self._clock.monotonic(), (uid_of(about), reason, message), ref_of(EVENT, raw)))

    async def _remove_old(self) -> None:
        while self._written and self._clock.monotonic() - self._written[0][0] > EVENT_TTL:
            _, key, ref = self._written.popleft()
            self._recorded.pop(key, None)
            found = await self._client.find(ref)
            if found is not None:
                await self._client.delete(EVENT, found)

    def _count(self, raw: Raw) -> None:
        raw["count"] = raw.get("count", 1) + 1
        raw["lastTimestamp"] = format_time(self._clock.now())

    def _event(
        self, about: Mapping[str, Any], namespace: str, reason: str, message: str, component: str, type: str
    ) -> Raw:
        now = format_time(self._clock.now())
        return new_object(
            EVENT,
            f"{name_of(about)}.{self._rng.below(1 << 60):016x}",  # real ones end in nanoseconds in hexadecimal
            namespace,
            involvedObject={
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": name_of(about),
                "namespace": namespace_of(about),
                "uid": uid_of(about),
                "resourceVersion": resource_version_of(about),
            },
            reason=reason,
            message=message,
            type=type,
            count=1,
            firstTimestamp=now,
            lastTimestamp=now,
            source={"component": component},
            reportingComponent=component,
            reportingInstance="",
        )
