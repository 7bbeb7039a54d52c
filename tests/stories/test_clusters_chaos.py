"""After any storm a cluster of any topology is as its user declares it, and what others own was not touched.

`make test` lives one seed, `make test-long` some more; `python -m tests.stories.cluster_chaos 0 2000` lives two thousand, and
`python -m tests.stories.cluster_chaos SEED` tells one of them.
"""

from __future__ import annotations

import os

import pytest
from tests.support.seeds import sampled

from windrow.core.rng import Rng

from .cluster_chaos import live
from .cluster_topologies import ADDRESSES, DISTRIBUTIONS, ENDPOINTS, ROLE_SPLITS, draw_topology

LIVES = int(os.environ.get("WINDROW_SEEDS", "2000")) // 200


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", sampled(range(max(LIVES, 1)), 1))
def test_a_cluster_in_a_storm_becomes_what_is_declared_and_leaves_nothing(seed: int) -> None:
    outcome = live(seed)

    print(f"seed {seed}", *outcome.lines, *outcome.faults, sep="\n")
    assert outcome.faults == ()


def test_the_topologies_of_two_thousand_seeds_have_every_mode_and_every_split_of_roles() -> None:
    drawn = [draw_topology(Rng(f"cluster/{seed}")) for seed in range(2000)]

    assert {one.distribution for one in drawn} == set(DISTRIBUTIONS)
    assert {one.endpoint for one in drawn} == set(ENDPOINTS)
    assert {one.addresses for one in drawn} == set(ADDRESSES)
    assert {" ".join(pool.roles for pool in one.pools) for one in drawn} == set(ROLE_SPLITS)
    assert all(sum(pool.quantity for pool in one.pools if pool.is_etcd) in (1, 3) for one in drawn)


@pytest.mark.long
def test_a_seed_is_lived_again_as_it_was() -> None:
    assert live(1) == live(1)
