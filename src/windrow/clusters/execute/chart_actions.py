"""Execution of the cure of a stalled rollout in the guest. Both may be repeated."""

from __future__ import annotations

from typing import Any

from windrow.clusters.api.names import STALLED_ROLLOUT
from windrow.clusters.context import StalePlan
from windrow.clusters.plan import actions as do
from windrow.clusters.sources.guest_api import GuestConnection
from windrow.clusters.updates.charts import NAMESPACE
from windrow.kubernetes.errors import Conflict, NotFound
from windrow.kubernetes.resources import DEPLOYMENT, POD


async def relax_rollout(action: do.RelaxRollout, connection: GuestConnection) -> None:
    """The rollout may be one pod short. Raises StalePlan where the Deployment was changed meanwhile."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    await _patch(action.deployment, action.resource_version, {"spec": {"strategy": strategy}}, connection)


async def delete_stalled_pod(action: do.DeleteStalledPod, connection: GuestConnection) -> None:
    """First the Deployment says that it is done, so that it is done no more often than is allowed. Raises StalePlan where the
    Deployment was changed meanwhile."""
    record = {"metadata": {"annotations": {STALLED_ROLLOUT: action.record}}}
    await _patch(action.deployment, action.resource_version, record, connection)
    try:
        await connection.client.delete(POD.ref(action.pod, NAMESPACE), uid=action.uid)
    except (NotFound, Conflict):
        return  # it is gone, or another one has its name


async def _patch(name: str, version: str, change: dict[str, Any], connection: GuestConnection) -> None:
    metadata = {**change.get("metadata", {}), "resourceVersion": version}
    try:
        await connection.client.patch(DEPLOYMENT.ref(name, NAMESPACE), {**change, "metadata": metadata})
    except (Conflict, NotFound) as error:
        raise StalePlan from error
