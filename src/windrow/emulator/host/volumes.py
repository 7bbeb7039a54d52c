"""The PersistentVolumeClaim controller: binds claims of a ready StorageClass, protects those in use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from windrow.emulator import names
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import remove_finalizer
from windrow.emulator.kit.listers import Key, Listers
from windrow.emulator.kit.vm_readings import FINAL, phase_of
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, annotations_of, finalizers_of, is_deleting, nested, uid_of
from windrow.kubernetes.resources import PVC

PROTECTION = "kubernetes.io/pvc-protection"


def default_class(listers: Listers) -> str:
    """The default StorageClass."""
    for raw in listers.classes.values():
        if annotations_of(raw).get(names.DEFAULT_CLASS) == "true":
            return str(raw["metadata"]["name"])
    return ""


def is_local(claim: Raw, listers: Listers) -> bool:
    """Whether its volume is on one host, and cannot be attached on another."""
    name = nested(claim, "spec", "storageClassName", default="") or default_class(listers)
    return nested(listers.classes.get(("", name)), "provisioner") in names.LOCAL_PROVISIONERS


def needs_consumer(claim: Raw, listers: Listers) -> bool:
    """Whether its class waits for a pod, and no node was selected for one yet."""
    if nested(claim, "status", "phase") == "Bound" or names.SELECTED_NODE in annotations_of(claim):
        return False
    name = nested(claim, "spec", "storageClassName", default="")
    return bool(nested(listers.classes.get(("", name)), "volumeBindingMode") == "WaitForFirstConsumer")


def unbound_reason(claim: Raw, listers: Listers) -> str:
    """Why the claim cannot be bound; "" when it can."""
    wanted = nested(claim, "spec", "storageClassName", default=None)
    name = default_class(listers) if wanted is None else wanted
    if ("", name) not in listers.classes:
        return (
            f'storageclass.storage.k8s.io "{name}" not found'
            if name
            else "no class, and no volume is offered"
        )
    for image in listers.images.values():
        if nested(image, "status", "storageClassName") == name and not is_true(
            nested(image, "status", "conditions"), "Imported"
        ):
            return f"backing image of class {name} is not ready"
    return ""


def vmis_using(key: Key, listers: Listers) -> list[Raw]:
    """The VMIs whose launcher pod mounts the claim."""
    keys = listers.vmis_by_claim.get(key, frozenset())
    return [vmi for vmi in map(listers.instances.get, keys) if vmi is not None and phase_of(vmi) not in FINAL]


class ClaimController:
    """The PersistentVolumeClaim controller."""

    def __init__(
        self,
        client: AdminClient,
        listers: Listers,
        clock: ScaledClock,
        delays: Delays,
        delete_disk: Callable[[str], None],
    ) -> None:
        self._client = client
        self._listers = listers
        self._clock = clock
        self._delays = delays
        self._delete_disk = delete_disk
        self._since: dict[str, timedelta] = {}

    async def reconcile(self, key: Key) -> timedelta | None:
        ref = PVC.ref(key[1], key[0])
        claim = await self._client.find(ref)
        if claim is None:
            return None
        if is_deleting(claim):
            await self._release(claim, key)
            return None
        if nested(claim, "status", "phase") == "Bound":
            await self._client.mutate(ref, _grow, "status")
            return None
        if unbound_reason(claim, self._listers):
            self._since.pop(uid_of(claim), None)
            return None
        now = self._clock.monotonic()
        due = self._clock.after(self._delays.volume_bind, self._since.setdefault(uid_of(claim), now))
        if now < due:
            return due
        self._since.pop(uid_of(claim), None)
        await self._client.mutate(ref, _name_volume)
        await self._client.mutate(ref, _bind, "status")
        return None

    async def _release(self, claim: Raw, key: Key) -> None:
        if PROTECTION not in finalizers_of(claim) or vmis_using(key, self._listers):
            return
        self._delete_disk(uid_of(claim))
        await self._client.mutate(PVC.ref(key[1], key[0]), remove_finalizer(PROTECTION))


def _name_volume(raw: Raw) -> None:
    raw["spec"].setdefault("volumeName", f"pvc-{uid_of(raw)}")


def _bind(raw: Raw) -> None:
    raw["status"] = {
        "phase": "Bound",
        "accessModes": raw["spec"].get("accessModes") or [],
        "capacity": dict(nested(raw, "spec", "resources", "requests", default={})),
    }


def _grow(raw: Raw) -> None:
    wanted = nested(raw, "spec", "resources", "requests", default={})
    if wanted:
        raw["status"]["capacity"] = dict(wanted)
