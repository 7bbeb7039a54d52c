"""A cluster whose machines stop, vanish, restart or are replaced."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from tests.support.clock import run_driven

from windrow.emulator.guest_cluster.distribution.helm_crds import HELM_CHART_CONFIG
from windrow.emulator.guest_os.hardware import File, ProgramContext
from windrow.kubernetes import requests
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import annotations_of, name_of, nested
from windrow.kubernetes.resources import NODE, SECRET, STORAGE_CLASS

from .testbed import ClusterFixture, Kubectl, MachineTestbed, a_testbed, condition

REMOVE = {"metadata": {"annotations": {"etcd.rke2.cattle.io/remove": "true"}}}
REMOVED = "etcd.rke2.cattle.io/removed-node-name"


async def three_servers(testbed: MachineTestbed, cluster: ClusterFixture) -> Kubectl:
    """A cluster of one, two and three, at 10.0.0.11 to 13."""
    kubectl = Kubectl(testbed, cluster)
    for place, name in enumerate(("one", "two", "three")):
        testbed.leases[f"52:54:00:00:00:{place:02x}"] = f"10.0.0.1{place + 1}"
        testbed.power_on(name, cluster.server(name) if place else cluster.first(name))
    await testbed.wait_for(lambda: are_ready(kubectl, {"one", "two", "three"}))
    return kubectl


async def are_ready(kubectl: Kubectl, names: set[str]) -> bool:
    return await kubectl.ready() >= names


async def shows(kubectl: Kubectl, name: str, status: str) -> bool:
    return condition(await kubectl.node(name), "Ready") == status


def taints_of(node: Any) -> set[str]:
    return {f"{one['key']}:{one['effect']}" for one in nested(node, "spec", "taints", default=[])}


def test_a_node_without_power_is_unknown_after_its_grace_and_ready_again_when_it_returns():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first())
            testbed.power_on("four", cluster.worker("four"))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one", "four"}))

            await testbed.cut_power("four")
            spent = await testbed.wait_for(lambda: shows(kubectl, "four", "Unknown"))

            assert 30 <= spent <= 41
            await testbed.sleep(1)
            unreachable = {
                "node.kubernetes.io/unreachable:NoSchedule",
                "node.kubernetes.io/unreachable:NoExecute",
            }
            assert taints_of(await kubectl.node("four")) == unreachable

            testbed.power_on("four")
            await testbed.wait_for(lambda: shows(kubectl, "four", "True"))
            await testbed.sleep(1)
            assert taints_of(await kubectl.node("four")) == set()

    run_driven(scenario())


def test_the_power_button_ends_a_machine_and_closes_its_listeners():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            host = testbed.power_on("one", cluster.first())
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))

            await testbed.machines["one"].shutdown()
            why = await testbed.tasks["one"]

            assert why == "poweroff"
            assert testbed.network.listeners() == {}
            assert host.report is None

    run_driven(scenario())


def test_a_lone_server_comes_back_as_it_was():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first())
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
            before = await kubectl.node("one")

            await testbed.cut_power("one")
            assert testbed.network.listeners() == {}
            testbed.power_on("one")
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))

            after = await kubectl.node("one")
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            member = "etcd.rke2.cattle.io/node-name"
            assert annotations_of(after)[member] == annotations_of(before)[member]

    run_driven(scenario())


def test_a_lost_member_blocks_its_replacement_until_it_is_removed():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = await three_servers(testbed, cluster)
            await testbed.cut_power("three")
            host = testbed.power_on("new", cluster.server("new"))

            await testbed.sleep(200)
            assert host.logged("etcdserver: unhealthy cluster")
            assert "new" not in await kubectl.ready()

            await kubectl.patch(NODE.ref("three"), REMOVE)
            await testbed.wait_for(lambda: are_ready(kubectl, {"one", "two", "new"}))

            assert annotations_of(await kubectl.node("three"))[REMOVED].startswith("three-")
            assert condition(await kubectl.node("new"), "EtcdIsVoter") == "True"

    run_driven(scenario())


def test_deleting_a_node_removes_its_member_and_its_password():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = await three_servers(testbed, cluster)
            await testbed.cut_power("three")

            await kubectl.delete(NODE.ref("three"))
            await testbed.sleep(1)

            secrets = {name_of(raw) for raw in await kubectl.list(SECRET, "kube-system")}
            assert "two.node-password.rke2" in secrets
            assert "three.node-password.rke2" not in secrets
            testbed.power_on("new", cluster.server("new"))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one", "two", "new"}))

    run_driven(scenario())


def test_a_removed_member_does_not_come_back():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = await three_servers(testbed, cluster)

            await kubectl.patch(NODE.ref("three"), REMOVE)
            await testbed.sleep(30)

            assert testbed.hosts["three"].logged("the member has been permanently removed from the cluster")
            assert testbed.network.find("10.0.0.13", 6443) is None
            assert await kubectl.ready() >= {"one", "two"}

    run_driven(scenario())


def test_without_a_majority_of_members_the_api_is_of_no_use():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = await three_servers(testbed, cluster)
            await testbed.cut_power("two")
            assert "one" in await kubectl.ready()

            await testbed.cut_power("three")
            door = testbed.network.find("10.0.0.11", 6443)
            assert door is not None
            peer = Peer(cluster.admin[0])
            health = await door.send(requests.Request("GET", "/readyz"), peer)
            answer = await door.send(requests.list_(NODE), peer)

            assert (health.status, answer.status) == (500, 500)
            assert b"etcdserver: request timed out" in answer.body

            testbed.power_on("two")
            await testbed.wait_for(lambda: port_answers(testbed, cluster))

    run_driven(scenario())


async def port_answers(testbed: MachineTestbed, cluster: ClusterFixture) -> bool:
    door = testbed.network.find("10.0.0.11", 6443)
    return door is not None and (await door.send(requests.list_(NODE), Peer(cluster.admin[0]))).status == 200


def test_all_servers_may_lose_power_and_return():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = await three_servers(testbed, cluster)
            for name in ("one", "two", "three"):
                await testbed.cut_power(name)
            assert testbed.network.listeners() == {}

            testbed.power_on("three")
            await testbed.sleep(120)
            assert testbed.network.find("10.0.0.13", 6443) is None, "one of three is no majority"
            testbed.power_on("one")
            testbed.power_on("two")

            await testbed.wait_for(lambda: are_ready(kubectl, {"one", "two", "three"}))

    run_driven(scenario())


def test_a_watch_breaks_when_its_server_loses_power():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            await three_servers(testbed, cluster)
            door = testbed.network.find("10.0.0.12", 6443)
            assert door is not None
            broken = asyncio.Event()

            async def watch() -> None:
                try:
                    async with door.stream(requests.watch(NODE), Peer(cluster.admin[0])) as events:
                        async for _ in events:
                            pass
                except Exception:
                    broken.set()

            watching = asyncio.ensure_future(watch())
            await testbed.sleep(60)
            assert not broken.is_set()
            await testbed.cut_power("two")
            await testbed.sleep(1)
            assert broken.is_set()
            await watching

    run_driven(scenario())


def test_two_first_servers_make_two_clusters():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            testbed.leases = {"52:54:00:00:00:00": "10.0.0.11", "52:54:00:00:00:01": "10.0.0.12"}
            testbed.power_on("one", cluster.first("one"))
            testbed.power_on("two", cluster.first("two"))
            left, right = Kubectl(testbed, cluster, "10.0.0.11"), Kubectl(testbed, cluster, "10.0.0.12")

            await testbed.wait_for(lambda: are_ready(left, {"one"}))
            await testbed.wait_for(lambda: are_ready(right, {"two"}))

            assert await left.ready() == {"one"}
            assert await right.ready() == {"two"}

    run_driven(scenario())


def test_a_node_name_cannot_be_reused_while_its_password_secret_exists():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first())
            testbed.power_on("four", cluster.worker("four"))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one", "four"}))
            await testbed.cut_power("four")

            host = testbed.power_on("other", cluster.worker("four"))
            await testbed.sleep(120)
            assert host.logged("Node password rejected, duplicate hostname")

            await kubectl.delete(NODE.ref("four"))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one", "four"}))

    run_driven(scenario())


def test_an_etcd_member_whose_address_changed_does_not_start():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = await three_servers(testbed, cluster)
            await testbed.cut_power("three")
            testbed.leases["52:54:00:00:00:02"] = "10.0.0.77"

            host = testbed.power_on("three")
            await testbed.sleep(120)

            assert host.logged("this server is a not a member of the etcd cluster")
            assert await kubectl.ready() >= {"one", "two"}

    run_driven(scenario())


def test_split_roles_join_through_an_etcd_server_and_run_their_part_only():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            etcd = {"disable-apiserver": True, "disable-controller-manager": True, "disable-scheduler": True}
            testbed.leases = {"52:54:00:00:00:00": "10.0.0.11", "52:54:00:00:00:01": "10.0.0.12"}
            testbed.power_on("etcd", cluster.first("etcd", **etcd))
            testbed.power_on("control", cluster.server("control", **{"disable-etcd": True}))
            kubectl = Kubectl(testbed, cluster, "10.0.0.12")

            await testbed.wait_for(lambda: are_ready(kubectl, {"etcd", "control"}))

            assert testbed.network.find("10.0.0.11", 6443) is None
            assert testbed.network.find("10.0.0.11", 9345) is not None
            roles = "node-role.kubernetes.io/"
            assert f"{roles}control-plane" not in (await kubectl.node("etcd"))["metadata"]["labels"]
            assert f"{roles}etcd" not in (await kubectl.node("control"))["metadata"]["labels"]

    run_driven(scenario())


def test_a_worker_may_join_with_a_bootstrap_token_until_it_expires():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first())
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
            secret = {
                "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
                "type": "bootstrap.kubernetes.io/token",
                "stringData": {
                    "token-id": "abcdef",
                    "token-secret": "0123456789abcdef",
                    "expiration": "2026-01-01T12:10:00Z",
                },
            }
            await kubectl.send(requests.create(SECRET, secret))
            token = f"K10{cluster.hash}::abcdef.0123456789abcdef"

            testbed.power_on("four", cluster.worker("four", token=token))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one", "four"}))

            await testbed.sleep(600)
            host = testbed.power_on("five", cluster.worker("five", token=token))
            await testbed.sleep(120)
            assert host.logged("401 Unauthorized")

    run_driven(scenario())


UPGRADE = """\
#!/bin/sh
set -e
curl -sfL https://get.rke2.io | INSTALL_RKE2_VERSION=v1.36.0+rke2r1 INSTALL_RKE2_TYPE=$1 sh -
systemctl restart rke2-$1
"""


def test_a_worker_that_is_newer_than_its_server_is_not_ready_until_that_has_its_release():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            # A boot command that acts from the second boot on takes the place of an upgrade controller.
            for name, role in (("one", "server"), ("four", "agent")):
                document = cluster.first(name) if role == "server" else cluster.worker(name)
                boot = f"bootcmd: ['[ -f /etc/rancher/node/password ] && sh /opt/upgrade.sh {role}']\n"
                testbed.power_on(name, document + boot)
                testbed.disks[name].files["/opt/upgrade.sh"] = File(UPGRADE.encode(), 0o755)
            await testbed.wait_for(lambda: are_ready(kubectl, {"one", "four"}))

            await testbed.cut_power("four")
            host = testbed.power_on("four")
            await testbed.wait_for(lambda: host.logged("kubelet v1.36.0+rke2r1 is newer than"))
            await testbed.sleep(60)
            assert await has_release(kubectl, "four", "v1.36.0+rke2r1")
            assert not await are_ready(kubectl, {"four"})

            await testbed.cut_power("one")
            testbed.power_on("one")

            await testbed.wait_for(lambda: has_release(kubectl, "one", "v1.36.0+rke2r1"))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one", "four"}))

    run_driven(scenario())


async def has_release(kubectl: Kubectl, name: str, release: str) -> bool:
    if kubectl.testbed.network.find(kubectl.address, 6443) is None:
        return False
    return nested(await kubectl.node(name), "status", "nodeInfo", "kubeletVersion") == release


# -- what the charts run


class Controllers:
    """A cloud provider that remembers how it was started."""

    def __init__(self) -> None:
        self.starts: list[ProgramContext] = []
        self.stops = 0

    async def __call__(self, around: ProgramContext) -> int:
        self.starts.append(around)
        try:
            await asyncio.Event().wait()
        finally:
            self.stops += 1
        return 0


CREDENTIAL = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"
CLOUD = {"cloud-provider-name": "harvester", "cloud-provider-config": CREDENTIAL}
CHART_CONFIG = """\
apiVersion: helm.cattle.io/v1
kind: HelmChartConfig
metadata:
  name: harvester-cloud-provider
  namespace: kube-system
spec:
  valuesContent: |
    global:
      cattle:
        clusterName: mine
    extraArgs:
      - --management-network=default/vlan
"""
MANIFEST = "/var/lib/rancher/rke2/server/manifests/rancher/managed-chart-config.yaml"


def test_the_cloud_provider_starts_with_what_its_chart_renders():
    async def scenario() -> None:
        provider = Controllers()
        async with a_testbed(programs={"harvester-cloud-provider": provider}) as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            files = {CREDENTIAL: "the credential", MANIFEST: CHART_CONFIG}
            testbed.power_on("one", cluster.first(files=files, **CLOUD))

            await testbed.wait_for(lambda: bool(provider.starts))

            [around] = provider.starts
            assert around.argv == (
                "harvester-cloud-provider",
                "--cloud-config=/etc/kubernetes/cloud-config",
                "--cluster-name=mine",
                "--management-network=default/vlan",
            )
            assert around.root.files["/etc/kubernetes/cloud-config"].content == b"the credential"
            assert "https://10.0.0.11:6443" in around.guest_kubeconfig
            node = await kubectl.node("one")
            assert taints_of(node) == {"node.cloudprovider.kubernetes.io/uninitialized:NoSchedule"}
            assert annotations_of(node)["alpha.kubernetes.io/provided-node-ip"] == "10.0.0.11"
            assert nested(node, "status", "addresses") == [{"type": "Hostname", "address": "one"}]
            [storage] = await kubectl.list(STORAGE_CLASS)
            assert name_of(storage) == "harvester"

    run_driven(scenario())


def test_the_cloud_provider_waits_for_the_secret_its_values_name():
    async def scenario() -> None:
        provider = Controllers()
        config = CHART_CONFIG.replace(
            "    global:", "    cloudConfig:\n      secretName: access\n    global:"
        )
        async with a_testbed(programs={"harvester-cloud-provider": provider}) as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            host = testbed.power_on(
                "one", cluster.first(files={MANIFEST: config}, **{"cloud-provider-name": "harvester"})
            )
            await testbed.wait_for(lambda: host.logged('secret "access" not found'))

            secret = {
                "metadata": {"name": "access", "namespace": "kube-system"},
                "stringData": {"cloud-config": "new"},
            }
            await kubectl.send(requests.create(SECRET, secret))

            await testbed.wait_for(lambda: bool(provider.starts))
            assert provider.starts[0].root.files["/etc/kubernetes/cloud-config"].content == b"new"

    run_driven(scenario())


def test_the_cloud_provider_moves_when_its_node_is_deleted():
    async def scenario() -> None:
        provider = Controllers()
        async with a_testbed(programs={"harvester-cloud-provider": provider}) as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            files = {CREDENTIAL: "the credential"}
            testbed.leases = {f"52:54:00:00:00:0{place}": f"10.0.0.1{place + 1}" for place in range(3)}
            testbed.power_on("one", cluster.first("one", files=files, **CLOUD))
            for name in ("two", "three"):
                testbed.power_on(name, cluster.server(name, files=files, **CLOUD))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one", "two", "three"}))
            await testbed.wait_for(lambda: bool(provider.starts))

            await testbed.cut_power("one")
            kubectl = Kubectl(testbed, cluster, "10.0.0.12")
            await testbed.sleep(60)
            assert (len(provider.starts), provider.stops) == (1, 1)
            await kubectl.delete(NODE.ref("one"))

            await testbed.wait_for(lambda: len(provider.starts) == 2)
            assert "https://10.0.0.11:6443" not in provider.starts[1].guest_kubeconfig

    run_driven(scenario())


def test_changed_chart_values_replace_the_pod():
    async def scenario() -> None:
        provider = Controllers()
        async with a_testbed(programs={"harvester-cloud-provider": provider}) as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            files = {CREDENTIAL: "the credential", MANIFEST: CHART_CONFIG}
            testbed.power_on("one", cluster.first(files=files, **CLOUD))
            await testbed.wait_for(lambda: bool(provider.starts))
            await testbed.sleep(60)
            assert len(provider.starts) == 1

            config = HELM_CHART_CONFIG.ref("harvester-cloud-provider", "kube-system")
            await kubectl.patch(config, {"spec": {"valuesContent": "extraArgs: [--v=5]\n"}})

            await testbed.wait_for(lambda: len(provider.starts) == 2)
            assert provider.stops == 1
            assert provider.starts[1].argv[-1] == "--v=5"

    run_driven(scenario())


def test_a_program_that_crashes_is_started_again_ever_later():
    async def scenario() -> None:
        starts: list[float] = []

        async def crash(around: ProgramContext) -> int:
            starts.append(around.clock.now().timestamp())
            raise RuntimeError("boom")

        async with a_testbed(programs={"harvester-cloud-provider": crash}) as testbed:
            cluster = ClusterFixture()
            host = testbed.power_on("one", cluster.first(files={CREDENTIAL: "x"}, **CLOUD))

            await testbed.wait_for(lambda: len(starts) == 4)
            assert host.logged("panic: RuntimeError: boom")
            gaps = [round(later - earlier) for earlier, later in pairwise(starts)]
            assert gaps == [10, 20, 40]

    run_driven(scenario())
