"""Records that are behind what machines run: the store was put back to a backup of before an upgrade.

A turn writes the version that its Machine records, so that another configuration would install the former release again. So no
turn begins before the records are right. What a Node shows is believed only where it is newer: an older one is behind for another
reason, and is updated.
"""

from __future__ import annotations

from windrow.clusters.api.version_steps import is_newer
from windrow.clusters.plan.actions import PartialPlan, RecordRunning, RecordVersion
from windrow.clusters.state import ClusterState, MachineState


def correct_records(state: ClusterState, partial: PartialPlan) -> bool:
    """Propose what corrects them; whether turns wait for that."""
    if not state.guest.is_reachable:
        return False
    behind = [machine for machine in state.active if is_behind(machine)]
    for machine in behind:
        node = machine.node
        assert node is not None  # is_behind has asked
        why = f"its Node runs {node.kubelet_version}, and {machine.record.version} was recorded: the record is older"
        partial.actions.append(RecordRunning(why, machine.name, node.kubelet_version))
    return bool(behind) or _correct_version(state, partial)


def is_behind(machine: MachineState) -> bool:
    """Whether its Node runs a newer release of its distribution than is recorded, though it has no turn."""
    record, node = machine.record, machine.node
    if record.update is not None or not record.was_ready or node is None or not node.ready:
        return False
    return is_newer(node.kubelet_version, record.version)


def _correct_version(state: ClusterState, partial: PartialPlan) -> bool:
    """That of the Cluster, where all machines run another one than it records and asks for."""
    running = {machine.record.version for machine in state.active}
    if len(running) != 1 or any(machine.record.update is not None for machine in state.active):
        return False
    (version,) = running
    if version == state.cluster.version or not is_newer(version, state.recorded.version):
        return False
    why = f"all its machines do, and {state.recorded.version} was recorded: the record is older"
    partial.actions.append(RecordVersion(why, version))
    return True
