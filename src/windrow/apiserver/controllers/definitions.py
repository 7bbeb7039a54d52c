"""The CRD finalizer: deletes the objects of a deleted CustomResourceDefinition, then stops serving the resource."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.apiserver.context import ServerContext
from windrow.apiserver.controllers.gc import split_key
from windrow.apiserver.controllers.loop import Key, Worker
from windrow.apiserver.request.info import ApiCall, RequestInfo, UserInfo
from windrow.apiserver.storage.port import Change, Entry, RevisionMismatch
from windrow.apiserver.types.crds import CLEANUP_FINALIZER
from windrow.apiserver.types.registry import ResourceType
from windrow.apiserver.verbs.delete import delete
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.resources import CRD

USER = UserInfo("system:apiserver", ("system:masters", "system:authenticated"))


class CrdFinalizer:
    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._deleting: dict[tuple[str, str], str] = {}  # (group, plural) -> key of its definition
        self.worker = Worker(
            context, list_keys=self._list_keys, keys_of_change=self._keys_of_change, reconcile=self._reconcile
        )

    async def run(self) -> None:
        await self.worker.run()

    async def _list_keys(self) -> Iterable[Key]:
        home = self._context.registry.find_kind(CRD)
        if home is None:
            return []
        return [(entry.key,) for entry in (await self._context.store.range(home.prefix())).entries]

    def _keys_of_change(self, change: Change) -> Iterable[Key]:
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

    async def _reconcile(self, key: Key) -> None:
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
        rest = [one for one in finalizers if one != CLEANUP_FINALIZER]
        head = {**entry.raw["metadata"], "finalizers": rest}
        try:
            await self._context.store.commit(
                entry.key, {**entry.raw, "metadata": head} if rest else None, entry.rev
            )
        except RevisionMismatch:
            self.worker.requeue(key)
            return
        if not rest:
            self._unregister(entry)

    async def _empty(self, type: ResourceType) -> int:
        """Delete every object; the number of those that finalizers keep."""
        for entry in (await self._context.store.range(type.prefix())).entries:
            head = entry.raw["metadata"]
            if head.get("deletionTimestamp"):
                continue
            kind = type.kind
            info = RequestInfo(
                "", kind.group, kind.version, kind.plural, head.get("namespace", ""), head["name"]
            )
            try:
                await delete(self._context, type, ApiCall("delete", info, USER))
            except NotFound:
                continue
        return len((await self._context.store.range(type.prefix(), limit=1)).entries)
