"""Everything about load balancers in one Harvester: its kinds' controllers, webhooks, and who tells whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from windrow.apiserver.admission import Hook
from windrow.emulator import kinds
from windrow.emulator.controller import Controller, Reconcile
from windrow.emulator.delays import Delays, Pace
from windrow.emulator.hand import Hand
from windrow.emulator.load_balancers.announcing import HostVip
from windrow.emulator.load_balancers.balancer_rules import is_for_cluster
from windrow.emulator.load_balancers.balancers import Balancers
from windrow.emulator.load_balancers.cleanup import Cleanup
from windrow.emulator.load_balancers.frontends import MachineFrontends, selects
from windrow.emulator.load_balancers.legacy import convert
from windrow.emulator.load_balancers.nad_mapping import render_nad_mapping
from windrow.emulator.load_balancers.pools import Pools
from windrow.emulator.load_balancers.probes import Probes
from windrow.emulator.load_balancers.release import Release
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE, service_of
from windrow.emulator.load_balancers.webhooks import BalancerWebhooks
from windrow.emulator.mirror import Mirror
from windrow.emulator.networks import Segments
from windrow.emulator.rack import Rack
from windrow.emulator.world import World, key_of
from windrow.kubernetes.objects import Raw, labels_of, namespace_of, nested
from windrow.kubernetes.resources import SERVICE

SPAN_S = 3600


class BalancerRoom:
    """Made before the cluster runs; `run` is the cluster's task. Its webhook works from the start."""

    def __init__(
        self,
        hand: Hand,
        world: World,
        instances: Mirror,
        rack: Rack,
        segments: Segments,
        pace: Pace,
        delays: Delays,
        version: str,
        note: Callable[[str], None],
    ) -> None:
        release = Release.of(version)
        self._hand = hand
        self._instances = instances
        self.admit: Hook = BalancerWebhooks(hand, world, release).admit
        self.cleans_up = release.cleans_up
        self.machine_removed = Cleanup(hand, release).machine_removed
        self._mirrors = {
            "balancers": Mirror(hand, kinds.LOAD_BALANCER, SPAN_S),
            "pools": Mirror(hand, kinds.IP_POOL, SPAN_S),
            "services": Mirror(hand, SERVICE, SPAN_S),
            "slices": Mirror(hand, ENDPOINT_SLICE, SPAN_S),
        }
        pools = Pools(hand, pace, delays, release)
        self.has_in_pool = pools.holds
        probes = Probes(hand, pace, lambda address, port: rack.find(address, port) is not None)
        frontends = MachineFrontends(hand, world, probes)
        balancers = Balancers(hand, pools, frontends, pace, delays, release)
        self.vip = HostVip(hand, self._mirrors["slices"], rack, segments.servers, pace, delays, note)
        reconciles: dict[str, Reconcile] = {
            "balancers": balancers.reconcile,
            "pools": pools.reconcile,
            "services": self.vip.reconcile,
            "probes": probes.reconcile,
        }
        self._controllers = {
            name: Controller(name, reconcile, pace.clock, note) for name, reconcile in reconciles.items()
        }
        self._connect(instances, probes)

    async def run(self) -> None:
        """Everything it does, until cancelled."""
        await convert(self._hand)
        async with asyncio.TaskGroup() as tasks:
            for mirror in self._mirrors.values():
                tasks.create_task(mirror.run())
            for mirror in self._mirrors.values():
                await mirror.synced.wait()
            for controller in self._controllers.values():
                tasks.create_task(controller.run(), name=f"controller {controller.name}")

    def nad_mapping(self, namespace: str, cluster: str) -> str:
        """What the guest cluster's ConfigMap of networks and interfaces should hold, for checks."""
        return render_nad_mapping(self._instances.values(), namespace, cluster)

    def _connect(self, instances: Mirror, probes: Probes) -> None:
        """Which change of one kind is news for another. A pool's change is none: who waits for one looks again."""
        made = self._controllers
        for name, mirror in self._mirrors.items():
            if name in made:
                mirror.listen(lambda raw, add=made[name].add: add(key_of(raw)))  # type: ignore[misc]
        self.vip.news = made["services"].add
        probes.watched = made["probes"].add
        probes.changed = made["balancers"].add

        def instance_changed(instance: Raw) -> None:
            for key, balancer in self._mirrors["balancers"].items():
                selector = nested(balancer, "spec", "backendServerSelector", default={})
                same = namespace_of(balancer) == namespace_of(instance) and not is_for_cluster(balancer)
                if same and selector and selects(selector, labels_of(instance)):
                    made["balancers"].add(key)

        def slice_changed(slice_: Raw) -> None:
            made["services"].add(service_of(slice_))

        instances.listen(instance_changed)
        self._mirrors["slices"].listen(slice_changed)
