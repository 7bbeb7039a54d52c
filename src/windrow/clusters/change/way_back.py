"""The snapshot that leads back to the release of before an upgrade: Kubernetes itself cannot go back in place."""

from __future__ import annotations

from dataclasses import replace

from windrow.clusters.api.updates.turn import read_upgrade_snapshot
from windrow.clusters.api.version_steps import read_version
from windrow.clusters.state import ClusterState
from windrow.core.formats.version import Version
from windrow.machines.port import Problem


def name_way_back(problem: Problem, state: ClusterState) -> Problem:
    """The refusal of a lower version, with the command that restores the snapshot of before the upgrade, where that is in S3 and
    leads there: a new first server installs the release that it was made with, which has to be of the wanted minor and not
    newer. Else the problem as it is."""
    made = read_upgrade_snapshot(state.recorded.raw)
    wanted, upgraded = read_version(state.cluster.version), read_version(made.version)
    if not made.name or wanted is None or upgraded is None or not wanted < upgraded:
        return problem
    known = (one for one in state.snapshots if one.file.snapshot == made.name and one.file.s3 is not None)
    snapshot = next((one for one in known if one.file.is_ready and one.openable != "False"), None)
    if snapshot is None or not _leads_to(wanted, read_version(snapshot.version)):
        return problem
    cluster = f"{state.cluster.namespace}/{state.cluster.name}"
    command = f"windrow restore {cluster} {snapshot.name} --config kubernetesVersion"
    return replace(
        problem,
        hint=f"{problem.hint}; that of before the upgrade to {made.version}, made with {snapshot.version}: {command}",
    )


def _leads_to(wanted: Version, restored: Version | None) -> bool:
    """Whether the wanted version is the restored one, or a later patch of it."""
    if restored is None or wanted < restored:
        return False
    return (wanted.major, wanted.minor) == (restored.major, restored.minor)
