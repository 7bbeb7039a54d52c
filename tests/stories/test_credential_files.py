"""Chart values that name a file of their own for Harvester's credential, as Terraform examples and Harvester's pages have it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.stories.cluster_rig import ALL, a_cluster, a_pool, post, stock
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.kubernetes.objects import nested

RKE2, K3S = "v1.34.7+rke2r1", "v1.34.7+k3s1"


@pytest.mark.parametrize("version", [RKE2, pytest.param(K3S, marks=pytest.mark.long)])
def test_a_file_that_nothing_else_writes_has_the_credential(version: str) -> None:
    """The cloud provider finds no file otherwise, and no Node is ever initialized."""

    async def story() -> list[Any]:
        documents = a_cluster(a_pool("all", 1, ALL), kubernetesVersion=version)
        documents[-1]["spec"]["rkeConfig"]["chartValues"] = {
            "harvester-cloud-provider": {"cloudConfigPath": "/etc/kubernetes/cloud-config"},
            "harvester-csi-driver": {"cloudConfig": {"hostPath": "/etc/kubernetes/"}},
        }
        async with simulation(seed=4, with_manager=False) as sim:
            await stock(sim, documents)
            sim.start_manager()
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            return [nested(node, "spec", "providerID", default="") for node in await stage.list_nodes()]

    (provider,) = run_driven(story())
    assert provider.startswith("harvester://")
