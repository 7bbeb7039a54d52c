"""A Cluster and its Machines as the management API has them recorded, in the form that the plan of changes is made of."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.machine import Machine
from windrow.clusters.api.version_steps import VERSION
from windrow.clusters.bootstrap_data import find_config_hashes, list_left_versions
from windrow.clusters.change.fields import OptionRules
from windrow.clusters.state import ClusterState, MachineState
from windrow.machines.port import Problem
from windrow.nodedriver.options import OPTIONS
from windrow.nodedriver.vm.changes import find_changes, find_refusals

# What the built-in node driver says of its options, as the cluster manager takes it: the two do not know each other.
OPTION_RULES = OptionRules(frozenset(option.field for option in OPTIONS), find_changes, find_refusals)


def assume_state(
    cluster: Cluster, problems: Iterable[Problem], machines: Iterable[Machine], now: datetime
) -> ClusterState:
    """The state of a Cluster as far as it is recorded: no Harvester and no guest is asked."""
    running, found = cluster.recorded.version, tuple(problems)
    refused = any(one.field == VERSION and one.severity == "error" for one in found)
    is_other = bool(running) and cluster.version != running and not refused
    records = sorted(
        (one for one in machines if one.cluster_uid == cluster.uid), key=lambda one: (one.created, one.name)
    )
    return ClusterState(
        now=now,
        cluster=cluster,
        problems=found,
        machines=tuple(map(MachineState, records)),
        config_hashes=find_config_hashes(cluster, running) if running else {},
        wanted_hashes=find_config_hashes(cluster, cluster.version) if is_other else {},
        left_hashes={one: find_config_hashes(cluster, one) for one in list_left_versions(cluster, records)},
        option_rules=OPTION_RULES,
    )
