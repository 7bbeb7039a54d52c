"""A real API server takes what our chart renders, field by field, and helm installs, changes and removes it there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.conformance.chart_rig import CHART, NAME, NAMESPACE, Helm, the
from tests.conformance.real_cluster import Cluster
from tests.conformance.test_charts import BY_SECRET, EVERYTHING, K3S, NAMED, SHAPES

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core.formats.json import dumps
from windrow.kubernetes.kubeconfig import render_kubeconfig
from windrow.kubernetes.objects import Raw, nested, uid_of
from windrow.kubernetes.requests import JSON, Request
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    DAEMON_SET,
    DEPLOYMENT,
    ROLE,
    SERVICE_ACCOUNT,
    ApiResource,
)

pytestmark = pytest.mark.go

BUILT_IN = {
    "apps/v1": {"Deployment": "deployments", "DaemonSet": "daemonsets"},
    "v1": {
        "ServiceAccount": "serviceaccounts",
        "Service": "services",
        "PersistentVolumeClaim": "persistentvolumeclaims",
    },
    "networking.k8s.io/v1": {"NetworkPolicy": "networkpolicies"},
    "policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
    "storage.k8s.io/v1": {"CSIDriver": "csidrivers", "StorageClass": "storageclasses"},
    "rbac.authorization.k8s.io/v1": {
        "ClusterRole": "clusterroles",
        "ClusterRoleBinding": "clusterrolebindings",
        "Role": "roles",
        "RoleBinding": "rolebindings",
    },
}
# Their definitions come with Prometheus' operator.
FOREIGN = "monitoring.coreos.com/v1"


@pytest.fixture
def helm(reference_program: Callable[[str], str], tmp_path: Path) -> Helm:
    return Helm(reference_program("helm"), tmp_path)


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Client]:
    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        yield Client(transport)


def kind_of(raw: Raw) -> ApiResource:
    group, _, version = raw["apiVersion"].rpartition("/")
    plural = BUILT_IN[raw["apiVersion"]][raw["kind"]]
    return ApiResource(group, version, raw["kind"], plural, namespaced="namespace" in raw["metadata"])


async def try_to_create(api: Client, raw: Raw) -> Raw:
    """What the server would store; raises the KubeError for a field that it does not know."""
    strictly = (("dryRun", "All"), ("fieldValidation", "Strict"))
    path = kind_of(raw).path(raw["metadata"].get("namespace", ""))
    return await api.call(Request("POST", path, strictly, body=dumps(raw), content_type=JSON))


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_real_api_server_knows_every_field(helm: Helm, api: Client, shape: str) -> None:
    for raw in helm.render(SHAPES[shape]):
        if raw["apiVersion"] != FOREIGN:
            await try_to_create(api, raw)


async def test_what_is_asked_for_is_what_the_server_stores(helm: Helm, api: Client) -> None:
    """Nothing is dropped, turned round or filled in where we meant to leave it out."""
    asked = the(helm.render(EVERYTHING), "Deployment")

    stored = await try_to_create(api, asked)

    ours, theirs = (nested(raw, "spec", "template", "spec") for raw in (asked, stored))
    assert {key: theirs[key] for key in ours if key not in ("containers", "volumes")} == {
        key: ours[key] for key in ours if key not in ("containers", "volumes")
    }
    assert [one["args"] for one in theirs["containers"]] == [one["args"] for one in ours["containers"]]
    assert [one["name"] for one in theirs["volumes"]] == ["cloud-config", "tmp"]


@pytest.fixture
def there(cluster: Cluster, tmp_path: Path) -> tuple[str, ...]:
    """helm's arguments for the cluster and the namespace."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(render_kubeconfig(cluster.access(), "guest"))
    return ("--kubeconfig", str(kubeconfig), "--namespace", NAMESPACE)


async def test_helm_installs_changes_and_removes_it(helm: Helm, api: Client, there: tuple[str, ...]) -> None:

    said = helm.run("install", NAME, str(CHART), *there)
    assert "WARNING: the cluster has no name" in said
    by_file = await api.get(DEPLOYMENT.ref(NAME, NAMESPACE))

    values = helm.file({**NAMED, **BY_SECRET, "clusterNam": "x"})
    said = helm.run("upgrade", NAME, str(CHART), *there, "--values", str(values))
    assert "no name" not in said
    assert "the value clusterNam is unknown" in said
    by_secret = await api.get(DEPLOYMENT.ref(NAME, NAMESPACE))

    helm.run("upgrade", NAME, str(CHART), *there, "--values", str(helm.file(K3S)), "--reset-values")
    k3s = await api.get(DEPLOYMENT.ref(NAME, NAMESPACE))
    helm.run("uninstall", NAME, *there, "--cascade", "background")

    sources = [nested(raw, "spec", "template", "spec", "volumes", 0) for raw in (by_file, by_secret, k3s)]
    assert sources[0]["hostPath"]["path"].startswith("/var/lib/rancher/rke2/")
    assert sources[1]["secret"]["secretName"] == "access"
    assert sources[2]["hostPath"]["path"].startswith("/var/lib/rancher/k3s/")
    for ref in (
        DEPLOYMENT.ref(NAME, NAMESPACE),
        SERVICE_ACCOUNT.ref(NAME, NAMESPACE),
        CLUSTER_ROLE.ref(NAME),
        ROLE.ref(f"{NAME}-lease", NAMESPACE),
    ):
        assert await api.find(ref) is None


# What matters of the original's objects (reference 02 §7.1): their names, and what cannot be changed in them.
ORIGINAL_OBJECTS = """
{{- $labels := printf "{app.kubernetes.io/name: %s, app.kubernetes.io/instance: %s}" .Chart.Name .Release.Name }}
apiVersion: v1
kind: ServiceAccount
metadata: {name: harvester-cloud-provider}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: harvester-cloud-provider}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: harvester-cloud-provider}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: harvester-cloud-provider}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: harvester-cloud-provider}
spec:
  selector: {matchLabels: {{ $labels }}}
  template:
    metadata: {labels: {{ $labels }}}
    spec:
      serviceAccountName: harvester-cloud-provider
      hostNetwork: true
      containers:
        - name: harvester-cloud-provider
          image: the/original
          args: [--cloud-config=/etc/kubernetes/cloud-config]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-vip}
spec:
  selector:
    matchLabels: {app.kubernetes.io/name: kube-vip, app.kubernetes.io/instance: {{ .Release.Name }}}
  template:
    metadata: {labels: {app.kubernetes.io/name: kube-vip, app.kubernetes.io/instance: {{ .Release.Name }}}}
    spec:
      containers: [{name: kube-vip, image: the/original}]
"""


async def test_it_takes_the_place_of_the_original_s_release_and_gives_it_back(
    helm: Helm, api: Client, there: tuple[str, ...], tmp_path: Path
) -> None:
    original = tmp_path / NAME
    (original / "templates").mkdir(parents=True)
    (original / "Chart.yaml").write_text(f"{{apiVersion: v2, name: {NAME}, version: 0.2.15}}")
    (original / "templates" / "all.yaml").write_text(ORIGINAL_OBJECTS)
    helm.run("install", NAME, str(original), *there, "--set", "global.cattle.clusterName=demo")
    uids = [await uid(api, name, kind) for name, kind in ((NAME, DEPLOYMENT), ("kube-vip", DAEMON_SET))]

    helm.run("upgrade", NAME, str(CHART), *there, "--reset-then-reuse-values")
    images, arguments = [await image(api)], (await container(api))["args"]
    helm.run("rollback", NAME, "1", *there)
    images.append(await image(api))

    assert (
        "--cluster-name=demo" in arguments
    )  # as the guide says: the user's values stay, the original's image does not
    assert images == ["windrow/harvester-cloud-provider:0.1.0", "the/original"]
    # The very same objects: nothing was taken away in between.
    assert uids == [
        await uid(api, name, kind) for name, kind in ((NAME, DEPLOYMENT), ("kube-vip", DAEMON_SET))
    ]
    assert await api.find(ROLE.ref(f"{NAME}-lease", NAMESPACE)) is None
    helm.run("uninstall", NAME, *there)


async def uid(api: Client, name: str, kind: ApiResource) -> str:
    return uid_of(await api.get(kind.ref(name, NAMESPACE)))


async def container(api: Client) -> Raw:
    deployment = await api.get(DEPLOYMENT.ref(NAME, NAMESPACE))
    found: Raw = nested(deployment, "spec", "template", "spec", "containers", 0)
    return found


async def image(api: Client) -> str:
    return str((await container(api))["image"])
