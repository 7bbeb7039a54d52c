"""Quantities: the emulator's reading beside the products' own. The duplicate is the check."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as some

from windrow.core.formats import quantity
from windrow.emulator.quantities import (
    BadQuantity,
    Quantity,
    parse_quantity,
    quantity_or_zero,
)

SUFFIXES = ["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti"]


@given(some.integers(0, 10**6), some.sampled_from(SUFFIXES))
def test_both_readings_agree(number, suffix):
    text = f"{number}{suffix}"

    assert parse_quantity(text) == Fraction(quantity.Quantity.parse(text).nanos, 10**9)


@pytest.mark.parametrize("text", ["", "4 Gi", "1.2.3", "4gi", "--1"])
def test_what_is_no_quantity_is_refused_and_counts_as_nothing(text):
    with pytest.raises(BadQuantity):
        parse_quantity(text)
    assert quantity_or_zero(text) == 0


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1e3", 1000),
        ("1.5Gi", 3 << 29),
        (".5", Fraction(1, 2)),
        ("250m", Fraction(1, 4)),
        ("Gi", 0),
        ("-", 0),
    ],
)
def test_odd_spellings(text, wanted):
    assert parse_quantity(text) == wanted


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("4096Mi", "4Gi"), ("1.5Gi", "1536Mi"), ("1000Ki", "1000Ki"), ("0.5", "500m"), ("1500m", "1500m"), ("2000m", "2"),
        ("-1", "-1"), ("8G", "8G"), ("7895142400", "7895142400"), ("1e3", "1e3"), ("0", "0"), ("512", "512"),
        ("1023Ki", "1023Ki"), ("1.0001Ki", "1024102400u"),
    ],
)  # fmt: skip
def test_quantities_are_written_as_kubernetes_does(text, canonical):
    assert str(Quantity.parse(text)) == canonical
    assert Quantity.parse(str(Quantity.parse(text))).number == Quantity.parse(text).number


@pytest.mark.parametrize(
    ("text", "whole", "milli"), [("1.2", 2, 1200), ("-1.2", -2, -1200), ("0.1m", 1, 1), ("3", 3, 3000)]
)
def test_quantities_are_rounded_away_from_zero(text, whole, milli):
    assert (Quantity.parse(text).whole, Quantity.parse(text).milli) == (whole, milli)
