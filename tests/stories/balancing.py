"""Harvester's load balancer controller, IPAM and webhooks on an API of their own, without the rest of Harvester.

It starts in a millisecond. VMs are objects that nothing acts on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import cache

from tests.support.clock import LoopClock

from windrow.apiserver.request.info import RequestInfo, UserInfo
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.core.rng import Rng
from windrow.emulator import definitions, kinds
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.faults import FaultInjector, Faults
from windrow.emulator.harvester import PORT, VIP
from windrow.emulator.host.networks import Vlans
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.informer import Informer
from windrow.emulator.kit.listers import Listers
from windrow.emulator.kit.network import Network
from windrow.emulator.load_balancers.controllers import LoadBalancerControllers
from windrow.kubernetes.objects import Raw

GROUP = "loadbalancer.harvesterhci.io"

_ALLOWED: Mapping[tuple[str, str], frozenset[str]] = {
    (GROUP, "loadbalancers"): frozenset({"get", "list", "watch", "update", "create", "delete"}),
    ("kubevirt.io", "virtualmachines"): frozenset({"get", "list", "watch"}),
    ("kubevirt.io", "virtualmachineinstances"): frozenset({"get", "list", "watch"}),
    ("subresources.kubevirt.io", "virtualmachineinstances"): frozenset({"get", "update"}),
}


async def only_what_the_role_allows(caller: UserInfo, verb: str, target: RequestInfo) -> bool:
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
        pace, self.faults, self.network = ScaledClock(clock), Faults(), Network()
        self.handler = FaultInjector(self.api, self.faults, pace, rng)
        self.network.listen(VIP, PORT, self.handler)
        self.log: deque[str] = deque(maxlen=100)
        hand = AdminClient(self.api.local("harvester", ("system:masters",)))
        self._mirrors = {"vms": Informer(hand, kinds.VM, 3600), "instances": Informer(hand, kinds.VMI, 3600)}
        self.balancers = LoadBalancerControllers(
            hand,
            Listers(**self._mirrors),
            self._mirrors["instances"],
            self.network,
            Vlans({}),
            pace,
            Delays(),
            version,
            self.log.append,
        )
        self.api.admission.append(self.balancers.webhooks.mutate)
        self.api.validation.append(self.balancers.webhooks.validate)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for mirror in self._mirrors.values():
                tasks.create_task(mirror.run())
            tasks.create_task(self.balancers.run())


@cache
def _definitions() -> list[Raw]:
    return definitions.crds()
