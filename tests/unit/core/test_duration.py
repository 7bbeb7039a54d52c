from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.core.formats.duration import NotDuration, human_duration, parse_duration, render_duration


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
    "text",
    [
        "",
        "5",
        "5 m",
        "m",
        "1d",
        "1h-30m",
        "1..5s",
        "5M",
        " 5m",
        "99999999999999h",
        pytest.param("1" * 20000, id="long"),
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(NotDuration, match="wanted a span of time") as caught:
        parse_duration(text)
    assert len(str(caught.value)) < 200


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (185, "3m5s"), (600, "10m"), (3 * 3600, "3h"), (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"), (47 * 3600, "47h"), (48 * 3600, "2d"), (50 * 3600, "2d2h"), (8 * 86400, "8d"),
        (729 * 86400, "729d"), (731 * 86400, "2y1d"),
    ],
)  # fmt: skip
def test_an_age_is_printed_as_kubectl_prints_it(seconds: int, text: str) -> None:
    assert human_duration(timedelta(seconds=seconds)) == text
