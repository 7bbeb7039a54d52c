"""The CRD finalizer: deletes the objects of a deleted CustomResourceDefinition, then stops serving the resource."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.apiserver.context import ServerContext
from windrow.apiserver.controllers.loop import Key, StoreController, split_key
from windrow.apiserver.request.info import UserInfo
from windrow.apiserver.storage.port import Change, Entry
from windrow.apiserver.types.crds import CLEANUP_FINALIZER
from windrow.apiserver.types.registry import ResourceType
from windrow.kubernetes.resources import CRD


class CrdFinalizer(StoreController):
    user = UserInfo("system:apiserver", ("system:masters", "system:authenticated"))

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self._deleting: dict[tuple[str, str], str] = {}  # (group, plural) -> key of its definition

    async def list_keys(self) -> Iterable[Key]:
        return [(entry.key,) for entry in await self._context.entries(CRD)]

    def keys_of_change(self, change: Change) -> Iterable[Key]:
        group, plural, _, _ = split_key(change.key)
        if (group, plural) == (CRD.group, CRD.plural):
            if change.after is None:
                self._unregister(change.last)
            return [(change.key,)]
        if change.after is None and (group, plural) in self._deleting:
            return [(self._deleting[group, plural],)]
        return []

    def _unregister(self, definition: Entry) -> None:
        """Stop serving the resource of a deleted definition."""
        spec = definition.raw["spec"]
        place = (spec["group"], spec["names"]["plural"])
        self._deleting.pop(place, None)
        for type in self._context.registry:
            if type.custom and (type.kind.group, type.kind.plural) == place:
                self._context.registry.remove(type)

    async def reconcile(self, key: Key) -> None:
        entry = await self._context.store.find(key[0])
        if entry is None or not entry.raw["metadata"].get("deletionTimestamp"):
            return
        spec = entry.raw["spec"]
        place = (spec["group"], spec["names"]["plural"])
        self._deleting[place] = entry.key
        type = self._context.registry.find_resource(*place)
        left = await self._empty(type) if type else 0
        finalizers = entry.raw["metadata"].get("finalizers") or []
        if left or CLEANUP_FINALIZER not in finalizers:
            return
        if await self.remove_finalizer(entry, CLEANUP_FINALIZER):
            self._unregister(entry)

    async def _empty(self, type: ResourceType) -> int:
        """Delete every object; the number of those that finalizers keep."""
        for entry in (await self._context.store.range(type.prefix())).entries:
            if not entry.raw["metadata"].get("deletionTimestamp"):
                await self.delete(type, entry)
        return len((await self._context.store.range(type.prefix(), limit=1)).entries)
