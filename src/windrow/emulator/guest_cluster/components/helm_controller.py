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
    apply_deployment,
    default_values,
    install_chart,
    merge_values,
    restart_daemons,
    uninstall_chart,
    update_vip_settings,
)
from windrow.emulator.guest_cluster.cluster import ChartRelease
from windrow.emulator.guest_cluster.components.chart_workloads import CLOUD_PROVIDER, CSI_DRIVER
from windrow.emulator.guest_cluster.components.helm_archive import Chart, ChartNotFound, find_chart
from windrow.emulator.guest_cluster.components.helm_jobs import (
    finish_job,
    remove_job,
    run_until_installed,
    show_crash,
    start_job,
    wait_for_node,
)
from windrow.emulator.guest_cluster.components.packaged import TRAEFIK, find_packaged_chart, install_traefik
from windrow.emulator.guest_cluster.distribution.helm_crds import HELM_CHART, HELM_CHART_CONFIG
from windrow.emulator.guest_cluster.server_context import ServerContext
from windrow.emulator.kit.listers import Key, key_of
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, annotations_of, name_of, namespace_of, nested, new_object
from windrow.kubernetes.resources import NAMESPACE

_SECRET_NAME_SINCE = (0, 2, 12)  # charts of the cloud provider before it know a path only


class HelmController:
    """The controller on the leading server. `run` ends by cancellation only."""

    def __init__(self, context: ServerContext) -> None:
        self.context = context
        self.guest = context.guest
        self.cluster = context.cluster
        self.settings = context.settings
        self._jobs: dict[Key, asyncio.Task[None]] = {}
        self._specs: dict[Key, Raw] = {}
        self._reruns: dict[Key, asyncio.Task[None]] = {}  # for another HelmChartConfig

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_charts(group))
            group.create_task(self._watch_configs(group))

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
        await remove_job(self.cluster, name_of(raw), namespace_of(raw))
        for chart, release in list(self.cluster.releases.items()):
            if (release.namespace, release.name) == key:
                await uninstall_chart(self.cluster, chart)
                self.guest.log("helm", f"release {release.name} is uninstalled")

    async def _run_job(self, raw: Raw) -> None:
        delays, name, spec = self.guest.delays, name_of(raw), nested(raw, "spec", default={})
        backoff = delays.crash_backoff
        await self._report(raw, "")
        await start_job(self.cluster, name, namespace_of(raw), spec)
        is_bootstrap = bool(spec.get("bootstrap"))
        await wait_for_node(
            self.guest, self.cluster, name, is_bootstrap=is_bootstrap, namespace=namespace_of(raw)
        )
        while True:
            await self.guest.sleep(delays.chart)
            await self.cluster.wait_usable()
            try:
                await self._install(raw, self._find_chart(spec))
            except (ChartNotFound, NotYaml, KubeError) as error:
                self.guest.log("helm", f"helm-install-{name}: {error}")
                await self._report(raw, str(error))
                await show_crash(self.cluster, name, namespace_of(raw), str(error))
                await self.guest.sleep(backoff)
                backoff = min(backoff * 2, delays.crash_backoff_limit)
                continue
            self.cluster.helm_specs[key_of(raw)] = spec
            await finish_job(self.cluster, name, namespace_of(raw))
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
            release = ChartRelease(name, namespace, target, defaults, ignored, chart.number)
            known = self.cluster.releases.get(chart.name)
            if known is not None and (known.namespace, known.name) != (namespace, name):
                self.guest.log("helm", f"{name}: not simulated: a second release of the chart {chart.name}")
                return
            self.cluster.releases[chart.name] = release
            await install_chart(self.context, chart.name)
            if known is not None:
                restart_daemons(self.cluster, chart.name)
        elif chart.name == TRAEFIK:
            await install_traefik(self.cluster, target)
        else:
            self.guest.log("helm", f"chart {chart.name} is installed; its program is not simulated")
        self.guest.log("helm", f"release {name} of the chart {chart.name} {chart.version} is deployed")
        self.cluster.changed.notify()

    # -- HelmChartConfigs

    async def _watch_configs(self, group: asyncio.TaskGroup) -> None:
        """Run a chart's Job again when its HelmChartConfig changes."""
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
                    if known.get(key) != spec:
                        self._start_rerun(key, spec, group)
                    else:
                        await self._update_vip(key)
                    known[key] = spec
            await self.guest.sleep(1)

    def _start_rerun(self, key: Key, spec: Raw | None, group: asyncio.TaskGroup) -> None:
        if (running := self._reruns.get(key)) is not None:
            running.cancel()
        for chart, release in self.cluster.releases.items():
            if (release.namespace, release.name) == key:
                self._reruns[key] = group.create_task(self._rerun(chart, key, spec))

    async def _rerun(self, chart: str, key: Key, spec: Raw | None) -> None:
        namespace, name = key
        await start_job(self.cluster, name, namespace, spec)
        found = await self.cluster.client().find(HELM_CHART.ref(name, namespace))
        is_bootstrap = bool(nested(found, "spec", "bootstrap"))
        await wait_for_node(self.guest, self.cluster, name, is_bootstrap=is_bootstrap, namespace=namespace)
        await run_until_installed(
            self.guest, self.cluster, name, namespace, lambda: apply_deployment(self.cluster, chart)
        )
        restart_daemons(self.cluster, chart)
        self.cluster.changed.notify()
        await self._update_vip(key)
        await finish_job(self.cluster, name, namespace)

    async def _update_vip(self, key: Key) -> None:
        release = self.cluster.releases.get(CLOUD_PROVIDER)
        if release is not None and (release.namespace, release.name) == key:
            await update_vip_settings(self.cluster)
