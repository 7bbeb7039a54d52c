"""The etcd snapshot before an upgrade: no machine changes to another version before there is one."""

from __future__ import annotations

from windrow.clusters.api.updates.turn import read_upgrade_snapshot
from windrow.clusters.plan.actions import PartialPlan
from windrow.clusters.plan.operations.actions import SaveUpgradeSnapshot
from windrow.clusters.state import ClusterState, MachineState

REQUEST = "etcd snapshot before an upgrade"  # while it is under way


def has_upgrade_snapshot(
    machine: MachineState, version: str, state: ClusterState, partial: PartialPlan
) -> bool:
    """Whether the first machine may change to another version: the way back is an etcd snapshot of the version before it. Where
    snapshots are disabled, or the release cannot be asked for one, there is none."""
    if version in ("", state.recorded.version) or state.cluster.etcd.get("disableSnapshots"):
        return True
    if any(_has_reached(one, version) for one in state.active):
        return True
    if REQUEST in state.requests:
        partial.wait(
            f"an etcd snapshot before the upgrade to {version} to be made", "the first machine is updated"
        )
        return False
    made = read_upgrade_snapshot(state.recorded.raw)
    is_of_this = (made.version, made.generation) == (version, state.cluster.generation)
    if is_of_this and (made.name or made.retry_at is None):
        return True
    members = [one for one in state.etcd_members if state.is_healthy_etcd_member(one) and one.address]
    if is_of_this and made.retry_at is not None and state.now < made.retry_at:
        what = f"an etcd snapshot before the upgrade to {version} ({made.message})"
        then = "the first machine is updated; etcd.disableSnapshots: true does without"
        partial.wait(what, then, until=made.retry_at)
        return False
    if members and state.guest.is_reachable:
        name = f"upgrade-{version.replace('+', '-')}-{state.cluster.generation}"
        why = f"kubernetesVersion is {version}, and {machine.name} runs {machine.record.version}"
        save = SaveUpgradeSnapshot(why, members[0].name, version, name, state.cluster.generation)
        if not any(isinstance(one, SaveUpgradeSnapshot) for one in partial.actions):
            partial.actions.append(save)
        return False
    # A turn that has failed may be what broke etcd: the way out of it waits for no snapshot.
    return machine.record.update is not None and machine.record.update.failure is not None


def _has_reached(machine: MachineState, version: str) -> bool:
    """Whether the machine runs that version, or is just being given it. A turn that failed before its Node showed the version
    says nothing: the version may not even exist."""
    update, node = machine.record.update, machine.node
    is_applied = update is not None and not update.is_preparing and update.failure is None
    applied = update.version if update is not None and is_applied else ""
    return version in (machine.record.version, node.kubelet_version if node else "", applied)
