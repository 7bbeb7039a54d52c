"""Certificates of nodes: new keys for them, which `rotateCertificates` asks for, and their renewal by a restart.

Both restart the service of the machines, one turn after the other. Leaf certificates are valid for 365 days; a start renews
those that end within 120 days (reference/10-day2 §2.7), and makes others only where `certificate rotate` was run before.
"""

from __future__ import annotations

from windrow.clusters.api.operations.rotations import RecordedRenewal
from windrow.clusters.plan.actions import PartialPlan
from windrow.clusters.plan.operations import restarts
from windrow.clusters.plan.operations.actions import BeginRenewal, FinishRenewal
from windrow.clusters.state import ClusterState

RENEWED = (
    "every service was restarted, which renews certificates within 120 days of their end (90 before v1.33.1, v1.32.5, v1.31.9 and "
    "v1.30.13); others stay as they are, and no new keys were made"
)


def begin(state: ClusterState, partial: PartialPlan) -> None:
    """Begin what `rotateCertificates` asks for, or wait."""
    operations = state.cluster.operations
    then = "the certificates of each machine get new keys"
    if missing := restarts.why_not_begin(state):
        partial.wait(missing, then)
        return
    why = f"rotateCertificates.generation is {operations.rotate_certificates}"
    partial.actions.append(
        BeginRenewal(why, operations.rotate_certificates, True, operations.certificate_services)
    )


def go_on(state: ClusterState, partial: PartialPlan) -> None:
    """Wait for the machines that have yet to restart; then it is over."""
    recorded, left = state.recorded.operations.renewal, restarts.list_not_restarted(state)
    if left:
        then = "all use the new certificates" if recorded.makes_keys else "what was near its end is renewed"
        partial.wait(f"{len(left)} machines to restart ({restarts.name_some(left)})", then)
        return
    partial.actions.append(FinishRenewal(describe_end(recorded), recorded.wanted))


def describe_end(recorded: RecordedRenewal) -> str:
    """What has been done to the certificates."""
    if not recorded.makes_keys:
        return RENEWED
    of = f"of {', '.join(recorded.services)}" if recorded.services else "of every service"
    return f"new certificates {of} were made, with new keys, and the services restarted"
