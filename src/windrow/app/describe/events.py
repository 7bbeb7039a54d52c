"""Events of a cluster and of its machines, those of machines that are gone included, in the order of their last time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from windrow.app.describe.views import parse_or_none
from windrow.kubernetes.objects import name_of, namespace_of, nested

Raw = Mapping[str, Any]

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EventView:
    """One Event. `count`: how often it was recorded, `first` and `last` when."""

    uid: str
    type: str
    reason: str
    message: str
    kind: str
    name: str
    namespace: str
    count: int = 1
    first: datetime | None = None
    last: datetime | None = None

    @property
    def object(self) -> str:
        """`machine/orchard-servers-a`, as `kubectl events` writes it."""
        return f"{self.kind.lower()}/{self.name}"


def read_event(raw: Raw) -> EventView:
    """The view of one Event, of either API."""
    count = nested(raw, "count", default=nested(raw, "series", "count", default=1))
    first = nested(raw, "firstTimestamp") or nested(raw, "eventTime")
    last = nested(raw, "lastTimestamp") or nested(raw, "series", "lastObservedTime") or first
    return EventView(
        uid=str(nested(raw, "metadata", "uid", default=name_of(raw))),
        type=str(nested(raw, "type", default="Normal")),
        reason=str(nested(raw, "reason", default="")),
        message=str(nested(raw, "message", default="")),
        kind=str(nested(raw, "involvedObject", "kind", default="")),
        name=str(nested(raw, "involvedObject", "name", default="")),
        namespace=str(nested(raw, "involvedObject", "namespace", default=namespace_of(raw))),
        count=count if isinstance(count, int) else 1,
        first=parse_or_none(first),
        last=parse_or_none(last or nested(raw, "metadata", "creationTimestamp")),
    )


def list_events(events: Iterable[Raw]) -> tuple[EventView, ...]:
    """The views, the latest last."""
    views = [read_event(raw) for raw in events]
    return tuple(sorted(views, key=lambda one: (one.last or _LONG_AGO, one.first or _LONG_AGO, one.uid)))


def select_events(
    events: Iterable[EventView], cluster: Raw, clusters: Iterable[Raw], machines: Iterable[Raw]
) -> tuple[EventView, ...]:
    """Those of `cluster`, of its objects of the same name, and of its machines. A machine that is gone belongs to the one of
    `clusters` whose name its own begins with, the longest: `prod-eu-a` is of `prod-eu`, if there is one, and not of `prod`."""
    name, namespace = name_of(cluster), namespace_of(cluster)
    names = [name_of(raw) for raw in clusters if namespace_of(raw) == namespace] or [name]
    owners = {
        name_of(raw): str(nested(raw, "spec", "clusterName", default=""))
        for raw in machines
        if namespace_of(raw) == namespace
    }

    def is_of_cluster(one: EventView) -> bool:
        if one.namespace != namespace:
            return False
        if one.kind != "Machine":
            return one.name == name
        return owners.get(one.name, _longest_owner(one.name, names)) == name

    return tuple(filter(is_of_cluster, events))


def _longest_owner(machine: str, clusters: Iterable[str]) -> str:
    return max((one for one in clusters if machine.startswith(f"{one}-")), key=len, default="")
