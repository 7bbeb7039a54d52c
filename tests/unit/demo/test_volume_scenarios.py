"""Where the demo's pod with a volume runs, and whether its machine is one that the demo loses."""

from __future__ import annotations

import pytest

from windrow.demo.cluster import PoolSpec
from windrow.demo.volume_scenarios import find_workers, line_of, may_be_lost, render_lines, render_store
from windrow.kubernetes.objects import Raw, nested

SERVERS = PoolSpec(0, "servers", 3, True, True, False)
ONE = PoolSpec(0, "servers", 1, True, True, True)
CONTROL = PoolSpec(1, "control", 2, False, True, False)
WORKERS = PoolSpec(2, "workers", 2, False, False, True)
MORE = PoolSpec(3, "more", 1, False, False, True)
NO_WORKERS = PoolSpec(2, "workers", 0, False, False, True)


def a_machine(pool: str, *roles: str) -> Raw:
    return {"spec": {"pool": pool, "roles": list(roles)}}


@pytest.mark.parametrize(
    ("machine", "pools", "lost"),
    [
        (a_machine("workers", "worker"), [SERVERS, WORKERS], True),
        (a_machine("more", "worker"), [SERVERS, WORKERS, MORE], False),
        (a_machine("servers", "etcd", "controlplane"), [SERVERS], True),
        (a_machine("servers", "etcd", "controlplane", "worker"), [ONE], False),
        (a_machine("control", "controlplane"), [SERVERS, CONTROL], False),
        (None, [SERVERS, WORKERS], False),
    ],
)
def test_a_worker_of_the_first_pool_and_one_of_three_members_are_lost(
    machine: Raw | None, pools: list[PoolSpec], lost: bool
) -> None:
    assert may_be_lost(machine, pools) is lost


def test_a_pool_without_machines_has_no_worker_to_lose() -> None:
    assert find_workers([SERVERS, NO_WORKERS, MORE]) == MORE
    assert find_workers([SERVERS, NO_WORKERS]) is None


def test_the_pod_runs_on_a_worker_where_there_is_one() -> None:
    path = ("spec", "template", "spec", "affinity")
    assert nested(render_store(on_workers=True), *path) is not None
    assert nested(render_store(on_workers=False), *path) is None


def test_lines_of_a_volume_are_told_as_pods_wrote_them():
    assert line_of("store-1") == "written by store-1\n"
    assert render_lines(line_of("a") + line_of("b")) == '"written by a", "written by b"'
    assert render_lines("") == "nothing"
