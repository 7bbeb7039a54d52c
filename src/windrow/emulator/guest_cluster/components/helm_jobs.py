"""The Jobs of the helm controller, `helm-install-<chart>`, and the charts that a release of RKE2 bundles.

Nothing runs in such a Job: the controller that made it says when it is done, so it is marked as managed by that one. It has a
pod only while that says something: why it has no node, or why it crashes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

from windrow.core.clock import format_time
from windrow.core.formats.json import dumps
from windrow.core.formats.version import Version
from windrow.core.formats.yaml import NotYaml
from windrow.core.rng import Rng
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.distribution.helm_crds import HELM_CHART
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.scheduling import find_obstacle
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.objects import Raw, labels_of, nested, new_object, owner_reference
from windrow.kubernetes.resources import JOB, NODE, POD

MANAGER = "helm.cattle.io/helm-controller"
_CHART = "helmcharts.helm.cattle.io/chart"  # the label of Jobs and their pods
_IMAGE = "rancher/klipper-helm:v0.9.10-build20251111"
# Which charts of the cloud provider and of the CSI driver a release has, from which patch of its line on (reference/04 §8.3).
_BUNDLED: Mapping[int, tuple[tuple[int, str, str], ...]] = {
    26: ((0, "0.1.1300", "0.1.1100"), (1, "0.1.1400", "0.1.1500"), (3, "0.1.1400", "0.1.1600"), (6, "0.2.200", "0.1.1600"), (14, "0.2.200", "0.1.1700")),
    27: ((0, "0.1.1400", "0.1.1600"), (3, "0.2.200", "0.1.1600"), (11, "0.2.200", "0.1.1700"), (13, "0.2.300", "0.1.1700"), (15, "0.2.400", "0.1.1700")),
    28: ((0, "0.2.200", "0.1.1600"), (7, "0.2.200", "0.1.1700"), (9, "0.2.300", "0.1.1700"), (11, "0.2.400", "0.1.1700"), (13, "0.2.400", "0.1.1800"), (14, "0.2.600", "0.1.1800"), (15, "0.2.600", "0.1.2000")),
    29: ((0, "0.2.200", "0.1.1700"), (4, "0.2.300", "0.1.1700"), (6, "0.2.400", "0.1.1700"), (8, "0.2.400", "0.1.1800"), (9, "0.2.600", "0.1.1800"), (10, "0.2.600", "0.1.2000"), (12, "0.2.600", "0.1.2100"), (13, "0.2.900", "0.1.2200"), (14, "0.2.900", "0.1.2300")),
    30: ((0, "0.2.300", "0.1.1700"), (2, "0.2.400", "0.1.1700"), (5, "0.2.600", "0.1.1800"), (9, "0.2.900", "0.1.2200")),
    31: ((0, "0.2.600", "0.1.1800"), (5, "0.2.900", "0.1.2200"), (9, "0.2.1000", "0.1.2300"), (14, "0.2.1100", "0.1.2500")),
    32: ((0, "0.2.600", "0.1.2100"), (1, "0.2.900", "0.1.2200"), (5, "0.2.1000", "0.1.2300"), (10, "0.2.1100", "0.1.2500")),
    33: ((0, "0.2.900", "0.1.2300"), (1, "0.2.1000", "0.1.2300"), (6, "0.2.1100", "0.1.2500"), (13, "0.2.1400", "0.1.3000")),
    34: ((0, "0.2.1000", "0.1.2300"), (2, "0.2.1100", "0.1.2500"), (7, "0.2.1100", "0.1.2800"), (10, "0.2.1400", "0.1.3000")),
    35: ((0, "0.2.1100", "0.1.2500"), (4, "0.2.1100", "0.1.2800"), (7, "0.2.1400", "0.1.3000")),
    36: ((0, "0.2.1100", "0.1.2800"), (3, "0.2.1400", "0.1.3000")),
}  # fmt: skip


# Every pod tolerates these for a while.
_DEFAULT_TOLERATIONS = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
)
_JOB_SPEC: Mapping[str, Any] = {
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": _DEFAULT_TOLERATIONS,
}
_BOOTSTRAP_SPEC: Mapping[str, Any] = {
    "nodeSelector": {"kubernetes.io/os": "linux", "node-role.kubernetes.io/control-plane": "true"},
    "tolerations": [
        *_DEFAULT_TOLERATIONS,
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {
            "key": "node.cloudprovider.kubernetes.io/uninitialized",
            "operator": "Equal",
            "value": "true",
            "effect": "NoSchedule",
        },
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
        {"key": "node-role.kubernetes.io/etcd", "operator": "Exists", "effect": "NoExecute"},
        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
    ],
}


async def wait_for_node(
    guest: GuestOS, cluster: GuestCluster, chart: str, *, is_bootstrap: bool, namespace: str = "kube-system"
) -> None:
    """Return once the pod of the chart's Job can be scheduled."""
    spec = _BOOTSTRAP_SPEC if is_bootstrap else _JOB_SPEC
    while True:
        await cluster.wait_usable()
        nodes = await cluster.client().list(NODE)
        obstacles = [_find_job_obstacle(spec, node, is_bootstrap) for node in nodes]
        if "" in obstacles:
            await _hide_pod(cluster, chart, namespace)
            return
        counted = sorted(Counter(obstacles).items())
        found = ", ".join(f"{count} {obstacle}" for obstacle, count in counted)
        message = f"0/{len(nodes)} nodes are available: {found}."
        guest.log("helm", f"helm-install-{chart}: {message}")
        await _show_pod(cluster, chart, namespace, _unscheduled(message, cluster.clock.now()))
        await cluster.changed.wait()


def _find_job_obstacle(spec: Mapping[str, Any], node: Raw, is_bootstrap: bool) -> str:
    """Why the install job cannot run on the Node, "" where it can."""
    taints = nested(node, "spec", "taints", default=[])
    cordoned = bool(nested(node, "spec", "unschedulable"))
    if obstacle := find_obstacle(spec, labels_of(node), taints, cordoned=cordoned):
        return obstacle
    is_ready = is_true(nested(node, "status", "conditions"), "Ready")
    # Jobs of bootstrap charts use the host's network, which is there before the network plugin.
    return "" if is_ready or is_bootstrap else "node(s) were not ready"


def bundled_chart_versions(release: Version) -> tuple[str, str]:
    """The versions of the cloud provider's chart and of the CSI driver's; older lines are taken for the oldest here."""
    patches = _BUNDLED.get(release.minor) or _BUNDLED[min(_BUNDLED)]
    found = [(provider, csi) for patch, provider, csi in patches if patch <= release.patch]
    return found[-1]


def chart_url(chart: str, version: str) -> str:
    return f"https://rke2-charts.rancher.io/assets/{chart}/{chart}-{version}.tgz"


async def start_job(cluster: GuestCluster, chart: str, namespace: str, config: Any) -> None:
    """Make the Job of a chart, in place of the one that ran for another configuration. Raises KubeError."""
    digest = hashlib.sha256(dumps(config)).hexdigest().upper()
    local, ref = cluster.client(), JOB.ref(f"helm-install-{chart}", namespace)
    with contextlib.suppress(NotFound):
        await local.delete(ref, propagation="Background")
    raw = _render(chart, namespace, f"SHA256={digest}", await local.find(HELM_CHART.ref(chart, namespace)))
    now = cluster.clock.now()
    await cluster.api.ensure_system_object(JOB, raw, Rng(f"{cluster.uid} {ref} {now.isoformat()}"))
    await _set_status(cluster, chart, namespace, {"active": 1, "startTime": format_time(now)})


async def is_job_active(cluster: GuestCluster, chart: str, namespace: str) -> bool:
    """Whether the Job of a chart has begun and not ended: the server that led before may be gone. Raises KubeError."""
    raw = await cluster.client().find(JOB.ref(f"helm-install-{chart}", namespace))
    return bool(nested(raw, "status", "active"))


async def run_until_installed(
    guest: GuestOS, cluster: GuestCluster, chart: str, namespace: str, install: Callable[[], Awaitable[None]]
) -> None:
    """Have the pod of the Job install the chart, again after each crash."""
    backoff = guest.delays.crash_backoff
    while True:
        try:
            return await install()
        except NotYaml as error:
            message = f"Error: failed to parse the values as YAML: {error}"
            guest.log("helm", f"helm-install-{chart}: {message}")
            await show_crash(cluster, chart, namespace, message)
        await guest.sleep(backoff)
        backoff = min(backoff * 2, guest.delays.crash_backoff_limit)


async def finish_job(cluster: GuestCluster, chart: str, namespace: str) -> None:
    """The Job of a chart has done its work. Raises KubeError."""
    await _hide_pod(cluster, chart, namespace)
    at = format_time(cluster.clock.now())
    conditions = [
        {"type": type, "status": "True", "lastProbeTime": at, "lastTransitionTime": at, "reason": "CompletionsReached",
         "message": "Reached expected number of succeeded pods"}
        for type in ("SuccessCriteriaMet", "Complete")
    ]  # fmt: skip
    await _set_status(
        cluster,
        chart,
        namespace,
        {"active": None, "succeeded": 1, "completionTime": at, "conditions": conditions},
    )


async def remove_job(cluster: GuestCluster, chart: str, namespace: str) -> None:
    """The chart is gone. May be repeated; raises KubeError."""
    await _hide_pod(cluster, chart, namespace)
    with contextlib.suppress(NotFound):
        await cluster.client().delete(JOB.ref(f"helm-install-{chart}", namespace), propagation="Background")


# -- its pod, while that says something


def is_helm_pod(raw: Raw) -> bool:
    """Whether the pod is one of these, on which no other controller acts."""
    return _CHART in labels_of(raw)


async def show_crash(cluster: GuestCluster, chart: str, namespace: str, message: str) -> None:
    """The pod of the Job has crashed with these words, and waits to be started again. Raises KubeError."""
    told = {"exitCode": 1, "reason": "Error", "message": message}
    waiting = {
        "reason": "CrashLoopBackOff",
        "message": f"back-off restarting failed container helm in pod helm-install-{chart}",
    }
    container = {"name": "helm", "image": _IMAGE, "imageID": "", "ready": False, "restartCount": 1}
    container |= {"state": {"waiting": waiting}, "lastState": {"terminated": told}}
    await _show_pod(cluster, chart, namespace, {"phase": "Running", "containerStatuses": [container]})


def _unscheduled(message: str, now: datetime) -> Raw:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [{**condition, "lastTransitionTime": format_time(now)}]}


async def _show_pod(cluster: GuestCluster, chart: str, namespace: str, status: Raw) -> None:
    ref = POD.ref(f"helm-install-{chart}-0", namespace)
    found = await cluster.client().find(ref)
    if found is None:
        owner = await cluster.client().find(JOB.ref(f"helm-install-{chart}", namespace))
        if owner is None:
            return
        job = owner["metadata"]["name"]
        labels = {_CHART: chart, "job-name": job, "batch.kubernetes.io/job-name": job}
        spec = nested(owner, "spec", "template", "spec", default={})
        owners = [owner_reference(JOB, owner, controller=True, block=True)]
        raw = new_object(POD, ref.name, namespace, labels=labels, owners=owners, spec=spec)
        seed = f"{cluster.uid} {ref} {cluster.clock.now().isoformat()}"
        await cluster.api.ensure_system_object(POD, raw, Rng(seed))
    before = nested(found, "status", "conditions", default=[])
    if before and before[0].get("message") == nested(status, "conditions", default=[{}])[0].get("message"):
        return
    await cluster.edit(ref, lambda raw: raw.update(status=status), subresource="status")


async def _hide_pod(cluster: GuestCluster, chart: str, namespace: str) -> None:
    ref = POD.ref(f"helm-install-{chart}-0", namespace)
    with contextlib.suppress(NotFound):
        if await cluster.client().find(ref) is not None:
            await cluster.client().delete(ref, grace_s=0)


async def _set_status(cluster: GuestCluster, chart: str, namespace: str, status: Raw) -> None:
    def edit(raw: Raw) -> None:
        merged = {**(raw.get("status") or {}), **status}
        raw["status"] = {key: value for key, value in merged.items() if value is not None}

    await cluster.edit(JOB.ref(f"helm-install-{chart}", namespace), edit, subresource="status")


def _render(chart: str, namespace: str, digest: str, owner: Raw | None) -> Raw:
    name = f"helm-install-{chart}"
    labels = {_CHART: chart}
    pod = {
        "restartPolicy": "OnFailure",
        "serviceAccountName": f"helm-{chart}",
        "containers": [{"name": "helm", "image": _IMAGE, "args": ["install"]}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    raw = new_object(
        JOB,
        name,
        namespace,
        labels=labels,
        annotations={"helmcharts.helm.cattle.io/configHash": digest},
        spec={"backoffLimit": 1000, "managedBy": MANAGER, "template": template},
    )
    if owner is not None:
        head = {
            "name": chart,
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        raw["metadata"]["ownerReferences"] = [
            {"apiVersion": HELM_CHART.api_version, "kind": "HelmChart", **head}
        ]
    return raw
