"""Every act of the demo, played on clusters of every shape that this release makes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import run_driven
from tests.support.seeds import partly_long
from tests.support.simulation import Simulation, simulation

from windrow.clusters.api.kinds import CLUSTER
from windrow.demo.cluster import DemoCluster
from windrow.demo.report import CheckRecord
from windrow.demo.scenarios import plan_scenarios, run_scenario
from windrow.emulator.kit.inventory import inventory

CONFIG = {
    "apiVersion": "rke-machine-config.cattle.io/v1",
    "kind": "HarvesterConfig",
    "metadata": {"name": "nc", "namespace": "fleet-default"},
    "vmNamespace": "default",
    "cpuCount": "1",
    "memorySize": "4",
    "diskInfo": '{"disks":[{"imageName":"default/leap","bootOrder":1,"size":40}]}',
    "networkInfo": '{"interfaces":[{"networkName":"default/lan"}]}',
    "sshUser": "opensuse",
}
PATIENCE = timedelta(minutes=40)


@dataclass(frozen=True)
class Pool:
    name: str
    quantity: int
    roles: str  # any of e, c, w

    def raw(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "quantity": self.quantity,
            "etcdRole": "e" in self.roles,
            "controlPlaneRole": "c" in self.roles,
            "workerRole": "w" in self.roles,
            "machineConfigRef": {"kind": "HarvesterConfig", "name": "nc"},
        }


SHAPES = {
    "one machine for everything": [Pool("all", 1, "ecw")],
    "one server and one worker": [Pool("servers", 1, "ec"), Pool("workers", 1, "w")],
    "three servers and two workers": [Pool("servers", 3, "ec"), Pool("workers", 2, "w")],
    "five servers that also work": [Pool("all", 5, "ecw")],
    "etcd apart from the control plane": [
        Pool("etcd", 3, "e"),
        Pool("control", 2, "c"),
        Pool("workers", 1, "w"),
    ],
    "a member of etcd alone beside servers": [Pool("etcd", 1, "e"), Pool("servers", 2, "ecw")],
}
# The smallest, the usual and the most divided.
SAMPLE = ("one machine for everything", "three servers and two workers", "etcd apart from the control plane")
# What differs in the spec of a cluster of each distribution.
DISTRIBUTIONS: dict[str, dict[str, Any]] = {
    "v1.34.7+rke2r1": {
        "machineGlobalConfig": {"cni": "calico"},
        "machineSelectorConfig": [{"config": {"cloud-provider-name": "harvester"}}],
    },
    "v1.34.7+k3s1": {"machineGlobalConfig": {"disable": ["traefik", "local-storage"]}},
}
CASES = [f"{shape}, {version}" for version in DISTRIBUTIONS for shape in SHAPES]


def cluster(pools: list[Pool], version: str) -> dict[str, Any]:
    return {
        "apiVersion": "provisioning.cattle.io/v1",
        "kind": "Cluster",
        "metadata": {"name": "shape", "namespace": "fleet-default"},
        "spec": {
            "cloudCredentialSecretName": "cattle-global-data:cc",
            "kubernetesVersion": version,
            "rkeConfig": DISTRIBUTIONS[version] | {"machinePools": [pool.raw() for pool in pools]},
        },
    }


async def delete(sim: Simulation, stage: DemoCluster) -> None:
    await sim.management_client.delete(CLUSTER.ref(stage.name, stage.namespace))
    await stage.wait_for_deletion()
    await sim.advance(minutes=1)


@pytest.mark.parametrize(
    "case",
    partly_long(CASES, [f"{shape}, v1.34.7+rke2r1" for shape in SAMPLE] + [f"{SAMPLE[0]}, v1.34.7+k3s1"]),
)
def test_a_cluster_of_this_shape_is_provisioned_heals_and_leaves_nothing(case: str) -> None:
    shape, _, version = case.partition(", ")

    async def story() -> tuple[list[CheckRecord], frozenset[Any]]:
        async with simulation(seed=7) as sim:
            await sim.harvester.preload(
                images=["default/leap"], networks=["default/lan"], namespaces=["default"]
            )
            before = await inventory(sim.harvester.api)
            await sim.apply([cluster(SHAPES[shape], version), CONFIG])
            stage = sim.cluster("shape", timeout=PATIENCE)
            await stage.wait_for_settled()
            for act in plan_scenarios(await stage.list_pools()):
                await run_scenario(stage, act)
            await delete(sim, stage)
            return stage.report.checks, await inventory(sim.harvester.api) - before

    checks, left = run_driven(story())

    assert [check for check in checks if not check.ok] == []
    assert len(checks) >= 6
    assert left == frozenset()
