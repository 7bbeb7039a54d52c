"""The manager's chart: what helm finds in it, what it makes of its values, what a real API server takes, what a release leaves."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from scripts.chart import MANAGER, chart_files, pack
from tests.conformance.chart_rig import (
    CHARTS,
    KUBERNETES,
    ROOT,
    Helm,
    Refused,
    container_of,
    of_kind,
    pod_of,
    the,
)
from tests.conformance.real_cluster import Cluster
from tests.conformance.test_chart_install import FOREIGN, kind_of, try_to_create

from windrow.app.clock import SystemClock
from windrow.app.cluster_roles import cluster_roles
from windrow.app.embedded import LEASE_NAME, RANCHER_NAMESPACES, install_crds, management_crds
from windrow.cli.commands.servers import serve
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.clusters.api.kinds import CLUSTER
from windrow.core.formats.json import dumps
from windrow.core.formats.yaml import load
from windrow.kubernetes.kubeconfig import render_kubeconfig
from windrow.kubernetes.objects import Raw, labels_of, name_of, nested, new_object
from windrow.kubernetes.requests import JSON, Request
from windrow.kubernetes.resources import CLUSTER_ROLE, CRD, DEPLOYMENT, NAMESPACE, PVC

pytestmark = pytest.mark.go

CHART = CHARTS / "windrow"
NAME, PLACE = "windrow", "windrow-system"
DIGEST = f"sha256:{'0' * 64}"
EMBEDDED: dict[str, Any] = {"embedded": {"enabled": True}}
EVERYTHING: dict[str, Any] = {
    "replicaCount": 3,
    "image": {"repository": "registry.example/windrow", "digest": DIGEST, "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "proxy": "http://10.0.0.1:3128",
    "extraArgs": ["--allow-file-urls"],
    "extraEnv": [{"name": "SSL_CERT_FILE", "value": "/etc/ssl/mine.pem"}],
    "serviceAccount": {"name": "manager", "annotations": {"a": "b"}},
    "priorityClassName": "system-cluster-critical",
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "strategy": {"type": "Recreate"},
    "podAnnotations": {"c": "d"},
    "podLabels": {"e": "f"},
    "networkPolicy": {
        "enabled": True,
        "from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}],
    },
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "readers": [{"name": "prometheus-k8s", "namespace": "monitoring"}],
    },
}
SHAPES: dict[str, Mapping[str, Any]] = {
    "nothing set": {},
    "everything": EVERYTHING,
    "one pod": {"replicaCount": 1},
    "embedded": EMBEDDED,
    "embedded, everything": {
        "networkPolicy": {"enabled": True},
        "embedded": {
            "enabled": True,
            "persistence": {"storageClassName": "fast", "size": "1Gi", "annotations": {"a": "b"}},
            "service": {"type": "NodePort", "port": 443, "annotations": {"c": "d"}},
        },
    },
    "a claim of the user's": {"embedded": {"enabled": True, "persistence": {"existingClaim": "mine"}}},
    "rights of the user's": {"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "mine"}},
    "other names": {"nameOverride": "manager", "fullnameOverride": "my-manager"},
    "metrics' Service alone": {"metrics": {"service": {"enabled": True}}},
}


@pytest.fixture
def helm(reference_program: Callable[[str], str], tmp_path: Path) -> Helm:
    return Helm(reference_program("helm"), tmp_path, CHART)


def render(helm: Helm, values: Mapping[str, Any] | None = None) -> list[Raw]:
    return helm.render(values, namespace=PLACE)


def arguments_of(objects: list[Raw]) -> argparse.Namespace:
    """The pod's arguments, read by the program's own parser, which refuses what it does not know."""
    parser = argparse.ArgumentParser()
    serve.arguments(parser)
    container = container_of(objects, name=NAME)
    assert (container["command"], container["args"][0]) == (["windrow"], "serve")
    return parser.parse_args(container["args"][1:])


# --- helm, and the values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_helm_finds_nothing_in_it_whatever_the_values(helm: Helm, shape: str) -> None:
    said = helm.lint("--values", str(helm.file(SHAPES[shape])))

    assert "WARNING" not in said
    assert "ERROR" not in said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({**EMBEDDED, "replicaCount": 2}, "one pod has the database; leave replicaCount out"),
        ({"embedded": {"enable": True}}, "additional properties 'enable' not allowed"),
        ({"embedded": {"persistence": {"accessModes": ["ReadWriteMany"]}}}, "accessModes/0"),
        ({**EMBEDDED, "metrics": {"serviceMonitor": {"enabled": True}}}, "a token of the embedded API"),
        ({"extraArgs": ["--state-dir=/x"]}, "extraArgs has --state-dir, which the chart sets"),
        ({"extraArgs": ["--bind", "0.0.0.0"]}, "extraArgs has --bind, which the chart sets"),
        ({"image": {"digest": "sha256:12"}}, "/image/digest"),
        ({"image": {"tag": 1.1}}, "at '/image/tag': got number, want string"),
        ({"proxy": "banana"}, "/proxy"),
        ({"replicaCount": "two"}, "replicaCount"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name has to name an account"),
    ],
)
def test_a_mistake_in_the_values_is_told(helm: Helm, values: Raw, said: str) -> None:
    with pytest.raises(Refused, match=said):
        render(helm, values)


def test_the_program_takes_the_arguments_of_each_shape(helm: Helm) -> None:
    outside, inside = arguments_of(render(helm, EVERYTHING)), arguments_of(render(helm, EMBEDDED))

    assert (outside.kubeconfig, outside.metrics_bind_address, outside.log_format) == ("", ":8443", "json")
    assert (outside.proxy, outside.allow_file_urls) == ("http://10.0.0.1:3128", True)
    assert (inside.kubeconfig, inside.bind, inside.port, inside.no_dashboard) == (None, "0.0.0.0", 6443, True)


def test_the_image_is_that_of_the_chart_s_version_or_of_a_digest(helm: Helm) -> None:
    version = load((CHART / "Chart.yaml").read_text())["appVersion"]
    images = [container_of(render(helm, values), name=NAME)["image"] for values in ({}, EVERYTHING)]

    assert images == [f"windrow/windrow:{version}", f"registry.example/windrow@{DIGEST}"]
    assert f'__version__ = "{version}"' in (ROOT / "src/windrow/__init__.py").read_text()


def test_two_pods_stand_apart_where_they_can_and_one_more_comes_before_one_goes(helm: Helm) -> None:
    objects = render(helm)
    spec = the(objects, "Deployment", NAME)["spec"]

    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]) == (2, {"maxSurge": 1, "maxUnavailable": 0})
    assert list(pod_of(objects, name=NAME)["affinity"]["podAntiAffinity"]) == [
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert the(objects, "PodDisruptionBudget", NAME)["spec"]["maxUnavailable"] == 1
    assert of_kind(render(helm, {"replicaCount": 1}), "PodDisruptionBudget") == []


def test_an_embedded_manager_has_one_pod_a_claim_that_stays_and_no_right(helm: Helm) -> None:
    objects = render(helm, EMBEDDED)
    spec = the(objects, "Deployment", NAME)["spec"]

    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert spec["template"]["spec"]["automountServiceAccountToken"] is False
    assert the(objects, "PersistentVolumeClaim", "windrow-state")["metadata"]["annotations"] == {
        "helm.sh/resource-policy": "keep"
    }
    assert not [raw for raw in objects if "rbac" in raw["apiVersion"]]
    assert [raw["kind"] for raw in objects if raw["kind"] == "PodDisruptionBudget"] == []


def test_the_state_is_a_folder_that_the_pod_s_user_makes_in_its_volume(helm: Helm) -> None:
    """A volume's own folder belongs to root, and serve refuses a state directory of another user."""
    for values in ({}, EMBEDDED):
        objects = render(helm, values)
        [mount] = [one for one in container_of(objects, name=NAME)["volumeMounts"] if one["name"] == "state"]

        assert str(arguments_of(objects).state_dir).startswith(f"{mount['mountPath']}/")
        assert pod_of(objects, name=NAME)["securityContext"]["fsGroup"] == 65532


def test_the_roles_for_people_are_those_that_the_manager_wants(helm: Helm) -> None:
    objects = render(helm)

    for wanted in cluster_roles():
        found = the(objects, "ClusterRole", name_of(wanted))
        assert found["rules"] == wanted["rules"]
        assert labels_of(wanted).items() <= labels_of(found).items()


def test_no_rule_reaches_kinds_that_could_be_named(helm: Helm) -> None:
    rules = [
        rule for raw in of_kind(render(helm), "ClusterRole") if name_of(raw) == NAME for rule in raw["rules"]
    ]

    assert [rule["apiGroups"] for rule in rules if "*" in rule["resources"]] == [
        ["rke-machine-config.cattle.io"]
    ]
    assert not [rule for rule in rules if "*" in rule["verbs"] or "*" in rule["apiGroups"]]
    assert not {"escalate", "bind", "impersonate"} & {verb for rule in rules for verb in rule["verbs"]}
    named = {name for rule in rules if "create" in rule["verbs"] for name in rule.get("resourceNames", ())}
    assert named == set(RANCHER_NAMESPACES)
    [leases] = of_kind(render(helm), "Role")
    assert (leases["metadata"]["namespace"], leases["rules"][1]["resourceNames"]) == (
        LEASE_NAME[0],
        [LEASE_NAME[1]],
    )


def test_what_make_chart_packs_renders_as_the_folder_does(helm: Helm, tmp_path: Path) -> None:
    ours = tmp_path / "ours.tgz"
    ours.write_bytes(pack(chart_files(MANAGER)))

    argv = ("--kube-version", KUBERNETES, "--namespace", PLACE)
    assert helm.run("template", NAME, str(ours), *argv) == helm.run("template", NAME, str(CHART), *argv)


# --- a real API server ----------------------------------------------------------------------------------------------


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Client]:
    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        client = Client(transport)
        # As the policy of a namespace that takes nothing but what the standard `restricted` allows.
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        if await client.find(NAMESPACE.ref(PLACE)) is None:
            await client.create(NAMESPACE, new_object(NAMESPACE, PLACE, labels=labels))
        yield client


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_real_api_server_knows_every_field(helm: Helm, api: Client, shape: str) -> None:
    for raw in render(helm, SHAPES[shape]):
        if raw["apiVersion"] != FOREIGN:
            await try_to_create(api, raw)


@pytest.mark.parametrize("values", [{}, EMBEDDED], ids=["outside", "embedded"])
async def test_its_pods_satisfy_the_restricted_pod_security_standard(
    helm: Helm, api: Client, values: Mapping[str, Any]
) -> None:
    template = the(render(helm, values), "Deployment", NAME)["spec"]["template"]
    account = new_object(kind_of(the(render(helm), "ServiceAccount", NAME)), NAME, PLACE)
    await api.apply(kind_of(account).ref(NAME, PLACE), account, "test", force=True)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        **template,
        "metadata": {**template["metadata"], "generateName": "w-"},
    }

    path = f"/api/v1/namespaces/{PLACE}/pods"
    made = await api.call(Request("POST", path, (("dryRun", "All"),), body=dumps(pod), content_type=JSON))

    assert nested(made, "spec", "containers", 0, "securityContext", "readOnlyRootFilesystem") is True
    await api.delete(kind_of(account).ref(NAME, PLACE))


@pytest.fixture
def there(cluster: Cluster, tmp_path: Path) -> tuple[str, ...]:
    """helm's arguments for the cluster and the namespace."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(render_kubeconfig(cluster.access(), "management"))
    return ("--kubeconfig", str(kubeconfig), "--namespace", PLACE)


async def test_a_release_that_goes_leaves_definitions_and_clusters(
    helm: Helm, api: Client, there: tuple[str, ...]
) -> None:
    """Also one of the chart's rollback; the definitions are applied here as a manager does when it starts."""
    said = helm.run("install", NAME, str(CHART), *there)
    assert "`helm upgrade` brings new ones" in said
    await install_crds(api)
    spec = {"kubernetesVersion": "v1.34.7+rke2r1", "rkeConfig": {"machinePools": []}}
    await api.create(CLUSTER, new_object(CLUSTER, "orchard", RANCHER_NAMESPACES[0], spec=spec))

    values = helm.file({"proxy": "http://10.0.0.1:3128", "replicaCount": 3, "replicas": 3})
    said = helm.run("upgrade", NAME, str(CHART), *there, "--values", str(values))
    assert "the value replicas is unknown" in said
    changed = await api.get(DEPLOYMENT.ref(NAME, PLACE))
    helm.run("rollback", NAME, "1", *there)
    back = await api.get(DEPLOYMENT.ref(NAME, PLACE))
    helm.run("uninstall", NAME, *there, "--cascade", "background")

    assert "--proxy=http://10.0.0.1:3128" in nested(
        changed, "spec", "template", "spec", "containers", 0, "args"
    )
    assert (nested(changed, "spec", "replicas"), nested(back, "spec", "replicas")) == (3, 2)
    assert await api.find(DEPLOYMENT.ref(NAME, PLACE)) is None
    assert await api.find(CLUSTER_ROLE.ref(NAME)) is None
    for crd in management_crds():
        assert await api.find(CRD.ref(name_of(crd))) is not None
    assert await api.find(CLUSTER.ref("orchard", RANCHER_NAMESPACES[0])) is not None


async def test_the_claim_with_the_database_stays_and_a_later_release_takes_it_up(
    helm: Helm, api: Client, there: tuple[str, ...]
) -> None:
    values = ("--values", str(helm.file(EMBEDDED)))
    helm.run("install", NAME, str(CHART), *there, *values)
    before = await api.get(PVC.ref("windrow-state", PLACE))
    helm.run("uninstall", NAME, *there, "--cascade", "background")
    assert await api.find(DEPLOYMENT.ref(NAME, PLACE)) is None

    helm.run("install", NAME, str(CHART), *there, *values)
    after = await api.get(PVC.ref("windrow-state", PLACE))
    helm.run("uninstall", NAME, *there, "--cascade", "background")

    assert before["metadata"]["uid"] == after["metadata"]["uid"]
