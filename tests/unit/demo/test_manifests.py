"""The manifests that come with Windrow, and which checks apply to a manifest."""

from __future__ import annotations

import asyncio

import pytest
from tests.stories.cluster_rig import ALL, a_cluster, a_pool, post, stock
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.app.check import check
from windrow.app.preload.buckets import list_buckets
from windrow.demo.manifests import THREE_AND_TWO, for_demo, shipped
from windrow.demo.scenarios import check_nodes
from windrow.demo.service_scenarios import CHECKS, create_service


@pytest.mark.parametrize("distribution", THREE_AND_TWO)
def test_nothing_is_wrong_with_a_manifest_of_ours(distribution: str):
    (result,) = asyncio.run(check(shipped(distribution)))

    assert result.problems == ()


def test_the_manifests_differ_in_the_distribution_alone():
    pools = [
        [
            pool["machineConfigRef"] | {"quantity": pool["quantity"]}
            for pool in spec["rkeConfig"]["machinePools"]
        ]
        for spec in (shipped(name)[0]["spec"] for name in THREE_AND_TWO)
    ]

    assert pools[0] == pools[1]
    assert shipped("rke2")[1:] == shipped("k3s")[1:]
    assert shipped("k3s")[0]["spec"]["kubernetesVersion"].endswith("+k3s1")


@pytest.mark.parametrize("distribution", THREE_AND_TWO)
def test_the_demo_adds_a_bucket_and_a_shorter_lease_to_the_shipped_manifest(distribution: str) -> None:
    documents = for_demo(shipped(distribution))
    cluster, *configs = documents

    assert configs == shipped(distribution)[1:]
    assert [str(one) for one in list_buckets(documents)] == [
        "backups at s3.emulator.windrow.io:9000, keys in Secret fleet-default/cc-s3"
    ]
    values = cluster["spec"]["rkeConfig"]["chartValues"]["harvester-cloud-provider"]
    assert "--leader-elect-lease-duration=5s" in values["extraArgs"]
    (result,) = asyncio.run(check(documents))
    assert result.problems == ()


def test_checks_of_a_cloud_provider_do_not_apply_where_the_manifest_asks_for_none():
    async def main() -> None:
        documents = a_cluster(a_pool("all", 1, ALL))
        del documents[-1]["spec"]["rkeConfig"]["machineGlobalConfig"]["cloud-provider-name"]
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            ref = await post(sim, documents)
            cluster = sim.cluster(ref.name, ref.namespace)
            await cluster.wait_for_settled()
            await check_nodes(cluster)
            await create_service(cluster)

            assert [(one.name, one.ok) for one in cluster.report.checks] == [
                ("nodes-ready", True),
                ("node-addresses", True),
            ]
            assert {one.name for one in cluster.report.skipped} == {"provider-ids", "zones", *CHECKS}
            assert {one["name"] for one in cluster.report.as_json()["notApplicable"]} > set(CHECKS)

    run_driven(main())
