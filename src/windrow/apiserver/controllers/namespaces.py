"""The namespace controller: default ServiceAccount and root CA for new namespaces, deletion of content for deleted ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windrow.apiserver.context import ServerContext
from windrow.apiserver.controllers.loop import Key, StoreController, controller_user, split_key
from windrow.apiserver.request.info import ApiCall, RequestInfo
from windrow.apiserver.storage.port import Change, Entry, Raw, RevisionMismatch
from windrow.apiserver.verbs.create import create
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.kubernetes.errors import AlreadyExists, Forbidden, KubeError, NotFound
from windrow.kubernetes.resources import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT, ApiResource

ROOT_CA = "kube-root-ca.crt"


class NamespaceController(StoreController):
    """Keeps ServiceAccount `default` and ConfigMap `kube-root-ca.crt` in every namespace; empties deleted ones."""

    user = controller_user("namespace-controller")

    def __init__(self, context: ServerContext, root_ca: Callable[[], str]) -> None:
        super().__init__(context)
        self._root_ca = root_ca
        self._deleting: set[str] = set()

    async def list_keys(self) -> Iterable[Key]:
        return [(split_key(entry.key)[3],) for entry in await self._context.entries(NAMESPACE)]

    def keys_of_change(self, change: Change) -> Iterable[Key]:
        group, plural, namespace, name = split_key(change.key)
        if (group, plural) == ("", "namespaces"):
            return [(name,)]
        if change.after is None and (namespace in self._deleting or name in ("default", ROOT_CA)):
            return [(namespace,)]
        return []

    async def reconcile(self, key: Key) -> None:
        name = key[0]
        entry = await self._context.find(NAMESPACE, name)
        if entry is None:
            self._deleting.discard(name)
            return
        if entry.raw["metadata"].get("deletionTimestamp"):
            self._deleting.add(name)
            await self._empty(entry, name)
            return
        await self._ensure_defaults(name)

    async def _ensure_defaults(self, namespace: str) -> None:
        await self._ensure(SERVICE_ACCOUNT, namespace, {"metadata": {"name": "default"}})
        bundle = self._root_ca()
        if bundle:
            await self._ensure(
                CONFIG_MAP, namespace, {"metadata": {"name": ROOT_CA}, "data": {"ca.crt": bundle}}
            )

    async def _ensure(self, kind: ApiResource, namespace: str, raw: Raw) -> None:
        type = self._context.registry.find_kind(kind)
        if type is None or await self._context.store.find(type.key(namespace, raw["metadata"]["name"])):
            return
        info = RequestInfo.of(kind, namespace)
        try:
            await create(self._context, type, ApiCall("create", info, self.user, body=raw))
        except (AlreadyExists, NotFound, Forbidden):
            return

    async def _empty(self, entry: Entry, namespace: str) -> None:
        left = 0
        refusal: KubeError | None = None
        for type in self._context.registry.storage_types():
            if not type.kind.namespaced:
                continue
            with self._context.store.batch():
                for one in (await self._context.store.range(type.prefix(namespace))).entries:
                    left += 1
                    try:
                        if not one.raw["metadata"].get("deletionTimestamp"):
                            await self.delete(type, one, "Background")
                    except KubeError as error:
                        refusal = error  # a webhook may require another object to be deleted first
        if left:
            left = await self._count(namespace)
        entry = await self._context.store.find(entry.key) or entry
        try:
            await self._finish(entry, left)
        except RevisionMismatch:
            self._queue.add((namespace,))
        if refusal is not None:
            raise refusal

    async def _count(self, namespace: str) -> int:
        left = 0
        for type in self._context.registry.storage_types():
            if type.kind.namespaced:
                left += len((await self._context.store.range(type.prefix(namespace), limit=1)).entries)
        return left

    async def _finish(self, entry: Entry, left: int) -> None:
        raw = entry.raw
        if not left and not raw["metadata"].get("finalizers"):
            await self._context.store.commit(entry.key, None, entry.rev)
            return
        status, spec = raw.get("status") or {}, dict(raw.get("spec") or {})
        remaining = Condition(
            "NamespaceContentRemaining", "True", "SomeResourcesRemain", f"{left} kinds of resources remain"
        )
        if not left:
            spec.pop("finalizers", None)
            remaining = Condition(
                "NamespaceContentRemaining", "False", "ContentRemoved", "All content successfully removed"
            )
        conditions = set_condition(status.get("conditions"), remaining, self._context.clock.now())
        marked = {
            **raw,
            "spec": spec,
            "status": {**status, "phase": "Terminating", "conditions": conditions},
        }
        if marked != raw:
            await self._context.store.commit(entry.key, marked, entry.rev)
