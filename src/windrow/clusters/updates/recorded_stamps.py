"""The stamps of turns and of one-shot operations, as the wall clock of now would have written them.

What is late is told by how long this process has waited for it: a clock that is set makes nothing late, nor does an absence of the
manager, in which it could not do its part. What is tried again later than it could have been written is tried now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from windrow.clusters.api.operations.recorded import RecordedOperations
from windrow.clusters.api.updates.maintenance import HOST_MAINTENANCE, read_maintenance, render_maintenance
from windrow.core.clock import format_time
from windrow.core.stamps import ObservedStamps
from windrow.kubernetes.objects import time_of

# The longest waits before another try of an etcd snapshot or of rotated keys, and of what a guest has refused.
SOON, LATER = timedelta(minutes=2), timedelta(minutes=30)


def read_status_with_turn(uid: str, status: Mapping[str, Any], stamps: ObservedStamps) -> Mapping[str, Any]:
    """A Machine's status, whose turn is at its step since this process knows of that."""
    update = status.get("update")
    if not isinstance(update, Mapping) or (written := time_of(update, "stepSince")) is None:
        return status
    since = stamps.read_observed(uid, "update", written)
    return status if since == written else {**status, "update": {**update, "stepSince": format_time(since)}}


def read_status_with_maintenance(
    uid: str, status: Mapping[str, Any], stamps: ObservedStamps
) -> Mapping[str, Any]:
    """A Machine's status, with since when its host is in maintenance, and since when it is back."""
    found = read_maintenance(status)
    if found is None:
        return status
    since = stamps.read(uid, "hostMaintenance", found.since)
    ended = stamps.read(uid, "hostMaintenance ended", found.ended)
    if (since, ended) == (found.since, found.ended):
        return status
    return {**status, HOST_MAINTENANCE: render_maintenance(replace(found, since=since, ended=ended))}


def read_status_with_upgrade(status: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """A Cluster's status, with when the etcd snapshot before an upgrade is asked for again."""
    snapshot = status.get("upgradeSnapshot")
    if not isinstance(snapshot, Mapping) or (written := time_of(snapshot, "retryAt")) is None:
        return status
    due = read_due(written, SOON, now)
    return (
        status if due == written else {**status, "upgradeSnapshot": {**snapshot, "retryAt": format_time(now)}}
    )


def read_operations(
    uid: str, recorded: RecordedOperations, stamps: ObservedStamps, now: datetime
) -> RecordedOperations:
    """All that is recorded of operations: since when, and when the next try is due."""
    snapshot, restore = recorded.snapshot, recorded.restore
    rotation, renewal, token = recorded.rotation, recorded.renewal, recorded.token
    return replace(
        recorded,
        snapshot=replace(
            snapshot,
            nodes=tuple(replace(one, retry_at=read_due(one.retry_at, SOON, now)) for one in snapshot.nodes),
        ),
        restore=replace(restore, since=stamps.read(uid, "restore", restore.since)),
        rotation=replace(
            rotation,
            since=stamps.read(uid, "rotation", rotation.since),
            retry_at=read_due(rotation.retry_at, SOON, now),
        ),
        renewal=replace(renewal, since=stamps.read(uid, "renewal", renewal.since)),
        token=replace(
            token,
            since=stamps.read(uid, "token", token.since),
            retry_at=read_due(token.retry_at, SOON, now),
        ),
        failures={
            name: replace(one, retry_at=read_due(one.retry_at, LATER, now))
            for name, one in recorded.failures.items()
        },
    )


def read_due(written: datetime | None, longest: timedelta, now: datetime) -> datetime | None:
    """When something is tried again. A stamp further away than the longest wait is of a clock that ran ahead: then it is now."""
    return now if written is not None and written > now + longest else written
