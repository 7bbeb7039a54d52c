"""The load balancer controllers and webhooks of one Harvester, and their event handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from windrow.emulator import kinds
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.host.networks import Vlans
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.controller import Controller, Reconcile
from windrow.emulator.kit.informer import WATCH_TIMEOUT_S, Informer, start_informers
from windrow.emulator.kit.listers import Listers, key_of
from windrow.emulator.kit.network import Network
from windrow.emulator.load_balancers import names
from windrow.emulator.load_balancers.controller import LoadBalancerController
from windrow.emulator.load_balancers.host_vip import HostVip
from windrow.emulator.load_balancers.ip_pools.controller import IPPoolController
from windrow.emulator.load_balancers.probes import Probes
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE, service_of
from windrow.emulator.load_balancers.validation import is_being_removed, is_for_cluster, is_guest_of
from windrow.emulator.load_balancers.vm_frontends import VmFrontends, selects
from windrow.emulator.load_balancers.webhooks import LoadBalancerWebhooks
from windrow.emulator.release import Release
from windrow.kubernetes.objects import Raw, is_deleting, labels_of, namespace_of, nested
from windrow.kubernetes.resources import SERVICE


class LoadBalancerControllers:
    """Created before the cluster runs; `run` runs the controllers. `webhooks` work from the start."""

    def __init__(
        self,
        client: AdminClient,
        listers: Listers,
        instances: Informer,
        network: Network,
        segments: Vlans,
        clock: ScaledClock,
        delays: Delays,
        version: str,
        log: Callable[[str], None],
    ) -> None:
        release = Release.of(version)
        self._client = client
        self.webhooks = LoadBalancerWebhooks(client, listers, release)
        self.deletes_with_guest_cluster = release.deletes_with_guest_cluster
        self._informers = {
            "balancers": Informer(client, kinds.LOAD_BALANCER, WATCH_TIMEOUT_S),
            "pools": Informer(client, kinds.IP_POOL, WATCH_TIMEOUT_S),
            "services": Informer(client, SERVICE, WATCH_TIMEOUT_S),
            "slices": Informer(client, ENDPOINT_SLICE, WATCH_TIMEOUT_S),
        }
        pools = IPPoolController(client, clock, delays)
        self.is_in_pool = pools.has_address
        probes = Probes(client, clock, lambda address, port: network.find(address, port) is not None)
        frontends = VmFrontends(client, listers, probes)
        balancers = LoadBalancerController(client, pools, frontends, clock, delays, release)
        self.host_vip = HostVip(
            client, self._informers["slices"], network, segments.servers, clock, delays, log
        )
        reconciles: dict[str, Reconcile] = {
            "balancers": balancers.reconcile,
            "pools": pools.reconcile,
            "services": self.host_vip.reconcile,
            "probes": probes.reconcile,
        }
        self._controllers = {
            name: Controller(name, reconcile, clock.base, log) for name, reconcile in reconciles.items()
        }
        self._register_handlers(instances, probes)

    def add_service_handler(self, handler: Callable[[Raw], None]) -> None:
        """Call `handler` for each Service of the hosts' cluster that changes."""
        self._informers["services"].add_event_handler(handler)

    async def run(self) -> None:
        """Run informers and controllers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            await start_informers(tasks, self._informers.values())
            for controller in self._controllers.values():
                tasks.create_task(controller.run(), name=f"controller {controller.name}")

    async def on_vm_removed(self, vm: Raw) -> None:
        """Delete the LoadBalancers of the VM's guest cluster if the whole cluster is removed (reference 02 §4.8). May be
        repeated."""
        cluster = labels_of(vm).get(names.MACHINE_CLUSTER, "")
        if not (
            self.deletes_with_guest_cluster and cluster and is_guest_of(vm, cluster) and is_being_removed(vm)
        ):
            return
        found = await self._client.list(kinds.LOAD_BALANCER)
        for balancer in found:
            if (
                namespace_of(balancer) == namespace_of(vm)
                and labels_of(balancer).get(names.BALANCER_CLUSTER) == cluster
                and is_for_cluster(balancer)
                and not is_deleting(balancer)
            ):
                await self._client.delete(kinds.LOAD_BALANCER, balancer)

    def _register_handlers(self, instances: Informer, probes: Probes) -> None:
        """Which change of one kind queues another. An IPPool's change queues none: LoadBalancers without a pool retry."""
        made = self._controllers
        for name, informer in self._informers.items():
            if name in made:
                informer.add_event_handler(lambda raw, add=made[name].add: add(key_of(raw)))  # type: ignore[misc]
        self.host_vip.on_change = made["services"].add
        probes.on_targets_changed = made["probes"].add
        probes.on_readiness_changed = made["balancers"].add

        def instance_changed(instance: Raw) -> None:
            for key, balancer in self._informers["balancers"].items():
                selector = nested(balancer, "spec", "backendServerSelector", default={})
                same = namespace_of(balancer) == namespace_of(instance) and not is_for_cluster(balancer)
                if same and selector and selects(selector, labels_of(instance)):
                    made["balancers"].add(key)

        def slice_changed(slice_: Raw) -> None:
            made["services"].add(service_of(slice_))

        instances.add_event_handler(instance_changed)
        self._informers["slices"].add_event_handler(slice_changed)
