"""Names of machines within the length that their pool allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.clusters.builders import a_cluster, a_pool

from windrow.clusters.api.machine import (
    is_machine_name,
    is_name_in_pool,
    machine_name_stem,
    new_machine_name,
    shorten_name,
)
from windrow.clusters.bootstrap_data import sample_name
from windrow.clusters.orphans import OrphanVm
from windrow.clusters.plan.unrecorded import find_pool_of
from windrow.core.rng import Rng
from windrow.kubernetes.objects import is_dns_label

LONG = "abcdef0123456789" * 4


@pytest.mark.parametrize(
    ("name", "limit", "wanted"),
    [
        (LONG[:63], 63, LONG[:63]),
        (LONG, 63, "abcdef0123456789abcdef0123456789abcdef0123456789abcdef012-aa23e"),
        (LONG[:32], 24, "abcdef0123456789ab-bc373"),
        (LONG[:32], 32, LONG[:32]),
    ],
)
def test_names_are_shortened_as_rancher_does(name: str, limit: int, wanted: str) -> None:
    assert shorten_name(name, limit) == wanted


@given(
    cluster=st.from_regex("[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True),
    pool=st.from_regex("[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True),
    limit=st.integers(10, 63),
    seed=st.integers(),
)
def test_every_new_name_is_a_host_name_within_the_limit_and_is_known_again(
    cluster: str, pool: str, limit: int, seed: int
) -> None:
    its_pool = a_pool(pool, hostname_limit=limit)
    its_cluster = replace(a_cluster(its_pool), name=cluster)

    name = new_machine_name(its_cluster, its_pool, Rng(seed))

    assert len(name) <= limit
    assert is_dns_label(name)
    assert is_name_in_pool(its_cluster, its_pool, name)
    assert is_machine_name(its_cluster, name)


def test_a_copy_of_a_machine_with_a_short_name_is_told_by_its_name() -> None:
    pool = a_pool("workers", hostname_limit=15)
    cluster = a_cluster(pool)

    assert not is_machine_name(cluster, "prod-worke-1a2b3")
    assert is_machine_name(cluster, "prod-work-1a2b3")
    assert not is_machine_name(cluster, "prod-work-copy1")
    assert not is_machine_name(cluster, "prod-work-1a2b3-copy")
    assert not is_machine_name(replace(cluster, pools=()), "prod-work-1a2b3")


def test_a_copy_is_told_by_its_name_also_where_that_is_as_long_as_the_limit() -> None:
    pool = a_pool("workers")
    cluster = a_cluster(pool)
    copy = f"{machine_name_stem(cluster, pool.name)}x7k2p-".ljust(pool.hostname_limit, "a")

    assert not is_machine_name(cluster, copy)


def test_a_name_that_two_pools_may_have_given_is_of_neither() -> None:
    one, other = a_pool("workers-a", hostname_limit=15), a_pool("workers-b", hostname_limit=15)
    vm = OrphanVm("default", "prod-work-1a2b3", "vm-1", "uid-lost", cluster_uid="cluster-uid")

    assert find_pool_of(vm, a_cluster(one, other)) is None
    assert find_pool_of(vm, a_cluster(one)) == one


def test_without_a_limit_names_are_as_ever() -> None:
    cluster, pool = a_cluster(), a_pool("workers")

    name = new_machine_name(cluster, pool, Rng(1))

    assert name == machine_name_stem(cluster, "workers") + Rng(1).name_suffix()
    assert sample_name(cluster, pool) == "prod-workers-xxxxx-00000"
    assert len(sample_name(cluster, replace(pool, hostname_limit=12))) == 12
