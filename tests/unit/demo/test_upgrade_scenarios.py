from __future__ import annotations

import pytest

from windrow.bootstrap.support_matrix.matrix import shipped_matrix
from windrow.clusters.api.version_steps import check_step
from windrow.core.formats.version import Version
from windrow.demo.manifests import THREE_AND_TWO, shipped
from windrow.demo.upgrade_scenarios import RequestCount, find_next_version


@pytest.mark.parametrize(
    ("version", "following"),
    [
        ("v1.33.2+rke2r1", "v1.34.10+rke2r1"),
        ("v1.33.2+k3s1", "v1.34.10+k3s1"),
        ("v1.28.1+rke2r1", "v1.29.15+rke2r1"),
        ("v1.99.0+rke2r1", ""),
        ("v1.33.2", ""),  # of no distribution
        ("", ""),
    ],
)
def test_the_next_version_is_the_newest_known_release_of_the_next_minor(version: str, following: str) -> None:
    assert find_next_version(version, shipped_matrix()) == following


@pytest.mark.parametrize("distribution", THREE_AND_TWO)
def test_the_shipped_manifest_has_a_next_version_to_which_it_may_be_upgraded(distribution: str) -> None:
    before = shipped(distribution)[0]["spec"]["kubernetesVersion"]
    after = find_next_version(before, shipped_matrix())

    assert check_step(before, after) is None
    assert Version.parse(after).distribution == distribution


def test_requests_are_counted_with_and_without_an_answer() -> None:
    assert RequestCount(answered=3, failed=2).sent == 5
