"""What the guest shows of the Harvester charts while a release is installed: their Deployments, the cloud provider's pods, and
the Jobs of the helm controller with theirs.

All of it is written by the guest: texts are bounded and in one line, and what cannot be read is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from windrow.bootstrap.charts import CLOUD_PROVIDER_CHART, CSI_DRIVER_CHART
from windrow.clusters.api.names import STALLED_ROLLOUT
from windrow.core.text import one_line
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import (
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    nested,
    objects_at,
    time_of,
    uid_of,
)
from windrow.kubernetes.resources import DEPLOYMENT, REPLICA_SET, ApiResource

NAMESPACE = "kube-system"
CSI_CONTROLLERS = f"{CSI_DRIVER_CHART}-controllers"
# Which chart each Deployment is of.
DEPLOYMENTS = {CLOUD_PROVIDER_CHART: CLOUD_PROVIDER_CHART, CSI_CONTROLLERS: CSI_DRIVER_CHART}
CHART = "helmcharts.helm.cattle.io/chart"  # the label of Jobs of the helm controller, and of their pods
APP_NAME = "app.kubernetes.io/name"
RELEASE_NAME, RELEASE_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
TEMPLATE_HASH = "pod-template-hash"
MAX_MESSAGE = 300
NO_ANTI_AFFINITY = "didn't match pod anti-affinity rules"


@dataclass(frozen=True, slots=True)
class ChartDeployment:
    """A Deployment of a chart. `max_unavailable` is as it is written, None where it is not; `deletions` says
    how many stalled pods of which revision have been deleted."""

    name: str
    replicas: int = 1
    updated: int = 0
    total: int = 0
    available: int = 0
    is_observed: bool = True  # whether its status is of its present spec
    max_unavailable: int | str | None = None
    rolls: bool = True  # strategy RollingUpdate
    revision: str = ""
    deletions: str = ""
    uid: str = ""
    resource_version: str = field(default="", compare=False)

    @property
    def is_rolled_out(self) -> bool:
        """All pods are of its present template, and serve."""
        return self.is_observed and self.updated == self.total == self.replicas <= self.available

    @property
    def chart(self) -> str:
        return DEPLOYMENTS[self.name]


@dataclass(frozen=True, slots=True)
class ChartPod:
    """A pod of the cloud provider, or of a helm Job. `problem` says why it does not run; `since` is since when it has no node."""

    name: str
    uid: str = ""
    chart: str = ""  # of the helm Job; "" for a pod of the cloud provider
    template: str = ""
    problem: str = ""
    since: datetime | None = None
    has_node: bool = False
    is_deleting: bool = False
    replica_set: str = ""  # the uid of the ReplicaSet that controls it
    resource_version: str = field(default="", compare=False)

    @property
    def is_kept_apart(self) -> bool:
        """Whether no Node takes it since another pod is there."""
        return NO_ANTI_AFFINITY in self.problem and not self.has_node and not self.is_deleting


@dataclass(frozen=True, slots=True)
class ChartReplicaSet:
    """A ReplicaSet of the cloud provider; `deployment` is the uid of the Deployment that controls it."""

    uid: str
    deployment: str
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class HelmJob:
    """A Job of the helm controller for one of the charts."""

    name: str
    chart: str
    is_complete: bool
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ObservedCharts:
    """Everything of the charts, each in the order of names."""

    deployments: tuple[ChartDeployment, ...] = ()
    pods: tuple[ChartPod, ...] = ()
    jobs: tuple[HelmJob, ...] = ()
    replica_sets: tuple[ChartReplicaSet, ...] = ()

    def list_pods_of(self, deployment: ChartDeployment) -> list[ChartPod]:
        """The pods that the Deployment made: a label alone, which anyone can give a pod, makes none its own."""
        sets = {one.uid for one in self.replica_sets if one.deployment == deployment.uid != ""}
        return [one for one in self.pods if one.replica_set in sets]


def read_deployment(raw: Mapping[str, Any]) -> ChartDeployment | None:
    """None for a Deployment that no release of these charts owns, or goes."""
    if name_of(raw) not in DEPLOYMENTS or is_deleting(raw) or not _is_of_release(raw):
        return None
    return ChartDeployment(
        name_of(raw),
        _number(nested(raw, "spec", "replicas"), 1),
        _number(nested(raw, "status", "updatedReplicas")),
        _number(nested(raw, "status", "replicas")),
        _number(nested(raw, "status", "availableReplicas")),
        _number(nested(raw, "status", "observedGeneration"))
        >= _number(nested(raw, "metadata", "generation")),
        _bound(nested(raw, "spec", "strategy", "rollingUpdate", "maxUnavailable")),
        nested(raw, "spec", "strategy", "type", default="RollingUpdate") == "RollingUpdate",
        _text(annotations_of(raw).get("deployment.kubernetes.io/revision")),
        _text(annotations_of(raw).get(STALLED_ROLLOUT)),
        uid_of(raw),
        str(nested(raw, "metadata", "resourceVersion", default="")),
    )


def _is_of_release(raw: Mapping[str, Any]) -> bool:
    """Whether helm says that it made it, for the release that the helm controller names as the chart."""
    notes = annotations_of(raw)
    release = (notes.get(RELEASE_NAMESPACE), notes.get(RELEASE_NAME))
    return release == (NAMESPACE, DEPLOYMENTS[name_of(raw)])


def _number(value: Any, default: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def _bound(value: Any) -> int | str | None:
    if isinstance(value, str):
        return _text(value)
    return _number(value) if value is not None else None


def _text(value: Any) -> str:
    return one_line(str(value or "")[:MAX_MESSAGE], MAX_MESSAGE)


def read_chart_pod(raw: Mapping[str, Any]) -> ChartPod | None:
    labels = labels_of(raw)
    chart = labels.get(CHART, "")
    if chart not in ("", *DEPLOYMENTS.values()):
        return None
    scheduled = next(
        (one for one in objects_at(raw, "status", "conditions") if one.get("type") == "PodScheduled"), {}
    )
    return ChartPod(
        name_of(raw),
        uid_of(raw),
        chart,
        str(labels.get(TEMPLATE_HASH) or ""),
        _find_problem(raw, scheduled),
        time_of(scheduled, "lastTransitionTime")
        or time_of(nested(raw, "metadata", default={}), "creationTimestamp"),
        bool(nested(raw, "spec", "nodeName")),
        is_deleting(raw),
        _find_controller(raw, REPLICA_SET),
        str(nested(raw, "metadata", "resourceVersion", default="")),
    )


def read_replica_set(raw: Mapping[str, Any]) -> ChartReplicaSet | None:
    """None for one that no Deployment controls."""
    deployment = _find_controller(raw, DEPLOYMENT)
    version = str(nested(raw, "metadata", "resourceVersion", default=""))
    return ChartReplicaSet(uid_of(raw), deployment, version) if deployment else None


def _find_controller(raw: Mapping[str, Any], kind: ApiResource) -> str:
    """The uid of the object of this kind that controls it; "" where none does."""
    for one in objects_at(raw, "metadata", "ownerReferences"):
        if one.get("controller") is True:
            is_of_kind = (one.get("apiVersion"), one.get("kind")) == (kind.api_version, kind.kind)
            return str(one.get("uid") or "") if is_of_kind else ""
    return ""


def _find_problem(raw: Mapping[str, Any], scheduled: Mapping[str, Any]) -> str:
    """Why the pod has no node, or why its containers do not run: with what they said last."""
    if scheduled.get("status") == "False":
        return _text(scheduled.get("message") or scheduled.get("reason"))
    for container in objects_at(raw, "status", "containerStatuses"):
        reason = str(nested(container, "state", "waiting", "reason", default="") or "")
        if reason in ("", "ContainerCreating", "PodInitializing"):
            continue
        said = nested(container, "lastState", "terminated", "message", default="")
        said = said or nested(container, "state", "waiting", "message", default="")
        return _text(f"{reason}: {said}" if said else reason)
    return ""


def read_helm_job(raw: Mapping[str, Any]) -> HelmJob | None:
    chart = labels_of(raw).get(CHART, "")
    if chart not in DEPLOYMENTS.values() or is_deleting(raw):
        return None
    done = is_true(nested(raw, "status", "conditions"), "Complete")
    version = str(nested(raw, "metadata", "resourceVersion", default=""))
    return HelmJob(name_of(raw), chart, done, version)
