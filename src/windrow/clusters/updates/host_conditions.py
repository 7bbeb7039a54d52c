"""What the status says of hosts of Harvester in maintenance: a condition of the Cluster, and one of each Machine on such a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windrow.clusters.plan.hosts.hold import HOST_TIMEOUT
from windrow.clusters.sources.hosts import RIGHTS_HINT
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.formats.duration import human_duration
from windrow.core.text import join_some
from windrow.kubernetes.conditions import Condition, find_condition, set_condition

HOSTS_AVAILABLE = "HostsAvailable"  # of a Cluster
HOST_AVAILABLE = "HostAvailable"  # of a Machine
IN_MAINTENANCE = "HostInMaintenance"


def hosts_condition(state: ClusterState) -> Condition | None:
    """Whether no machine of the cluster is on a host in maintenance; None where none ever was."""
    if state.cluster.deletion_timestamp is not None:
        return None  # the condition stays
    on_such = [machine for machine in state.active if machine.record.maintenance is not None]
    if on_such:
        sentences = sorted({str(machine.record.maintenance) for machine in on_such})
        named = join_some([machine.name for machine in on_such])
        return Condition(
            HOSTS_AVAILABLE,
            "False",
            IN_MAINTENANCE,
            f"{'; '.join(sentences)}; repair of {named} is held for {human_duration(HOST_TIMEOUT)} at most",
        )
    if state.hosts_hidden:
        return Condition(
            HOSTS_AVAILABLE,
            "Unknown",
            "NotAllowed",
            f"its credential may not see hosts and upgrades of Harvester ({state.hosts_hidden}), so guests are not prepared for "
            f"their maintenance; {RIGHTS_HINT}",
        )
    if find_condition(state.recorded.raw.get("conditions"), HOSTS_AVAILABLE) is None:
        return None
    return Condition(HOSTS_AVAILABLE, "True", "Available", "no machine is on a host in maintenance")


def with_host_available(
    conditions: Sequence[Mapping[str, Any]], machine: MachineState, state: ClusterState
) -> list[dict[str, Any]]:
    """The conditions of a Machine with whether its host is available, which is there while it is not."""
    record = machine.record.maintenance
    if record is None:
        return [dict(raw) for raw in conditions if raw.get("type") != HOST_AVAILABLE]
    away = Condition(HOST_AVAILABLE, "False", IN_MAINTENANCE, str(record))
    return set_condition(conditions, away, state.now)
