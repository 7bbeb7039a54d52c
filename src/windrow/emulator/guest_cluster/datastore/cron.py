"""Cron schedules as servers read them for `etcd-snapshot-schedule-cron`: five fields, `@daily` and its like, `@every 6h`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from windrow.core.formats.duration import NotDuration, parse_duration

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_DESCRIPTORS: Mapping[str, str] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LONGEST = 200  # characters of a schedule
_MOST_DAYS = 366 * 5  # a schedule without an instant in five years has none


class BadSchedule(ValueError):
    """The text is no schedule; the message is the library's."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule: the values of each field, or `every`, the time between two instants."""

    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()  # 0 is Sunday
    is_any_day: bool = False  # either field of days is `*`: both have to match, else one of them
    every: timedelta | None = None

    def find_next(self, now: datetime) -> datetime | None:
        """The first instant after `now`, None without one in the next five years."""
        if self.every is not None:
            return now.replace(microsecond=0) + self.every
        start = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
        for offset in range(_MOST_DAYS):
            day = start.replace(hour=0, minute=0) + timedelta(days=offset)
            if not self._matches_day(day):
                continue
            for hour in self.hours:
                for minute in self.minutes:
                    if (found := day.replace(hour=hour, minute=minute)) >= start:
                        return found
        return None

    def _matches_day(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return in_month and in_week if self.is_any_day else in_month or in_week


def parse_schedule(text: str) -> Schedule:
    """The schedule that `text` writes. Raises BadSchedule."""
    if len(text) > _LONGEST:
        raise BadSchedule(f"the schedule has {len(text)} characters")
    if text.startswith("@every "):
        return Schedule(every=_parse_every(text))
    if text.startswith("@") and text not in _DESCRIPTORS:
        raise BadSchedule(f"unrecognized descriptor: {text}")
    fields = _DESCRIPTORS.get(text, text).split()
    if len(fields) != 5:
        raise BadSchedule(f"expected exactly 5 fields, found {len(fields)}: {fields}")
    minutes, hours, days, months, weekdays = fields
    return Schedule(
        tuple(sorted(_parse_field(minutes, 0, 59))),
        tuple(sorted(_parse_field(hours, 0, 23))),
        _parse_field(days, 1, 31),
        _parse_field(months, 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
        _parse_field(weekdays, 0, 6, {name: number for number, name in enumerate(_WEEKDAYS)}),
        any(field.split("/")[0] in ("*", "?") for field in (days, weekdays)),
    )


def _parse_every(text: str) -> timedelta:
    try:
        found = parse_duration(text.removeprefix("@every "))
    except NotDuration as error:
        raise BadSchedule(f"failed to parse duration {text}: {error}") from error
    return max(timedelta(seconds=int(found.total_seconds())), timedelta(seconds=1))


def _parse_field(text: str, low: int, high: int, names: Mapping[str, int] | None = None) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span in ("*", "?"):
            start, end = low, high
        else:
            start = _parse_value(first, part, names)
            end = _parse_value(last, part, names) if dash else high if slash else start
        by = _parse_value(step, part) if slash else 1
        if start < low or end > high or start > end or by < 1:
            raise BadSchedule(f"the value of {part} is not from {low} to {high}")
        found.update(range(start, end + 1, by))
    return frozenset(found)


def _parse_value(text: str, part: str, names: Mapping[str, int] | None = None) -> int:
    if names and text.lower() in names:
        return names[text.lower()]
    if not (text.isascii() and text.isdigit() and len(text) < 5):
        raise BadSchedule(f"failed to parse int from {part}")
    return int(text)
