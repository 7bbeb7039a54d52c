"""Hosts of Harvester in maintenance: by Harvester's own upgrade, which takes one after the other, or each by itself.

A host that is merely cordoned is not: no VM leaves it for that. What shows maintenance is one of

* annotation `harvesterhci.io/drain-requested` or `maintain-status` of its Node, or KubeVirt's taint `drain` (maintenance mode),
  but not the same taint of a host that has failed, which has condition Drained beside it (reference/05 §2.5);
* its state in an Upgrade that is not over: anything from `Pre-draining` on, but for `Succeeded`; and while the Upgrade
  says nothing of it yet, that it is cordoned. States that this release does not know count, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windrow.kubernetes.conditions import find_condition, is_true
from windrow.kubernetes.objects import annotations_of, is_deleting, labels_of, name_of, nested, objects_at

UPGRADE_NAMESPACE = "harvester-system"
DRAIN_REQUESTED = "harvesterhci.io/drain-requested"
MAINTAIN_STATUS = "harvesterhci.io/maintain-status"  # running, then completed
LATEST_UPGRADE = "harvesterhci.io/latestUpgrade"  # a label of Upgrades
DRAIN_TAINT = "kubevirt.io/drain"
# A label of VMs, which their instances have, too: what maintenance mode does to them.
MAINTAIN_STRATEGY = "harvesterhci.io/maintain-mode-strategy"
SHUTDOWN_STRATEGIES = frozenset(
    {"Shutdown", "ShutdownAndRestartAfterEnable", "ShutdownAndRestartAfterDisable"}
)

# States of a host in an Upgrade before anything happens to its VMs, and after.
_PREPARING = frozenset({"Images preloading", "Images preloaded"})
_SUCCEEDED, _FAILED = "Succeeded", "Failed"
# Of what is read: more hosts no Harvester has, and longer words say nothing more.
MAX_HOSTS = 1000
MAX_WORD = 64


@dataclass(frozen=True, slots=True)
class HostState:
    """A host as its Node shows it. Heartbeats do not change this reading."""

    name: str
    is_ready: bool
    is_unschedulable: bool
    has_maintenance_mode: bool

    @property
    def takes_vms(self) -> bool:
        return self.is_ready and not self.is_unschedulable and not self.has_maintenance_mode


def read_host_state(raw: Mapping[str, Any]) -> HostState:
    annotations = annotations_of(raw)
    conditions = nested(raw, "status", "conditions")
    is_ready = is_true(conditions, "Ready")
    has_failed = not is_ready or find_condition(conditions, "Drained") is not None
    taints = () if has_failed else objects_at(raw, "spec", "taints")
    return HostState(
        name=name_of(raw),
        is_ready=is_ready,
        is_unschedulable=nested(raw, "spec", "unschedulable", default=False) is True,
        has_maintenance_mode=DRAIN_REQUESTED in annotations
        or bool(annotations.get(MAINTAIN_STATUS))
        or any(taint.get("key") == DRAIN_TAINT for taint in taints),
    )


@dataclass(frozen=True, slots=True)
class HarvesterUpgrade:
    """An upgrade of Harvester to `version`; `states` are those of its hosts."""

    name: str
    version: str
    is_over: bool
    states: tuple[tuple[str, str], ...] = ()
    is_latest: bool = False  # by Harvester's label

    def find_state(self, host: str) -> str:
        """ "" where it says nothing of the host."""
        return next((state for name, state in self.states if name == host), "")


def read_upgrade(raw: Mapping[str, Any]) -> HarvesterUpgrade:
    """Condition Completed is Unknown, or absent, while an upgrade is under way."""
    completed = find_condition(nested(raw, "status", "conditions"), "Completed")
    states = nested(raw, "status", "nodeStatuses", default={})
    found = states.items() if isinstance(states, Mapping) else ()
    listed = sorted(
        (str(host), str(one.get("state") or "")[:MAX_WORD]) for host, one in found if isinstance(one, Mapping)
    )
    return HarvesterUpgrade(
        name_of(raw),
        str(nested(raw, "spec", "version") or "")[:MAX_WORD],
        is_deleting(raw) or (completed is not None and completed.status in ("True", "False")),
        tuple(listed[:MAX_HOSTS]),
        labels_of(raw).get(LATEST_UPGRADE) == "true",
    )


@dataclass(frozen=True, slots=True)
class HostMaintenance:
    """Why a host is being emptied, or is empty. `has_other_host`: another host takes VMs now."""

    host: str
    because: str
    has_other_host: bool
    is_upgrade: bool = False

    def __str__(self) -> str:
        return describe_maintenance(self.host, self.because)


def describe_maintenance(host: str, because: str) -> str:
    return f"host {host} is in maintenance ({because})"


def list_maintenance(
    hosts: Iterable[HostState], upgrades: Iterable[HarvesterUpgrade]
) -> dict[str, HostMaintenance]:
    """Those of the hosts that are in maintenance, by name."""
    known = {host.name: host for host in hosts}
    shown = list(upgrades)
    latest = [one for one in shown if one.is_latest] or shown  # one of the past may have never come to an end
    running = sorted((one for one in latest if not one.is_over), key=lambda one: one.name)
    takers = {name for name, host in known.items() if host.takes_vms}
    found = {}
    for name, host in known.items():
        upgrade = next((one for one in running if _is_at(host, one)), None)
        if upgrade is not None:
            because = (
                f"upgrade of Harvester to {upgrade.version}" if upgrade.version else "upgrade of Harvester"
            )
        elif host.has_maintenance_mode:
            because = "maintenance mode"
        else:
            continue
        found[name] = HostMaintenance(name, because, bool(takers - {name}), upgrade is not None)
    return found


def _is_at(host: HostState, upgrade: HarvesterUpgrade) -> bool:
    """Whether the upgrade has come to the host, and has not left it."""
    state = upgrade.find_state(host.name)
    if state in ("", _FAILED):
        return host.is_unschedulable
    return state not in _PREPARING and state != _SUCCEEDED


def why_shut_down(maintenance: HostMaintenance, is_migratable: bool | None, strategy: str) -> str:
    """Why a VM on the host does not run on elsewhere, "" for one that migrates. `is_migratable` None: not known, as that of VMs
    that KubeVirt says nothing of; they are taken to migrate, which most do."""
    if is_migratable is False:
        return "it cannot be migrated"
    if not maintenance.is_upgrade and strategy in SHUTDOWN_STRATEGIES:
        return f"its label {MAINTAIN_STRATEGY} is {strategy}"
    return "" if maintenance.has_other_host else "no other host takes it"
