"""The PVC protection controller: a deleted PersistentVolumeClaim keeps its finalizer while a pod uses it."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.apiserver.controllers.loop import Key, StoreController, split_key
from windrow.apiserver.storage.port import Change, Raw
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import POD, PVC

PROTECTION = "kubernetes.io/pvc-protection"


def claims_of(pod: Raw) -> set[str]:
    """The claims that a pod mounts."""
    names = (
        nested(volume, "persistentVolumeClaim", "claimName")
        for volume in nested(pod, "spec", "volumes", default=[])
    )
    return {str(name) for name in names if name}


class PvcProtectionController(StoreController):
    async def list_keys(self) -> Iterable[Key]:
        return [(entry.key,) for entry in await self._context.entries(PVC)]

    def keys_of_change(self, change: Change) -> Iterable[Key]:
        group, plural, namespace, _ = split_key(change.key)
        type = self._context.registry.find_kind(PVC)
        if type is None or group:
            return []
        if plural == PVC.plural and change.after is not None:
            return [(change.key,)]
        if plural == POD.plural:
            return [(type.key(namespace, name),) for name in sorted(claims_of(change.last.raw))]
        return []

    async def reconcile(self, key: Key) -> None:
        entry = await self._context.store.find(key[0])
        if entry is None:
            return
        head = entry.raw["metadata"]
        finalizers = head.get("finalizers") or []
        if not head.get("deletionTimestamp") or PROTECTION not in finalizers or await self._is_used(head):
            return
        await self.remove_finalizer(entry, PROTECTION)

    async def _is_used(self, claim: Raw) -> bool:
        for entry in await self._context.entries(POD, claim["namespace"]):
            is_over = nested(entry.raw, "status", "phase") in ("Succeeded", "Failed")
            if claim["name"] in claims_of(entry.raw) and not is_over:
                return True
        return False
