"""The Deployments that Harvester's charts make in a guest: the cloud provider, and the controller of the CSI driver.

Their ReplicaSets and pods are those of any Deployment. The program of a chart runs on the node of one of its pods, as
with a lease of which one holds it: the first that is bound, until that pod ends. Ready is a pod once its containers have
started, whatever the program does.

The cloud provider's charts 0.2.2 to 0.2.4 keep its pods on different hosts, while their rollout may neither be a pod short
nor end up with fewer nodes than pods: on one node it never ends (reference/10-day2 §6.2). 0.2.5 lets it be one short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.emulator.guest_cluster.cluster import ChartPod, GuestCluster
from windrow.emulator.guest_cluster.workloads.pod_lifecycle import is_active
from windrow.emulator.kit.informer import Informer
from windrow.kubernetes.objects import Raw, labels_of, namespace_of, nested, new_object, uid_of
from windrow.kubernetes.resources import DEPLOYMENT

CLOUD_PROVIDER = "harvester-cloud-provider"
CSI_DRIVER = "harvester-csi-driver"
CSI_CONTROLLERS = f"{CSI_DRIVER}-controllers"
NAME, INSTANCE = "app.kubernetes.io/name", "app.kubernetes.io/instance"
COMPONENT, _CONTROLLERS = (
    "component",
    "csi-controllers",
)  # of the CSI driver's, whose node pods have the name, too
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_HOSTNAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_APART_SINCE, _ONE_SHORT_SINCE = (0, 2, 2), (0, 2, 5)
# The image of each chart (reference/04 §8.4), from this version of the chart on.
_CLOUD_PROVIDER_IMAGES = {
    (0, 1, 1): "v0.1.1", (0, 1, 9): "v0.1.2", (0, 1, 11): "v0.1.3", (0, 1, 13): "v0.1.4", (0, 1, 14): "v0.1.5",
    (0, 2, 0): "v0.2.0", (0, 2, 7): "v0.2.4", (0, 2, 11): "v0.2.5", (0, 2, 12): "v0.2.6", (0, 2, 13): "v0.2.7",
    (0, 2, 15): "v0.2.8",
}  # fmt: skip
_CSI_DRIVER_IMAGES = {
    (0, 1, 1): "v0.1.1", (0, 1, 10): "v0.1.2", (0, 1, 11): "v0.1.3", (0, 1, 15): "v0.1.4", (0, 1, 16): "v0.1.5",
    (0, 1, 17): "v0.1.6", (0, 1, 18): "v0.1.7", (0, 1, 19): "v0.2.0", (0, 1, 20): "v0.2.1", (0, 1, 21): "v0.2.2",
    (0, 1, 24): "v0.2.3", (0, 1, 25): "v0.2.4", (0, 1, 26): "v0.2.6", (0, 1, 27): "v0.2.7", (0, 1, 28): "v0.2.8",
    (0, 1, 29): "v0.2.9",
}  # fmt: skip
_IMAGES = {CLOUD_PROVIDER: _CLOUD_PROVIDER_IMAGES, CSI_DRIVER: _CSI_DRIVER_IMAGES}


def chart_number(version: str) -> tuple[int, ...]:
    """The version of a bundled chart as numbers: 0.2.1100 is 0.2.11."""
    major, minor, patch = (int(part) for part in version.split("."))
    return (major, minor, patch // 100)


def _image(chart: str, number: tuple[int, ...], values: Mapping[str, Any]) -> str:
    found = [tag for since, tag in _IMAGES[chart].items() if not number or since <= number]
    registry = str(nested(values, "global", "cattle", "systemDefaultRegistry", default="") or "")
    return f"{registry and registry + '/'}rancher/{chart}:{found[-1] if found else 'v0.1.1'}"


def render_deployment(
    chart: str,
    number: tuple[int, ...],
    values: Mapping[str, Any],
    release: str,
    namespace: str,
    pod: ChartPod,
    arguments: list[str],
) -> Raw:
    """The Deployment of a chart of this version, () for the newest. It runs `pod` with these arguments."""
    labels = {NAME: chart, INSTANCE: release, **({COMPONENT: _CONTROLLERS} if chart == CSI_DRIVER else {})}
    spec: Raw = {
        "serviceAccountName": chart,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [dict(one) for one in pod.tolerations],
        "containers": [{"name": pod.name, "image": _image(chart, number, values), "args": arguments}],
    }
    deployment: Raw = {
        "replicas": int(values.get("replicasCount") or (1 if chart == CLOUD_PROVIDER else 3)),
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }
    if chart == CSI_DRIVER:
        terms = [{"matchExpressions": [{"key": _CONTROL_PLANE, "operator": "Exists"}]}]
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
    if chart == CLOUD_PROVIDER:
        spec["hostNetwork"] = True
        spec["volumes"] = [_credential_volume(values)]
        if not number or number >= _APART_SINCE:
            spec["affinity"] = values.get("affinity") or _apart(pod.name)
        if not number or number >= _ONE_SHORT_SINCE:
            deployment["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    notes = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace}
    labels = {**labels, "app.kubernetes.io/managed-by": "Helm"}
    return new_object(DEPLOYMENT, pod.name, namespace, labels=labels, annotations=notes, spec=deployment)


def _apart(name: str) -> Raw:
    expression = {"key": NAME, "operator": "In", "values": [name]}
    term = {"labelSelector": {"matchExpressions": [expression]}, "topologyKey": _HOSTNAME}
    return {"podAntiAffinity": {_REQUIRED: [term]}}


def _credential_volume(values: Mapping[str, Any]) -> Raw:
    secret = str(nested(values, "cloudConfig", "secretName", default="") or "")
    if secret:
        return {"name": "cloud-config", "secret": {"secretName": secret}}
    path = values.get("cloudConfigPath") or nested(values, "cloudConfig", "hostPath", default="")
    return {"name": "cloud-config", "hostPath": {"path": str(path), "type": "File"}}


class ChartLeaders:
    """Which pod's node runs the program of each chart. `on_pod` is called with each pod that has changed, or is gone."""

    def __init__(self, cluster: GuestCluster, pods: Informer) -> None:
        self._cluster, self._pods = cluster, pods
        self._by_name = pods.add_index(lambda raw: [("", name)] if (name := _name_of_chart(raw)) else [])

    def on_pod(self, raw: Raw) -> None:
        if name := _name_of_chart(raw):
            self._elect(name)

    def elect_all(self) -> None:
        """Once the pods are known: what another leading server had chosen may be gone."""
        for name in (CLOUD_PROVIDER, CSI_CONTROLLERS):
            self._elect(name)

    def _elect(self, name: str) -> None:
        pod = self._cluster.pods.get(name)
        if pod is None:
            return
        release = self._cluster.releases.get(pod.chart)
        found = sorted(self._by_name.get(("", name), ()))
        running = [one for one in map(self._pods.__getitem__, found) if _may_run(one)]
        running = [one for one in running if release and namespace_of(one) == release.target_namespace]
        leader = next((one for one in running if uid_of(one) == pod.uid), running[0] if running else None)
        node = str(nested(leader, "spec", "nodeName", default="")) if leader is not None else ""
        uid = uid_of(leader) if leader is not None else ""
        if (pod.node, pod.uid) != (node, uid):
            pod.generation += bool(pod.uid) and uid != pod.uid
            pod.node, pod.uid = node, uid
            self._cluster.changed.notify()


def _name_of_chart(raw: Raw) -> str:
    """The name of the chart's Deployment."""
    labels = labels_of(raw)
    name, component = labels.get(NAME, ""), labels.get(COMPONENT, "")
    if name == CSI_DRIVER and component == _CONTROLLERS:
        return CSI_CONTROLLERS
    return name if name == CLOUD_PROVIDER else ""


def _may_run(raw: Raw) -> bool:
    return bool(nested(raw, "spec", "nodeName")) and is_active(raw)
