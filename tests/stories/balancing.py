"""Harvester's load balancer controller, IPAM and webhooks on an API of their own, without the rest of Harvester.

It starts in a millisecond. VMs are objects that nothing acts on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import cache

from windrow.apiserver.calls import Caller, Target
from windrow.apiserver.server import ApiServer
from windrow.apiserver.stores import MemoryStore
from windrow.core.rng import Rng
from windrow.emulator import definitions, kinds
from windrow.emulator.delays import Delays, Pace
from windrow.emulator.faults import Faults, FaultyDoor
from windrow.emulator.hand import Hand
from windrow.emulator.harvester import PORT, VIP
from windrow.emulator.load_balancers.controllers import LoadBalancerControllers
from windrow.emulator.mirror import Mirror
from windrow.emulator.networks import Segments
from windrow.emulator.rack import Rack
from windrow.emulator.world import World
from windrow.kubernetes.objects import Raw
from windrow.testing.clock import LoopClock

GROUP = "loadbalancer.harvesterhci.io"

_ALLOWED: Mapping[tuple[str, str], frozenset[str]] = {
    (GROUP, "loadbalancers"): frozenset({"get", "list", "watch", "update", "create", "delete"}),
    ("kubevirt.io", "virtualmachines"): frozenset({"get", "list", "watch"}),
    ("kubevirt.io", "virtualmachineinstances"): frozenset({"get", "list", "watch"}),
    ("subresources.kubevirt.io", "virtualmachineinstances"): frozenset({"get", "update"}),
}


async def only_what_the_role_allows(caller: Caller, verb: str, target: Target) -> bool:
    """ClusterRole `harvesterhci.io:cloudprovider`, bound in `default` alone (reference 02 §6.3)."""
    return target.namespace == "default" and verb in _ALLOWED.get((target.group, target.plural), ())


class Balancing:
    """Harvester's load balancer controller, IPAM and webhooks, and nothing else of it."""

    def __init__(self, clock: LoopClock, rng: Rng, version: str = "v1.8.2") -> None:
        self.api = ApiServer(MemoryStore(), clock, rng, name="harvester", authorize=only_what_the_role_allows)
        served = {
            one.group_resource for one in (kinds.LOAD_BALANCER, kinds.IP_POOL, kinds.VM, kinds.VMI, kinds.NAD)
        }
        for raw in _definitions():
            if raw["metadata"]["name"] in served:
                self.api.install_crd(raw)
        pace, self.faults, self.rack = Pace(clock), Faults(), Rack()
        self.door = FaultyDoor(self.api, self.faults, pace, rng)
        self.rack.open(VIP, PORT, self.door)
        self.log: deque[str] = deque(maxlen=100)
        hand = Hand(self.api.local("harvester", ("system:masters",)))
        self._mirrors = {"vms": Mirror(hand, kinds.VM, 3600), "instances": Mirror(hand, kinds.VMI, 3600)}
        self.balancers = LoadBalancerControllers(
            hand,
            World(**self._mirrors),
            self._mirrors["instances"],
            self.rack,
            Segments({}),
            pace,
            Delays(),
            version,
            self.log.append,
        )
        self.api.admission.append(self.balancers.admit)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for mirror in self._mirrors.values():
                tasks.create_task(mirror.run())
            tasks.create_task(self.balancers.run())


@cache
def _definitions() -> list[Raw]:
    return definitions.crds()
