"""A drawing of the hosts on Harvester that machines of a cluster run on: where one that fails would hurt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windrow.app.describe.sentences import machine_state
from windrow.app.describe.tree import Health, cluster_tree
from windrow.app.describe.views import ClusterView
from windrow.kubernetes.objects import Raw, nested


@dataclass(frozen=True, slots=True)
class PlacedMachine:
    """A machine on its host. `roles` are letters: e of etcd, c of control plane, w of workers."""

    name: str
    state: str
    health: Health
    roles: str


@dataclass(frozen=True, slots=True)
class HostBox:
    """A host with machines of this cluster; name "" stands for those that run on none. `maintenance` says why it is in that."""

    name: str
    machines: tuple[PlacedMachine, ...]
    maintenance: str = ""

    @property
    def etcd(self) -> int:
        return sum("e" in one.roles for one in self.machines)


def place_machines(view: ClusterView, raws: Sequence[Raw]) -> tuple[HostBox, ...]:
    """The hosts by name, those machines that run on none last."""
    healths = {node.name: node.health for pool in cluster_tree(view).children for node in pool.children}
    states = {one.name: machine_state(one) for one in view.machines}
    hosts: dict[str, list[PlacedMachine]] = {}
    maintenance: dict[str, str] = {}
    for raw in raws:
        name = str(raw["metadata"]["name"])
        if name not in states:
            continue
        host = _text(raw, "status", "host")
        roles = nested(raw, "spec", "roles", default=())
        letters = "".join(str(role)[:1] for role in roles) if isinstance(roles, list) else ""
        hosts.setdefault(host, []).append(PlacedMachine(name, states[name], healths[name], letters))
        if because := _text(raw, "status", "hostMaintenance", "because"):
            maintenance[host] = because
    return tuple(
        HostBox(host, tuple(sorted(hosts[host], key=lambda one: one.name)), maintenance.get(host, ""))
        for host in sorted(hosts, key=lambda host: (not host, host))
    )


def _text(raw: Raw, *path: str) -> str:
    found = nested(raw, *path, default="")
    return found if isinstance(found, str) else ""
