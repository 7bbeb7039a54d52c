"""Harvester's charts (reference/02 §7, 04 §4.3-4.4), cloud provider and CSI driver: RKE2 bundles them, and a HelmChart
may name them.

Installing a chart makes its Deployment, and is reported as done without waiting for its rollout. Its one simulated program is
started by name, with the arguments that the chart renders, on the node of a pod of that Deployment.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from windrow.core.formats.yaml import NotYaml, load
from windrow.emulator.guest_cluster.cluster import (
    EVERY_NODE,
    ChartPod,
    ChartRelease,
    GuestCluster,
    MountFailed,
)
from windrow.emulator.guest_cluster.components.chart_workloads import (
    CLOUD_PROVIDER,
    CSI_CONTROLLERS,
    CSI_DRIVER,
    chart_number,
    render_deployment,
)
from windrow.emulator.guest_cluster.components.helm_jobs import (
    bundled_chart_versions,
    chart_url,
    finish_job,
    is_job_active,
    run_until_installed,
    start_job,
    wait_for_node,
)
from windrow.emulator.guest_cluster.csi.kinds import CSI_DRIVER as CSI_DRIVER_OBJECT
from windrow.emulator.guest_cluster.csi.kinds import SNAPSHOT_CLASS
from windrow.emulator.guest_cluster.csi.registrar import run_registrar
from windrow.emulator.guest_cluster.csi.side_cars import run_controller_side_cars
from windrow.emulator.guest_cluster.distribution.helm_crds import HELM_CHART, HELM_CHART_CONFIG
from windrow.emulator.guest_cluster.kube_vip.settings import DEFAULTS as VIP_DEFAULTS
from windrow.emulator.guest_cluster.kube_vip.settings import KubeVipSettings, read_kube_vip_settings
from windrow.emulator.guest_cluster.server_context import ServerContext
from windrow.emulator.guest_cluster.service_accounts import ensure_service_account
from windrow.emulator.guest_os.hardware import File
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.objects import annotations_of, name_of, nested, new_object
from windrow.kubernetes.resources import CRD, DEPLOYMENT, SECRET, STORAGE_CLASS, ApiResource

Raw = dict[str, Any]
NAMESPACE = "kube-system"
BUNDLED_URL = "helm.cattle.io/chart-url"  # the annotation of a chart that comes with the distribution
# Mount paths of the credential in the pods.
CLOUD_CONFIG = "/etc/kubernetes/cloud-config"
CSI_CONFIG = "/var/lib/harvester/cloud-provider-config"
CSI_PLUGIN = "driver.harvesterhci.io"
CSI_CONTROLLER_SOCKET = "/csi/csi.sock"
CSI_NODE_SOCKET = f"/var/lib/kubelet/harvester-plugins/{CSI_PLUGIN}/csi.sock"

_ALL_BUT_DELETE = ["get", "watch", "list", "update", "create", "patch"]
# What the charts' roles allow. The cloud provider's lacks `delete` of nodes (reference/02 §7.1), so the Nodes of
# deleted VMs stay until another client deletes them.
_ROLE_RULES: Mapping[str, list[Raw]] = {
    CLOUD_PROVIDER: [
        {"apiGroups": [""], "resources": ["services", "nodes", "events"], "verbs": _ALL_BUT_DELETE},
        {"apiGroups": [""], "resources": ["nodes/status", "services/status"], "verbs": ["update", "patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update", "create"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "verbs": ["get", "list", "watch", "create", "update"],
        },
    ],
    CSI_DRIVER: [
        {"apiGroups": [""], "resources": ["nodes", "events", "secrets", "pods"], "verbs": _ALL_BUT_DELETE},
        {
            "apiGroups": ["", "storage.k8s.io", "snapshot.storage.k8s.io", "coordination.k8s.io"],
            "resources": ["*"],
            "verbs": [*_ALL_BUT_DELETE, "delete"],
        },
    ],
}

_TOLERATIONS: tuple[Mapping[str, Any], ...] = (
    {
        "key": "node.cloudprovider.kubernetes.io/uninitialized",
        "operator": "Equal",
        "value": "true",
        "effect": "NoSchedule",
    },
    {"key": "node-role.kubernetes.io/control-plane", "operator": "Equal", "effect": "NoSchedule"},
    {"key": "node-role.kubernetes.io/etcd", "operator": "Equal", "effect": "NoExecute"},
    {"key": "cattle.io/os", "operator": "Equal", "value": "linux", "effect": "NoSchedule"},
)
_CSI_TOLERATIONS = (
    {"key": "kubevirt.io/drain", "operator": "Exists", "effect": "NoSchedule"},
    *_TOLERATIONS[1:],
)


def default_values(chart: str, data_directory: str) -> Raw:
    """The chart's own values, the ones that matter here."""
    directory = f"{data_directory}/etc/config-files"
    if chart == CSI_DRIVER:
        config = {"secretName": "", "secretKey": "cloud-provider-config", "hostPath": f"{directory}/"}
        return {"cloudConfig": config, "hostStorageClass": ""}
    # The charts are built for RKE2's standard data directory; another one has to be set in the values.
    path = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"
    return {
        "cloudConfigPath": path,
        "cloudConfig": {"secretName": "", "secretKey": "cloud-config", "hostPath": path},
        "global": {"cattle": {"clusterName": ""}},
        "kube-vip": VIP_DEFAULTS,
        "extraArgs": [],
    }


def merge_values(base: Mapping[str, Any], over: Mapping[str, Any]) -> Raw:
    """Helm's merge: maps are merged, everything else is replaced, null removes."""
    merged = dict(base)
    for key, value in over.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge_values(merged[key], value)
        else:
            merged[key] = value
    return merged


def render_arguments(values: Mapping[str, Any]) -> list[str]:
    """The cloud provider's command line."""
    arguments = [CLOUD_PROVIDER, f"--cloud-config={CLOUD_CONFIG}"]
    if name := nested(values, "global", "cattle", "clusterName", default=""):
        arguments.append(f"--cluster-name={name}")
    return [*arguments, *(str(one) for one in values.get("extraArgs") or ())]


async def deploy_bundled_charts(context: ServerContext) -> None:
    """Install the charts of `cloud-provider-name: harvester`, again with those of the server that started last; until cancelled.
    May be repeated."""
    guest, cluster, settings = context.guest, context.cluster, context.settings
    if settings.cloud_provider != "harvester":
        return
    await guest.sleep(guest.delays.chart)
    while True:
        await cluster.wait_usable()
        release = cluster.last_started
        for chart, version in zip((CLOUD_PROVIDER, CSI_DRIVER), bundled_chart_versions(release), strict=True):
            if chart not in settings.list("disable"):
                await _deploy(context, chart, version)
        cluster.changed.notify()
        await cluster.changed.wait_for(lambda: cluster.last_started != release)  # noqa: B023


async def _deploy(context: ServerContext, chart: str, version: str) -> None:
    """Have one bundled chart installed in that version."""
    guest, cluster, settings = context.guest, context.cluster, context.settings
    url = chart_url(chart, version)
    before = await cluster.client().find(HELM_CHART.ref(chart, NAMESPACE))
    is_bootstrap = chart == CLOUD_PROVIDER
    raw = new_object(
        HELM_CHART,
        chart,
        NAMESPACE,
        annotations={BUNDLED_URL: url},
        spec={"bootstrap": is_bootstrap, "targetNamespace": NAMESPACE, "set": {}},
    )
    await cluster.ensure(HELM_CHART, raw)
    defaults = default_values(chart, settings.data_directory)
    number = chart_number(version)
    cluster.releases[chart] = ChartRelease(chart, NAMESPACE, NAMESPACE, defaults, number=number)
    is_same = before is not None and annotations_of(before).get(BUNDLED_URL) == url
    if is_same and not await is_job_active(cluster, chart, NAMESPACE):
        await run_until_installed(guest, cluster, chart, NAMESPACE, lambda: install_chart(context, chart))
        return  # another server leads
    if not is_same:
        await start_job(cluster, chart, NAMESPACE, url)
    if before is not None:
        await wait_for_node(guest, cluster, chart, is_bootstrap=is_bootstrap)
        await guest.sleep(guest.delays.chart)
    await run_until_installed(guest, cluster, chart, NAMESPACE, lambda: install_chart(context, chart))
    if before is not None:
        restart_daemons(cluster, chart)
    await finish_job(cluster, chart, NAMESPACE)
    cluster.changed.notify()


def restart_daemons(cluster: GuestCluster, chart: str) -> None:
    """The pods that a chart has on each node are replaced."""
    for pod in cluster.pods_of(chart):
        pod.generation += pod.node == EVERY_NODE


async def install_chart(context: ServerContext, chart: str) -> None:
    """Make what the chart of a release holds, and have its program run. May be repeated; raises NotYaml."""
    guest, cluster = context.guest, context.cluster
    await ensure_service_account(cluster, chart, _ROLE_RULES[chart])
    if chart == CSI_DRIVER:
        await _make_storage_objects(cluster)
    if chart in context.programs:
        for pod in _list_pods(cluster, chart):
            cluster.pods.setdefault(pod.name, pod)
    else:
        guest.log("helm", f"chart {chart} is installed; its program is not simulated")
    await apply_deployment(cluster, chart)
    if chart == CLOUD_PROVIDER:
        await update_vip_settings(cluster)


async def apply_deployment(cluster: GuestCluster, chart: str) -> None:
    """The Deployment of an installed chart as its values are now; what others have set beside that stays, as with helm. Raises
    NotYaml."""
    release, values = cluster.releases[chart], await read_values(cluster, chart)
    pod = _list_pods(cluster, chart)[0]
    render = _render_csi_arguments if chart == CSI_DRIVER else render_arguments
    namespace = release.target_namespace
    raw = render_deployment(chart, release.number, values, release.name, namespace, pod, render(values)[1:])
    await cluster.ensure(DEPLOYMENT, raw)


async def uninstall_chart(cluster: GuestCluster, chart: str) -> None:
    """Delete the Deployment of a release and end its programs. Its account, its role and its StorageClass stay."""
    release = cluster.releases.pop(chart, None)
    if release is not None:
        name = CSI_CONTROLLERS if chart == CSI_DRIVER else chart
        with contextlib.suppress(NotFound):
            ref = DEPLOYMENT.ref(name, release.target_namespace)
            await cluster.client().delete(ref, propagation="Background")
    for pod in cluster.pods_of(chart):
        del cluster.pods[pod.name]
        pod.node = ""
    if chart == CLOUD_PROVIDER:
        cluster.vip_settings = None
        cluster.vip_changed.notify()
    cluster.changed.notify()


async def update_vip_settings(cluster: GuestCluster) -> None:
    """Apply the chart's values to kube-vip on every node. May be repeated."""
    try:
        vip = read_kube_vip_settings(await read_values(cluster, CLOUD_PROVIDER))
    except NotYaml:
        vip = KubeVipSettings(enabled=False)
    if vip != cluster.vip_settings:
        cluster.vip_settings = vip
        cluster.vip_changed.notify()


async def read_values(cluster: GuestCluster, chart: str) -> Raw:
    """The values of a chart as its HelmChart and its HelmChartConfig change them. Raises NotYaml."""
    release = cluster.releases.get(chart)
    if release is None:
        return {}
    values: Raw = dict(release.defaults)
    wanted: Mapping[str, Any] = {}
    for kind in (HELM_CHART, HELM_CHART_CONFIG):
        raw = await cluster.client().find(kind.ref(release.name, release.namespace))
        over = load(str(nested(raw, "spec", "valuesContent", default="") or "")) if raw else None
        values = merge_values(values, over) if isinstance(over, Mapping) else values
        wanted = nested(raw, "spec", "set", default={}) or {} if raw and kind == HELM_CHART else wanted
    values = apply_set(values, wanted)
    return {key: value for key, value in values.items() if key not in release.ignored}


def apply_set(values: Mapping[str, Any], wanted: Mapping[str, Any]) -> Raw:
    """The values with those of `spec.set`, whose keys are paths, as `helm --set` writes them."""
    merged: Raw = dict(values)
    for path, value in wanted.items():
        keys, place = str(path).split("."), merged
        for key in keys[:-1]:
            inner = place.get(key)
            place[key] = place = dict(inner) if isinstance(inner, Mapping) else {}
        typed = {"true": True, "false": False, "null": None}
        place[keys[-1]] = typed.get(value, value) if isinstance(value, str) else value
    return merged


def _list_pods(cluster: GuestCluster, chart: str) -> list[ChartPod]:
    """The pods of a chart. Those of the CSI driver are the controller with its side-cars, which has the credential for
    Harvester, and one on each node, which has none: so the chart of this repository has them."""
    if chart == CLOUD_PROVIDER:
        return [_cloud_provider_pod(cluster)]
    return [_csi_controller_pod(cluster), _csi_node_pod(cluster)]


def _cloud_provider_pod(cluster: GuestCluster) -> ChartPod:
    async def command(node: str) -> Sequence[str]:
        return render_arguments(await _read_valid_values(cluster, CLOUD_PROVIDER))

    async def mount(guest: GuestOS) -> Mapping[str, File]:
        return {CLOUD_CONFIG: await _mount_credential(guest, cluster, CLOUD_PROVIDER)}

    return ChartPod(CLOUD_PROVIDER, CLOUD_PROVIDER, command, mount, _TOLERATIONS)


def _csi_controller_pod(cluster: GuestCluster) -> ChartPod:
    async def command(node: str) -> Sequence[str]:
        return _render_csi_arguments(await _read_valid_values(cluster, CSI_DRIVER))

    async def mount(guest: GuestOS) -> Mapping[str, File]:
        return {CSI_CONFIG: await _mount_credential(guest, cluster, CSI_DRIVER)}

    async def side_cars(guest: GuestOS, node: str) -> None:
        await run_controller_side_cars(guest, cluster, CSI_CONTROLLER_SOCKET)

    return ChartPod(CSI_CONTROLLERS, CSI_DRIVER, command, mount, _CSI_TOLERATIONS, side_cars=side_cars)


def _render_csi_arguments(values: Mapping[str, Any]) -> list[str]:
    """The command line of the CSI driver's controller."""
    host_class = values.get("hostStorageClass")
    arguments = [CSI_DRIVER, f"--endpoint=unix://{CSI_CONTROLLER_SOCKET}", f"--kubeconfig={CSI_CONFIG}"]
    return [*arguments, *([f"--host-storage-class={host_class}"] if host_class else [])]


def _csi_node_pod(cluster: GuestCluster) -> ChartPod:
    async def command(node: str) -> Sequence[str]:
        return [CSI_DRIVER, f"--nodeid={node}", f"--endpoint=unix://{CSI_NODE_SOCKET}"]

    async def mount(guest: GuestOS) -> Mapping[str, File]:
        return {}

    async def side_cars(guest: GuestOS, node: str) -> None:
        await run_registrar(guest, cluster, node, CSI_NODE_SOCKET)

    return ChartPod(CSI_DRIVER, CSI_DRIVER, command, mount, _CSI_TOLERATIONS, EVERY_NODE, side_cars=side_cars)


async def _read_valid_values(cluster: GuestCluster, chart: str) -> Raw:
    """The values of a chart that is installed. Raises MountFailed, since its pod does not start."""
    await cluster.wait_usable()
    try:
        return await read_values(cluster, chart)
    except NotYaml as error:
        raise MountFailed(f"HelmChartConfig {chart}: valuesContent is not YAML: {error}") from error


async def _mount_credential(guest: GuestOS, cluster: GuestCluster, chart: str) -> File:
    found = await _read_valid_values(cluster, chart)
    release = cluster.releases.get(chart)
    namespace = release.target_namespace if release is not None else NAMESPACE
    return await _credential(guest, cluster, found, namespace)


async def _credential(
    guest: GuestOS, cluster: GuestCluster, values: Mapping[str, Any], namespace: str
) -> File:
    secret = str(nested(values, "cloudConfig", "secretName", default=""))
    if secret:
        key = str(nested(values, "cloudConfig", "secretKey", default="cloud-config"))
        raw = await cluster.client().find(SECRET.ref(secret, namespace))
        if raw is None:
            raise MountFailed(
                f'MountVolume.SetUp failed for volume "cloud-config": secret "{secret}" not found'
            )
        if key not in (raw.get("data") or {}):
            raise MountFailed(
                f'MountVolume.SetUp failed for volume "cloud-config": references non-existent secret key: {key}'
            )
        return File(base64.b64decode(raw["data"][key]), 0o600)  # mounted by subPath: not updated in the pod
    path = str(values.get("cloudConfigPath") or nested(values, "cloudConfig", "hostPath", default=""))
    file = guest.find(path + "cloud-provider-config" if path.endswith("/") else path)
    if file is None:
        raise MountFailed(
            f'MountVolume.SetUp failed for volume "cloud-config": hostPath type check failed: {path} is not a file'
        )
    return file  # the node's own file: changes are visible in the pod


async def _make_storage_objects(cluster: GuestCluster) -> None:
    """The StorageClass, the CSIDriver, and the VolumeSnapshotClass where there is the API for it. What is there stays."""
    made: list[tuple[ApiResource, Raw]] = [
        (
            STORAGE_CLASS,
            new_object(
                STORAGE_CLASS,
                "harvester",
                annotations={"storageclass.kubernetes.io/is-default-class": "true"},
                provisioner=CSI_PLUGIN,
                reclaimPolicy="Delete",
                volumeBindingMode="Immediate",
                allowVolumeExpansion=True,
            ),
        ),
        (
            CSI_DRIVER_OBJECT,
            new_object(
                CSI_DRIVER_OBJECT,
                CSI_PLUGIN,
                spec={
                    "attachRequired": True,
                    "podInfoOnMount": True,
                    "fsGroupPolicy": "ReadWriteOnceWithFSType",
                    "volumeLifecycleModes": ["Persistent"],
                },
            ),
        ),
    ]
    if await cluster.client().find(CRD.ref(SNAPSHOT_CLASS.group_resource)) is not None:
        snapshot_class = new_object(
            SNAPSHOT_CLASS,
            "harvester-snapshot",
            annotations={"snapshot.storage.kubernetes.io/is-default-class": "true"},
            driver=CSI_PLUGIN,
            deletionPolicy="Delete",
        )
        made.append((SNAPSHOT_CLASS, snapshot_class))
    for kind, raw in made:
        if await cluster.client().find(kind.ref(name_of(raw))) is None:
            await cluster.ensure(kind, raw)
