"""Events: what happened to a Cluster or a Machine, for `kubectl describe`, in the words of the plan."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal

from windrow.client.client import Client
from windrow.kube.errors import KubeError
from windrow.kube.objects import name_of, namespace_of, new_object, uid_of, version_of
from windrow.kube.refs import EVENT, Kind
from windrow.values.chance import Chance
from windrow.values.clock import Clock, stamp

log = logging.getLogger(__name__)

COMPONENT = "windrow"
Weight = Literal["Normal", "Warning"]


class Journal:
    """Writes events. One that cannot be written is logged and lost: events never hold up work."""

    def __init__(self, client: Client, clock: Clock, chance: Chance) -> None:
        self._client = client
        self._clock = clock
        self._chance = chance

    async def note(
        self,
        kind: Kind,
        about: Mapping[str, Any],
        reason: str,
        message: str,
        type: Weight = "Normal",
    ) -> None:
        now = stamp(self._clock.now())
        raw = new_object(
            EVENT,
            f"{name_of(about)}.{self._chance.suffix(10)}",
            namespace_of(about),
            involvedObject={
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": name_of(about),
                "namespace": namespace_of(about),
                "uid": uid_of(about),
                "resourceVersion": version_of(about),
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
            log.warning("the event %s about %s is lost: %s", reason, name_of(about), error)
