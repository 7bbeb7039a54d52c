"""RKE2's static pods as the API has them: a mirror pod of each component of the control plane, and of kube-proxy.

They run from manifests on the node's disk, which the program writes at each start: with another image or other arguments the
pod is another one. Nothing but the kubelet writes them; the deletion of one changes nothing on the node. They go with
their Node. K3s has none: its components run in the service's own process.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from windrow.core.clock import format_time
from windrow.core.formats.version import Version
from windrow.core.rng import Rng
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.containers.images import etcd_image, kubernetes_image
from windrow.emulator.guest_cluster.distribution.distribution import Settings
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.objects import Raw, annotations_of, new_object, uid_of
from windrow.kubernetes.resources import NODE, POD

MIRROR = "kubernetes.io/config.mirror"
_NAMESPACE = "kube-system"
COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "cloud-controller-manager",
    "kube-proxy",
)


@dataclass(frozen=True, slots=True)
class StaticPod:
    """One component on one node. `hash` is that of its manifest."""

    component: str
    image: str
    hash: str

    def name(self, node: str) -> str:
        return f"{self.component}-{node}"


def list_static_pods(
    settings: Settings, version: Version, *, is_etcd: bool, no_proxy: bool
) -> list[StaticPod]:
    """Those of a node with these settings."""
    if version.distribution != "rke2":
        return []
    return [
        StaticPod(component, image, _hash(component, image, settings))
        for component, image in _components(settings, version, is_etcd, no_proxy)
    ]


def _components(
    settings: Settings, version: Version, is_etcd: bool, no_proxy: bool
) -> Iterator[tuple[str, str]]:
    image = kubernetes_image(version)
    if settings.role == "server":
        if settings.runs_etcd and is_etcd:
            yield "etcd", settings.text("etcd-image") or etcd_image(version)
        for component, flag in (
            ("kube-apiserver", "disable-apiserver"),
            ("kube-controller-manager", "disable-controller-manager"),
            ("kube-scheduler", "disable-scheduler"),
        ):
            if not settings.is_true(flag):
                yield component, settings.text(f"{component}-image") or image
        if not settings.is_true("disable-cloud-controller") and not settings.cloud_provider:
            tag = image.rpartition(":")[2].partition("-build")[0]
            yield "cloud-controller-manager", f"rancher/rke2-cloud-provider:{tag}"
    if not no_proxy:
        yield "kube-proxy", settings.text("kube-proxy-image") or image


def _hash(component: str, image: str, settings: Settings) -> str:
    given = (settings.flags.get(f"{component}-arg", ()), settings.flags.get(f"{component}-extra-env", ()))
    return hashlib.md5(repr((component, image, given)).encode(), usedforsecurity=False).hexdigest()


async def mirror_static_pods(
    cluster: GuestCluster, node: str, pods: list[StaticPod], address: str, now: datetime
) -> None:
    """Make the mirror pods of a node, and take away what it runs no more. May be repeated; raises KubeError."""
    local = cluster.client()
    owner = await local.find(NODE.ref(node))
    if owner is None or not (pods or await _list_mirrors(cluster, node)):
        return
    wanted = {pod.name(node): pod for pod in pods}
    for raw in await _list_mirrors(cluster, node):
        pod = wanted.get(raw["metadata"]["name"])
        if pod is None or annotations_of(raw).get(MIRROR) != pod.hash:
            await remove(cluster, raw)
    for name, pod in wanted.items():
        if await local.find(POD.ref(name, _NAMESPACE)) is None:
            raw = render_mirror_pod(pod, owner, now)
            await cluster.api.ensure_system_object(POD, raw, Rng(f"{cluster.uid} {name} {now.isoformat()}"))
        edit = partial(_set_status, render_status(pod, address, now))
        await cluster.edit(POD.ref(name, _NAMESPACE), edit, subresource="status")


def _set_status(status: Raw, raw: Raw) -> None:
    raw["status"] = status


async def remove_mirror_pods(cluster: GuestCluster, node: str) -> None:
    """The Node is gone. May be repeated."""
    for raw in await _list_mirrors(cluster, node):
        await remove(cluster, raw)


async def _list_mirrors(cluster: GuestCluster, node: str) -> list[Raw]:
    found = [await cluster.client().find(POD.ref(f"{one}-{node}", _NAMESPACE)) for one in COMPONENTS]
    return [raw for raw in found if raw is not None and MIRROR in annotations_of(raw)]


async def remove(cluster: GuestCluster, raw: Raw) -> None:
    with contextlib.suppress(NotFound):
        await cluster.client().delete(POD.ref(raw["metadata"]["name"], _NAMESPACE), grace_s=0)


def render_mirror_pod(pod: StaticPod, node: Raw, now: datetime) -> Raw:
    name = node["metadata"]["name"]
    raw = new_object(
        POD,
        pod.name(name),
        _NAMESPACE,
        labels={"component": pod.component, "tier": "control-plane"},
        annotations={
            "kubernetes.io/config.hash": pod.hash,
            MIRROR: pod.hash,
            "kubernetes.io/config.seen": format_time(now),
            "kubernetes.io/config.source": "file",
        },
        spec={
            "nodeName": name,
            "hostNetwork": True,
            "priorityClassName": "system-cluster-critical",
            "tolerations": [{"effect": "NoExecute", "operator": "Exists"}],
            "containers": [{"name": pod.component, "image": f"index.docker.io/{pod.image}"}],
        },
    )
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid_of(node), "controller": True}
    raw["metadata"]["ownerReferences"] = [owner]
    return raw


def render_status(pod: StaticPod, address: str, now: datetime) -> Raw:
    """It runs and is ready, since the API that is asked to store this does."""
    at = format_time(now)
    words = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    image = f"index.docker.io/{pod.image}"
    return {
        "phase": "Running",
        "hostIP": address,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": at,
        "conditions": [{"type": word, "status": "True", "lastTransitionTime": at} for word in words],
        "containerStatuses": [
            {
                "name": pod.component,
                "image": image,
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": at}},
                "lastState": {},
            }
        ],
    }


def is_mirror(pod: Raw) -> bool:
    return MIRROR in annotations_of(pod)
