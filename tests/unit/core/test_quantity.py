import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.core.formats.quantity import LARGEST, Form, NotQuantity, Quantity

quantities = st.builds(Quantity, st.integers(-LARGEST, LARGEST), st.sampled_from(Form))


# Pairs as apimachinery's resource.Quantity prints them.
@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("0", "0"),
        ("0Gi", "0"),
        ("2", "2"),
        ("4Gi", "4Gi"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("512", "512"),
        ("1023Ki", "1023Ki"),
        ("0.5Ki", "512"),
        ("1.5Gi", "1536Mi"),
        ("1000m", "1"),
        ("500m", "500m"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1500m", "1500m"),
        ("1000k", "1M"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("100n", "100n"),
        ("-2Gi", "-2Gi"),
        ("+3", "3"),
        ("1.0000000001", "1000000001n"),
        ("100Ei", "9223372036854775807"),
    ],
)
def test_a_quantity_prints_as_kubernetes_prints_it(written: str, canonical: str) -> None:
    assert str(Quantity.parse(written)) == canonical


@pytest.mark.parametrize("text", ["", "Gi", "4GB", "4 Gi", "4gi", "1.2.3", "--1", "1e", "0x10", "4Gi\n", "٣"])
def test_what_is_no_quantity_is_refused_with_the_text_found(text: str) -> None:
    with pytest.raises(NotQuantity, match="wanted a quantity"):
        Quantity.parse(text)


@given(quantities)
def test_a_printed_quantity_reads_back_as_the_same_amount(quantity: Quantity) -> None:
    assert Quantity.parse(str(quantity)) == quantity


@given(quantities, quantities)
def test_order_is_the_order_of_the_amounts(one: Quantity, other: Quantity) -> None:
    assert (one < other) == (one.nanos < other.nanos)
    assert (one == other) == (one.nanos == other.nanos)


@given(quantities, quantities)
def test_taking_away_undoes_adding(one: Quantity, other: Quantity) -> None:
    assert one + other - other == one


def test_equal_amounts_are_equal_whatever_their_suffix() -> None:
    assert Quantity.parse("1Gi") == Quantity.parse("1024Mi") == Quantity.parse("1073741824")


def test_values_are_rounded_away_from_zero() -> None:
    assert Quantity.parse("1500m").value == 2
    assert Quantity.parse("-1500m").value == -2
    assert Quantity.parse("0.0001").milli == 1


def test_bytes_count() -> None:
    assert Quantity.parse("40Gi").bytes == 40 * 2**30
    assert str(Quantity.parse("1.5Gi")) == "1536Mi"


def test_a_sum_keeps_the_suffixes_of_its_first_part_that_is_not_zero() -> None:
    assert str(Quantity.parse("1Gi") + Quantity.parse("1073741824")) == "2Gi"
    assert str(Quantity.parse("0") + Quantity.parse("1Gi")) == "1Gi"
    assert str(Quantity.parse("2Gi") * 3) == "6Gi"


@pytest.mark.parametrize(
    ("size", "text"),
    [(4 << 30, "4Gi"), (3 << 29, "1536Mi"), (1000, "1k"), (10**9 + 1, "1000000001"), (0, "0")],
)
def test_a_size_is_written_as_gos_binary_quantities_are(size: int, text: str) -> None:
    assert str(Quantity.of_bytes(size)) == text
    assert Quantity.parse(text).bytes == size
