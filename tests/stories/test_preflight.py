"""The preflight: versions that do not go together are told before anything is made, and it costs few requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest
from tests.stories.cluster_rig import ALL, a_cluster, a_pool, post, stock
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.bootstrap.support_matrix.matrix import read_matrix
from windrow.client.transport import Transport
from windrow.clusters.api.kinds import MACHINE
from windrow.emulator.kit.inventory import inventory
from windrow.harvester.supported_charts import CHART_VERSIONS
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, secret_texts
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import SECRET


async def preflight(sim: Simulation, version: str, words: list[str], status: str, **spec: object) -> Raw:
    """The Cluster after its preflight, whose condition has `status` and all of `words`."""
    documents = a_cluster(a_pool("pool1", 1, ALL), kubernetesVersion=version, **spec)
    await stock(sim, documents)
    before = await inventory(sim.harvester.api)
    ref = await post(sim, documents)
    await sim.advance(seconds=10)
    cluster = await sim.management_client.get(ref)
    condition = find_condition(cluster["status"]["conditions"], "PreflightPassed")
    assert condition is not None
    assert condition.status == status, condition.message
    for word in words:
        assert word in condition.message
    if status == "False":
        assert await sim.management_client.list(MACHINE) == []
        assert await inventory(sim.harvester.api) == before
    return cluster


@pytest.mark.parametrize(
    ("harvester", "version", "words", "status"),
    [
        ("v1.8.2", "v1.21.1+rke2r1", ["brings neither the cloud provider nor the CSI", "v1.21.5+rke2r2"], "False"),
        ("v1.1.2", "v1.34.7+rke2r1", ["wants Harvester v1.2.0 or later, and this is v1.1.2"], "False"),
        ("v1.3.2", "v1.30.6+rke2r1", ["0.1.20 wants Harvester v1.4.0 or later", "harvester/harvester#6849"], "False"),
        ("v1.8.2", "v1.99.0+rke2r1", ["newer than what the support matrix", "--support-matrix FILE"], "True"),
    ],
)  # fmt: skip
def test_versions_that_do_not_go_together_are_told_before_anything_is_made(
    harvester: str, version: str, words: list[str], status: str
) -> None:
    async def story() -> None:
        async with simulation(seed=3, version=harvester) as sim:
            await preflight(sim, version, words, status)

    run_driven(story())


def test_a_range_of_charts_that_harvester_names_is_kept() -> None:
    async def story() -> None:
        async with simulation(seed=3) as sim:
            ranges = '{"harvester-cloud-provider":">=0.0.1 <0.2.0","harvester-csi-provider":"any"}'
            await sim.advance(seconds=1)
            await sim.harvester_client.patch(CHART_VERSIONS, {"value": ranges})
            words = [
                "accepts harvester-cloud-provider >=0.0.1 <0.2.0",
                "and RKE2 v1.34.7+rke2r1 runs 0.2.11",
                "has 'any' for harvester-csi-driver, which is no range of versions",
            ]
            await preflight(sim, "v1.34.7+rke2r1", words, "False")

    run_driven(story())


def test_a_support_matrix_of_the_users_takes_the_place_of_ours() -> None:
    async def story() -> None:
        async with simulation(seed=3, with_manager=False) as sim:
            sim.start_manager(matrix=read_matrix("first: {rke2: v1.36.0}"))
            await preflight(sim, "v1.34.7+rke2r1", ["v1.36.0 is the first that does"], "False")

    run_driven(story())


def test_a_device_and_a_cpu_model_that_no_host_has_are_told_before_anything_is_made() -> None:
    async def story() -> str:
        async with simulation(seed=3) as sim:
            documents = a_cluster(a_pool("pool1", 1, ALL), kubernetesVersion="v1.21.1+rke2r1")
            await stock(sim, documents)
            gpus = '{"vGPURequests":[{"name":"gpu1","deviceName":"nvidia.com/NONE"}]}'
            documents[0] |= {"vgpuInfo": gpus, "cpuModel": "Denverton"}
            ref = await post(sim, documents)
            await sim.advance(seconds=10)
            cluster = await sim.management_client.get(ref)
            condition = find_condition(cluster["status"]["conditions"], "PreflightPassed")
            assert condition is not None
            return condition.message

    told = run_driven(story())
    assert "no host of Harvester has a device nvidia.com/NONE (vgpuInfo.vGPURequests[0].deviceName)" in told
    assert "no host of Harvester has the CPU model Denverton" in told


CHARTS_OF_THE_USER = """\
rke2:
- {releases: 1.34.1, harvester-cloud-provider: 0.2.12, harvester-csi-driver: 0.1.25}
"""


def test_machines_are_written_for_the_charts_that_a_support_matrix_of_the_users_names() -> None:
    async def story() -> list[str]:
        async with simulation(seed=3, with_manager=False) as sim:
            sim.start_manager(matrix=read_matrix(CHARTS_OF_THE_USER))
            documents = a_cluster(a_pool("pool1", 1, ALL), kubernetesVersion="v1.34.7+rke2r1")
            await stock(sim, documents)
            await post(sim, documents)
            await sim.advance(seconds=30)
            found = await sim.harvester_client.list(SECRET, "default")
            return [text for raw in found if (text := secret_texts(raw).get("userdata"))]

    (document,) = run_driven(story())
    assert "secretKey: cloud-provider-config" in document  # which the chart reads from 0.2.12 on


def test_what_does_not_fit_any_more_is_told_while_the_cluster_runs() -> None:
    """Harvester and the version may change after the preflight."""

    async def story() -> None:
        async with simulation(seed=3) as sim:
            documents = a_cluster(a_pool("pool1", 1, ALL), kubernetesVersion="v1.34.7+rke2r1")
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()

            async def told() -> tuple[str, str]:
                cluster = await sim.management_client.get(ref)
                found = find_condition(cluster["status"]["conditions"], "VersionsSupported")
                assert found is not None
                assert (found.message in (cluster["status"].get("warnings") or ())) == (
                    found.status == "False"
                )
                return found.reason, found.message

            await sim.advance(seconds=5)
            assert (await told())[0] == "Supported"

            later = {"kubernetesVersion": "v1.35.99+rke2r1", "paused": True}
            await sim.management_client.patch(ref, {"spec": later})
            await sim.advance(seconds=5)
            reason, message = await told()
            assert reason == "SupportedWithWarnings"
            assert "RKE2 v1.35.99+rke2r1 is newer than what the support matrix" in message

            ranges = '{"harvester-cloud-provider":">=0.0.1 <0.2.0"}'
            await sim.harvester_client.patch(CHART_VERSIONS, {"value": ranges})
            await sim.kill_manager()  # else it is asked again after ten minutes
            sim.start_manager()
            await sim.advance(seconds=40)
            reason, message = await told()
            assert reason == "NotSupported"
            assert "and RKE2 v1.34.7+rke2r1 runs 0.2.11" in message
            assert "v1.35.99" in message

    run_driven(story())


@dataclass(eq=False)
class Recording:
    """A transport that records the single objects that are read through it."""

    inner: Transport
    read: list[str]

    async def send(self, request: Request) -> Reply:
        if request.is_read and not request.query:
            self.read.append(request.path)
        return await self.inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self.inner.stream(request)

    async def aclose(self) -> None:
        await self.inner.aclose()


def test_the_preflight_of_three_servers_and_three_workers_takes_eight_requests() -> None:
    async def story() -> None:
        read: list[str] = []
        async with simulation(seed=3, with_manager=False) as sim:
            sim.start_manager(connect=lambda access: Recording(sim.connect(access), read))
            pools = (a_pool("servers", 3, "etcd control-plane"), a_pool("workers", 3))
            documents = a_cluster(*pools, kubernetesVersion="v1.21.1+rke2r1")
            await stock(sim, documents)
            await post(sim, documents)
            await sim.advance(seconds=10)

        # The probe of the credential comes first, and again after what was refused.
        first = read[1 : read.index(read[0], 1)]
        assert len(first) == len(set(first)) == 8, first
        assert "/apis/harvesterhci.io/v1beta1/settings/server-version" in first

    run_driven(story())
