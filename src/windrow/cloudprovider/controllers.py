"""The controllers of a leader: nodes, services, the network map and the orphan sweep, run side by side.

The rights that each needs are listed in its module; the network map needs configmaps get, create, update in the guest.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.transport import Transport
from windrow.cloudprovider.connection.namespace_check import NamespaceCheck
from windrow.cloudprovider.metrics import Metrics
from windrow.cloudprovider.names import SERVICE_CONTROLLER
from windrow.cloudprovider.nodes.controller import NodeController
from windrow.cloudprovider.nodes.network_map import NetworkMap
from windrow.cloudprovider.nodes.virtual_addresses import VirtualAddresses
from windrow.cloudprovider.options import Options
from windrow.cloudprovider.services.controller import ServiceController
from windrow.cloudprovider.sweep import Sweep
from windrow.core.clock import Clock
from windrow.core.rng import Rng


class Controllers:
    """Keeps one guest cluster in step with its Harvester, while it runs."""

    def __init__(
        self,
        guest: Transport,
        host: Transport,
        namespace: str,
        options: Options,
        clock: Clock,
        rng: Rng,
        log: logging.Logger,
        metrics: Metrics,
    ) -> None:
        # Without the service controller no LoadBalancer is watched, so no address is known to be virtual.
        has_services = SERVICE_CONTROLLER in options.controllers
        self._virtual = VirtualAddresses(options.cluster_name, is_known=not has_services)
        self._nodes = NodeController(guest, host, namespace, options, self._virtual, clock, rng, log, metrics)
        self._services: ServiceController | None = None
        self._sweep: Sweep | None = None
        self._namespace_check: NamespaceCheck | None = None
        if has_services:
            services = ServiceController(guest, host, namespace, options, clock, rng, log, metrics)
            caches = (services.services, services.load_balancers)
            self._sweep = Sweep(Client(guest), Client(host), *caches, options, clock, log, metrics)
            self._services = services
            caches_checked = (self._nodes.nodes, self._nodes.vms, *caches)
            self._namespace_check = NamespaceCheck(
                *caches_checked, services.settings, clock, services.enqueue_all
            )
            services.find_namespace_problem = self._namespace_check.find_problem
        self._networks: NetworkMap | None = None
        if options.has_cluster_name and not options.disable_vmi_controller:
            watched = self._services.interfaces if self._services is not None else None
            self._networks = NetworkMap(
                Client(guest), self._nodes.instances, watched, options, clock, rng, log
            )

    def pending_caches(self) -> str:
        """Which caches have not synced yet, for the readiness probe; "" once all have."""
        caches: list[Informer[Any]] = [self._nodes.nodes, self._nodes.vms, self._nodes.instances]
        if self._services is not None:
            caches += [self._services.services, self._services.load_balancers]
        unknown = [cache.kind.plural for cache in caches if not cache.has_synced]
        return f"not listed yet: {', '.join(unknown)}" if unknown else ""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._services is not None and self._sweep is not None and self._namespace_check is not None:
                group.create_task(self._namespace_check.run())
                group.create_task(self._services.run())
                group.create_task(self._sweep.run())
                group.create_task(self._follow_load_balancers(self._services))
            if self._networks is not None:
                group.create_task(self._networks.run())
            group.create_task(self._nodes.run())

    async def _follow_load_balancers(self, services: ServiceController) -> None:
        """Keep the virtual addresses current, and enqueue the nodes that show a new one."""
        await services.load_balancers.wait_for_sync()
        for known in services.load_balancers.values():
            self._virtual.update(known.name, known)
        self._virtual.is_known = True
        self._nodes.enqueue_all()
        async for before, after in services.load_balancers.changes():
            balancer = after or before
            assert balancer is not None
            self._nodes.enqueue_with_addresses(self._virtual.update(balancer.name, after))
