"""Machines become a cluster, from cloud-configs written by hand."""

from __future__ import annotations

from tests.support.clock import run_driven

from windrow.kubernetes.objects import nested

from .testbed import ClusterFixture, Kubectl, a_testbed, condition


def test_one_server_becomes_a_cluster_whose_api_shows_the_delivered_authority():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            host = testbed.power_on("one", cluster.first())

            spent = await testbed.wait_for(lambda: _are_ready(kubectl, {"one"}))

            assert 60 <= spent <= 150
            node = await kubectl.node("one")
            assert condition(node, "EtcdIsVoter") == "True"
            assert nested(node, "status", "nodeInfo", "kubeletVersion") == "v1.35.1+rke2r1"
            assert host.report is not None
            assert host.report.addresses == {"nic-0": ("10.0.0.11",)}

    run_driven(scenario())


def test_servers_and_workers_ordered_at_once_join_on_their_own():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first())
            await testbed.sleep(1)
            testbed.power_on("two", cluster.server("two"))
            testbed.power_on("three", cluster.server("three"))
            testbed.power_on("four", cluster.worker("four"))

            await testbed.wait_for(lambda: _are_ready(kubectl, {"one", "two", "three", "four"}))
            await testbed.sleep(5)

            for name in ("one", "two", "three"):
                assert condition(await kubectl.node(name), "EtcdIsVoter") == "True"
            roles = {
                label
                for label in nested(await kubectl.node("four"), "metadata", "labels")
                if label.startswith("node-role.kubernetes.io/")
            }
            assert roles == set()
            assert testbed.network.find("10.0.0.12", 6443) is not None
            assert testbed.network.find("10.0.0.14", 6443) is None

    run_driven(scenario())


async def _are_ready(kubectl: Kubectl, names: set[str]) -> bool:
    return await kubectl.ready() >= names
