"""Watches of the Harvester charts of a guest: open only while machines go to another version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from windrow.bootstrap.charts import CLOUD_PROVIDER_CHART
from windrow.client.informer import Informer
from windrow.clusters.sources.servers.snapshots import EndpointTransport
from windrow.clusters.updates.charts import (
    APP_NAME,
    CHART,
    NAMESPACE,
    ChartDeployment,
    ChartPod,
    HelmJob,
    ObservedCharts,
    read_chart_pod,
    read_deployment,
    read_helm_job,
)
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.kubernetes.resources import DEPLOYMENT, JOB, POD


class GuestCharts:
    """The charts of one guest. `changed` is called at each change; `run` is its owner's task."""

    def __init__(
        self, transport: EndpointTransport, clock: Clock, rng: Rng, changed: Callable[[], None]
    ) -> None:
        self._transport, self._changed = transport, changed
        self._followed, self._ended = asyncio.Event(), asyncio.Event()
        self._ended.set()

        def informer(kind: Any, read: Any, labels: str = "") -> Informer[Any]:
            return Informer(transport, kind, NAMESPACE, read, clock, rng, labels, on_state=changed)

        self._deployments: Informer[ChartDeployment] = informer(DEPLOYMENT, read_deployment)
        self._pods: Informer[ChartPod] = informer(POD, read_chart_pod, f"{APP_NAME}={CLOUD_PROVIDER_CHART}")
        self._job_pods: Informer[ChartPod] = informer(POD, read_chart_pod, CHART)
        self._jobs: Informer[HelmJob] = informer(JOB, read_helm_job, CHART)

    @property
    def _informers(self) -> tuple[Informer[Any], ...]:
        return (self._deployments, self._pods, self._job_pods, self._jobs)

    def set_endpoints(self, urls: tuple[str, ...]) -> None:
        self._transport.set_endpoints(urls)

    def follow(self, wanted: bool) -> None:
        """Open the watches, or close them."""
        if wanted:
            self._ended.clear()
            self._followed.set()
        else:
            self._followed.clear()
            self._ended.set()

    def observe(self) -> ObservedCharts | None:
        """What there is of the charts; None while it is not known."""
        if not (self._followed.is_set() and all(one.is_watching for one in self._informers)):
            return None
        pods = [*self._pods.values(), *self._job_pods.values()]
        return ObservedCharts(
            tuple(sorted(self._deployments.values(), key=lambda one: one.name)),
            tuple(sorted(pods, key=lambda one: one.name)),
            tuple(sorted(self._jobs.values(), key=lambda one: one.name)),
        )

    async def run(self) -> None:
        """Watch while that is wanted, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for one in self._informers:
                group.create_task(self._forward(one.changes()))
            while True:
                await self._followed.wait()
                await self._watch()

    async def _watch(self) -> None:
        watches = [asyncio.ensure_future(one.run()) for one in self._informers]
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({*watches, ended}, return_when=asyncio.FIRST_COMPLETED)
            for watch in watches:
                if watch.done():
                    watch.result()  # it only ends by a defect, which is raised here
        finally:
            for task in (*watches, ended):
                task.cancel()
            await asyncio.gather(*watches, ended, return_exceptions=True)

    async def _forward(self, changes: AsyncIterator[Any]) -> None:
        async for _ in changes:
            self._changed()
