"""K3s clusters: ours, those of tutorials, and that of Harvester's documentation."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from tests.stories.cluster_rig import ALL, SERVERS, Transcript, a_cluster, a_pool, post, stock
from tests.stories.test_cluster_life import a_story, check_story
from tests.support.clock import run_driven
from tests.support.simulation import VIP, Simulation, simulation

from windrow.demo.cluster import DemoCluster
from windrow.demo.scenarios import check_nodes
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import ApiResource

HELM_CHART = ApiResource("helm.cattle.io", "v1", "HelmChart", "helmcharts")
VERSION = "v1.34.7+k3s1"


def an_rke_config(*pools: Raw, config: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    return {"machineGlobalConfig": config or {}, "machinePools": list(pools), **rest}


async def charts_of(stage: DemoCluster) -> dict[str, Raw]:
    """The HelmCharts of the guest that install something of Harvester's, by name."""
    guest = await stage.guest_client()
    found = await guest.list(HELM_CHART, "kube-system")
    return {name: raw for raw in found if "harvester" in (name := str(nested(raw, "metadata", "name")))}


@pytest.mark.long  # tests/stories/test_shapes.py has one K3s machine in every run
def test_bootstrap_of_three_servers_and_two_workers() -> None:
    async def story() -> Transcript:
        pools = a_pool("servers", 3, SERVERS), a_pool("workers", 2)
        rke = an_rke_config(*pools, config={"disable": ["traefik", "local-storage"]})
        async with a_story(*pools, kubernetesVersion=VERSION, rkeConfig=rke) as it:
            await it.stage.wait_for_settled()
            return it.transcript

    check_story("k3s-bootstrap-3-2", story)


async def come_up(
    documents: list[Raw], complete: Callable[[Simulation], None] = lambda sim: None
) -> tuple[list[str], dict[str, Raw], list[Raw]]:
    """Which checks of Nodes failed; the HelmCharts for Harvester; the Nodes. `complete` puts what only the Harvester knows
    into the documents."""
    async with simulation(seed=5) as sim:
        complete(sim)
        await stock(sim, documents)
        ref = await post(sim, documents)
        stage = sim.cluster(ref.name, ref.namespace)
        await stage.wait_for_settled()
        await check_nodes(stage)
        failed = [f"{check.name}: {check.detail}" for check in stage.report.checks if check.failed]
        return failed, await charts_of(stage), await stage.list_nodes()


@pytest.mark.long
def test_the_manifest_of_a_tutorial_comes_up_as_it_is() -> None:
    """Three servers for everything and a worker, keys that tutorials have, and the old fields of one disk and one network."""
    pools = [a_pool("all", 3, ALL), a_pool("workers", 1)]
    config = {"disable": ["traefik"], "cluster-domain": "example.org", "cluster-init": True}
    config |= {"disable-local-storage": True}  # no key of K3s: servers skip it, agents would not start
    documents = a_cluster(*pools, kubernetesVersion=VERSION, rkeConfig=an_rke_config(*pools, config=config))
    del documents[0]["diskInfo"], documents[0]["networkInfo"]
    documents[0] |= {
        "imageName": "default/jammy",
        "networkName": "default/vlan-50",
        "networkType": "dhcp",
        "diskSize": "40",
        "diskBus": "virtio",
    }

    failed, charts, _ = run_driven(come_up(documents))

    assert failed == []
    assert set(charts) == {"harvester-cloud-provider", "harvester-csi-driver"}


DOCUMENTED = """\
apiVersion: helm.cattle.io/v1
kind: HelmChart
metadata:
  name: harvester-cloud-provider
  namespace: kube-system
spec:
  targetNamespace: kube-system
  bootstrap: true
  repo: https://charts.harvesterhci.io/
  chart: harvester-cloud-provider
  version: 0.2.6
  helmVersion: v3
  valuesContent: |-
    global:
      cattle:
        clusterName: orchard
"""
ADDON_FILE = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"


@pytest.mark.long
def test_the_way_of_harvesters_documentation_works() -> None:
    """User data with the file of the addon script, a HelmChart as additional manifest, and the three keys."""

    pools = [a_pool("all", 1, ALL)]
    rke = an_rke_config(
        *pools,
        config={"disable": ["servicelb", "local-storage"], "disable-cloud-controller": True},
        machineSelectorConfig=[
            {"config": {"kubelet-arg": ["cloud-provider=external"], "protect-kernel-defaults": False}}
        ],
        additionalManifest=DOCUMENTED,
    )
    documents = a_cluster(*pools, kubernetesVersion=VERSION, rkeConfig=rke)

    def write_user_data(sim: Simulation) -> None:
        kubeconfig = base64.b64encode(sim.harvester.admin_kubeconfig(VIP).encode()).decode()
        documents[0]["userData"] = (
            "#cloud-config\nwrite_files:\n"
            f"- encoding: b64\n  content: {kubeconfig}\n  owner: root:root\n"
            f"  path: {ADDON_FILE}\n  permissions: '0644'\n"
        )

    failed, charts, _ = run_driven(come_up(documents, write_user_data))

    assert failed == []
    assert charts["harvester-cloud-provider"]["spec"]["version"] == "0.2.6"
    assert "harvester-csi-driver" in charts


def test_without_harvesters_provider_k3s_initializes_its_nodes_itself() -> None:
    pools = [a_pool("all", 1, ALL)]
    rke = an_rke_config(*pools, config={"cloud-provider-name": "none"})

    failed, charts, nodes = run_driven(come_up(a_cluster(*pools, kubernetesVersion=VERSION, rkeConfig=rke)))

    assert failed == []
    assert charts == {}
    assert [node["spec"]["providerID"] for node in nodes] == [
        f"k3s://{node['metadata']['name']}" for node in nodes
    ]
