"""What a K3s server runs beside Kubernetes: packaged components, manifests, HelmCharts, ServiceLB."""

from __future__ import annotations

import base64
import gzip
import io
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from scripts.chart import chart_files, pack
from tests.support.clock import run_driven

from windrow.core.formats.yaml import NotYaml, dump, dump_all
from windrow.core.rng import Rng
from windrow.emulator.guest_cluster.charts import apply_set
from windrow.emulator.guest_cluster.components.helm_archive import ChartNotFound, find_chart
from windrow.emulator.guest_cluster.components.manifests import BadManifest, read_manifest
from windrow.emulator.guest_cluster.components.service_lb import list_addresses, place_services
from windrow.emulator.guest_cluster.distribution.helm_crds import HELM_CHART
from windrow.emulator.guest_os.hardware import ProgramContext
from windrow.kubernetes import requests
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested, new_object
from windrow.kubernetes.resources import CONFIG_MAP, DEPLOYMENT, NODE, POD, SECRET, SERVICE, STORAGE_CLASS

from .k3s_fixture import render_script, the_cluster
from .test_k3s import UNINITIALIZED, are_ready
from .testbed import Kubectl, MachineTestbed, a_testbed, condition

MANIFESTS = "/var/lib/rancher/k3s/server/manifests"
# What Harvester's documentation has users put into a K3s cluster's configuration.
EXTERNAL = {
    "disable": ["servicelb", "traefik"],
    "disable-cloud-controller": True,
    "kubelet-arg": ["cloud-provider=external"],
}
NOTHING_MORE = ["coredns", "local-storage", "metrics-server", "traefik", "servicelb"]


def a_chart(name: str = "harvester-cloud-provider", **spec: Any) -> Raw:
    known = {"repo": "https://charts.harvesterhci.io/", "chart": name, "version": "0.2.12", "bootstrap": True}
    spec = {**known, "targetNamespace": "kube-system", "helmVersion": "v3", **spec}
    return new_object(HELM_CHART, name, "kube-system", spec=spec)


def an_archive(files: Mapping[str, str], folder: str = "some") -> str:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return base64.b64encode(content.getvalue()).decode()


async def a_server(testbed: MachineTestbed, **more: Any) -> Kubectl:
    cluster = the_cluster()
    kubectl = Kubectl(testbed, cluster)
    testbed.power_on("one", cluster.first(**more))
    await testbed.wait_for(lambda: are_ready(kubectl, "one"))
    await testbed.sleep(1)
    return kubectl


async def names_of(kubectl: Kubectl, kind: Any, namespace: str = "") -> set[str]:
    return {name_of(raw) for raw in await kubectl.list(kind, namespace)}


# -- packaged components and manifests


def test_the_packaged_components_are_there_unless_they_are_disabled():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            kubectl = await a_server(testbed)
            await testbed.sleep(30)

            deployments = await names_of(kubectl, DEPLOYMENT, "kube-system")
            assert deployments == {"coredns", "local-path-provisioner", "metrics-server", "traefik"}
            dns = await kubectl.get(SERVICE.ref("kube-dns", "kube-system"))
            assert dns["spec"]["clusterIP"] == "10.43.0.10"
            storage = await kubectl.get(STORAGE_CLASS.ref("local-path"))
            assert annotations_of(storage)["storageclass.kubernetes.io/is-default-class"] == "true"
            traefik = await kubectl.get(SERVICE.ref("traefik", "kube-system"))
            assert nested(traefik, "status", "loadBalancer", "ingress", 0, "ip") == "10.0.0.11"
            phases = {nested(one, "status", "phase") for one in await kubectl.list(POD, "kube-system")}
            assert phases == {"Running"}

            file = testbed.disks["one"].files["/etc/rancher/k3s/config.yaml"]
            file.content += b"disable: [traefik, local-storage]\n"
            await testbed.cut_power("one")
            testbed.power_on("one")
            await testbed.wait_for(lambda: are_ready(kubectl, "one"))
            await testbed.sleep(2)

            assert "local-path" not in await names_of(kubectl, STORAGE_CLASS)
            assert await names_of(kubectl, HELM_CHART, "kube-system") == set()
            assert f"{MANIFESTS}/coredns.yaml" in testbed.disks["one"].files
            assert f"{MANIFESTS}/traefik.yaml" not in testbed.disks["one"].files

    run_driven(scenario())


def test_manifests_are_applied_whenever_they_appear_also_in_subdirectories_and_not_with_skip():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            a_map = dump(new_object(CONFIG_MAP, "early", "default", data={"a": "b"}))
            files = {f"{MANIFESTS}/own/early.yaml": a_map, f"{MANIFESTS}/coredns.yaml.skip": ""}
            kubectl = await a_server(testbed, files=files, disable=NOTHING_MORE[1:])
            assert "early" in await names_of(kubectl, CONFIG_MAP, "default")
            assert await names_of(kubectl, DEPLOYMENT) == set()

            # A script writes another one while the server runs.
            later = new_object(CONFIG_MAP, "later", "default")
            script = f"cat > {MANIFESTS}/later.yaml <<END\n{dump(later)}END\n"
            settings = {"token": "s3rver", "disable": NOTHING_MORE}
            install = "curl -sfL https://get.k3s.io | sh -"
            files = {"/etc/rancher/k3s/config.yaml": dump(settings)}
            host = testbed.power_on("two", render_script("two", [install, "sleep 60", script], files))

            await testbed.wait_for(lambda: host.logged(f"Applied manifest {MANIFESTS}/later.yaml"))

    run_driven(scenario())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", "document 1 is no object but str"),
        ("---\n[1]\n", "document 1 is no object but list"),
        ("kind: ConfigMap\napiVersion: v1\nmetadata: x\n", '"metadata.name" is required'),
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: 5}\n", '"metadata.name" is required'),
        (
            "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a, namespace: [b]}\n",
            '"metadata.namespace" is no string',
        ),
        ("kind: List\napiVersion: v1\nitems: [1]\n", "document 1 is no object but int"),
        ("a: b: c", "mapping values are not allowed"),
    ],
)
def test_what_is_no_manifest_is_refused(text: str, words: str):
    with pytest.raises((BadManifest, NotYaml), match=words):
        read_manifest(text.encode())


def test_a_manifest_that_is_no_object_ends_neither_its_server_nor_kubectl():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            odd = "kind: ConfigMap\napiVersion: v1\nmetadata: x\n"
            install = "curl -sfL https://get.k3s.io | sh -"
            files = {
                "/etc/rancher/k3s/config.yaml": dump({"disable": NOTHING_MORE}),
                f"{MANIFESTS}/odd.yaml": odd,
            }
            commands = [install, f"kubectl apply -f {MANIFESTS}/odd.yaml || echo refused", "kubectl version"]
            host = testbed.power_on("one", render_script("one", commands, files))
            await testbed.wait_for(lambda: host.logged("Server Version"))

            assert host.logged(f"Failed to process {MANIFESTS}/odd.yaml")
            assert host.logged("refused")

    run_driven(scenario())


# -- HelmCharts


def test_harvesters_cloud_provider_comes_by_a_helm_chart_before_the_nodes_are_initialised():
    async def scenario() -> None:
        started: list[tuple[tuple[str, ...], str]] = []

        async def provider(context: ProgramContext) -> int:
            file = context.root.files["/etc/kubernetes/cloud-config"]
            started.append((context.argv, file.content.decode()))
            await context.clock.sleep_until(context.clock.now().replace(year=2100))
            return 0

        async with a_testbed(programs={"harvester-cloud-provider": provider}) as testbed:
            values = dump({"cloudConfigPath": "/etc/kubernetes/cloud-config"})
            chart = a_chart(valuesContent=values, set={"global.cattle.clusterName": "edge"})
            storage = a_chart("harvester-csi-driver", bootstrap=False, version="0.1.25")
            files = {
                "/etc/kubernetes/cloud-config": "of the node",
                f"{MANIFESTS}/harvester.yaml": dump_all([chart, storage]),
            }
            kubectl = await a_server(testbed, files=files, **EXTERNAL)
            await testbed.wait_for(lambda: started)

            assert started == [
                (
                    (
                        "harvester-cloud-provider",
                        "--cloud-config=/etc/kubernetes/cloud-config",
                        "--cluster-name=edge",
                    ),
                    "of the node",
                )
            ]
            found = await kubectl.get(HELM_CHART.ref("harvester-cloud-provider", "kube-system"))
            assert nested(found, "status", "jobName") == "helm-install-harvester-cloud-provider"
            assert condition(found, "Failed") == "False"
            # The other chart's job takes no Node that is not initialised.
            host = testbed.hosts["one"]
            assert host.logged(
                f"helm-install-harvester-csi-driver: 0/1 nodes are available: 1 node(s) had untolerated taint {{{UNINITIALIZED}"
            )
            assert "harvester" not in await names_of(kubectl, STORAGE_CLASS)

            await kubectl.patch(NODE.ref("one"), {"spec": {"taints": None}})
            await testbed.sleep(20)
            assert "harvester" in await names_of(kubectl, STORAGE_CLASS)

            change = {"spec": {"set": {"global.cattle.clusterName": "other"}}}
            await kubectl.patch(HELM_CHART.ref("harvester-cloud-provider", "kube-system"), change)
            await testbed.wait_for(lambda: len(started) == 2)
            assert started[1][0][-1] == "--cluster-name=other"

            await kubectl.delete(HELM_CHART.ref("harvester-cloud-provider", "kube-system"))
            await testbed.sleep(1)
            assert host.logged("release harvester-cloud-provider is uninstalled")

    run_driven(scenario())


@pytest.mark.parametrize(("version", "uses_secret"), [("0.2.12", True), ("0.2.11", False), ("", True)])
def test_a_chart_before_0_2_12_knows_no_secret(version: str, uses_secret: bool):
    async def scenario() -> None:
        seen: list[str] = []

        async def provider(context: ProgramContext) -> int:
            seen.append(context.root.files["/etc/kubernetes/cloud-config"].content.decode())
            await context.clock.sleep_until(context.clock.now().replace(year=2100))
            return 0

        async with a_testbed(programs={"harvester-cloud-provider": provider}) as testbed:
            values = dump({"cloudConfigPath": "/etc/cc", "cloudConfig": {"secretName": "access"}})
            secret = new_object(SECRET, "access", "kube-system", stringData={"cloud-config": "of the Secret"})
            text = dump_all([secret, a_chart(valuesContent=values, version=version)])
            files = {f"{MANIFESTS}/harvester.yaml": text, "/etc/cc": "of the node"}
            await a_server(testbed, files=files, **EXTERNAL)
            await testbed.wait_for(lambda: seen)

            assert seen == ["of the Secret" if uses_secret else "of the node"]

    run_driven(scenario())


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"version": "0.2.1100"}, "matching 0.2.1100 not found"),
        ({"repo": "https://example.org/charts"}, "is not a valid chart repository"),
        ({"repo": "https://["}, "is not a valid chart repository"),
        ({"repo": ""}, "path 'harvester-cloud-provider' not found"),
        ({"chart": "harvester-cloud"}, 'chart "harvester-cloud" not found'),
        ({"valuesContent": "a: b: c"}, "mapping values are not allowed"),
        ({"chartContent": "AAAA"}, "the archive is not a chart"),
    ],
)
def test_a_chart_that_helm_does_not_find_is_tried_again_and_its_status_says_why(
    spec: dict[str, Any], words: str
):
    async def scenario() -> None:
        async with a_testbed() as testbed:
            files = {f"{MANIFESTS}/harvester.yaml": dump(a_chart(**spec))}
            kubectl = await a_server(testbed, files=files, **{**EXTERNAL, "disable": NOTHING_MORE})
            host = testbed.hosts["one"]
            await testbed.wait_for(lambda: host.logged(words))

            found = await kubectl.get(HELM_CHART.ref("harvester-cloud-provider", "kube-system"))
            assert condition(found, "Failed") == "True"

            await kubectl.patch(
                HELM_CHART.ref("harvester-cloud-provider", "kube-system"),
                {"spec": {**a_chart()["spec"], "chartContent": None, "valuesContent": None}},
            )
            await testbed.wait_for(lambda: host.logged("release harvester-cloud-provider of the chart"))

    run_driven(scenario())


def test_a_chart_for_a_namespace_that_is_not_there_fails_and_harms_nothing_else():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            url = "https://%{KUBERNETES_API}%/static/charts/traefik.tgz"
            spec = {"chart": url, "targetNamespace": "nowhere"}
            files = {f"{MANIFESTS}/t.yaml": dump(new_object(HELM_CHART, "t", "kube-system", spec=spec))}
            kubectl = await a_server(testbed, files=files, disable=NOTHING_MORE)
            host = testbed.hosts["one"]
            await testbed.wait_for(lambda: host.logged('namespaces "nowhere" not found'))
            assert await names_of(kubectl, DEPLOYMENT) == set()

            await kubectl.patch(HELM_CHART.ref("t", "kube-system"), {"spec": {"createNamespace": True}})
            await testbed.wait_for(lambda: host.logged("release t of the chart traefik"))
            assert await names_of(kubectl, DEPLOYMENT) == {"traefik"}

    run_driven(scenario())


def test_an_archive_brings_its_own_values():
    files = {"Chart.yaml": "name: harvester-cloud-provider\nversion: 0.2.15\n", "values.yaml": "a: {b: 1}\n"}
    subchart = {"charts/kube-vip/Chart.yaml": "name: kube-vip\nversion: 0.8.2\n"}

    chart = find_chart({"chartContent": an_archive(subchart | files)}, lambda path: None)

    assert (chart.name, chart.number, chart.values) == (
        "harvester-cloud-provider",
        (0, 2, 15),
        {"a": {"b": 1}},
    )


def test_the_chart_that_this_repository_ships_is_one():
    content = base64.b64encode(pack(chart_files())).decode()

    chart = find_chart({"chartContent": content}, lambda path: None)

    assert chart.name == "harvester-cloud-provider"
    assert "cloudConfig" in chart.values


def test_a_chart_on_the_servers_disk_is_found():
    content = base64.b64decode(an_archive({"Chart.yaml": "name: mine\nversion: 1.0.0\n"}))
    spec = {"chart": "https://%{KUBERNETES_API}%/static/charts/mine.tgz"}

    assert find_chart(spec, {"charts/mine.tgz": content}.get).name == "mine"
    with pytest.raises(ChartNotFound, match="404 Not Found"):
        find_chart(spec, lambda path: None)


@pytest.mark.parametrize(
    "content",
    [
        an_archive({"values.yaml": "a: b\n"}),
        an_archive({"Chart.yaml": "- a\n"}),
        an_archive({"Chart.yaml": "name: [x]\n"}),
        an_archive({"Chart.yaml": "name: x\n", "values.yaml": "a: " + "b" * (5 << 20)}),
        base64.b64encode(b"\x1f\x8b" + b"\0" * 100).decode(),
        "not base64!",
    ],
)
def test_what_is_no_chart_is_refused(content: str):
    with pytest.raises(ChartNotFound):
        find_chart({"chartContent": content}, lambda path: None)


def test_no_change_of_an_archive_makes_anything_but_a_chart_or_a_refusal():
    whole = gzip.decompress(
        base64.b64decode(an_archive({"Chart.yaml": "name: x\n", "values.yaml": "a: b\n"}))
    )
    rng = Rng(5)
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(1 + rng.below(6)):
            changed[rng.below(1600)] = rng.below(256)
        content = base64.b64encode(gzip.compress(bytes(changed), 1)).decode()
        with suppress(ChartNotFound):
            find_chart({"chartContent": content}, lambda path: None)


@pytest.mark.parametrize(
    "spec",
    [
        {"set": ["a"]},
        {"set": {"a": {"b": 1}}},
        {"valuesContent": {"a": "b"}},
        {"bootstrap": "yes"},
        {"repo": 5},
    ],
)
def test_a_chart_of_the_wrong_types_is_refused_by_the_api(spec: dict[str, Any]):
    async def scenario() -> None:
        async with a_testbed() as testbed:
            files = {f"{MANIFESTS}/harvester.yaml": dump(a_chart(**spec))}
            kubectl = await a_server(testbed, files=files, disable=NOTHING_MORE)

            assert testbed.hosts["one"].logged(f"Failed to process {MANIFESTS}/harvester.yaml")
            assert await names_of(kubectl, HELM_CHART) == set()

    run_driven(scenario())


def test_set_writes_into_the_values_by_path():
    values = {"a": {"b": 1, "c": 2}, "d": "e"}

    assert apply_set(values, {"a.b": "true", "d.f": 3, "g": "h"}) == {
        "a": {"b": True, "c": 2},
        "d": {"f": 3},
        "g": "h",
    }
    assert values == {"a": {"b": 1, "c": 2}, "d": "e"}


# -- ServiceLB


def a_node(name: str, *addresses: tuple[str, str], ready: str = "True", **more: Any) -> Raw:
    status = {
        "conditions": [{"type": "Ready", "status": ready}],
        "addresses": [{"type": type, "address": address} for type, address in addresses],
    }
    labels = more.pop("labels", {})
    return new_object(NODE, name, labels=labels, spec=more, status=status)


def a_service(name: str, port: int = 80, at: int = 0, **spec: Any) -> Raw:
    found = new_object(
        SERVICE, name, "default", spec={"type": "LoadBalancer", "ports": [{"port": port}], **spec}
    )
    found["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{at:02d}Z"
    return found


def test_each_node_takes_one_service_for_a_port_and_none_with_a_class():
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    nodes = [
        a_node("one", taints=[taint]),
        a_node("two", ready="False"),
        a_node("three", taints=[{"key": "mine", "effect": "NoSchedule"}]),
        a_node("four"),
    ]
    services = [
        a_service("later", at=2),
        a_service("first", at=1),
        a_service("other", port=81, at=3),
        a_service("foreign", port=82, loadBalancerClass="harvester"),
        a_service("inside", port=83, type="ClusterIP"),
    ]

    assert place_services(services, nodes) == {
        ("default", "first"): ["four", "one"],
        ("default", "later"): [],
        ("default", "other"): ["four", "one"],
    }
    labelled = [*nodes, a_node("five", labels={"svccontroller.k3s.cattle.io/enablelb": "true"})]
    assert place_services([services[0]], labelled) == {("default", "later"): ["five"]}


def test_external_addresses_come_before_internal_ones_and_families_in_the_services_order():
    one = a_node("one", ("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1"), ("Hostname", "one"))
    two = a_node("two", ("InternalIP", "10.0.0.2"), ("ExternalIP", "192.0.2.2"))

    assert list_addresses(a_service("a"), [one]) == ["10.0.0.1"]
    assert list_addresses(a_service("a", ipFamilies=["IPv6", "IPv4"]), [one]) == ["fd00::1", "10.0.0.1"]
    assert list_addresses(a_service("a"), [one, two]) == ["192.0.2.2"]


def test_servicelb_answers_and_its_address_leads_to_a_pod():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            pods: Raw = {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "x"}]},
            }
            web = new_object(
                DEPLOYMENT,
                "web",
                "default",
                spec={"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": pods},
            )
            service = a_service("web", port=8080, selector={"app": "web"}, externalTrafficPolicy="Local")
            del service["metadata"]["creationTimestamp"]
            files = {f"{MANIFESTS}/web.yaml": dump_all([web, service])}
            kubectl = await a_server(testbed, files=files, disable=NOTHING_MORE[:-1])
            testbed.power_on("two", the_cluster().worker("two"))
            await testbed.wait_for(lambda: are_ready(kubectl, "two"))
            await testbed.sleep(20)

            found = await kubectl.get(SERVICE.ref("web", "default"))
            addresses = [one["ip"] for one in nested(found, "status", "loadBalancer", "ingress")]
            assert addresses == ["10.0.0.11"]
            door = testbed.network.find("10.0.0.11", 8080)
            assert door is not None
            reply = await door.send(requests.Request("GET", "/"), Peer())
            assert b'"namespace":"default"' in reply.body

            await kubectl.delete(SERVICE.ref("web", "default"))
            await testbed.sleep(5)
            assert testbed.network.find("10.0.0.11", 8080) is None

    run_driven(scenario())


def test_harvesters_cloud_provider_does_not_start_beside_k3s_own():
    async def scenario() -> None:
        async def provider(context: ProgramContext) -> int:
            raise AssertionError("its port is taken")

        async with a_testbed(programs={"harvester-cloud-provider": provider}) as testbed:
            values = dump({"cloudConfigPath": "/etc/kubernetes/cloud-config"})
            files = {
                f"{MANIFESTS}/harvester.yaml": dump(a_chart(valuesContent=values)),
                "/etc/kubernetes/cloud-config": "x",
            }
            kubectl = await a_server(testbed, files=files, disable=NOTHING_MORE)
            host = testbed.hosts["one"]
            await testbed.wait_for(lambda: host.logged("0.0.0.0:10258: bind: address already in use"))

            assert (await kubectl.node("one"))["spec"]["providerID"] == "k3s://one"

    run_driven(scenario())


def test_servicelb_beside_harvesters_cloud_provider_is_told():
    async def scenario() -> None:
        async def provider(context: ProgramContext) -> int:
            await context.clock.sleep_until(context.clock.now().replace(year=2100))
            return 0

        async with a_testbed(programs={"harvester-cloud-provider": provider}) as testbed:
            service = a_service("web", port=8080)
            del service["metadata"]["creationTimestamp"]
            values = dump({"cloudConfigPath": "/etc/kubernetes/cloud-config"})
            files = {
                f"{MANIFESTS}/web.yaml": dump_all([service, a_chart(valuesContent=values)]),
                "/etc/kubernetes/cloud-config": "x",
            }
            await a_server(testbed, files=files, disable=NOTHING_MORE[:-1])
            host = testbed.hosts["one"]

            await testbed.wait_for(
                lambda: host.logged(
                    "Service default/web is answered by servicelb and by harvester-cloud-provider"
                )
            )

    run_driven(scenario())
