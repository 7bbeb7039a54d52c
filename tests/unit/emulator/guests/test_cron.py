"""Cron schedules of servers: when the next instant is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from windrow.emulator.guest_cluster.datastore.cron import BadSchedule, parse_schedule

NOW = datetime(2026, 1, 1, 12, 0, 30, 5, tzinfo=UTC)  # a Thursday


def next_of(text: str, now: datetime = NOW) -> str:
    found = parse_schedule(text).find_next(now)
    return "never" if found is None else f"{found:%Y-%m-%d %H:%M:%S}"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("* * * * *", "2026-01-01 12:01:00"),
        ("0 */12 * * *", "2026-01-02 00:00:00"),
        ("0 */5 * * *", "2026-01-01 15:00:00"),
        ("0 12 * * *", "2026-01-02 12:00:00"),
        ("1 12 * * *", "2026-01-01 12:01:00"),
        ("59 11,12 * * *", "2026-01-01 12:59:00"),
        ("10-20/5 * * * *", "2026-01-01 12:10:00"),
        ("50/4 * * * *", "2026-01-01 12:50:00"),
        ("30 6 1 * *", "2026-02-01 06:30:00"),
        ("0 0 31 * *", "2026-01-31 00:00:00"),
        ("0 0 29 2 *", "2028-02-29 00:00:00"),
        ("0 0 * 3 *", "2026-03-01 00:00:00"),
        ("0 0 * FEB *", "2026-02-01 00:00:00"),
        ("0 0 * * 0", "2026-01-04 00:00:00"),
        ("0 0 ? * sun", "2026-01-04 00:00:00"),
        ("0 0 * * mon-fri", "2026-01-02 00:00:00"),
        ("0 0 13 * fri", "2026-01-02 00:00:00"),  # one of both, where both are given
        ("0 0 */1 * fri", "2026-01-02 00:00:00"),
        ("0 0 30 2 *", "never"),
        ("@hourly", "2026-01-01 13:00:00"),
        ("@daily", "2026-01-02 00:00:00"),
        ("@midnight", "2026-01-02 00:00:00"),
        ("@weekly", "2026-01-04 00:00:00"),
        ("@monthly", "2026-02-01 00:00:00"),
        ("@yearly", "2027-01-01 00:00:00"),
        ("@annually", "2027-01-01 00:00:00"),
        ("@every 6h", "2026-01-01 18:00:30"),
        ("@every 1h30m10s", "2026-01-01 13:30:40"),
        ("@every 10ms", "2026-01-01 12:00:31"),
    ],
)
def test_the_next_instant_of_a_schedule(text: str, wanted: str) -> None:
    assert next_of(text) == wanted


def test_an_instant_is_never_the_present_one() -> None:
    exactly = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)

    assert next_of("0 12 * * *", exactly) == "2026-01-02 12:00:00"
    assert next_of("0 12 * * *", exactly - timedelta(seconds=1)) == "2026-01-01 12:00:00"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * 0 *",
        "* * * * 7",
        "5-1 * * * *",
        "*/0 * * * *",
        "a * * * *",
        "jan * * * *",
        "-1 * * * *",
        "\u00b2 * * * *",
        "99999999999 * * * *",
        "@noon",
        "@every",
        "@every day",
        "* " * 500,
    ],
)
def test_what_is_no_schedule_is_told(text: str) -> None:
    with pytest.raises(BadSchedule):
        parse_schedule(text)
