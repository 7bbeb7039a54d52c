"""Namespaces: what a new one gets, and how one that is deleted is emptied first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windrow.apiserver.calls import Call, Caller, Target
from windrow.apiserver.controllers.gc import split_key
from windrow.apiserver.controllers.loop import Key, Worker
from windrow.apiserver.core import Core
from windrow.apiserver.store import Change, Entry, Raw, Stale
from windrow.apiserver.types import Type
from windrow.apiserver.verbs.create import create
from windrow.apiserver.verbs.delete import delete
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.kubernetes.errors import AlreadyExists, Forbidden, KubeError, NotFound
from windrow.kubernetes.resources import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT, ApiResource

CALLER = Caller(
    "system:serviceaccount:kube-system:namespace-controller",
    (
        "system:serviceaccounts",
        "system:serviceaccounts:kube-system",
        "system:authenticated",
        "system:masters",
    ),
)
ROOT_CA = "kube-root-ca.crt"


class Namespaces:
    """Keeps `default` accounts and the CA bundle in every namespace; empties those that go."""

    def __init__(self, core: Core, root_ca: Callable[[], str]) -> None:
        self._core, self._root_ca = core, root_ca
        self._leaving: set[str] = set()
        self.worker = Worker(core, first=self._all, keys=self._touched, work=self._work)

    async def run(self) -> None:
        await self.worker.run()

    async def _all(self) -> Iterable[Key]:
        type = self._core.registry.find_kind(NAMESPACE)
        if type is None:
            return []
        page = await self._core.store.range(type.prefix())
        return [(split_key(entry.key)[3],) for entry in page.entries]

    def _touched(self, change: Change) -> Iterable[Key]:
        group, plural, namespace, name = split_key(change.key)
        if (group, plural) == ("", "namespaces"):
            return [(name,)]
        if change.after is None and (namespace in self._leaving or name in ("default", ROOT_CA)):
            return [(namespace,)]
        return []

    async def _work(self, key: Key) -> None:
        name = key[0]
        home = self._core.registry.find_kind(NAMESPACE)
        entry = await self._core.store.find(home.key("", name)) if home else None
        if home is None or entry is None:
            self._leaving.discard(name)
            return
        if entry.raw["metadata"].get("deletionTimestamp"):
            self._leaving.add(name)
            await self._empty(home, entry, name)
            return
        await self._furnish(name)

    async def _furnish(self, namespace: str) -> None:
        await self._ensure(SERVICE_ACCOUNT, namespace, {"metadata": {"name": "default"}})
        bundle = self._root_ca()
        if bundle:
            await self._ensure(
                CONFIG_MAP, namespace, {"metadata": {"name": ROOT_CA}, "data": {"ca.crt": bundle}}
            )

    async def _ensure(self, kind: ApiResource, namespace: str, raw: Raw) -> None:
        type = self._core.registry.find_kind(kind)
        if type is None or await self._core.store.find(type.key(namespace, raw["metadata"]["name"])):
            return
        target = Target("", kind.group, kind.version, kind.plural, namespace)
        try:
            await create(self._core, type, Call("create", target, CALLER, body=raw))
        except (AlreadyExists, NotFound, Forbidden):
            return

    async def _empty(self, home: Type, entry: Entry, namespace: str) -> None:
        left = 0
        refusal: KubeError | None = None
        for type in self._core.registry.kept():
            if not type.kind.namespaced:
                continue
            for one in (await self._core.store.range(type.prefix(namespace))).entries:
                left += 1
                try:
                    await self._delete(type, one, namespace)
                except KubeError as error:
                    refusal = error  # a webhook may want something else to go first
        if left:
            left = await self._count(namespace)
        entry = await self._core.store.find(entry.key) or entry
        try:
            await self._conclude(entry, left)
        except Stale:
            self.worker.again((namespace,))
        if refusal is not None:
            raise refusal

    async def _count(self, namespace: str) -> int:
        left = 0
        for type in self._core.registry.kept():
            if type.kind.namespaced:
                left += len((await self._core.store.range(type.prefix(namespace), limit=1)).entries)
        return left

    async def _delete(self, type: Type, entry: Entry, namespace: str) -> None:
        if entry.raw["metadata"].get("deletionTimestamp"):
            return
        name = entry.raw["metadata"]["name"]
        target = Target("", type.kind.group, type.kind.version, type.kind.plural, namespace, name)
        options = {"propagationPolicy": "Background"}
        try:
            await delete(self._core, type, Call("delete", target, CALLER, body_options=options))
        except NotFound:
            return

    async def _conclude(self, entry: Entry, left: int) -> None:
        raw = entry.raw
        status = raw.get("status") or {}
        truth = "True" if left else "False"
        reason, message = (
            ("SomeResourcesRemain", f"{left} kinds of resources remain")
            if left
            else ("ContentRemoved", "All content successfully removed")
        )
        conditions = set_condition(
            status.get("conditions"),
            Condition("NamespaceContentRemaining", truth, reason, message),  # type: ignore[arg-type]
            self._core.clock.now(),
        )
        if left:
            marked = {**raw, "status": {**status, "phase": "Terminating", "conditions": conditions}}
            if marked != raw:
                await self._core.store.commit(entry.key, marked, entry.rev)
            return
        spec = {name: value for name, value in (raw.get("spec") or {}).items() if name != "finalizers"}
        if raw["metadata"].get("finalizers"):
            done = {
                **raw,
                "spec": spec,
                "status": {**status, "phase": "Terminating", "conditions": conditions},
            }
            if done != raw:
                await self._core.store.commit(entry.key, done, entry.rev)
            return
        await self._core.store.commit(entry.key, None, entry.rev)
