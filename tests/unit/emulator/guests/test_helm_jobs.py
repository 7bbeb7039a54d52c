"""The Jobs of the helm controller: with another release, another configuration, without a node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.core.formats.version import Version
from windrow.emulator.guest_cluster.components.helm_jobs import bundled_chart_versions
from windrow.emulator.guest_cluster.distribution.helm_crds import HELM_CHART, HELM_CHART_CONFIG
from windrow.emulator.guest_os.hardware import ProgramContext
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import find_condition, is_true
from windrow.kubernetes.objects import annotations_of, labels_of, nested, new_object, uid_of
from windrow.kubernetes.resources import DEPLOYMENT, JOB, NODE, POD

from .test_cluster_life import are_ready
from .test_releases import run_on, upgrade
from .testbed import ClusterFixture, Kubectl, MachineTestbed, a_testbed

Raw = dict[str, Any]
CHART = "harvester-csi-driver"
INSTALL = JOB.ref(f"helm-install-{CHART}", "kube-system")
YEAR = timedelta(days=365)


@dataclass
class Bundled:
    """One server with the bundled CSI driver, whose starts are counted."""

    testbed: MachineTestbed
    kubectl: Kubectl
    starts: list[str] = field(default_factory=list)

    async def is_done(self) -> bool:
        if self.testbed.network.find("10.0.0.11", 6443) is None:
            return False
        names = [one["metadata"]["name"] for one in await self.kubectl.list(JOB, "kube-system")]
        if INSTALL.name not in names:
            return False
        return is_true(nested(await self.kubectl.get(INSTALL), "status", "conditions"), "Complete")

    async def pods_of_job(self) -> list[Raw]:
        return [
            one
            for one in await self.kubectl.list(POD, "kube-system")
            if labels_of(one).get("job-name") == INSTALL.name
        ]


@asynccontextmanager
async def a_bundled_chart() -> AsyncIterator[Bundled]:
    starts: list[str] = []

    async def program(context: ProgramContext) -> int:
        starts.append(context.argv[1])
        await context.clock.sleep_until(context.clock.now() + YEAR)
        return 0

    async with a_testbed(programs={CHART: program}) as testbed:
        cluster = ClusterFixture()
        kubectl = Kubectl(testbed, cluster)
        given = {"cloud-provider-name": "harvester", "disable": "harvester-cloud-provider"}
        testbed.power_on("one", cluster.first("one", **given))
        await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
        await kubectl.patch(NODE.ref("one"), {"spec": {"taints": None}})
        rig = Bundled(testbed, kubectl, starts)
        await testbed.wait_for(rig.is_done)
        await testbed.wait_for(lambda: any("nodeid" in one for one in starts))
        await testbed.sleep(5)
        yield rig


def test_another_release_of_the_server_installs_its_charts():
    async def scenario() -> None:
        async with a_bundled_chart() as rig:
            before, job = (
                await rig.kubectl.get(HELM_CHART.ref(CHART, "kube-system")),
                await rig.kubectl.get(INSTALL),
            )
            count = len(rig.starts)
            await upgrade(rig.testbed, "one", "v1.35.4+rke2r1")

            async def is_another() -> bool:
                return await rig.is_done() and uid_of(await rig.kubectl.get(INSTALL)) != uid_of(job)

            await rig.testbed.wait_for(is_another)
            await rig.testbed.sleep(10)
            after = await rig.kubectl.get(HELM_CHART.ref(CHART, "kube-system"))

            urls = [
                annotations_of(one)["helm.cattle.io/chart-url"].rpartition("/")[2] for one in (before, after)
            ]
            assert urls == [f"{CHART}-0.1.2500.tgz", f"{CHART}-0.1.2800.tgz"]
            assert len(rig.starts) > count

    run_driven(scenario())


def test_the_same_charts_are_not_installed_again_by_a_restart():
    async def scenario() -> None:
        async with a_bundled_chart() as rig:
            job = await rig.kubectl.get(INSTALL)
            await run_on(rig.testbed, "one", "systemctl restart rke2-server")
            await rig.testbed.sleep(60)

            assert uid_of(await rig.kubectl.get(INSTALL)) == uid_of(job)

    run_driven(scenario())


def test_another_helm_chart_config_runs_the_job_again_once_a_node_takes_its_pod():
    async def scenario() -> None:
        async with a_bundled_chart() as rig:
            job, count = await rig.kubectl.get(INSTALL), len(rig.starts)
            await rig.kubectl.patch(NODE.ref("one"), {"spec": {"unschedulable": True}})
            config = new_object(
                HELM_CHART_CONFIG, CHART, "kube-system", spec={"valuesContent": "hostStorageClass: fast\n"}
            )
            await rig.kubectl.send(requests.create(HELM_CHART_CONFIG, config))
            await rig.testbed.sleep(60)
            waiting, stalled = await rig.kubectl.get(INSTALL), len(rig.starts)
            (pod,) = await rig.pods_of_job()
            await rig.kubectl.patch(NODE.ref("one"), {"spec": {"unschedulable": None}})
            await rig.testbed.wait_for(rig.is_done)
            await rig.testbed.sleep(10)

            assert uid_of(waiting) != uid_of(job)
            assert waiting["status"]["active"] == 1
            assert (
                find_condition(pod["status"]["conditions"], "PodScheduled").message
                == "0/1 nodes are available: 1 node(s) were unschedulable."
            )
            assert await rig.pods_of_job() == []
            digests = [annotations_of(one)["helmcharts.helm.cattle.io/configHash"] for one in (job, waiting)]
            assert len(set(digests)) == 2
            assert stalled == count
            assert len(rig.starts) > count
            assert waiting["metadata"]["ownerReferences"][0]["kind"] == "HelmChart"
            assert rig.testbed.hosts["one"].logged(
                "helm-install-harvester-csi-driver: 0/1 nodes are available"
            )

    run_driven(scenario())


def test_values_that_are_no_yaml_crash_the_pod_of_the_job_until_they_are_corrected():
    async def scenario() -> None:
        async with a_bundled_chart() as rig:
            config = new_object(HELM_CHART_CONFIG, CHART, "kube-system", spec={"valuesContent": "{"})
            await rig.kubectl.send(requests.create(HELM_CHART_CONFIG, config))
            await rig.testbed.wait_for(rig.pods_of_job)
            await rig.testbed.sleep(5)
            (pod,) = await rig.pods_of_job()
            (container,) = pod["status"]["containerStatuses"]
            assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
            assert "YAML" in container["lastState"]["terminated"]["message"]
            assert not await rig.is_done()

            values = {"spec": {"valuesContent": "hostStorageClass: fast\n"}}
            await rig.kubectl.patch(HELM_CHART_CONFIG.ref(CHART, "kube-system"), values)
            await rig.testbed.wait_for(rig.is_done)
            assert await rig.pods_of_job() == []
            controllers = await rig.kubectl.get(DEPLOYMENT.ref(f"{CHART}-controllers", "kube-system"))
            (container,) = controllers["spec"]["template"]["spec"]["containers"]
            assert "--host-storage-class=fast" in container["args"]

    run_driven(scenario())


@pytest.mark.parametrize(
    ("release", "versions"),
    [
        ("v1.30.0+rke2r1", ("0.2.300", "0.1.1700")),
        ("v1.33.5+rke2r1", ("0.2.1000", "0.1.2300")),
        ("v1.33.6+rke2r1", ("0.2.1100", "0.1.2500")),
        ("v1.34.7+rke2r1", ("0.2.1100", "0.1.2800")),
        ("v1.36.9+rke2r1", ("0.2.1400", "0.1.3000")),
        ("v1.27.2+rke2r1", ("0.1.1400", "0.1.1600")),
        ("v1.27.3+rke2r1", ("0.2.200", "0.1.1600")),
        ("v1.24.1+rke2r1", ("0.1.1400", "0.1.1500")),
    ],
)
def test_which_charts_a_release_bundles(release: str, versions: tuple[str, str]):
    assert bundled_chart_versions(Version.parse(release)) == versions
