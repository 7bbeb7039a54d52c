"""Quantities: the emulator's reading beside the products' own. The duplicate is the check."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as some

from windrow.core.formats.quantity import Quantity
from windrow.emulator.quantities import (
    BadQuantity,
    parse_quantity,
    quantity_or_zero,
    render_cpu,
    render_memory,
)

SUFFIXES = ["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti"]


@given(some.integers(0, 10**6), some.sampled_from(SUFFIXES))
def test_both_readings_agree(number, suffix):
    text = f"{number}{suffix}"

    assert parse_quantity(text) == Fraction(Quantity.parse(text).nanos, 10**9)


@pytest.mark.parametrize("text", ["", "4 Gi", "Gi", "1.2.3", "4gi", "--1"])
def test_what_is_no_quantity_is_refused_and_counts_as_nothing(text):
    with pytest.raises(BadQuantity):
        parse_quantity(text)
    assert quantity_or_zero(text) == 0


@pytest.mark.parametrize(
    ("text", "wanted"), [("1e3", 1000), ("1.5Gi", 3 << 29), (".5", Fraction(1, 2)), ("250m", Fraction(1, 4))]
)
def test_odd_spellings(text, wanted):
    assert parse_quantity(text) == wanted


@pytest.mark.parametrize(
    ("cores", "wanted"), [("2", "2"), ("0.4", "400m"), ("0.0001", "1m"), ("1500m", "1500m")]
)
def test_cpu_is_rounded_up_to_a_millicore(cores, wanted):
    assert render_cpu(parse_quantity(cores)) == wanted


@given(some.integers(0, 1 << 50))
def test_memory_survives_a_round_trip(number):
    assert parse_quantity(render_memory(Fraction(number))) == number


def test_memory_has_the_largest_suffix_that_divides_it():
    assert render_memory(Fraction(8 << 30)) == "8Gi"
    assert render_memory(Fraction(8092 << 20)) == "8092Mi"
    assert render_memory(Fraction(1000)) == "1000"
