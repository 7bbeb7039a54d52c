"""Nodes whose service is restarted: with another release, another configuration, without a way to the internet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.core.formats.json import loads
from windrow.core.formats.version import Version
from windrow.emulator.guest_cluster.containers.images import ImageReference, kubernetes_image
from windrow.emulator.guest_cluster.etcd import etcd_version
from windrow.emulator.guest_os.hardware import ProgramContext
from windrow.emulator.guest_os.installers.releases import find_release
from windrow.emulator.guest_os.shell.run import Shell, Streams
from windrow.kubernetes import requests
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import annotations_of, labels_of, name_of, nested, new_object, uid_of
from windrow.kubernetes.resources import DEPLOYMENT, NODE, POD

from .test_cluster_life import are_ready, three_servers
from .test_workloads import Rig, a_deployment, a_rig
from .testbed import VERSION, ClusterFixture, Kubectl, MachineTestbed, a_testbed

Raw = dict[str, Any]
NEXT = "v1.35.3+rke2r1"
YEAR = timedelta(days=365)


async def run_on(testbed: MachineTestbed, name: str, script: str) -> tuple[int, str]:
    """The exit code and output of a script on a machine."""
    guest = testbed.machines[name].guest  # type: ignore[attr-defined]
    out = bytearray()
    code = await Shell(guest, guest.commands).run(script, Streams(b"", out, out))
    return code, out.decode()


def installing(version: str, role: str = "server", **variables: str) -> str:
    given = " ".join(f"{key}={value}" for key, value in variables.items())
    return f"curl -sfL https://get.rke2.io | INSTALL_RKE2_VERSION={version} INSTALL_RKE2_TYPE={role} {given} sh -"


async def upgrade(testbed: MachineTestbed, name: str, version: str, role: str = "server") -> None:
    code, out = await run_on(
        testbed, name, f"set -e\n{installing(version, role)}\nsystemctl restart rke2-{role}\n"
    )
    assert code == 0, out


async def version_of(kubectl: Kubectl, name: str) -> str:
    return str(nested(await kubectl.node(name), "status", "nodeInfo", "kubeletVersion"))


async def wait_for_version(rig: Rig, name: str, version: str) -> None:
    async def holds() -> bool:
        is_up = rig.testbed.network.find("10.0.0.11", 6443) is not None
        return is_up and await version_of(rig.kubectl, name) == version

    await rig.testbed.wait_for(holds)
    await rig.testbed.wait_for(rig.all_ready(name))


async def static_images(kubectl: Kubectl, node: str) -> dict[str, str]:
    """Image by component."""
    pods = await kubectl.list(POD, "kube-system")
    return {
        labels_of(pod)["component"]: pod["spec"]["containers"][0]["image"]
        for pod in pods
        if nested(pod, "spec", "nodeName") == node and "kubernetes.io/config.mirror" in annotations_of(pod)
    }


def test_a_server_runs_another_release_after_its_restart_and_its_api_is_away_meanwhile():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(DEPLOYMENT, a_deployment(2))
            await rig.ready_pods(2)
            before = {uid_of(pod) for pod in await rig.pods()}
            old = await static_images(rig.kubectl, "one")
            code, out = await run_on(rig.testbed, "one", installing(NEXT))
            assert code == 0, out
            assert await version_of(rig.kubectl, "one") == VERSION

            code, out = await run_on(rig.testbed, "one", "systemctl restart --no-block rke2-server")
            await rig.testbed.sleep(0.1)
            assert rig.testbed.network.find("10.0.0.11", 6443) is None
            away = await rig.testbed.wait_for(lambda: rig.testbed.network.find("10.0.0.11", 6443))
            await wait_for_version(rig, "one", NEXT)
            await rig.testbed.sleep(1)

            assert code == 0, out
            assert 30 <= away <= 120
            assert await version_of(rig.kubectl, "w1") == VERSION
            new = await static_images(rig.kubectl, "one")
            assert set(new) == {*["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]} | {
                "cloud-controller-manager",
                "kube-proxy",
            }
            assert "v1.35.1-rke2r1" in old["kube-apiserver"]
            assert "v1.35.3-rke2r1" in new["kube-apiserver"]
            assert set(await static_images(rig.kubectl, "w1")) == {"kube-proxy"}
            assert {uid_of(pod) for pod in await rig.pods()} == before
            (mirror,) = [
                pod
                for pod in await rig.kubectl.list(POD, "kube-system")
                if name_of(pod) == "kube-apiserver-one"
            ]
            assert mirror["metadata"]["ownerReferences"][0]["kind"] == "Node"
            assert nested(mirror, "status", "phase") == "Running"

    run_driven(scenario())


def test_an_agent_runs_another_release_while_the_api_answers():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await upgrade(rig.testbed, "w1", "v1.35.0+rke2r1", "agent")
            await rig.testbed.sleep(1)
            door = rig.testbed.network.find("10.0.0.11", 6443)
            await wait_for_version(rig, "w1", "v1.35.0+rke2r1")

            assert door is not None

    run_driven(scenario())


def test_of_three_servers_two_serve_while_one_is_restarted():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = await three_servers(testbed, cluster)
            (guest_cluster,) = testbed.clusters.values()
            await run_on(testbed, "three", f"{installing(NEXT)}\nsystemctl restart --no-block rke2-server\n")
            await testbed.sleep(2)
            up = {member.node: member.up for member in guest_cluster.etcd.by_name.values()}

            assert up == {"one": True, "two": True, "three": False}
            assert testbed.network.find("10.0.0.13", 6443) is None
            assert len(await kubectl.list(NODE)) == 3

            await testbed.wait_for(lambda: testbed.network.find("10.0.0.13", 6443))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one", "two", "three"}))
            assert await version_of(kubectl, "three") == NEXT
            assert all(member.up and not member.learner for member in guest_cluster.etcd.by_name.values())

    run_driven(scenario())


def test_a_release_that_does_not_exist_leaves_the_service_as_it_is():
    async def scenario() -> None:
        async with a_rig() as rig:
            code, out = await run_on(rig.testbed, "one", installing("v1.35.77+rke2r1"))

            assert code == 1
            assert "no RKE2 release is called 'v1.35.77+rke2r1'" in out
            assert await rig.kubectl.ready() == {"one"}

    run_driven(scenario())


def test_which_releases_there_are():
    assert find_release("v1.34.3+rke2r1", "rke2") is not None
    assert find_release("v1.36.20+k3s1", "k3s") is not None
    assert find_release("v1.36.21+k3s1", "k3s") is None
    assert find_release("v1.37.0+k3s1", "k3s") is None
    assert find_release("v1.34.3+rke2r1", "k3s") is None
    assert find_release("v2.0.0+rke2r1", "rke2") is None
    assert find_release("latest", "rke2") is None


def test_in_an_air_gap_nothing_is_downloaded():
    async def scenario() -> None:
        async with a_rig() as rig:
            rig.testbed.network.internet.is_reachable = False
            piped = await run_on(rig.testbed, "one", "curl -sfL https://get.rke2.io > /tmp/install.sh")
            script = f"INSTALL_RKE2_VERSION={NEXT} install-rke2-simulated"
            installed = await run_on(rig.testbed, "one", script)

            assert piped == (6, "curl: (6) Could not resolve host: get.rke2.io\n")
            assert installed[0] == 1
            assert "[ERROR] download failed: curl: (6) Could not resolve host: github.com" in installed[1]

    run_driven(scenario())


def test_without_the_runtime_image_a_server_does_not_start_until_a_mirror_has_it():
    async def scenario() -> None:
        async with a_rig() as rig:
            code, out = await run_on(rig.testbed, "one", installing(NEXT))
            site = rig.testbed.network.internet
            site.is_reachable = False
            failed = await run_on(rig.testbed, "one", "systemctl restart rke2-server")
            host = rig.testbed.hosts["one"]
            await rig.testbed.sleep(30)

            assert code == 0, out
            assert failed[0] == 1
            assert "Job for rke2-server.service failed" in failed[1]
            assert host.logged(
                "failed to pull runtime image index.docker.io/rancher/rke2-runtime:v1.35.3-rke2r1"
            )
            assert rig.testbed.network.find("10.0.0.11", 6443) is None

            mirrors = "mirrors: {docker.io: {endpoint: [https://registry.site:5000]}}"
            await run_on(rig.testbed, "one", f"echo '{mirrors}' > /etc/rancher/rke2/registries.yaml")
            site.registries.add("registry.site:5000")
            await wait_for_version(rig, "one", NEXT)

    run_driven(scenario())


def test_images_come_with_the_artifacts_of_a_release():
    async def scenario() -> None:
        async with a_rig() as rig:
            rig.testbed.network.internet.is_reachable = False
            script = f"mkdir -p /opt/rke2\nINSTALL_RKE2_VERSION={NEXT} INSTALL_RKE2_ARTIFACT_PATH=/opt/rke2 install-rke2-simulated"
            code, out = await run_on(rig.testbed, "one", f"set -e\n{script}\nsystemctl restart rke2-server\n")

            assert code == 0, out
            await wait_for_version(rig, "one", NEXT)

    run_driven(scenario())


def test_configuration_takes_effect_at_the_restart_labels_then_and_taints_never():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            before = await rig.kubectl.node("w1")
            drop_in = (
                "node-label: [disk=fast]\\nnode-taint: [disk=fast:NoSchedule]\\nkubelet-arg: [max-pods=50]\\n"
            )
            path = "/etc/rancher/rke2/config.yaml.d/50-more.yaml"
            await run_on(rig.testbed, "w1", f'printf "{drop_in}" > {path}')
            await rig.testbed.sleep(30)
            meanwhile = await rig.kubectl.node("w1")
            await run_on(rig.testbed, "w1", "systemctl restart rke2-agent")
            await rig.testbed.sleep(10)
            await rig.testbed.wait_for(rig.all_ready("w1"))
            after = await rig.kubectl.node("w1")

            named = "rke2.io/node-config-hash", "rke2.io/node-args"
            assert [annotations_of(before)[key] for key in named] == [
                annotations_of(meanwhile)[key] for key in named
            ]
            assert "disk" not in labels_of(meanwhile)
            assert labels_of(after)["disk"] == "fast"
            assert nested(after, "spec", "taints", default=[]) == []
            assert annotations_of(after)[named[0]] != annotations_of(before)[named[0]]
            assert "max-pods=50" in loads(annotations_of(after)[named[1]])
            assert annotations_of(after)["rke2.io/node-env"] == "{}"

    run_driven(scenario())


def test_programs_in_containers_outlive_the_restart_of_the_service():
    starts: list[str] = []

    async def program(context: ProgramContext) -> int:
        starts.append(context.argv[0])
        await context.clock.sleep_until(context.clock.now() + 10 * YEAR)
        return 0

    async def scenario() -> None:
        name = "harvester-csi-driver"
        async with a_testbed(programs={name: program}) as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            given = {"cloud-provider-name": "harvester", "disable": "harvester-cloud-provider"}
            testbed.power_on("one", cluster.first("one", **given))
            testbed.power_on("w1", cluster.worker("w1"))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one", "w1"}))
            # The Nodes have no cloud provider here: what initialises them does.
            for node in ("one", "w1"):
                await kubectl.patch(NODE.ref(node), {"spec": {"taints": None}})
            (guest_cluster,) = testbed.clusters.values()
            await testbed.wait_for(lambda: any(key[1] == name for key in chart_pods(testbed, "w1")))
            await testbed.sleep(60)
            before = len(starts)
            await run_on(testbed, "w1", "systemctl restart rke2-agent")
            await testbed.wait_for(lambda: guest_cluster.heartbeats["w1"].alive)
            await testbed.sleep(60)

            assert before > 0
            assert len(starts) == before

    run_driven(scenario())


def chart_pods(testbed: MachineTestbed, name: str) -> Any:
    return testbed.machines[name].guest.storage.chart_pods  # type: ignore[attr-defined]


def test_an_api_server_two_minors_behind_another_answers_nothing():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            older = cluster.first("one").replace(VERSION, "v1.34.1+rke2r1")
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", older)
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
            testbed.power_on("two", cluster.server("two").replace(VERSION, "v1.36.1+rke2r1"))
            newer = Kubectl(testbed, cluster, "10.0.0.12")
            await testbed.wait_for(lambda: are_ready(newer, {"two"}))
            door = testbed.network.find("10.0.0.11", 6443)
            assert door is not None
            reply = await door.send(requests.list_(NODE), Peer(cluster.admin[0]))
            health = await door.send(requests.Request("GET", "/readyz"), Peer(cluster.admin[0]))

            assert reply.status == health.status == 500
            assert b"no kind" in reply.body

    run_driven(scenario())


def test_etcd_of_an_older_line_does_not_start_on_newer_data():
    async def scenario() -> None:
        async with a_rig() as rig:
            code, _ = await run_on(
                rig.testbed, "one", f"{installing('v1.33.5+rke2r1')} && systemctl restart rke2-server"
            )

            assert code == 1
            assert rig.testbed.hosts["one"].logged("etcdserver: invalid downgrade")

    run_driven(scenario())


def test_the_etcd_of_each_line():
    assert etcd_version(Version.parse("v1.33.9+rke2r1")) == (3, 5)
    assert etcd_version(Version.parse("v1.34.1+k3s1")) == (3, 6)


def test_the_mirror_pods_of_a_node_go_with_it():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.testbed.cut_power("w1")
            await rig.kubectl.delete(NODE.ref("w1"))
            await rig.testbed.sleep(5)

            assert await static_images(rig.kubectl, "w1") == {}
            assert await static_images(rig.kubectl, "one") != {}

    run_driven(scenario())


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag"),
    [
        ("busybox", "docker.io", "library/busybox", "latest"),
        ("rancher/mirrored-pause:3.6", "docker.io", "rancher/mirrored-pause", "3.6"),
        ("registry.site:5000/a/b:1", "registry.site:5000", "a/b", "1"),
        ("localhost/a", "localhost", "a", "latest"),
        ("ghcr.io/a/b@sha256:12", "ghcr.io", "a/b", "sha256:12"),
    ],
)
def test_what_is_left_out_of_an_image_is_filled_in(text: str, registry: str, repository: str, tag: str):
    found = ImageReference.parse(text)

    assert (found.registry, found.repository, found.tag) == (registry, repository, tag)


def test_the_image_of_static_pods_is_another_one_in_each_release():
    images = {kubernetes_image(Version.parse(one)) for one in (VERSION, NEXT, "v1.35.3+rke2r2")}

    assert len(images) == 3
    assert all(":v1.35." in image and "-build" in image for image in images)


def test_a_pod_with_a_wrong_tag_does_not_start_though_the_internet_is_reachable():
    async def scenario(rig: Rig) -> None:
        rig.testbed.network.internet.missing_images.add("busybox:9")
        pod = {"containers": [{"name": "c", "image": "busybox:9"}]}
        await rig.create(POD, new_object(POD, "wrong", "default", spec=pod))
        await rig.testbed.sleep(10)
        raw = await rig.kubectl.get(POD.ref("wrong", "default"))
        waiting = nested(raw, "status", "containerStatuses", 0, "state", "waiting")
        assert waiting["reason"] == "ImagePullBackOff"
        assert waiting["message"].endswith("docker.io/library/busybox:9: not found")

    async def run() -> None:
        async with a_rig("w1") as rig:
            await scenario(rig)

    run_driven(run())
