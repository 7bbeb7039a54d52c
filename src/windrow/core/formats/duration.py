"""Durations as Kubernetes and Rancher write them (Go's `1h30m`, `500ms`, `0s`), and as kubectl prints ages."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from windrow.core.formats.bounds import abbreviate, is_too_long

_MICROSECONDS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),  # micro sign
    "μs": Fraction(1),  # Greek mu, which Go accepts too
    "ms": Fraction(1000),
    "s": Fraction(10**6),
    "m": Fraction(60 * 10**6),
    "h": Fraction(3600 * 10**6),
}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
# Possessive: no digit is tried twice, so that the time is linear in the text.
_WHOLE = re.compile(r"[+-]?(?:(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:ns|us|µs|μs|ms|s|m|h))++")


class NotDuration(ValueError):
    """The text is not a span of time; the message says what was found."""


def parse_duration(text: str) -> timedelta:
    """The span that `text` writes, cut to whole microseconds. A bare `0` is allowed, as in Go. Raises NotDuration."""
    if text in {"0", "+0", "-0"}:
        return timedelta()
    if is_too_long(text) or not _WHOLE.fullmatch(text):
        raise NotDuration(
            f"wanted a span of time such as 90s, 5m or 1h30m, found {abbreviate(text)}; "
            "write numbers with h, m, s or ms, 64 characters at most"
        )
    microseconds = sum(
        (Fraction(number) * _MICROSECONDS[unit] for number, unit in _PART.findall(text)), Fraction()
    )
    sign = -1 if text.startswith("-") else 1
    try:
        return sign * timedelta(microseconds=int(microseconds))
    except OverflowError as error:
        raise NotDuration(f"wanted a span of time of at most 999999999 days, found {text!r}") from error


def render_duration(span: timedelta) -> str:
    """`span` as Go prints it: `5m0s`, `1h30m0s`, `1.5s`, `250ms`, `0s`. The reverse of `parse_duration`."""
    microseconds = span // timedelta(microseconds=1)
    sign, microseconds = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    if microseconds == 0:
        return "0s"
    if microseconds < 1000:
        return f"{sign}{microseconds}µs"
    if microseconds < 10**6:
        return f"{sign}{_format_fraction(microseconds, 1000)}ms"
    minutes, rest = divmod(microseconds, 60 * 10**6)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_format_fraction(rest, 10**6)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    if minutes:
        return f"{sign}{minutes}m{seconds}"
    return f"{sign}{seconds}"


def human_duration(span: timedelta) -> str:
    """`span` as kubectl prints ages: `90s`, `3m20s`, `5d`; two units at most, never negative."""
    seconds = max(int(span.total_seconds()), 0)
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 10:
        return _two_units(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two_units(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two_units(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    years = days // 365
    return _two_units(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two_units(first: int, unit: str, second: int, smaller: str) -> str:
    return f"{first}{unit}{second}{smaller}" if second else f"{first}{unit}"


def _format_fraction(amount: int, unit: int) -> str:
    whole, fraction = divmod(amount, unit)
    digits = str(fraction).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)
