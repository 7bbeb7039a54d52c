"""The controllers of a leader: nodes, services, the network map and the orphan sweep, run side by side.

The rights that each needs are listed in its module; the network map needs configmaps get, create, update in the guest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any

from windrow.client.informer import Informer
from windrow.cloudprovider.connection.namespace_check import NamespaceCheck
from windrow.cloudprovider.context import ControllerContext
from windrow.cloudprovider.names import SERVICE_CONTROLLER
from windrow.cloudprovider.nodes.addresses import VirtualAddresses
from windrow.cloudprovider.nodes.controller import NodeController
from windrow.cloudprovider.nodes.network_map import NetworkMap
from windrow.cloudprovider.services.controller import ServiceController
from windrow.cloudprovider.services.readings import LoadBalancer
from windrow.cloudprovider.sweep import Sweep
from windrow.core.clock import sleep
from windrow.core.crash import handle_crash

RESTART_INTERVAL = timedelta(seconds=30)


class Controllers:
    """Keeps one guest cluster in step with its Harvester, while it runs."""

    def __init__(self, context: ControllerContext) -> None:
        options = context.options
        self._clock, self._log = context.clock, context.log
        # Without the service controller no LoadBalancer is watched, so no address is known to be virtual.
        has_services = SERVICE_CONTROLLER in options.controllers
        self._virtual = VirtualAddresses(options.cluster_name, is_known=not has_services)
        nodes = self._nodes = NodeController(context, self._virtual)
        self._caches: list[Informer[Any]] = [nodes.nodes, nodes.vms, nodes.instances]
        self._runs: list[Callable[[], Coroutine[Any, Any, None]]] = []
        watched_map = None
        if has_services:
            services = ServiceController(context)
            caches = services.services, services.load_balancers
            check = NamespaceCheck(nodes, services, context.clock)
            services.find_namespace_problem = check.find_problem
            services.list_without_macvlan = nodes.list_without_macvlan
            follow = partial(self._follow_load_balancers, services.load_balancers)
            self._runs += check.run, services.run, Sweep(context, *caches).run, follow
            self._caches += caches
            watched_map = services.interfaces
        if options.has_cluster_name and not options.disable_vmi_controller:
            self._runs.append(NetworkMap(context, nodes.instances, watched_map).run)
        self._runs.append(nodes.run)

    def pending_caches(self) -> str:
        """Which caches have not synced yet, for the readiness probe; "" once all have."""
        pending = [cache.kind.plural for cache in self._caches if not cache.has_synced]
        return f"not listed yet: {', '.join(pending)}" if pending else ""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for run in self._runs:
                group.create_task(self._run_again(run))

    async def _run_again(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Until it ends without an error. A defect of one controller ends neither the others nor the process."""
        while True:
            with handle_crash(self._log, "a controller failed; starting it again in %s", RESTART_INTERVAL):
                return await run()
            await sleep(self._clock, RESTART_INTERVAL)

    async def _follow_load_balancers(self, cache: Informer[LoadBalancer]) -> None:
        """Keep the virtual addresses current, and enqueue the nodes that show a new one."""
        await cache.wait_for_sync()
        for known in cache.values():
            self._virtual.update(known.name, known)
        self._virtual.is_known = True
        self._nodes.enqueue_all()
        async for before, after in cache.changes():
            balancer = after or before
            assert balancer is not None
            with handle_crash(self._log, "a change of a LoadBalancer is ignored", loadbalancer=balancer.name):
                self._nodes.enqueue_with_addresses(self._virtual.update(balancer.name, after))
