"""The PersistentVolumeClaim controller: binds claims of a ready StorageClass, expands them, protects those in use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from windrow.emulator import kinds, names
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.host.longhorn_scheduling import ReplicaScheduler
from windrow.emulator.host.persistent_volumes import claim_volume, create_volume, expand_volume
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import annotate, remove_finalizer
from windrow.emulator.kit.listers import Key, Listers
from windrow.emulator.kit.step_timers import StepTimers
from windrow.emulator.kit.vm_readings import FINAL, phase_of
from windrow.emulator.quantities import quantity_or_zero
from windrow.emulator.storage.classes import find_default
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    finalizers_of,
    is_deleting,
    name_of,
    namespace_of,
    nested,
    uid_of,
)
from windrow.kubernetes.resources import PVC, ref_of

PROTECTION = "kubernetes.io/pvc-protection"


def default_class(listers: Listers) -> str:
    """The name of the default StorageClass; "" without one."""
    found = find_default(listers.classes.values())
    return "" if found is None else name_of(found)


def is_local(claim: Raw, listers: Listers) -> bool:
    """Whether its volume is on one host, and cannot be attached on another."""
    name = nested(claim, "spec", "storageClassName", default="") or default_class(listers)
    return nested(listers.classes.get(("", name)), "provisioner") in names.LOCAL_PROVISIONERS


def waits_for_consumer(claim: Raw, listers: Listers) -> bool:
    """Whether its class has a volume made once a pod with it has a host."""
    name = nested(claim, "spec", "storageClassName", default="")
    return bool(nested(listers.classes.get(("", name)), "volumeBindingMode") == "WaitForFirstConsumer")


def needs_consumer(claim: Raw, listers: Listers) -> bool:
    """Whether its class waits for a pod, and no node was selected for one yet."""
    if nested(claim, "status", "phase") == "Bound" or names.SELECTED_NODE in annotations_of(claim):
        return False
    return waits_for_consumer(claim, listers)


def class_of(claim: Raw, listers: Listers) -> str:
    """The name of its StorageClass."""
    wanted = nested(claim, "spec", "storageClassName", default=None)
    return default_class(listers) if wanted is None else str(wanted)


def unbound_reason(claim: Raw, listers: Listers) -> str:
    """Why the claim cannot be bound; "" when it can."""
    if volume := nested(claim, "spec", "volumeName", default=""):
        return "" if ("", volume) in listers.volumes else f'persistentvolume "{volume}" not found'
    name = class_of(claim, listers)
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
    """The PersistentVolumeClaim controller, with the provisioner and the resizer of the hosts' storage."""

    def __init__(
        self,
        client: AdminClient,
        listers: Listers,
        clock: ScaledClock,
        delays: Delays,
        copy_disk: Callable[[str, str], None],
        delete_disk: Callable[[str], None],
        replicas: ReplicaScheduler,
    ) -> None:
        self._client = client
        self._clock = clock
        self._copy_disk = copy_disk
        self._listers = listers
        self._delays = delays
        self._delete_disk = delete_disk
        self._replicas = replicas
        self._timers = StepTimers(clock)

    async def reconcile(self, key: Key) -> timedelta | None:
        claim = await self._client.find(PVC.ref(key[1], key[0]))
        if claim is None:
            return None
        if is_deleting(claim):
            await self._release(claim, key)
            return None
        if nested(claim, "status", "phase") == "Bound":
            return await self._expand(claim)
        if unbound_reason(claim, self._listers) or needs_consumer(claim, self._listers):
            self._timers.restart(uid_of(claim), "bind")
            return None
        return await self._provision(claim)

    async def _provision(self, claim: Raw) -> timedelta | None:
        """Have a volume made and bind the claim to it; or bind it to the volume that it names."""
        ref = ref_of(PVC, claim)
        if name := nested(claim, "spec", "volumeName", default=""):
            bound_to: Raw = {"namespace": namespace_of(claim), "name": name_of(claim), "uid": uid_of(claim)}
            await claim_volume(
                self._client, name, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **bound_to}
            )
        else:
            storage_class = self._listers.classes["", class_of(claim, self._listers)]
            driver = str(storage_class["provisioner"])
            await self._client.mutate(
                ref, lambda raw: annotate(raw, dict.fromkeys(names.PROVISIONERS, driver))
            )
            source = await self._find_source(claim)
            if source is None:
                self._timers.restart(uid_of(claim), "bind")
                return self._clock.after(self._delays.claim_retry)
            if due := self._timers.due(uid_of(claim), "bind", self._delays.volume_bind):
                return due
            if source:
                self._copy_disk(source, uid_of(claim))
            name = name_of(await create_volume(self._client, claim, storage_class, self._replicas))
        await self._client.mutate(ref, lambda raw: _name_volume(raw, name))
        await self._client.mutate(ref, _bind, "status")
        return None

    async def _find_source(self, claim: Raw) -> str | None:
        """The uid of what is copied: a snapshot's content or another claim; "" for a blank volume, None while it waits: for
        its source, or as it is smaller than that."""
        source = nested(claim, "spec", "dataSourceRef") or nested(claim, "spec", "dataSource")
        if not source:
            return ""
        wanted = quantity_or_zero(nested(claim, "spec", "resources", "requests", "storage"))
        key = (namespace_of(claim), str(source.get("name", "")))
        match source.get("kind"):
            case "VolumeSnapshot":
                found = self._listers.snapshots.get(key)
                size = nested(found, "status", "restoreSize")
                name = nested(found, "status", "boundVolumeSnapshotContentName", default="")
                content = await self._client.find(kinds.SNAPSHOT_CONTENT.ref(name)) if name else None
                ready = content is not None and nested(found, "status", "readyToUse")
                return uid_of(content) if content and ready and wanted >= quantity_or_zero(size) else None
            case "PersistentVolumeClaim":
                other = self._listers.claims.get(key)
                size = nested(other, "status", "capacity", "storage")
                is_bound = nested(other, "status", "phase") == "Bound"
                return uid_of(other) if other and is_bound and wanted >= quantity_or_zero(size) else None
        return None

    async def _expand(self, claim: Raw) -> timedelta | None:
        """Follow the request of a claim that grew; the capacity follows later."""
        wanted = nested(claim, "spec", "resources", "requests", "storage")
        if quantity_or_zero(wanted) <= quantity_or_zero(nested(claim, "status", "capacity", "storage")):
            self._timers.restart(uid_of(claim), "expand")
            return None
        ref = ref_of(PVC, claim)
        await self._client.mutate(ref, _begin_resize, "status")
        volume = str(nested(claim, "spec", "volumeName", default=""))
        if problem := self._replicas.grow(volume, int(quantity_or_zero(wanted))):
            self._timers.restart(uid_of(claim), "expand")
            await self._client.mutate(ref, lambda raw: _fail_resize(raw, problem), "status")
            return self._clock.after(self._delays.replica_retry)
        if due := self._timers.due(uid_of(claim), "expand", self._delays.volume_expand):
            return due
        await expand_volume(self._client, volume, wanted)
        await self._client.mutate(ref, lambda raw: _end_resize(raw, wanted), "status")
        return None

    async def _release(self, claim: Raw, key: Key) -> None:
        if PROTECTION not in finalizers_of(claim) or vmis_using(key, self._listers):
            return
        self._delete_disk(uid_of(claim))
        self._timers.forget(uid_of(claim))
        await self._client.mutate(PVC.ref(key[1], key[0]), remove_finalizer(PROTECTION))


def _name_volume(raw: Raw, name: str) -> None:
    raw["spec"].setdefault("volumeName", name)
    annotate(raw, {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"})


def _bind(raw: Raw) -> None:
    raw["status"] = {
        "phase": "Bound",
        "accessModes": raw["spec"].get("accessModes") or [],
        "capacity": dict(nested(raw, "spec", "resources", "requests", default={})),
    }


def _begin_resize(raw: Raw) -> None:
    raw["status"].setdefault("conditions", [{"type": "Resizing", "status": "True"}])


def _fail_resize(raw: Raw, problem: str) -> None:
    failed = {"type": "ControllerResizeError", "status": "True", "message": problem}
    raw["status"]["conditions"] = [{"type": "Resizing", "status": "True"}, failed]


def _end_resize(raw: Raw, size: object) -> None:
    raw["status"].pop("conditions", None)
    raw["status"]["capacity"] = {"storage": size}
