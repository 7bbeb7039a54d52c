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
from windrow.kube.errors import KubeError, NotFound
from windrow.kube.objects import new_object
from windrow.kube.refs import EVENT, Ref
from windrow.values.chance import Chance
from windrow.values.clock import Clock, stamp

log = logging.getLogger(__name__)

BURST = 25
REFILL = timedelta(minutes=5)
REMEMBERED = 4096

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Told:
    """What is said about which object. `uid` ties the event to this very object."""

    about: Ref
    uid: str
    reason: str
    message: str
    type: EventType = "Normal"


@dataclass(slots=True)
class _Allowance:
    left: float
    at: datetime


class Recorder:
    """Writes events in the name of `component`."""

    def __init__(self, client: Client, component: str, clock: Clock, chance: Chance) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._chance = chance
        self._written: OrderedDict[Told, tuple[str, int]] = OrderedDict()
        self._allowances: OrderedDict[Ref, _Allowance] = OrderedDict()

    async def tell(self, told: Told) -> None:
        """Write or count the event. Never raises a KubeError."""
        if not self._may_tell(told.about):
            return
        try:
            await self._write(told)
        except KubeError as error:
            log.warning("event %s of %s was not written: %s", told.reason, told.about, error)

    def _may_tell(self, about: Ref) -> bool:
        now = self._clock.now()
        allowance = self._allowances.setdefault(about, _Allowance(BURST, now))
        allowance.left = min(BURST, allowance.left + (now - allowance.at) / REFILL)
        allowance.at = now
        if len(self._allowances) > REMEMBERED:
            self._allowances.popitem(last=False)
        if allowance.left < 1:
            return False
        allowance.left -= 1
        return True

    async def _write(self, told: Told) -> None:
        now = stamp(self._clock.now())
        # Events of cluster-scoped objects live in `default`.
        namespace = told.about.namespace or "default"
        if told in self._written and await self._count(told, namespace, now):
            return
        # Lists come in the order of names, so these begin with the time.
        instant = int(self._clock.now().timestamp() * 1e6)
        name = f"{told.about.name}.{instant:014x}{self._chance.suffix(5)}"
        involved = {
            "kind": told.about.kind.kind,
            "apiVersion": told.about.kind.api_version,
            "name": told.about.name,
            "namespace": told.about.namespace,
            "uid": told.uid,
        }
        event = new_object(
            EVENT,
            name,
            namespace,
            involvedObject={key: value for key, value in involved.items() if value},
            reason=told.reason,
            message=told.message,
            type=told.type,
            source={"component": self._component},
            reportingComponent=self._component,
            firstTimestamp=now,
            lastTimestamp=now,
            count=1,
        )
        await self._client.create(EVENT, event)
        self._written[told] = (name, 1)
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)

    async def _count(self, told: Told, namespace: str, now: str) -> bool:
        """Count the event once more; False when it has expired meanwhile (servers keep events for an hour)."""
        name, count = self._written[told]
        try:
            await self._client.patch(EVENT.ref(name, namespace), {"count": count + 1, "lastTimestamp": now})
        except NotFound:
            del self._written[told]
            return False
        self._written[told] = (name, count + 1)
        return True
