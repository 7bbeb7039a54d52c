from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.core.formats.version import NotVersion, Version

versions = st.builds(
    lambda numbers, pre, build: Version.parse(
        "v{}.{}.{}".format(*numbers) + (f"-{pre}" if pre else "") + (f"+{build}" if build else "")
    ),
    st.tuples(*[st.integers(0, 40)] * 3),
    st.sampled_from(["", "rc1", "rc2", "rc10", "alpha.1", "beta-2"]),
    st.sampled_from(["", "rke2r1", "rke2r2", "k3s1", "k3s12", "fork"]),
)


def test_a_distribution_version_is_read_part_by_part() -> None:
    version = Version.parse("v1.35.1+rke2r2")

    assert (version.major, version.minor, version.patch) == (1, 35, 1)
    assert (version.distribution, version.revision) == ("rke2", 2)
    assert version.line == (1, 35)


@pytest.mark.parametrize(
    ("text", "distribution"), [("v1.34.2+k3s1", "k3s"), ("v1.34.2-rc1+rke2r1", "rke2"), ("v1.8.2", "")]
)
def test_the_distribution_is_known_by_its_build_suffix(text: str, distribution: str) -> None:
    assert Version.parse(text).distribution == distribution


def test_versions_rise_in_the_order_of_their_releases() -> None:
    rising = [
        "v1.9.10",
        "v1.10.0-rc2",
        "v1.10.0-rc10",
        "v1.10.0",
        "v1.34.9+rke2r1",
        "v1.35.1-rc1+rke2r1",
        "v1.35.1+rke2r1",
        "v1.35.1+rke2r2",
        "v1.35.1+rke2r10",
        "v1.35.2+k3s1",
    ]

    versions = [Version.parse(text) for text in rising]
    assert all(low < high for low, high in pairwise(versions))


@pytest.mark.parametrize(
    "text", ["", "latest", "1.35", "v1.35", "v1.35.1+", "v01.2.3", "v1.2.3.4", "vv1.2.3", "v1.2.3 "]
)
def test_what_is_no_version_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(NotVersion, match=r"such as v1\.35\.1\+rke2r1"):
        Version.parse(text)


@given(versions)
def test_a_printed_version_reads_back_unchanged(version: Version) -> None:
    assert Version.parse(str(version)) == version


@given(versions, versions)
def test_exactly_one_of_less_equal_greater_holds(one: Version, other: Version) -> None:
    assert [one < other, one == other, one > other].count(True) == 1


@given(versions, versions, versions)
def test_order_is_transitive(one: Version, two: Version, three: Version) -> None:
    low, middle, high = sorted([one, two, three])

    assert low <= middle <= high
    assert low <= high
