"""What a process writes down before it asks for an attachment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from windrow.csi.harvester.attachments.records import (
    AttachRecord,
    plan_record,
    read_records,
    record_key,
    remaining_s,
)
from windrow.csi.harvester.unanswered import UnansweredAttachments
from windrow.harvester.unanswered import LATEST

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
KEY = "attach.csi.windrow.io/node-1"


def test_a_record_is_read_as_it_was_written_and_what_is_none_is_left_out():
    change = plan_record({}, "node-1", AttachRecord("p1", NOON), "7")

    assert change == {"metadata": {"resourceVersion": "7", "annotations": {KEY: "2026-01-31T12:00:00Z p1"}}}
    others = {"windrow.io/x": "2026-01-31T12:00:00Z p1", "attach.csi.windrow.io/a": "yesterday p1"}
    assert read_records(change["metadata"]["annotations"] | others) == {KEY: AttachRecord("p1", NOON)}


def test_a_record_takes_away_those_that_no_longer_count():
    kept, gone = AttachRecord("p1", NOON - LATEST), AttachRecord("p1", NOON - LATEST - timedelta(seconds=1))
    found = {"attach.csi.windrow.io/a": kept, "attach.csi.windrow.io/b": gone}

    assert plan_record(found, "node-1", AttachRecord("p2", NOON), "7")["metadata"]["annotations"] == {
        "attach.csi.windrow.io/b": None,
        KEY: "2026-01-31T12:00:00Z p2",
    }


@pytest.mark.parametrize("vm", ["a" * 64, "a" * 253, "ä_b", "a/b"])
def test_a_name_that_no_key_can_have_is_replaced_by_a_digest(vm: str):
    key = record_key(vm).removeprefix("attach.csi.windrow.io/")

    assert len(key) == 32
    assert key.isalnum()
    assert record_key("a.b-1") == "attach.csi.windrow.io/a.b-1"
    assert record_key("a" * 63).endswith("a" * 63)


@pytest.mark.parametrize(("ago_s", "left_s"), [(0, 120), (119, 1), (120, 0), (500, 0), (-3600, 120)])
def test_a_request_may_be_carried_out_for_two_minutes_whatever_the_clocks_say(ago_s: int, left_s: int):
    assert remaining_s(AttachRecord("p1", NOON - timedelta(seconds=ago_s)), NOON) == left_s


def test_what_was_carried_out_or_has_expired_is_not_waited_for_once_more():
    seconds = timedelta(seconds=1)
    found = UnansweredAttachments()

    assert found.on_recorded("vm", "v", "first", 10 * seconds)
    assert found.on_recorded("vm", "v", "first", 99 * seconds)
    assert found.find_end("vm", "v", 9 * seconds) == 10 * seconds
    assert found.find_end("vm", "v", 10 * seconds) is None
    assert not found.on_recorded("vm", "v", "first", 99 * seconds)
    assert found.on_recorded("vm", "v", "second", 20 * seconds)
    found.on_present("vm", "v")
    assert not found.on_recorded("vm", "v", "second", 99 * seconds)
    assert found.find_end("vm", "v", 11 * seconds) is None
