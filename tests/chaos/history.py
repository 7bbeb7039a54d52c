"""What happened on Harvester: its watches, and the invariants that hold at every instant, checked after each event."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.api import Api, Unanswered
from tests.chaos.invariants import find_doubled_addresses, find_doubled_machines, find_surplus
from tests.chaos.inventory import (
    PATHS,
    Balancer,
    Instance,
    Inventory,
    Vm,
    read_balancer,
    read_instance,
    read_vm,
)

READ: dict[str, Any] = {
    "VirtualMachine": read_vm,
    "VirtualMachineInstance": read_instance,
    "LoadBalancer": read_balancer,
}
Key = tuple[str, str, str]


@dataclass
class History:
    """Fed with raw events; `faults` are the violations so far, `deleted` the VMs whose deletion was asked for."""

    cluster: str
    limits: Mapping[str, int] = field(default_factory=dict)
    held: frozenset[str] = frozenset()  # VMs that count in no pool
    objects: dict[Key, Vm | Instance | Balancer] = field(default_factory=dict)
    deleted: set[Vm] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_event(self, kind: str, event: Mapping[str, Any]) -> None:
        raw = event["object"]
        if event["type"] in ("BOOKMARK", "ERROR"):
            return
        value = READ[kind](raw)
        key = (kind, value.namespace, value.name)
        self.events[kind] += 1
        if event["type"] == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = value
        if isinstance(value, Vm) and value.cluster_uid and (event["type"] == "DELETED" or value.deleting):
            self.deleted.add(Vm(value.namespace, value.name, value.uid, value.cluster_uid, value.machine_uid))
        self._check()
        self.changed.set()

    def replace(self, kind: str, raws: list[dict[str, Any]]) -> None:
        """A list, in place of what is known of this kind."""
        found = {(kind, value.namespace, value.name): value for value in map(READ[kind], raws)}
        self.objects = {key: one for key, one in self.objects.items() if key[0] != kind} | found
        self._check()

    @property
    def inventory(self) -> Inventory:
        values = self.objects.values()
        return Inventory(
            tuple(one for one in values if isinstance(one, Vm)),
            tuple(one for one in values if isinstance(one, Instance)),
            balancers=tuple(one for one in values if isinstance(one, Balancer)),
        )

    def _check(self) -> None:
        now = self.inventory
        found = [
            *find_doubled_machines(now),
            *find_surplus(now, self.cluster, self.limits, self.held),
            *find_doubled_addresses(now),
        ]
        self.faults += [fault for fault in found if fault not in self.faults]


async def follow(history: History, api: Api, kind: str) -> None:
    """Watch a kind until cancelled."""
    while True:
        try:
            page = await api.demand("GET", PATHS[kind])
            history.replace(kind, page["items"])
            async for event in api.watch(PATHS[kind], page["metadata"]["resourceVersion"]):
                history.on_event(kind, event)
        except Unanswered:
            await asyncio.sleep(0.1)
