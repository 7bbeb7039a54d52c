from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.unit.clusters.builders import a_cluster, a_pool

from windrow.bootstrap.spec import Role
from windrow.bootstrap.support_matrix.matrix import shipped_matrix
from windrow.clusters.api.cluster import Pool
from windrow.clusters.bootstrap_data import check_bootstrap
from windrow.clusters.versions import compare_versions, list_problems

AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
HARVESTER = {"cloud-provider-name": "harvester"}


def told(
    version: str = "v1.34.7+rke2r1", options: Any = None, provider: str = "harvester", **rest: Any
) -> str:
    roles = frozenset({Role.ETCD, Role.CONTROL_PLANE, Role.WORKER})
    pool = a_pool("servers", 1, roles, options=options or {})
    cluster = a_cluster(
        pool, version_wish=version, cloud_provider=provider, **{"global_config": HARVESTER, **rest}
    )
    compared = compare_versions(cluster, (), shipped_matrix(), None)
    return " | ".join(one.message for one in list_problems(compared))


@pytest.mark.parametrize(
    "given",
    [AFFINITY, json.dumps(AFFINITY), base64.b64encode(json.dumps(AFFINITY).encode()).decode()],
    ids=["map", "JSON", "base64"],
)
def test_machines_bound_to_hosts_keep_their_zone(given: Any) -> None:
    assert "keeps its zone label" in told("v1.24.3+rke2r1")
    assert "keeps its zone label" not in told("v1.24.3+rke2r1", {"vmAffinity": given})


@pytest.mark.parametrize("given", ["{", "e30=", "====", "[[", 3])
def test_what_is_no_affinity_binds_no_machine(given: Any) -> None:
    assert "keeps its zone label" in told("v1.24.3+rke2r1", {"vmAffinity": given})


def test_a_chart_that_is_disabled_is_not_compared() -> None:
    config = {**HARVESTER, "disable": ["harvester-csi-driver"]}

    assert "harvester-csi-driver 0.1.16" in told("v1.27.3+rke2r1")
    assert "harvester-csi-driver" not in told("v1.27.3+rke2r1", global_config=config)


def test_the_secret_that_chart_values_name_is_compared_with_the_chart() -> None:
    values = {"harvester-cloud-provider": {"cloudConfig": {"secretName": "mine"}}}

    assert "cloudConfig.secretName" in told(chart_values=values)
    assert told("v1.34.10+rke2r1", chart_values=values) == ""


def test_a_chart_of_the_users_own_in_k3s_is_not_compared() -> None:
    manifest = "kind: HelmChart\nmetadata: {name: harvester-cloud-provider}\nspec: {chart: harvester-cloud-provider}\n"
    pool = a_pool("servers", 1, frozenset({Role.ETCD, Role.CONTROL_PLANE}), options={})
    cluster = a_cluster(
        pool,
        version_wish="v1.35.1+k3s1",
        cloud_provider="harvester",
        global_config={},
        additional_manifest=manifest,
    )

    found = [one.sentence for one in compare_versions(cluster, (), shipped_matrix(), None)]

    assert [one for one in found if "harvester-" in one] == [
        "K3s v1.35.1+k3s1 runs harvester-csi-driver 0.1.30 (image v0.2.9)"
    ]


@pytest.mark.parametrize(
    ("version", "provider", "is_warned"),
    [
        ("v1.34.7+rke2r1", "", True),
        ("v1.34.7+rke2r1", "harvester", False),
        ("v1.34.7+rke2r1", "external", False),
        ("v1.35.1+k3s1", "", False),
    ],
)
def test_machines_on_harvester_without_a_cloud_provider_are_warned_of(
    version: str, provider: str, is_warned: bool
) -> None:
    pool = a_pool("servers", 1, frozenset({Role.ETCD, Role.CONTROL_PLANE}), options={})
    found = check_bootstrap(
        a_cluster(pool, version_wish=version, cloud_provider=provider, global_config={}), ()
    )

    assert any("no cloud-provider-name is set" in one.message for one in found) == is_warned


def test_a_zone_is_lost_where_machines_of_one_pool_are_bound_to_hosts_and_those_of_another_are_not() -> None:
    roles = frozenset({Role.ETCD, Role.CONTROL_PLANE, Role.WORKER})
    bound, free = a_pool("a", 1, roles, options={"vmAffinity": AFFINITY}), a_pool("b", 1, options={"x": "y"})

    def is_told(*pools: Pool) -> bool:
        cluster = a_cluster(
            *pools, version_wish="v1.24.3+rke2r1", cloud_provider="harvester", global_config=HARVESTER
        )
        compared = compare_versions(cluster, (), shipped_matrix(), None)
        return any("keeps its zone label" in one.message for one in list_problems(compared))

    assert (is_told(bound), is_told(bound, free)) == (False, True)
