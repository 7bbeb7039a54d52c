from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.core.duration import NotDuration, parse_duration, render_duration


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("0s", timedelta()),
        ("0", timedelta()),
        ("300s", timedelta(minutes=5)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("-2m3.5s", -timedelta(minutes=2, seconds=3.5)),
        ("250ms", timedelta(milliseconds=250)),
        ("1µs", timedelta(microseconds=1)),
        ("1500ns", timedelta(microseconds=1)),
        (".5s", timedelta(milliseconds=500)),
    ],
)
def test_a_go_duration_is_read(text: str, span: timedelta) -> None:
    assert parse_duration(text) == span


@pytest.mark.parametrize(
    "text", ["", "5", "5 m", "m", "1d", "1h-30m", "1..5s", "5M", " 5m", "99999999999999h"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(NotDuration, match="wanted a span of time"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(minutes=5), "5m0s"),
        (timedelta(hours=1, minutes=30), "1h30m0s"),
        (timedelta(seconds=1.5), "1.5s"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(microseconds=7), "7µs"),
        (timedelta(hours=-1), "-1h0m0s"),
        (timedelta(seconds=1, microseconds=20), "1.00002s"),
    ],
)
def test_a_span_prints_as_go_prints_it(span: timedelta, text: str) -> None:
    assert render_duration(span) == text


@given(st.timedeltas())
def test_a_printed_span_reads_back_unchanged(span: timedelta) -> None:
    assert parse_duration(render_duration(span)) == span
