"""What the demo waits for, and what it leaves on Harvester."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.clusters.api.kinds import CLUSTER
from windrow.demo.cluster import ClusterRefused
from windrow.demo.service_scenarios import CHECKS, create_service, delete_pool, pool_name
from windrow.harvester.resources import IP_POOL
from windrow.kubernetes.objects import new_object

UNKNOWN_CONFIG = {"kind": "HarvesterConfig", "name": "absent"}
POOL = {"name": "servers", "quantity": 1, "etcdRole": True, "controlPlaneRole": True}
SPEC: dict[str, Any] = {
    "kubernetesVersion": "v1.34.7+rke2r1",
    "cloudCredentialSecretName": "cattle-global-data:cc",
    "rkeConfig": {"machinePools": [{**POOL, "machineConfigRef": UNKNOWN_CONFIG}]},
}


def test_a_refused_cluster_ends_the_wait_at_once_with_its_problems():
    async def main() -> float:
        async with simulation() as sim:
            await sim.management_client.create(
                CLUSTER, new_object(CLUSTER, "orchard", "fleet-default", spec=SPEC)
            )
            started = sim.clock.now()
            with pytest.raises(ClusterRefused, match="names HarvesterConfig 'absent'"):
                await sim.cluster("orchard").wait_for_ready_or_refused()
            return (sim.clock.now() - started).total_seconds()

    assert run_driven(main()) < 10


def test_a_cluster_of_ipv6_alone_gets_no_service_and_its_checks_are_told_as_not_applicable():
    networks = {"cluster-cidr": "fd00:42::/56", "service-cidr": "fd00:43::/112"}
    keys = {"cloud-provider-name": "harvester", **networks}
    spec = SPEC | {"rkeConfig": {**SPEC["rkeConfig"], "machineGlobalConfig": keys}}

    async def main() -> None:
        async with simulation() as sim:
            await sim.management_client.create(
                CLUSTER, new_object(CLUSTER, "orchard", "fleet-default", spec=spec)
            )
            cluster = sim.cluster("orchard")

            await create_service(cluster)

            assert {one.name for one in cluster.report.skipped} == set(CHECKS)
            assert all("IPv6 alone" in one.why for one in cluster.report.skipped)
            assert await sim.harvester_client.list(IP_POOL) == []

    run_driven(main())


def test_the_ip_pool_of_a_service_that_never_came_up_is_deleted():
    async def main() -> None:
        async with simulation(with_manager=False) as sim:
            cluster = sim.cluster("orchard")
            ranges = [{"subnet": "192.168.50.0/24", "rangeStart": "192.168.50.9", "rangeEnd": "192.168.50.9"}]
            pool = new_object(IP_POOL, pool_name(cluster), spec={"ranges": ranges})
            await sim.harvester_client.create(IP_POOL, pool)

            await delete_pool(cluster)
            await delete_pool(cluster)

            assert await sim.harvester_client.list(IP_POOL) == []

    run_driven(main())
