"""The garbage collector: deletes dependents by their owner references (reference/05 §7.11)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from hashlib import sha256

from windrow.apiserver.context import ServerContext
from windrow.apiserver.controllers.loop import Key, StoreController, controller_user, split_key
from windrow.apiserver.request.info import ApiCall, RequestInfo
from windrow.apiserver.storage.port import Change, Entry, Raw
from windrow.apiserver.types.registry import ResourceType
from windrow.apiserver.verbs.create import create
from windrow.apiserver.verbs.delete import FOREGROUND, ORPHAN
from windrow.core.wait import yield_turn
from windrow.kubernetes.errors import AlreadyExists, KubeError
from windrow.kubernetes.resources import EVENT

_log = logging.getLogger(__name__)


COMPONENT = "garbage-collector-controller"
MAX_EVENT_NAME = 236  # bytes of the object's name that leave room for the mark
MAX_EVENT_MESSAGE = 1024


class GarbageCollector(StoreController):
    user = controller_user("generic-garbage-collector")

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        # Both hold what is stored, and nothing that was.
        self._dependents: dict[str, set[str]] = {}  # owner uid -> keys that name it
        self._keys: dict[str, str] = {}  # uid -> key

    async def list_keys(self) -> Iterable[Key]:
        self._dependents.clear()
        self._keys.clear()
        found = []
        for type in self._context.registry.storage_types():
            for entry in (await self._context.store.range(type.prefix())).entries:
                self._index(entry)
                if self._is_relevant(entry.raw):
                    found.append((entry.key,))
        return found

    def _index(self, entry: Entry) -> None:
        self._keys[str(entry.raw["metadata"].get("uid"))] = entry.key
        owners = owners_of(entry.raw)
        if not owners and entry.raw["metadata"].get("ownerReferences"):
            _log.warning(
                "the owner references of %s are malformed and are ignored; write them with strings as apiVersion, "
                "kind, name and uid",
                entry.key,
            )
        for owner in owners:
            self._dependents.setdefault(owner["uid"], set()).add(entry.key)

    def _is_relevant(self, raw: Raw) -> bool:
        head = raw["metadata"]
        return bool(owners_of(raw) or (head.get("deletionTimestamp") and head.get("finalizers")))

    def _unindex(self, entry: Entry) -> None:
        self._keys.pop(str(entry.raw["metadata"].get("uid")), None)
        for owner in owners_of(entry.raw):
            keys = self._dependents.get(owner["uid"], set())
            keys.discard(entry.key)
            if not keys:
                self._dependents.pop(owner["uid"], None)

    def keys_of_change(self, change: Change) -> Iterable[Key]:
        if change.before is not None:
            self._unindex(change.before)
        if change.after is not None:
            self._index(change.after)
            return [(change.key,)] if self._is_relevant(change.after.raw) else []
        head = change.last.raw["metadata"]
        touched: list[Key] = [(key,) for key in sorted(self._dependents.get(head["uid"], ()))]
        for owner in owners_of(change.last.raw):
            owner_key = self._owner_key(owner, head.get("namespace", ""))
            if owner_key is not None and self._keys.get(owner["uid"]) == owner_key:
                touched.append((owner_key,))
        return touched

    def _owner_type(self, owner: Raw) -> ResourceType | None:
        return self._context.registry.find_by_gvk(owner["apiVersion"], owner["kind"])

    def _owner_key(self, owner: Raw, namespace: str) -> str | None:
        type = self._owner_type(owner)
        return type.key(namespace, owner["name"]) if type else None

    async def reconcile(self, key: Key) -> None:
        entry = await self._context.store.find(key[0])
        if entry is None:
            return
        group, plural, _, _ = split_key(entry.key)
        type = self._context.registry.find_resource(group, plural)
        if type is None:
            return
        head = entry.raw["metadata"]
        finalizers = head.get("finalizers") or ()
        if head.get("deletionTimestamp"):
            if ORPHAN in finalizers:
                await self._orphan(entry)
            elif FOREGROUND in finalizers:
                await self._foreground(entry)
            return
        if owners_of(entry.raw):
            await self._check_owners(type, entry)

    async def _check_owners(self, type: ResourceType, entry: Entry) -> None:
        """Delete the object if all its owners are absent; else remove the absent ones from its owner references."""
        owners = owners_of(entry.raw)
        namespace = entry.raw["metadata"].get("namespace", "")
        if not namespace and (foreign := [owner for owner in owners if self._is_namespaced(owner)]):
            # No namespace to look for the owner in: as unresolvable as a kind that is not served, so it is kept.
            for owner in foreign:
                await self._record_foreign_owner(type, entry, owner)
            return
        absent = []
        for owner in owners:
            if await self._is_absent(owner, entry):
                absent.append(owner)
                await self._record_foreign_owner(type, entry, owner)
        if len(absent) == len(owners):
            await self.delete(type, entry)
        elif absent:
            await self._set_owners(entry, [owner for owner in owners if owner not in absent])

    async def _is_absent(self, owner: Raw, entry: Entry) -> bool:
        type = self._owner_type(owner)
        if type is None:
            return False  # a kind that is not served cannot be read: unknown is not absent
        namespace = entry.raw["metadata"].get("namespace", "")
        found = await self._context.store.find(type.key(namespace, owner["name"]))
        return found is None or found.raw["metadata"]["uid"] != owner["uid"]

    def _is_namespaced(self, owner: Raw) -> bool:
        type = self._owner_type(owner)
        return type is not None and type.kind.namespaced

    async def _record_foreign_owner(self, type: ResourceType, entry: Entry, owner: Raw) -> None:
        """A Warning, once in the life of an Event, where the owner is there, but in another namespace."""
        owner_type = self._owner_type(owner)
        events = self._context.registry.find_kind(EVENT)
        if owner_type is None or not owner_type.kind.namespaced or events is None:
            return
        if not self._keys.get(owner["uid"], "").startswith(owner_type.prefix()):
            return  # there is no such object at all
        head = entry.raw["metadata"]
        namespace, now = head.get("namespace", ""), self._context.timestamp()
        mark = sha256(f"{head.get('uid')} {owner['uid']}".encode()).hexdigest()[:16]
        group, _, version = owner["apiVersion"].rpartition("/")
        place = "/".join(part for part in (group, version, owner["kind"]) if part)
        text = (
            f"ownerRef [{place}, namespace: {namespace}, name: {owner['name']}, uid: {owner['uid']}] "
            f'does not exist in namespace "{namespace}"'
        )
        reference = {
            "kind": type.kind.kind,
            "namespace": namespace,
            "name": head["name"],
            "uid": head.get("uid", ""),
            "apiVersion": type.kind.api_version,
        }
        event: Raw = {
            "metadata": {"name": f"{head['name'][:MAX_EVENT_NAME]}.{mark}"},
            "involvedObject": {name: value for name, value in reference.items() if value},
            "reason": "OwnerRefInvalidNamespace",
            "message": text[:MAX_EVENT_MESSAGE],
            "type": "Warning",
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        info = RequestInfo.of(EVENT, namespace or "default")
        try:
            await create(self._context, events, ApiCall("create", info, self.user, body=event))
        except AlreadyExists:
            pass  # it was recorded before
        except KubeError as error:  # the namespace is going, the disk is full: the object is treated alike
            _log.warning("cannot record that %s has an owner of another namespace: %s", entry.key, error)

    async def _set_owners(self, entry: Entry, owners: list[Raw]) -> None:
        head = {name: value for name, value in entry.raw["metadata"].items() if name != "ownerReferences"}
        if owners:
            head["ownerReferences"] = owners
        await self.commit(entry, {**entry.raw, "metadata": head})

    async def _find_dependent(self, key: str, owner: Entry) -> Entry | None:
        """The object at `key`, as it is now, if it names `owner`: in its namespace, or anywhere if it has none."""
        uid, namespace = owner.raw["metadata"]["uid"], owner.raw["metadata"].get("namespace")
        found = await self._context.store.find(key)
        if found is None or (namespace and found.raw["metadata"].get("namespace") != namespace):
            return None  # an owner of another namespace is an absent one
        return found if any(one["uid"] == uid for one in owners_of(found.raw)) else None

    def _dependent_keys(self, owner: Entry) -> list[str]:
        return sorted(self._dependents.get(owner.raw["metadata"]["uid"], ()))

    async def _dependents_of(self, owner: Entry) -> list[Entry]:
        found = [await self._find_dependent(key, owner) for key in self._dependent_keys(owner)]
        return [dependent for dependent in found if dependent is not None]

    async def _orphan(self, entry: Entry) -> None:
        uid = entry.raw["metadata"]["uid"]
        for key in self._dependent_keys(entry):
            if dependent := await self._find_dependent(key, entry):
                owners = owners_of(dependent.raw)
                await self._set_owners(dependent, [owner for owner in owners if owner["uid"] != uid])
                await yield_turn()
        if await self._dependents_of(entry):
            self._queue.add((entry.key,))
            return
        await self.remove_finalizer(entry, ORPHAN)

    async def _foreground(self, entry: Entry) -> None:
        """Delete dependents first; the owner is kept until those with `blockOwnerDeletion` are deleted."""
        uid = entry.raw["metadata"]["uid"]
        for key in self._dependent_keys(entry):
            dependent = await self._find_dependent(key, entry)
            if dependent is None or dependent.raw["metadata"].get("deletionTimestamp"):
                continue
            group, plural, _, _ = split_key(dependent.key)
            type = self._context.registry.find_resource(group, plural)
            if type is not None:
                await self.delete(type, dependent, "Foreground" if self._blocks(dependent, uid) else "")
        if not any(self._blocks(one, uid) for one in await self._dependents_of(entry)):
            await self.remove_finalizer(entry, FOREGROUND)

    @staticmethod
    def _blocks(dependent: Entry, uid: str) -> bool:
        owners = owners_of(dependent.raw)
        return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)


def owners_of(raw: Raw) -> list[Raw]:
    """The owner references; none where one is malformed, as an older server may have stored it."""
    owners = raw["metadata"].get("ownerReferences")
    return owners if isinstance(owners, list) and all(map(_is_owner, owners)) else []


def _is_owner(owner: object) -> bool:
    return isinstance(owner, dict) and all(
        isinstance(owner.get(name), str) for name in ("apiVersion", "kind", "name", "uid")
    )
