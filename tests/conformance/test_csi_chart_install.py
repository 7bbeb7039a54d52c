"""A real API server takes what the CSI driver's chart renders, and helm puts it in the place of the original's release, and back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.conformance.chart_rig import NAMESPACE, Helm, Refused
from tests.conformance.real_cluster import Cluster
from tests.conformance.test_chart_install import BUILT_IN, try_to_create
from tests.conformance.test_csi_chart import CHART, CONTROLLERS, NAME, SHAPES

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.kubernetes.kubeconfig import render_kubeconfig
from windrow.kubernetes.objects import nested, uid_of
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    DAEMON_SET,
    DEPLOYMENT,
    ROLE,
    SERVICE_ACCOUNT,
    STORAGE_CLASS,
    ApiResource,
    ObjectRef,
)

pytestmark = pytest.mark.go

CSI_DRIVER = ApiResource("storage.k8s.io", "v1", "CSIDriver", "csidrivers", namespaced=False)
KEPT = (
    DEPLOYMENT.ref(CONTROLLERS, NAMESPACE),
    DAEMON_SET.ref(NAME, NAMESPACE),
    SERVICE_ACCOUNT.ref(NAME, NAMESPACE),
    CLUSTER_ROLE.ref(NAME),
    CSI_DRIVER.ref("driver.harvesterhci.io"),
    STORAGE_CLASS.ref("harvester"),
)


@pytest.fixture
def helm(reference_program: Callable[[str], str], tmp_path: Path) -> Helm:
    return Helm(reference_program("helm"), tmp_path, CHART)


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Client]:
    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        yield Client(transport)


@pytest.fixture
def there(cluster: Cluster, tmp_path: Path) -> tuple[str, ...]:
    """helm's arguments for the cluster and the namespace."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(render_kubeconfig(cluster.access(), "guest"))
    return ("--kubeconfig", str(kubeconfig), "--namespace", NAMESPACE)


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_real_api_server_knows_every_field(helm: Helm, api: Client, shape: str) -> None:
    for raw in helm.render(SHAPES[shape]):
        if raw["apiVersion"] in BUILT_IN:  # the definitions of snapshots are not there
            await try_to_create(api, raw)


# What matters of the original's objects (reference 03 §1.5): their names, and what cannot be changed in them.
ORIGINAL_OBJECTS = """
{{- $labels := printf "app.kubernetes.io/name: %s, app.kubernetes.io/instance: %s" .Chart.Name .Release.Name }}
apiVersion: v1
kind: ServiceAccount
metadata: {name: harvester-csi-driver}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: harvester-csi-driver}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: harvester-csi-driver}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: harvester-csi-driver}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: driver.harvesterhci.io}
spec:
  attachRequired: true
  fsGroupPolicy: ReadWriteOnceWithFSType
  podInfoOnMount: true
  volumeLifecycleModes: [Persistent]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: harvester, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
allowVolumeExpansion: true
provisioner: driver.harvesterhci.io
reclaimPolicy: Delete
volumeBindingMode: Immediate
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: harvester-csi-driver}
spec:
  selector: {matchLabels: {component: csi-driver, {{ $labels }}}}
  template:
    metadata: {labels: {component: csi-driver, {{ $labels }}}}
    spec:
      serviceAccountName: harvester-csi-driver
      hostPID: true
      containers:
        - {name: node-driver-registrar, image: the/original, volumeMounts: [{name: socket-dir, mountPath: /csi/}]}
        - name: harvester-csi-driver
          image: the/original
          args: [--nodeid=$(NODE_ID), --kubeconfig=/var/lib/harvester/cloud-provider-config]
          securityContext: {privileged: true}
          volumeMounts: [{name: socket-dir, mountPath: /csi/}, {name: cloud-config, mountPath: /var/lib/harvester}]
      volumes:
        - {name: socket-dir, hostPath: {path: /var/lib/kubelet/harvester-plugins/driver.harvesterhci.io}}
        - {name: cloud-config, hostPath: {path: /var/lib/rancher/rke2/etc/config-files/, type: DirectoryOrCreate}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: harvester-csi-driver-controllers}
spec:
  replicas: {{ .Values.replicasCount }}
  selector: {matchLabels: {component: csi-controllers, {{ $labels }}}}
  template:
    metadata: {labels: {component: csi-controllers, {{ $labels }}}}
    spec:
      serviceAccountName: harvester-csi-driver
      containers:
        {{- range list "csi-resizer" "csi-provisioner" "csi-attacher" "csi-snapshotter" }}
        - {name: {{ . }}, image: the/original, volumeMounts: [{name: socket-dir, mountPath: /csi/}]}
        {{- end }}
      volumes:
        - {name: socket-dir, hostPath: {path: /var/lib/kubelet/harvester-plugins/driver.harvesterhci.io}}
"""


async def test_it_takes_the_place_of_the_original_s_release_and_gives_it_back(
    helm: Helm, api: Client, there: tuple[str, ...], tmp_path: Path
) -> None:
    original = tmp_path / NAME
    (original / "templates").mkdir(parents=True)
    (original / "Chart.yaml").write_text(f"{{apiVersion: v2, name: {NAME}, version: 0.1.28}}")
    (original / "values.yaml").write_text("{replicasCount: 3, image: {pullPolicy: Always}}")
    (original / "templates" / "all.yaml").write_text(ORIGINAL_OBJECTS)
    helm.run("install", NAME, str(original), *there, "--set", "replicasCount=2,hostStorageClass=fast")
    uids = [await uid(api, ref) for ref in KEPT]

    told = helm.run("upgrade", NAME, str(CHART), *there, "--reset-then-reuse-values")
    ours = await images(api)
    node = nested(await api.get(DAEMON_SET.ref(NAME, NAMESPACE)), "spec", "template", "spec")
    controllers = await api.get(DEPLOYMENT.ref(CONTROLLERS, NAMESPACE))
    kept = [await uid(api, ref) for ref in KEPT]
    helm.run("rollback", NAME, "1", *there)
    theirs = await images(api)

    # The user's values stay, the original's defaults do not.
    assert controllers["spec"]["replicas"] == 2
    driver = nested(controllers, "spec", "template", "spec", "containers", 0)
    assert "--host-storage-class=fast" in driver["args"]
    assert "windrow/harvester-csi-driver:0.1.0" in ours
    assert "the/original" not in ours
    assert "no CustomResourceDefinitions of snapshot.storage.k8s.io/v1" in told
    # Nothing of the original is left on the node: neither its credential nor its place among the processes.
    assert "hostPID" not in node
    assert sorted(one["name"] for one in node["volumes"]) == [
        "devices",
        "pods",
        "registration",
        "socket",
        "staging",
        "tmp",
    ]
    assert theirs == {"the/original"}
    # The very same objects throughout: nothing was taken away in between.
    assert uids == kept == [await uid(api, ref) for ref in KEPT]
    assert await api.find(ROLE.ref(f"{NAME}-leases", NAMESPACE)) is None
    helm.run("uninstall", NAME, *there)


async def test_of_a_storage_class_that_is_there_only_the_default_changes(
    helm: Helm, api: Client, there: tuple[str, ...]
) -> None:
    helm.run("install", NAME, str(CHART), *there)

    helm.run("upgrade", NAME, str(CHART), *there, "--set", "storageClass.isDefault=false")
    changed = await api.get(STORAGE_CLASS.ref("harvester"))
    with pytest.raises(Refused, match=r"(?s)StorageClass.*Forbidden"):
        helm.run("upgrade", NAME, str(CHART), *there, "--set", "storageClass.reclaimPolicy=Retain")
    await api.delete(STORAGE_CLASS.ref("harvester"))
    helm.run("upgrade", NAME, str(CHART), *there, "--set", "storageClass.reclaimPolicy=Retain")
    anew = await api.get(STORAGE_CLASS.ref("harvester"))
    helm.run("uninstall", NAME, *there)

    annotations = changed["metadata"]["annotations"]
    assert annotations["storageclass.kubernetes.io/is-default-class"] == "false"
    assert anew["reclaimPolicy"] == "Retain"


async def uid(api: Client, ref: ObjectRef) -> str:
    return uid_of(await api.get(ref))


async def images(api: Client) -> set[str]:
    objects = [await api.get(ref) for ref in KEPT[:2]]
    return {one["image"] for raw in objects for one in nested(raw, "spec", "template", "spec", "containers")}
