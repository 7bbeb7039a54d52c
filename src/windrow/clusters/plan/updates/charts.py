"""The Harvester charts of a release: what holds them, and the cure of a rollout that never ends by itself.

A server that starts with another release installs its charts. Those of the cloud provider from 0.2.2 to 0.2.4 keep their
pods on different Nodes, while their rollout may not be a pod short: with as many pods as Nodes the new pod finds none and
the old one stays, for ever. 1. the rollout is allowed to be one pod short, which lasts until helm runs again; 2. where a
new pod still finds no Node after a minute, an old one is deleted, at most MAX_DELETIONS times for one revision, each of
which is recorded on the Deployment before.

Nothing of this holds another machine's turn. The upgrade as a whole ends once the charts are installed, or are not after
CHARTS_TIMEOUT: then it ends, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta

from windrow.clusters.plan.actions import DeleteStalledPod, PartialPlan, RelaxRollout
from windrow.clusters.state import ClusterState
from windrow.clusters.updates.charts import NAMESPACE, ChartDeployment, ChartPod, ObservedCharts

# How long a new pod may find no Node before an old one is deleted, and how often that is done for one revision.
STALL_TIMEOUT, MAX_DELETIONS = timedelta(seconds=60), 3
# After the last server's turn: how soon the Jobs of its charts have begun, and until when they are waited for.
JOBS_BEGIN, CHARTS_TIMEOUT = timedelta(seconds=30), timedelta(minutes=10)


def is_upgrading(state: ClusterState) -> bool:
    """Whether machines go to another version, or have gone and the upgrade has not ended: only then charts are watched."""
    running = state.recorded.version
    versions = {machine.record.version for machine in state.active}
    versions |= {machine.record.update.version for machine in state.active if machine.record.update}
    return bool(running) and versions - {running, ""} != set()


def plan(state: ClusterState) -> PartialPlan:
    """The cure of stalled rollouts."""
    partial = PartialPlan()
    if state.charts is None or not state.guest.is_reachable:
        return partial
    for deployment in state.charts.deployments:
        _cure(deployment, state.charts, state, partial)
    return partial


def _cure(
    deployment: ChartDeployment, charts: ObservedCharts, state: ClusterState, partial: PartialPlan
) -> None:
    stalled = find_stalled_pod(deployment, charts)
    if stalled is None:
        return
    old = next((one for one in list_old_pods(stalled, deployment, charts) if not one.is_deleting), None)
    why = f"Pod {NAMESPACE}/{stalled.name}: {stalled.problem}"
    if may_not_be_short(deployment):
        partial.actions.append(RelaxRollout(why, deployment.name, deployment.resource_version))
    elif old is not None and (deleted := count_deletions(deployment)) < MAX_DELETIONS:
        due = (stalled.since or state.now) + STALL_TIMEOUT
        if state.now < due:
            then = f"Pod {NAMESPACE}/{old.name} is deleted"
            partial.wait(
                f"Pod {NAMESPACE}/{stalled.name} to be scheduled ({stalled.problem})", then, until=due
            )
            return
        record = f"{deployment.revision}/{deleted + 1}"
        partial.actions.append(
            DeleteStalledPod(why, deployment.name, deployment.resource_version, old.name, old.uid, record)
        )


def find_stalled_pod(deployment: ChartDeployment, charts: ObservedCharts) -> ChartPod | None:
    """A new pod of a rollout that no Node takes since an old pod is there: so the new ReplicaSet exists."""
    if deployment.is_rolled_out:
        return None
    own = charts.list_pods_of(deployment) if deployment.name == deployment.chart else []
    return next((one for one in own if one.is_kept_apart and list_old_pods(one, deployment, charts)), None)


def list_old_pods(stalled: ChartPod, deployment: ChartDeployment, charts: ObservedCharts) -> list[ChartPod]:
    """The Deployment's own pods of other templates that have a Node."""
    own = charts.list_pods_of(deployment)
    return [one for one in own if one.template != stalled.template and one.has_node]


def may_not_be_short(deployment: ChartDeployment) -> bool:
    """Whether its rollout keeps all pods until there are new ones: maxUnavailable is rounded down, 25 % where it is not set."""
    return deployment.rolls and _pods(deployment.max_unavailable, deployment.replicas) == 0


def _pods(bound: int | str | None, replicas: int) -> int:
    if isinstance(bound, int):
        return bound
    text = (bound or "25%").removesuffix("%")
    return math.floor(replicas * int(text) / 100) if text.isdecimal() and len(text) < 4 else 0


def count_deletions(deployment: ChartDeployment) -> int:
    """How many old pods were deleted for its present revision."""
    revision, _, count = deployment.deletions.partition("/")
    is_known = revision == deployment.revision and count.isdecimal() and len(count) < 3
    return int(count) if is_known else 0


# -- what holds them ---------------------------------------------------------------------------------------------


def list_blockers(charts: ObservedCharts) -> Iterator[str]:
    """What is not installed yet, and why."""
    for job in charts.jobs:
        if not job.is_complete:
            pod = next((one for one in charts.pods if one.chart == job.chart and one.problem), None)
            why = f" (Pod {pod.name}: {pod.problem})" if pod is not None else ""
            yield f"Job {NAMESPACE}/{job.name} to complete{why}"
    for deployment in charts.deployments:
        if not deployment.is_rolled_out:
            stalled = find_stalled_pod(deployment, charts)
            why = f" (Pod {stalled.name}: {stalled.problem})" if stalled is not None else ""
            yield f"Deployment {NAMESPACE}/{deployment.name} to be rolled out{why}"


def find_unfinished(state: ClusterState) -> tuple[str, datetime | None]:
    """What of the charts the end of an upgrade waits for, and until when: "" for nothing. After that time it is what is still
    missing, and None."""
    ended = max((one for machine in state.active if (one := _turn_ended(machine.name, state))), default=None)
    if ended is None:
        return "", None
    last = ended + CHARTS_TIMEOUT
    until = last if state.now < last else None
    if state.charts is None:
        return "the Harvester charts of the release to be listed", until
    if blocker := next(list_blockers(state.charts), ""):
        return blocker, until
    begun = ended + JOBS_BEGIN
    if state.charts != ObservedCharts() and state.now < begun:
        return "the Jobs of the release's charts to begin", begun
    return "", None


def _turn_ended(name: str, state: ClusterState) -> datetime | None:
    """When a server's last turn ended; None where it never had one, or has no API server."""
    machine = state.machines_by_name[name]
    condition = machine.record.find_condition("Updating")
    if condition is None or not machine.record.is_control_plane:
        return None
    return condition.since if condition.status == "False" else state.now
