import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.core.formats.cidr import NotAddress, Range, is_address, parse_address, usable_address

addresses = st.ip_addresses(v=4)
ranges = st.builds(lambda one, other: Range(min(one, other), max(one, other)), addresses, addresses)


@pytest.mark.parametrize(
    ("text", "size", "printed"),
    [
        ("10.0.0.0/24", 256, "10.0.0.0-10.0.0.255"),
        ("10.0.0.7/24", 256, "10.0.0.0-10.0.0.255"),
        ("10.0.0.10-10.0.0.20", 11, "10.0.0.10-10.0.0.20"),
        (" 10.0.0.5 ", 1, "10.0.0.5"),
        ("fd00::/126", 4, "fd00::-fd00::3"),
    ],
)
def test_a_range_is_read_from_each_of_its_forms(text: str, size: int, printed: str) -> None:
    found = Range.parse(text)

    assert (found.size, str(found)) == (size, printed)


@pytest.mark.parametrize(
    "text", ["", "10.0.0", "10.0.0.9-10.0.0.1", "10.0.0.1-fd00::1", "10.0.0.0/33", "gateway"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(NotAddress, match="wanted"):
        Range.parse(text)


def test_a_range_of_one_family_holds_no_address_of_the_other() -> None:
    assert parse_address("::a00:1") not in Range.parse("10.0.0.0/8")


@given(ranges)
def test_a_range_holds_its_ends_and_reads_back_from_its_text(found: Range) -> None:
    assert found.first in found
    assert found.last in found
    assert Range.parse(str(found)) == found


@given(ranges, ranges)
def test_ranges_overlap_in_both_directions_or_not_at_all(one: Range, other: Range) -> None:
    assert one.overlaps(other) == other.overlaps(one)


def test_a_range_gives_each_of_its_addresses_once() -> None:
    assert [str(address) for address in Range.parse("10.0.0.254-10.0.1.1")] == [
        "10.0.0.254",
        "10.0.0.255",
        "10.0.1.0",
        "10.0.1.1",
    ]


@pytest.mark.parametrize(
    "text", ["::ffff:10.0.0.5", "::ffff:10.0.0.0/120", "::ffff:10.0.0.5-::ffff:10.0.0.9"]
)
def test_an_ipv4_address_written_as_ipv6_is_refused_with_how_to_write_it(text: str) -> None:
    with pytest.raises(NotAddress, match="IPv4 written as IPv6; write it as IPv4"):
        Range.parse(text)


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        ("10.0.0.5/24", "10.0.0.5"),
        ("fd00::0005", "fd00::5"),
        ("127.0.0.1", ""),
        ("fe80::1/64", ""),
        ("169.254.1.1", ""),
        ("no", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_an_address_that_others_could_reach_is_compared_without_its_prefix(
    text: str | None, usable: str
) -> None:
    assert usable_address(text) == usable


def test_a_name_is_not_an_address() -> None:
    assert is_address("10.0.0.1")
    assert is_address("fd00::1")
    assert not is_address("api.example.org")
