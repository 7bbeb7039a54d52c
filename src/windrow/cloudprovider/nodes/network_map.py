"""The network map: which host network is which interface inside the guests, where all guests of the cluster agree.

Written to a ConfigMap that Rancher's dashboard reads, and from which the service controller takes the interface of a
virtual address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from windrow.client.client import Client
from windrow.client.informer import Cache
from windrow.cloudprovider import names
from windrow.cloudprovider.context import ControllerContext
from windrow.cloudprovider.nodes.readings import Instance
from windrow.cloudprovider.options import Options
from windrow.cloudprovider.services.readings import Interfaces
from windrow.controller.controller import Controller
from windrow.controller.outcomes import SETTLED, Outcome
from windrow.core.formats.json import dumps
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import CONFIG_MAP

REF = CONFIG_MAP.ref(names.NETWORK_MAP_NAME, names.NETWORK_MAP_NAMESPACE)


def network_map(instances: Iterable[Instance], options: Options) -> dict[str, str]:
    """Network -> interface, for networks that are on the same interface in every running guest of the cluster."""
    maps = [_interfaces(one) for one in instances if _is_counted(one, options)]
    if not maps:
        return {}
    first, *others = maps
    agreed = (network for network in first if all(one.get(network) == first[network] for one in others))
    return {network: first[network] for network in sorted(agreed)}


def _is_counted(instance: Instance, options: Options) -> bool:
    is_ours = instance.guest_cluster == options.cluster_name
    is_up = instance.phase == "Running" and not instance.is_migrating and not instance.is_deleting
    return is_ours and is_up and bool(instance.interfaces)


def _interfaces(instance: Instance) -> dict[str, str]:
    devices = {interface.name: interface.device for interface in instance.interfaces}
    return {network: devices[card] for card, network in instance.networks if devices.get(card)}


def render_network_map(mapping: dict[str, str]) -> dict[str, str]:
    return {names.NETWORK_MAP_KEY: dumps(mapping).decode() if mapping else ""}


async def ensure_network_map(client: Client, mapping: dict[str, str]) -> bool:
    """Write `mapping` into the ConfigMap where it differs, whose other keys stay; whether something was written."""
    wanted = render_network_map(mapping)
    found = await client.find(REF)
    if found is None:
        await client.create(CONFIG_MAP, new_object(CONFIG_MAP, REF.name, REF.namespace, data=wanted))
        return True
    data = found.get("data") or {}
    if data | wanted != data:
        await client.update(CONFIG_MAP, {**found, "data": data | wanted})
    return data | wanted != data


class NetworkMap:
    """Keeps the map in step with the instances, while it runs. Reads and writes it only when it has changed.

    `watched` is an informer of the map, where there is one: then the map is also restored after an edit or a deletion.
    """

    def __init__(
        self, context: ControllerContext, instances: Cache[Instance], watched: Cache[Interfaces] | None
    ) -> None:
        self._guest = Client(context.guest)
        self._options = context.options
        self._log = context.log
        self._instances = instances
        self._watched = watched
        self._written: dict[str, str] | None = None
        self._controller: Controller[str] = Controller(
            "network map", self._reconcile, context.clock, context.rng
        )

    async def run(self) -> None:
        await self._instances.wait_for_sync()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._controller.run())
            group.create_task(self._follow(self._instances))
            if self._watched is not None:
                group.create_task(self._follow(self._watched))

    async def _follow(self, cache: Cache[Any]) -> None:
        await cache.wait_for_sync()
        async for _ in cache.changes():
            self._controller.queue.add(REF.name)

    async def _reconcile(self, key: str) -> Outcome:
        wanted = network_map(self._instances.values(), self._options)
        if wanted != self._written or self._is_overwritten(wanted):
            if await ensure_network_map(self._guest, wanted):
                self._log.info("network map written to ConfigMap %s/%s", REF.namespace, REF.name)
            self._written = wanted
        return SETTLED

    def _is_overwritten(self, wanted: dict[str, str]) -> bool:
        """Whether the watched map differs. A watch that lags behind our own write costs one read, no write."""
        watched = self._watched
        return watched is not None and watched.is_watching and watched.get(REF) != wanted
