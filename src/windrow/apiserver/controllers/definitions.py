"""CustomResourceDefinitions that go: their objects go first, then the resource itself."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.apiserver.calls import Call, Caller, Target
from windrow.apiserver.controllers.gc import split_key
from windrow.apiserver.controllers.loop import Key, Worker
from windrow.apiserver.core import Core
from windrow.apiserver.crds import CLEANUP
from windrow.apiserver.store import Change, Entry, Stale
from windrow.apiserver.types import Type
from windrow.apiserver.verbs.delete import delete
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.resources import CRD

CALLER = Caller("system:apiserver", ("system:masters", "system:authenticated"))


class Definitions:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._leaving: dict[tuple[str, str], str] = {}  # (group, plural) -> key of its definition
        self.worker = Worker(core, first=self._all, keys=self._touched, work=self._work)

    async def run(self) -> None:
        await self.worker.run()

    async def _all(self) -> Iterable[Key]:
        home = self._core.registry.find_kind(CRD)
        if home is None:
            return []
        return [(entry.key,) for entry in (await self._core.store.range(home.prefix())).entries]

    def _touched(self, change: Change) -> Iterable[Key]:
        group, plural, _, _ = split_key(change.key)
        if (group, plural) == (CRD.group, CRD.plural):
            if change.after is None:
                self._forget(change.last)
            return [(change.key,)]
        if change.after is None and (group, plural) in self._leaving:
            return [(self._leaving[group, plural],)]
        return []

    def _forget(self, definition: Entry) -> None:
        """Stop serving what the definition defined."""
        spec = definition.raw["spec"]
        place = (spec["group"], spec["names"]["plural"])
        self._leaving.pop(place, None)
        for type in self._core.registry:
            if type.custom and (type.kind.group, type.kind.plural) == place:
                self._core.registry.remove(type)

    async def _work(self, key: Key) -> None:
        entry = await self._core.store.find(key[0])
        if entry is None or not entry.raw["metadata"].get("deletionTimestamp"):
            return
        spec = entry.raw["spec"]
        place = (spec["group"], spec["names"]["plural"])
        self._leaving[place] = entry.key
        type = self._core.registry.find_resource(*place)
        left = await self._empty(type) if type else 0
        finalizers = entry.raw["metadata"].get("finalizers") or []
        if left or CLEANUP not in finalizers:
            return
        rest = [one for one in finalizers if one != CLEANUP]
        head = {**entry.raw["metadata"], "finalizers": rest}
        try:
            await self._core.store.commit(
                entry.key, {**entry.raw, "metadata": head} if rest else None, entry.rev
            )
        except Stale:
            self.worker.again(key)

    async def _empty(self, type: Type) -> int:
        """Delete every object; the number of those that stay for their finalizers."""
        for entry in (await self._core.store.range(type.prefix())).entries:
            head = entry.raw["metadata"]
            if head.get("deletionTimestamp"):
                continue
            kind = type.kind
            target = Target(
                "", kind.group, kind.version, kind.plural, head.get("namespace", ""), head["name"]
            )
            try:
                await delete(self._core, type, Call("delete", target, CALLER))
            except NotFound:
                continue
        return len((await self._core.store.range(type.prefix(), limit=1)).entries)
