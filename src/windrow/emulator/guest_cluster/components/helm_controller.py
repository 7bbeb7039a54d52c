"""The helm controller of RKE2 and K3s: HelmCharts and their HelmChartConfigs become installed charts.

A chart whose program the emulator has is run; others are stored and logged. The install job of a chart needs a Node:
with `bootstrap` one of the control plane, initialised or not, without it one that takes pods, so that a cloud provider
without `bootstrap` waits for the Nodes that wait for it (reference/10-day2 §4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from windrow.core.formats.yaml import NotYaml
from windrow.emulator.guest_cluster.charts import (
    BUNDLED_URL,
    CLOUD_PROVIDER,
    CSI_DRIVER,
    default_values,
    install_chart,
    merge_values,
    read_values,
    uninstall_chart,
    update_vip_settings,
)
from windrow.emulator.guest_cluster.cluster import ChartRelease
from windrow.emulator.guest_cluster.components.helm_archive import Chart, ChartNotFound, find_chart
from windrow.emulator.guest_cluster.components.packaged import TRAEFIK, find_packaged_chart, install_traefik
from windrow.emulator.guest_cluster.distribution.helm_crds import HELM_CHART, HELM_CHART_CONFIG
from windrow.emulator.guest_cluster.server_context import ServerContext
from windrow.emulator.kit.listers import Key, key_of
from windrow.emulator.kit.scheduling import find_obstacle
from windrow.kubernetes.conditions import Condition, is_true, set_condition
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, nested, new_object
from windrow.kubernetes.resources import NAMESPACE, NODE

_SECRET_NAME_SINCE = (0, 2, 12)  # charts of the cloud provider before it know a path only
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


class HelmController:
    """The controller on the leading server. `run` ends by cancellation only."""

    def __init__(self, context: ServerContext) -> None:
        self.context = context
        self.guest = context.guest
        self.cluster = context.cluster
        self.settings = context.settings
        self._jobs: dict[Key, asyncio.Task[None]] = {}
        self._specs: dict[Key, Raw] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_charts(group))
            group.create_task(self._watch_configs())

    # -- HelmCharts

    async def _watch_charts(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self.cluster.wait_usable()
            async with self.cluster.client().watch(HELM_CHART) as events:
                async for event in events:
                    if event.type == "DELETED":
                        await self._delete(event.object)
                    elif event.type in ("ADDED", "MODIFIED"):
                        self._start_job(event.object, group)
            await self.guest.sleep(1)

    def _start_job(self, raw: Raw, group: asyncio.TaskGroup) -> None:
        key, spec = key_of(raw), nested(raw, "spec", default={})
        if BUNDLED_URL in annotations_of(raw) or self._specs.get(key) == spec:
            return
        self._specs[key] = spec
        if (running := self._jobs.get(key)) is not None:
            running.cancel()
        if self.cluster.helm_specs.get(key) != spec:
            self._jobs[key] = group.create_task(self._run_job(raw), name=f"helm-install-{name_of(raw)}")

    async def _delete(self, raw: Raw) -> None:
        key = key_of(raw)
        self._specs.pop(key, None)
        self.cluster.helm_specs.pop(key, None)
        if (running := self._jobs.pop(key, None)) is not None:
            running.cancel()
        for chart, release in list(self.cluster.releases.items()):
            if (release.namespace, release.name) == key:
                uninstall_chart(self.cluster, chart)
                self.guest.log("helm", f"release {release.name} is uninstalled")

    async def _run_job(self, raw: Raw) -> None:
        delays, name, spec = self.guest.delays, name_of(raw), nested(raw, "spec", default={})
        backoff = delays.crash_backoff
        await self._report(raw, "")
        await self._wait_for_node(name, bool(spec.get("bootstrap")))
        while True:
            await self.guest.sleep(delays.chart)
            await self.cluster.wait_usable()
            try:
                await self._install(raw, self._find_chart(spec))
            except (ChartNotFound, NotYaml, KubeError) as error:
                self.guest.log("helm", f"helm-install-{name}: {error}")
                await self._report(raw, str(error))
                await self.guest.sleep(backoff)
                backoff = min(backoff * 2, delays.crash_backoff_limit)
                continue
            self.cluster.helm_specs[key_of(raw)] = spec
            await self._report(raw, "")
            return

    async def _report(self, raw: Raw, failure: str) -> None:
        name, now = name_of(raw), self.guest.now()
        reason = "HelmError" if failure else "JobCreated"
        conditions = (
            Condition("JobCreated", "True", "JobCreated", "Applying HelmChart using Job"),
            Condition("Failed", "True" if failure else "False", reason, failure),
        )

        def edit(found: Raw) -> None:
            status = found.setdefault("status", {})
            status["jobName"] = f"helm-install-{name}"
            for one in conditions:
                status["conditions"] = set_condition(status.get("conditions"), one, now)

        await self.cluster.edit(
            HELM_CHART.ref(name, raw["metadata"]["namespace"]), edit, subresource="status"
        )

    async def _wait_for_node(self, name: str, is_bootstrap: bool) -> None:
        spec = _BOOTSTRAP_SPEC if is_bootstrap else _JOB_SPEC
        while True:
            await self.cluster.wait_usable()
            nodes = await self.cluster.client().list(NODE)
            obstacles = [_find_job_obstacle(spec, node, is_bootstrap) for node in nodes]
            if "" in obstacles:
                return
            found = "; ".join(sorted(set(obstacles)))
            self.guest.log("helm", f"helm-install-{name}: 0/{len(nodes)} nodes are available: {found}")
            await self.cluster.changed.wait()

    def _find_chart(self, spec: Mapping[str, Any]) -> Chart:
        packaged = find_packaged_chart(str(spec.get("chart") or ""))
        directory = f"{self.settings.data_directory}/server/static"
        return packaged or find_chart(spec, lambda path: self.guest.read(f"{directory}/{path}"))

    async def _install(self, raw: Raw, chart: Chart) -> None:
        """Raises NotYaml, KubeError."""
        name, namespace = name_of(raw), raw["metadata"]["namespace"]
        target = str(nested(raw, "spec", "targetNamespace", default="") or namespace)
        if nested(raw, "spec", "createNamespace"):
            await self.cluster.ensure(NAMESPACE, new_object(NAMESPACE, target))
        if chart.name in (CLOUD_PROVIDER, CSI_DRIVER):
            defaults = merge_values(default_values(chart.name, self.settings.data_directory), chart.values)
            if chart.name == CLOUD_PROVIDER and () < chart.number < _SECRET_NAME_SINCE:
                defaults["cloudConfig"] = {}
            ignored = frozenset({"cloudConfig"}) if defaults.get("cloudConfig") == {} else frozenset()
            release = ChartRelease(name, namespace, target, defaults, ignored)
            known = self.cluster.releases.get(chart.name)
            if known is not None and (known.namespace, known.name) != (namespace, name):
                self.guest.log("helm", f"{name}: not simulated: a second release of the chart {chart.name}")
                return
            self.cluster.releases[chart.name] = release
            await read_values(self.cluster, chart.name)
            await install_chart(self.context, chart.name)
            if known is not None:
                for pod in self.cluster.pods_of(chart.name):
                    pod.generation += 1
        elif chart.name == TRAEFIK:
            await install_traefik(self.cluster, target)
        else:
            self.guest.log("helm", f"chart {chart.name} is installed; its program is not simulated")
        self.guest.log("helm", f"release {name} of the chart {chart.name} {chart.version} is deployed")
        self.cluster.changed.notify()

    # -- HelmChartConfigs

    async def _watch_configs(self) -> None:
        """Replace a chart's pod when its HelmChartConfig changes."""
        while True:
            await self.cluster.wait_usable()
            known = {
                key_of(raw): nested(raw, "spec")
                for raw in await self.cluster.client().list(HELM_CHART_CONFIG)
            }
            async with self.cluster.client().watch(HELM_CHART_CONFIG) as events:
                async for event in events:
                    if event.type not in ("ADDED", "MODIFIED"):
                        continue
                    key, spec = key_of(event.object), nested(event.object, "spec")
                    await self._apply_config(key, is_changed=known.get(key) != spec)
                    known[key] = spec
            await self.guest.sleep(1)

    async def _apply_config(self, key: Key, *, is_changed: bool) -> None:
        for chart, release in list(self.cluster.releases.items()):
            if (release.namespace, release.name) != key:
                continue
            if is_changed:
                for pod in self.cluster.pods_of(chart):
                    pod.generation += 1
                self.cluster.changed.notify()
            if chart == CLOUD_PROVIDER:
                await update_vip_settings(self.cluster)


def _find_job_obstacle(spec: Mapping[str, Any], node: Raw, is_bootstrap: bool) -> str:
    """Why the install job cannot run on the Node, "" where it can."""
    taints = nested(node, "spec", "taints", default=[])
    cordoned = bool(nested(node, "spec", "unschedulable"))
    if obstacle := find_obstacle(spec, labels_of(node), taints, cordoned=cordoned):
        return obstacle
    is_ready = is_true(nested(node, "status", "conditions"), "Ready")
    # Jobs of bootstrap charts use the host's network, which is there before the network plugin.
    return "" if is_ready or is_bootstrap else "node(s) were not ready"
