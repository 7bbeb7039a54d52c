"""Execution of renewals of certificates: what is recorded of them. Machines restart in turns."""

from __future__ import annotations

from windrow.clusters.context import ReconcileContext
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.state import ClusterState
from windrow.core.clock import format_time


class CertificateRenewal:
    """One method for each action."""

    def __init__(self, context: ReconcileContext) -> None:
        self._context = context

    async def begin(self, action: do.BeginRenewal, state: ClusterState) -> None:
        now = self._context.clock.now()
        kind = "certificates" if action.makes_keys else "renewal"
        run = {
            "generation": action.generation,
            "id": f"{kind}-{action.generation}-{int(now.timestamp())}",
            "since": format_time(now),
            "newKeys": action.makes_keys or None,
            "services": list(action.services) or None,
            "expiryDate": None if action.expiry is None else format_time(action.expiry),
        }
        await self._context.patch_observed_cluster(state, {"certificateRotationRun": run})

    async def warn(self, action: do.WarnOfCertificates, state: ClusterState) -> None:
        said = {"expiryDate": format_time(action.expiry), "days": action.days}
        await self._context.patch_cluster_status(state, {"certificatesWarned": said})

    async def finish(self, generation: int, state: ClusterState) -> None:
        """What was done is kept for the condition; without an id nothing is under way."""
        change = {"certificateRotationGeneration": generation, "certificateRotationRun": {"id": None}}
        await self._context.patch_observed_cluster(state, change)
