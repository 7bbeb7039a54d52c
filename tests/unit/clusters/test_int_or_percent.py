"""A number or a percentage of machines, as Kubernetes and Rancher read it."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.clusters.api.fields import Fields, ProblemCollector
from windrow.clusters.api.updates.int_or_percent import IntOrPercent, read_int_or_percent


@pytest.mark.parametrize(
    ("wanted", "total", "numbers"),
    [
        (IntOrPercent(30), 5, (1, 2, 1, 1)),
        (IntOrPercent(30), 10, (3, 3, 3, 3)),
        (IntOrPercent(10), 5, (1, 1, 0, 1)),
        (IntOrPercent(0), 5, (1, 0, 0, 1)),
        (IntOrPercent(200), 5, (10, 10, 10, 10)),
        (IntOrPercent(None, 3), 5, (3, 3, 3, 3)),
        (IntOrPercent(None, 0), 5, (0, 0, 0, 5)),
        (IntOrPercent(None, 0), 0, (0, 0, 0, 1)),
    ],
)
def test_a_percentage_is_rounded_as_each_field_has_it(
    wanted: IntOrPercent, total: int, numbers: tuple[int, ...]
) -> None:
    resolved = wanted.resolve, wanted.resolve_up, wanted.resolve_down, wanted.resolve_concurrency
    assert tuple(one(total) for one in resolved) == numbers


def test_the_default_is_that_of_a_breaker() -> None:
    assert IntOrPercent() == IntOrPercent(40, 0, 0)


@pytest.mark.parametrize(
    ("value", "found", "faults"),
    [
        (None, None, 0),
        ("", None, 0),
        ("3", IntOrPercent(None, 3), 0),
        ("0", IntOrPercent(None, 0), 0),
        ("25%", IntOrPercent(25), 0),
        ("25 %", IntOrPercent(25), 0),
        ("x", None, 1),
        ("1234%", None, 1),
        ("1234567890", None, 1),
        ("\u0663", None, 1),
    ],
)
def test_it_is_read_as_a_number_or_a_percentage(value: Any, found: IntOrPercent | None, faults: int) -> None:
    problems = ProblemCollector()
    assert read_int_or_percent(Fields({"key": value}, "spec", problems), "key") == found
    assert len(problems.found) == faults
    assert all("write a number or a percentage" in str(one) for one in problems.found)
