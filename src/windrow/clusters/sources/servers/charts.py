"""Watches of the Harvester charts of a guest: open only while machines go to another version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windrow.bootstrap.charts import CLOUD_PROVIDER_CHART
from windrow.client.informer import Informer
from windrow.clusters.sources.servers.on_demand import OnDemandInformers
from windrow.clusters.sources.servers.snapshots import EndpointTransport
from windrow.clusters.updates.charts import (
    APP_NAME,
    CHART,
    NAMESPACE,
    ChartDeployment,
    ChartPod,
    ChartReplicaSet,
    HelmJob,
    ObservedCharts,
    read_chart_pod,
    read_deployment,
    read_helm_job,
    read_replica_set,
)
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.kubernetes.resources import DEPLOYMENT, JOB, POD, REPLICA_SET


class GuestCharts(OnDemandInformers):
    """The charts of one guest."""

    def __init__(
        self, transport: EndpointTransport, clock: Clock, rng: Rng, changed: Callable[[], None]
    ) -> None:
        def informer(kind: Any, read: Any, labels: str = "") -> Informer[Any]:
            return Informer(transport, kind, NAMESPACE, read, clock, rng, labels, on_state=changed)

        self._deployments: Informer[ChartDeployment] = informer(DEPLOYMENT, read_deployment)
        provider = f"{APP_NAME}={CLOUD_PROVIDER_CHART}"
        self._pods: Informer[ChartPod] = informer(POD, read_chart_pod, provider)
        self._replica_sets: Informer[ChartReplicaSet] = informer(REPLICA_SET, read_replica_set, provider)
        self._job_pods: Informer[ChartPod] = informer(POD, read_chart_pod, CHART)
        self._jobs: Informer[HelmJob] = informer(JOB, read_helm_job, CHART)
        watches = (self._deployments, self._replica_sets, self._pods, self._job_pods, self._jobs)
        super().__init__(transport, watches, changed)

    def observe(self) -> ObservedCharts | None:
        """What there is of the charts; None while it is not known."""
        if not self.is_watching:
            return None
        pods = [*self._pods.values(), *self._job_pods.values()]
        return ObservedCharts(
            tuple(sorted(self._deployments.values(), key=lambda one: one.name)),
            tuple(sorted(pods, key=lambda one: one.name)),
            tuple(sorted(self._jobs.values(), key=lambda one: one.name)),
            tuple(sorted(self._replica_sets.values(), key=lambda one: one.uid)),
        )
