"""The machine configs of every kind that Clusters name: HarvesterConfigs from the start, others once they are named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.clusters.api.kinds import HARVESTER_CONFIG, machine_config
from windrow.clusters.api.manifest.machine_config import ResolveDriver
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.objects import Raw, namespace_of
from windrow.kubernetes.resources import ApiResource


class MachineConfigs:
    """The informers of machine config kinds; `on_changes` runs beside each of them."""

    def __init__(
        self,
        api: Client,
        new_informer: Callable[[ApiResource], Informer[Raw]],
        on_changes: Callable[[Informer[Raw]], Coroutine[Any, Any, None]],
        resolve_driver: ResolveDriver,
    ) -> None:
        self._api, self._new_informer, self._on_changes = api, new_informer, on_changes
        self.resolve_driver = resolve_driver
        self._informers: dict[str, Informer[Raw]] = {}

    def watch(self, group: asyncio.TaskGroup, kinds: Iterable[str]) -> list[Informer[Raw]]:
        """Watch these kinds from now on; a kind that no driver gives waits until one does. May be repeated."""
        opened = []
        for kind in sorted(set(kinds) - self._informers.keys()):
            if not isinstance(self.resolve_driver(kind), str):
                continue
            cache = self._informers[kind] = self._new_informer(machine_config(kind))
            group.create_task(cache.run(), name=f"watch {cache.kind.plural}")
            group.create_task(self._on_changes(cache), name=f"changes of {cache.kind.plural}")
            opened.append(cache)
        return opened

    async def list_all(self, namespace: str, kinds: Iterable[str]) -> list[Raw]:
        """The objects of these kinds in `namespace`; a kind that is not watched yet is listed."""
        found: list[Raw] = []
        for kind in sorted(set(kinds)):
            found += [
                {**raw, "kind": kind} for raw in await self._list_kind(kind) if namespace_of(raw) == namespace
            ]
        return found

    async def _list_kind(self, kind: str) -> Iterable[Raw]:
        cache = self._informers.get(kind)
        if cache is not None and (cache.is_watching or kind == HARVESTER_CONFIG.kind):
            return cache.values()
        if not isinstance(self.resolve_driver(kind), str):
            return ()
        try:
            return await self._api.list(machine_config(kind))
        except NotFound:
            return ()
