from __future__ import annotations

from typing import Any

import pytest

from windrow.cli import exit_codes
from windrow.cli.commands.scale import plan_sizes
from windrow.cli.errors import CliError
from windrow.kubernetes.patches import PatchFailed, apply_json_patch

SERVERS = {"name": "servers", "quantity": 3, "etcdRole": True, "controlPlaneRole": True}
WORKERS = {"name": "workers", "workerRole": True}  # no quantity means one


def a_cluster(*pools: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "orchard", "namespace": "fleet-default"}
    return {"metadata": metadata, "spec": {"rkeConfig": {"machinePools": list(pools)}}}


def test_a_size_is_set_on_the_pool_of_that_name_only():
    cluster = a_cluster(SERVERS, WORKERS)

    after = apply_json_patch(cluster, plan_sizes(cluster, {"workers": 4}))

    assert after["spec"]["rkeConfig"]["machinePools"] == [SERVERS, {**WORKERS, "quantity": 4}]


def test_the_patch_misses_when_the_pools_were_moved_about_meanwhile():
    steps = plan_sizes(a_cluster(SERVERS, WORKERS), {"workers": 4})

    with pytest.raises(PatchFailed):
        apply_json_patch(a_cluster(WORKERS, SERVERS), steps)


def test_a_size_that_is_there_already_changes_nothing():
    assert plan_sizes(a_cluster(SERVERS, WORKERS), {"workers": 1, "servers": 3}) == []


def test_a_pool_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(CliError, match="servers, workers") as caught:
        plan_sizes(a_cluster(SERVERS, WORKERS), {"wokers": 4})

    assert caught.value.code == exit_codes.NOT_FOUND


def test_the_last_etcd_machine_is_not_scaled_away():
    with pytest.raises(CliError, match="etcd") as caught:
        plan_sizes(a_cluster(SERVERS, WORKERS), {"servers": 0})

    assert caught.value.code == exit_codes.REFUSED


def test_a_pool_of_servers_may_go_when_another_carries_the_same_roles():
    assert plan_sizes(a_cluster(SERVERS, {**SERVERS, "name": "others"}), {"servers": 0})
