"""Stamps of turns and of operations under a clock that is set."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.builders import NOON, SERVER, a_cluster, a_machine, a_pool, look

from windrow.clusters.api.operations.recorded import RecordedKeyRotation, read_recorded_operations
from windrow.clusters.api.updates.maintenance import (
    RecordedMaintenance,
    read_maintenance,
    render_maintenance,
)
from windrow.clusters.plan.operations import restarts, rotation
from windrow.clusters.plan.operations.actions import FailKeyRotation, RotateKeys
from windrow.clusters.state import ClusterState
from windrow.clusters.updates.recorded_stamps import (
    LATER,
    SOON,
    read_due,
    read_operations,
    read_status_with_maintenance,
    read_status_with_turn,
    read_status_with_upgrade,
)
from windrow.core.clock import format_time, parse_time
from windrow.core.stamps import ObservedStamps

SERVERS = a_pool("servers", 1, SERVER)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


def test_a_turn_is_at_its_step_as_long_as_this_process_knows() -> None:
    async def story() -> tuple[timedelta, timedelta]:
        clock = LoopClock()
        stamps = ObservedStamps(clock)
        before = clock.now() - HOUR
        status = {"update": {"id": "x", "since": format_time(before), "stepSince": format_time(before)}}
        read_status_with_turn("uid", status, stamps)
        await asyncio.sleep(60)
        clock.set_wall(HOUR)
        read = read_status_with_turn("uid", {**status, "phase": "Ready"}, stamps)
        assert read["phase"] == "Ready"
        update: Any = read["update"]
        assert update["since"] == format_time(before)  # the name of its Job follows from that
        return clock.now() - parse_time(update["stepSince"]), clock.now() - before

    waited, written = run_driven(story())

    assert timedelta(seconds=59) <= waited <= timedelta(seconds=61)
    assert written > 2 * HOUR


def test_repair_is_held_as_long_as_the_maintenance_lasts_by_a_clock_that_is_not_set() -> None:
    async def story() -> tuple[timedelta, timedelta]:
        clock = LoopClock()
        stamps = ObservedStamps(clock)
        written = RecordedMaintenance("host-1", "upgrade", clock.now() - HOUR, ended=clock.now())
        status = {"phase": "Ready", "hostMaintenance": render_maintenance(written)}
        assert read_status_with_maintenance("uid", status, stamps) is status
        await asyncio.sleep(60)
        clock.set_wall(2 * HOUR)
        later = read_status_with_maintenance("uid", status, stamps)
        found = read_maintenance(later)
        assert later["phase"] == "Ready"
        assert found is not None
        assert found.since is not None
        assert found.ended is not None
        assert replace(found, since=None, ended=None) == replace(written, since=None, ended=None)
        return clock.now() - found.since, clock.now() - found.ended

    held, back = run_driven(story())

    assert abs(held - HOUR - 60 * SECOND) <= SECOND
    assert abs(back - 60 * SECOND) <= SECOND


def test_a_status_without_maintenance_is_left_as_it_is() -> None:
    async def story() -> None:
        for status in ({}, {"hostMaintenance": None}):
            assert read_status_with_maintenance("uid", status, ObservedStamps(LoopClock())) is status

    run_driven(story())


@pytest.mark.parametrize("status", [{}, {"update": None}, {"update": {"id": "x"}}, {"update": "x"}])
def test_a_status_without_a_step_is_left_as_it_is(status: dict[str, Any]) -> None:
    async def story() -> None:
        assert read_status_with_turn("uid", status, ObservedStamps(LoopClock())) is status

    run_driven(story())


def test_a_try_further_away_than_the_longest_wait_is_due_now() -> None:
    async def story() -> None:
        now = LoopClock().now()
        assert (SOON, LATER) == (2 * 60 * SECOND, HOUR / 2)  # no wait that is written is longer
        assert read_due(None, SOON, now) is None
        assert read_due(now + SOON, SOON, now) == now + SOON
        assert read_due(now + SOON + SECOND, SOON, now) == now
        assert read_due(now - HOUR, SOON, now) == now - HOUR

    run_driven(story())


@pytest.mark.parametrize(("ahead", "is_due"), [(SOON, False), (HOUR, True)])
def test_the_snapshot_before_an_upgrade_is_asked_for_again_though_the_clock_was_set_back(
    ahead: timedelta, is_due: bool
) -> None:
    async def story() -> None:
        now = LoopClock().now()
        status = {"upgradeSnapshot": {"version": "v", "retryAt": format_time(now + ahead)}}
        read = read_status_with_upgrade({**status, "phase": "Ready"}, now)
        assert read["phase"] == "Ready"
        snapshot: Any = read["upgradeSnapshot"]
        assert (parse_time(snapshot["retryAt"]) <= now) == is_due
        assert snapshot["version"] == "v"
        for other in ({}, {"upgradeSnapshot": None}, {"upgradeSnapshot": {"name": "x"}}):
            assert read_status_with_upgrade(other, now) is other

    run_driven(story())


def test_operations_are_tried_again_and_keep_their_age_though_the_clock_is_set() -> None:
    async def story() -> None:
        clock = LoopClock()
        stamps, now = ObservedStamps(clock), clock.now()
        far, near = format_time(now + HOUR), format_time(now + SECOND * 60)
        since = format_time(now - SECOND * 60)
        status = {
            "etcdSnapshotCreateRun": {"nodes": {"s1": {"retryAt": far}, "s2": {"retryAt": near}}},
            "rotateEncryptionKeysRun": {"since": since, "retryAt": far},
            "etcdSnapshotRestoreRun": {"since": since},
            "certificateRotationRun": {"since": since},
            "etcdSnapshotCreate": {"generation": 7},
            "etcdSnapshotFailures": {
                "a": {"retryAt": far},
                "b": {"retryAt": format_time(now + LATER - SECOND)},
            },
        }
        recorded = read_recorded_operations(status)
        read_operations("uid", recorded, stamps, now)
        found = read_operations("uid", recorded, stamps, now)
        assert [one.retry_at for one in found.snapshot.nodes] == [now, parse_time(near)]
        assert found.rotation.retry_at == now
        assert found.snapshot.generation == 7
        assert found.specs == recorded.specs
        assert [one.retry_at for one in found.failures.values()] == [
            now,
            recorded.failures["b"].retry_at,
        ]
        clock.set_wall(HOUR)
        found = read_operations("uid", recorded, stamps, clock.now())
        for one in (found.rotation, found.restore, found.renewal):
            assert one.since is not None
            assert clock.now() - one.since < 2 * 60 * SECOND

    run_driven(story())


def a_rotation(retry_at: datetime | None) -> ClusterState:
    """A rotation that began longer ago than it may take."""
    since = NOON - 2 * HOUR
    begun = RecordedKeyRotation(1, "Rotate", "s1", "1-1", "stage start", since, retry_at, "key", "before")
    cluster = a_cluster(SERVERS)
    operations = replace(cluster.recorded.operations, rotation=begun)
    recorded = replace(cluster.recorded, operations=operations)
    return look(replace(cluster, recorded=recorded), [a_machine("s1", SERVERS)])


@pytest.mark.parametrize("retry_at", [None, NOON - HOUR - 50 * 60 * SECOND])
def test_a_leader_is_asked_once_more_before_the_rotation_fails_of_an_absence(
    retry_at: datetime | None,
) -> None:
    (action,) = rotation.plan(a_rotation(retry_at)).actions
    assert isinstance(action, RotateKeys)


def test_a_leader_that_was_asked_when_its_time_was_over_has_failed() -> None:
    (action,) = rotation.plan(a_rotation(NOON - 2 * HOUR + restarts.TIMEOUT)).actions
    assert isinstance(action, FailKeyRotation)
