"""Events: what happened to a Cluster or a Machine, for `kubectl describe`, in the words of the plan."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal

from windrow.client.client import Client
from windrow.core.clock import Clock, format_time
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import name_of, namespace_of, new_object, resource_version_of, uid_of
from windrow.kubernetes.resources import EVENT, ApiResource

log = logging.getLogger(__name__)

COMPONENT = "windrow"
EventType = Literal["Normal", "Warning"]


class EventRecorder:
    """Writes events. One that cannot be written is logged and lost: events never hold up work."""

    def __init__(self, client: Client, clock: Clock, rng: Rng) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng

    async def event(
        self,
        kind: ApiResource,
        involved: Mapping[str, Any],
        reason: str,
        message: str,
        type: EventType = "Normal",
    ) -> None:
        now = format_time(self._clock.now())
        raw = new_object(
            EVENT,
            f"{name_of(involved)}.{self._rng.name_suffix(10)}",
            namespace_of(involved),
            involvedObject={
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": name_of(involved),
                "namespace": namespace_of(involved),
                "uid": uid_of(involved),
                "resourceVersion": resource_version_of(involved),
            },
            reason=reason,
            message=message[:1024],
            type=type,
            source={"component": COMPONENT},
            reportingComponent=COMPONENT,
            firstTimestamp=now,
            lastTimestamp=now,
            count=1,
        )
        try:
            await self._client.create(EVENT, raw)
        except KubeError as error:
            log.warning("the event %s about %s is lost: %s", reason, name_of(involved), error)
