"""What Clusters and Machines say of themselves, counted: pure, made from their statuses at each scrape.

The values are those of conditions and phases, which events and `kubectl get` show too. A status can be written by users who may patch
it, so what is no CamelCase word becomes `Other`. No series has the name of a Machine: 1,000 Clusters with 10,000 Machines have three
series for each Cluster that is well, and one more for each of its conditions that is not True.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from windrow.clusters.api.machine import Machine
from windrow.kubernetes.objects import Raw, mappings_at, name_of, namespace_of, nested, time_of

OTHER = "Other"
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}")
_STATUSES = frozenset({"True", "False", "Unknown"})
MAX_CONDITIONS = 40  # of one object
MAX_POOLS = 100  # of one Cluster
MAX_SHARED = 1000

T = TypeVar("T")
Labels = tuple[str, ...]
Conditions = tuple[tuple[str, str, str], ...]  # condition, status, reason of each


@dataclass(frozen=True, slots=True)
class NotTrue:
    """A condition that is not True, and since when in seconds since 1970; 0 where that is not said."""

    labels: tuple[str, str, str]  # condition, status, reason
    since: float


@dataclass(frozen=True, slots=True)
class StatusReading:
    """What of the status of one object is counted. `waits` is the reason for which it waits, "" where it does not."""

    phase: str
    conditions: Conditions
    not_true: tuple[NotTrue, ...]
    waits: str = ""
    waits_since: float = 0


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """One Cluster. `expiration` is when the first certificate of its nodes ends, 0 where that is not known."""

    namespace: str
    name: str
    status: StatusReading
    tripped: tuple[str, ...] = ()  # pools
    expiration: float = 0


def read_status(status: object, known: dict[Conditions, Conditions] | None = None) -> StatusReading:
    """The reading of a status, whatever is in it. Equal conditions are those in `known`."""
    conditions: list[tuple[str, str, str]] = []
    not_true: list[NotTrue] = []
    ready = ""
    for raw in mappings_at(status, "conditions")[:MAX_CONDITIONS]:
        truth = str(raw.get("status"))
        labels = (
            _word(raw.get("type")),
            truth if truth in _STATUSES else "Unknown",
            _word(raw.get("reason")),
        )
        conditions.append(labels)
        if truth != "True":
            not_true.append(NotTrue(labels, _seconds(raw, "lastTransitionTime")))
        if labels[0] == "Ready":
            ready = labels[2]
    waits = bool(nested(status, "waiting", "for", default=""))
    return StatusReading(
        _word(nested(status, "phase", default="")),
        _share(tuple(conditions), known),
        tuple(not_true),
        (ready or OTHER) if waits else "",
        _seconds(status, "waiting", "since") if waits else 0,
    )


def _share(conditions: Conditions, known: dict[Conditions, Conditions] | None) -> Conditions:
    return (
        conditions if known is None or len(known) >= MAX_SHARED else known.setdefault(conditions, conditions)
    )


def read_cluster(raw: Raw) -> ClusterReading:
    """The reading of a Cluster."""
    status = raw.get("status") or {}
    pools = mappings_at(status, "pools")[:MAX_POOLS]
    return ClusterReading(
        namespace_of(raw),
        name_of(raw),
        read_status(status),
        tuple(
            str(pool.get("name"))
            for pool in pools
            if nested(pool, "breaker", "tripped", default=False) is True
        ),
        _seconds(status, "certificatesExpiryDate"),
    )


def _word(value: object) -> str:
    text = str(value or "")
    return text if _WORD.fullmatch(text) else OTHER


def _seconds(raw: object, *path: str) -> float:
    try:
        instant = time_of(raw, *path)
        return instant.timestamp() if instant is not None else 0
    except (ValueError, TypeError, OverflowError):
        return 0


class _Readings(Generic[T]):
    """Readings by namespace and name, made anew only of what has changed since the last scrape."""

    def __init__(self) -> None:
        self._known: dict[Labels, tuple[object, T]] = {}

    def update(self, objects: Iterable[tuple[Labels, object]], read: Callable[[Any], T]) -> list[T]:
        """The readings of `objects`, which are given by their names."""
        known: dict[Labels, tuple[object, T]] = {}
        for key, value in objects:
            found = self._known.get(key)
            known[key] = found if found is not None and found[0] is value else (value, read(value))
        self._known = known
        return [reading for _, reading in known.values()]


@dataclass(slots=True)
class _Status:
    """Statuses of one kind, counted."""

    phases: Counter[Labels] = field(default_factory=Counter)
    conditions: Counter[Labels] = field(default_factory=Counter)
    waits: Counter[Labels] = field(default_factory=Counter)
    oldest: dict[Labels, float] = field(default_factory=dict)  # of the conditions that are not True
    oldest_waits: dict[Labels, float] = field(default_factory=dict)


def _count(readings: Iterable[StatusReading], kind: str) -> _Status:
    counted = _Status()
    # Most objects share theirs; to tell them apart by identity is faster than to hash them.
    shared: dict[int, Conditions] = {}
    alike: Counter[int] = Counter()
    for one in readings:
        counted.phases[(one.phase,)] += 1
        shared[id(one.conditions)] = one.conditions
        alike[id(one.conditions)] += 1
        for condition in one.not_true:
            _keep_oldest(counted.oldest, condition.labels, condition.since)
        if one.waits:
            counted.waits[kind, one.waits] += 1
            _keep_oldest(counted.oldest_waits, (kind, one.waits), one.waits_since)
    for key, count in alike.items():
        for labels in shared[key]:
            counted.conditions[labels] += count
    return counted


def _keep_oldest(oldest: dict[Labels, float], labels: Labels, since: float) -> None:
    if since and since < oldest.get(labels, float("inf")):
        oldest[labels] = since


@dataclass(frozen=True, slots=True)
class FleetSamples:
    """The samples of all gauges about Clusters and Machines, by the values of their labels."""

    clusters: Mapping[Labels, float]
    machines: Mapping[Labels, float]
    cluster_conditions: Mapping[Labels, float]
    machine_conditions: Mapping[Labels, float]
    oldest_cluster_conditions: Mapping[Labels, float]
    oldest_machine_conditions: Mapping[Labels, float]
    waits: Mapping[Labels, float]
    oldest_waits: Mapping[Labels, float]
    cluster_phase: Mapping[Labels, float]
    cluster_machines: Mapping[Labels, float]
    not_true: Mapping[Labels, float]
    expirations: Mapping[Labels, float]
    tripped: Mapping[Labels, float]


class Fleet:
    """Counts the objects that it is given, and remembers their readings for the next time."""

    def __init__(self) -> None:
        self._clusters: _Readings[ClusterReading] = _Readings()
        self._machines: _Readings[StatusReading] = _Readings()
        self._shared: dict[Conditions, Conditions] = {}

    def count(self, clusters: Iterable[Raw], machines: Iterable[Machine]) -> FleetSamples:
        """The samples of now. An object is read again only where it is another one than the last time."""
        machines = list(machines)
        read_clusters = self._clusters.update(
            (((namespace_of(raw), name_of(raw)), raw) for raw in clusters), read_cluster
        )
        read_machines = self._machines.update(
            (((one.namespace, one.name), one.status) for one in machines),
            lambda status: read_status(status, self._shared),
        )
        of_clusters = _count((one.status for one in read_clusters), "Cluster")
        of_machines = _count(read_machines, "Machine")
        cluster_machines: Counter[Labels] = Counter(
            (one.namespace, one.cluster, reading.phase)
            for one, reading in zip(machines, read_machines, strict=True)
        )
        return FleetSamples(
            clusters=of_clusters.phases,
            machines=of_machines.phases,
            cluster_conditions=of_clusters.conditions,
            machine_conditions=of_machines.conditions,
            oldest_cluster_conditions=of_clusters.oldest,
            oldest_machine_conditions=of_machines.oldest,
            waits=of_clusters.waits + of_machines.waits,
            oldest_waits={**of_clusters.oldest_waits, **of_machines.oldest_waits},
            cluster_phase={(one.namespace, one.name, one.status.phase): 1 for one in read_clusters},
            cluster_machines=cluster_machines,
            not_true={
                (one.namespace, one.name, *condition.labels): condition.since
                for one in read_clusters
                for condition in one.status.not_true
            },
            expirations={
                (one.namespace, one.name): one.expiration for one in read_clusters if one.expiration
            },
            tripped={(one.namespace, one.name, pool): 1 for one in read_clusters for pool in one.tripped},
        )
