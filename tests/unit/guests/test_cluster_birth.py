"""Machines become a cluster, from cloud-configs written by hand."""

from __future__ import annotations

from windrow.kubernetes.objects import nested
from windrow.testing.clock import run_driven

from .floor import Cluster, Kubectl, a_floor, condition


def test_one_server_becomes_a_cluster_whose_api_shows_the_delivered_authority():
    async def story() -> None:
        async with a_floor() as floor:
            cluster = Cluster()
            kubectl = Kubectl(floor, cluster)
            plug = floor.power_on("one", cluster.first())

            spent = await floor.until(lambda: _are_ready(kubectl, {"one"}))

            assert 60 <= spent <= 150
            node = await kubectl.node("one")
            assert condition(node, "EtcdIsVoter") == "True"
            assert nested(node, "status", "nodeInfo", "kubeletVersion") == "v1.35.1+rke2r1"
            assert plug.report is not None
            assert plug.report.addresses == {"nic-0": ("10.0.0.11",)}

    run_driven(story())


def test_servers_and_workers_ordered_at_once_join_on_their_own():
    async def story() -> None:
        async with a_floor() as floor:
            cluster = Cluster()
            kubectl = Kubectl(floor, cluster)
            floor.power_on("one", cluster.first())
            await floor.wait(1)
            floor.power_on("two", cluster.server("two"))
            floor.power_on("three", cluster.server("three"))
            floor.power_on("four", cluster.worker("four"))

            await floor.until(lambda: _are_ready(kubectl, {"one", "two", "three", "four"}))
            await floor.wait(5)

            for name in ("one", "two", "three"):
                assert condition(await kubectl.node(name), "EtcdIsVoter") == "True"
            roles = {
                label
                for label in nested(await kubectl.node("four"), "metadata", "labels")
                if label.startswith("node-role.kubernetes.io/")
            }
            assert roles == set()
            assert floor.rack.find("10.0.0.12", 6443) is not None
            assert floor.rack.find("10.0.0.14", 6443) is None

    run_driven(story())


async def _are_ready(kubectl: Kubectl, names: set[str]) -> bool:
    return await kubectl.ready() >= names
