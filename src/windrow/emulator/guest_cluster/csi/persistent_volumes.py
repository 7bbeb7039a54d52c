"""The PersistentVolume controller of a guest cluster (kube-controller-manager's): binds claims and volumes, says which
provisioner has to make one, and protects volumes that are bound.

It deletes nothing: a volume whose claim is gone is Released, and the rest is its provisioner's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from windrow.emulator import names
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.csi.capabilities import storage_bytes
from windrow.emulator.guest_cluster.csi.context import StorageContext
from windrow.emulator.guest_cluster.csi.kinds import BIND_COMPLETED, BOUND_BY_CONTROLLER, PV, PV_PROTECTION
from windrow.emulator.guest_cluster.csi.workers import Workers
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.edits import Edit, add_finalizers, annotate, remove_finalizer
from windrow.emulator.kit.informer import start_informers
from windrow.emulator.kit.listers import Key, key_of
from windrow.emulator.storage.classes import class_of, find_default
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    finalizers_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
    resource_version_of,
    uid_of,
)
from windrow.kubernetes.resources import PVC, STORAGE_CLASS

COMPONENT = "persistentvolume-controller"


async def run_volume_controller(guest: GuestOS, cluster: GuestCluster) -> None:
    """Run the controller of the leading server until cancelled; after a KubeError, start it again."""
    while True:
        await cluster.wait_usable()
        try:
            await PersistentVolumeController(guest, cluster).run()
        except* KubeError as errors:
            guest.log(COMPONENT, f"panic: {errors.exceptions[0]}")
            await guest.sleep(guest.delays.crash_backoff)


def is_bound_to(volume: Raw, claim: Raw) -> bool:
    """Whether the volume names this claim; one that an administrator reserved names no uid."""
    named = nested(volume, "spec", "claimRef", default={})
    same = (named.get("namespace"), named.get("name")) == (namespace_of(claim), name_of(claim))
    return same and named.get("uid") in (None, "", uid_of(claim))


def fits(volume: Raw, claim: Raw) -> bool:
    """Whether an administrator's volume, bound to no claim, satisfies this one."""
    have, wanted = volume["spec"], claim["spec"]
    selected = nested(wanted, "selector", "matchLabels", default={})
    return (
        not have.get("claimRef")
        and not is_deleting(volume)
        and (have.get("storageClassName") or "") == (wanted.get("storageClassName") or "")
        and (have.get("volumeMode") or "Filesystem") == (wanted.get("volumeMode") or "Filesystem")
        and set(wanted.get("accessModes") or ()) <= set(have.get("accessModes") or ())
        and storage_bytes(volume, "spec", "capacity") >= storage_bytes(claim, "spec", "resources", "requests")
        and all(labels_of(volume).get(key) == value for key, value in selected.items())
    )


def claim_reference(claim: Raw) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace_of(claim),
        "name": name_of(claim),
        "uid": uid_of(claim),
        "resourceVersion": resource_version_of(claim),
    }


class PersistentVolumeController:
    def __init__(self, guest: GuestOS, cluster: GuestCluster) -> None:
        self._context = context = StorageContext(guest, cluster, (PVC, PV, STORAGE_CLASS), COMPONENT)
        self._claims = Workers(COMPONENT, guest, cluster, self._sync_claim, limit=1)
        self._volumes = Workers(COMPONENT, guest, cluster, self._sync_volume, limit=1)
        context.on_change(PVC, self._on_claim)
        context.on_change(PV, self._on_volume)
        context.on_change(STORAGE_CLASS, self._on_class)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            await start_informers(group, self._context.informers.values())
            group.create_task(self._claims.run())
            group.create_task(self._volumes.run())

    def _on_claim(self, key: Key, claim: Raw | None, last: Raw) -> None:
        self._claims.on_change(key, None if claim is None else _meaning(claim))
        if volume := nested(last, "spec", "volumeName", default=""):
            self._volumes.add(("", str(volume)))

    def _on_volume(self, key: Key, volume: Raw | None, last: Raw) -> None:
        self._volumes.on_change(key, None if volume is None else _meaning(volume))
        named = nested(last, "spec", "claimRef", default={})
        if named:
            self._claims.add((str(named.get("namespace")), str(named.get("name"))))
            return
        for claim in self._pending_claims():
            self._claims.add(key_of(claim))

    def _on_class(self, key: Key, storage_class: Raw | None, last: Raw) -> None:
        for claim in self._pending_claims():
            self._claims.add(key_of(claim))

    def _pending_claims(self) -> list[Raw]:
        claims = self._context.informers[PVC].values()
        return [one for one in claims if not nested(one, "spec", "volumeName")]

    # -- claims

    async def _sync_claim(self, key: Key) -> None:
        claim = self._context.informers[PVC].get(key)
        if claim is None:
            return
        if BIND_COMPLETED in annotations_of(claim):
            await self._check_volume_of(claim)
            return
        if is_deleting(claim):
            return
        wanted = nested(claim, "spec", "volumeName", default="")
        volume = self._context.find(PV, wanted) if wanted else self._find_volume(claim)
        if volume is not None and (is_bound_to(volume, claim) or not nested(volume, "spec", "claimRef")):
            await self._bind(claim, volume)
        elif not wanted:
            await self._ask_for_volume(claim)

    def _find_volume(self, claim: Raw) -> Raw | None:
        """The volume that was made or reserved for the claim, else the smallest one that fits."""
        volumes = sorted(self._context.informers[PV].values(), key=lambda one: (_capacity(one), name_of(one)))
        made = (one for one in volumes if is_bound_to(one, claim))
        if (found := next(made, None)) is not None or self._is_delayed(claim):
            return found
        return next((one for one in volumes if fits(one, claim)), None)

    def _is_delayed(self, claim: Raw) -> bool:
        """Whether the scheduler has to choose a node first."""
        storage_class = self._context.find(
            STORAGE_CLASS, nested(claim, "spec", "storageClassName", default="")
        )
        waits = nested(storage_class, "volumeBindingMode") == "WaitForFirstConsumer"
        return waits and names.SELECTED_NODE not in annotations_of(claim)

    async def _bind(self, claim: Raw, volume: Raw) -> None:
        context, reference = self._context, claim_reference(claim)

        def reserve(raw: Raw) -> None:
            if nested(raw, "spec", "claimRef", "uid") != uid_of(claim):
                raw["spec"]["claimRef"] = reference
                annotate(raw, {BOUND_BY_CONTROLLER: "yes"})

        def name_volume(raw: Raw) -> None:
            marks = {BIND_COMPLETED: "yes"}
            if not raw["spec"].get("volumeName"):
                raw["spec"]["volumeName"] = name_of(volume)
                marks[BOUND_BY_CONTROLLER] = "yes"
            annotate(raw, dict(marks))

        def set_bound(raw: Raw) -> None:
            capacity = dict(volume["spec"]["capacity"])
            modes = list(volume["spec"].get("accessModes") or ())
            raw.setdefault("status", {}).update(phase="Bound", accessModes=modes, capacity=capacity)

        await context.update(PV, volume, reserve)
        await context.update(PV, volume, _set_phase("Bound"), "status")
        await context.update(PVC, claim, name_volume)
        await context.update(PVC, claim, set_bound, "status")

    async def _ask_for_volume(self, claim: Raw) -> None:
        context = self._context
        wanted = class_of(claim)
        if wanted is None:
            default = find_default(context.informers[STORAGE_CLASS].values())
            if default is not None:
                # Retroactive default StorageClass assignment, and the admission plugin of the same effect.
                await context.update(
                    PVC, claim, lambda raw: raw["spec"].setdefault("storageClassName", name_of(default))
                )
                return
        storage_class = context.find(STORAGE_CLASS, wanted or "")
        if not wanted or storage_class is None:
            found = f'storageclass.storage.k8s.io "{wanted}" not found'
            nothing = "no persistent volumes available for this claim and no storage class is set"
            reason, why = ("ProvisioningFailed", found) if wanted else ("FailedBinding", nothing)
            await context.record(claim, reason, why, "Warning" if wanted else "Normal")
            return
        if self._is_delayed(claim):
            why = "waiting for first consumer to be created before binding"
            await context.record(claim, "WaitForFirstConsumer", why)
            return
        driver = str(storage_class["provisioner"])
        if annotations_of(claim).get(names.PROVISIONERS[-1]) == driver:
            return
        await context.update(PVC, claim, lambda raw: annotate(raw, dict.fromkeys(names.PROVISIONERS, driver)))
        await context.record(
            claim,
            "ExternalProvisioning",
            f"Waiting for a volume to be created either by the external provisioner '{driver}' or manually by the "
            "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
            "correctly registered.",
        )

    async def _check_volume_of(self, claim: Raw) -> None:
        """A bound claim whose volume is gone has lost its data."""
        context, name = self._context, nested(claim, "spec", "volumeName", default="")
        is_lost = await context.client().find(PV.ref(name)) is None
        if is_lost and nested(claim, "status", "phase") != "Lost":
            await context.update(PVC, claim, _set_phase("Lost"), "status")
            why = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
            await context.record(claim, "ClaimLost", why, "Warning")

    # -- volumes

    async def _sync_volume(self, key: Key) -> None:
        context = self._context
        volume = context.informers[PV].get(key)
        if volume is None:
            return
        if is_deleting(volume):
            await self._unprotect(volume)
            return
        if PV_PROTECTION not in finalizers_of(volume):
            await context.update(PV, volume, add_finalizers(PV_PROTECTION))
        named = nested(volume, "spec", "claimRef", default={})
        if not named.get("uid"):
            await context.update(PV, volume, _set_phase("Available"), "status")
            return
        claim = await context.client().find(PVC.ref(named["name"], named["namespace"]))
        if claim is None or uid_of(claim) != named["uid"]:
            await context.update(PV, volume, _set_phase("Released"), "status")

    async def _unprotect(self, volume: Raw) -> None:
        """The protection of a deleted volume ends with its claim."""
        context, named = self._context, nested(volume, "spec", "claimRef", default={})
        claim = await context.client().find(PVC.ref(named["name"], named["namespace"])) if named else None
        if claim is not None and uid_of(claim) == named.get("uid"):
            return
        await context.update(PV, volume, remove_finalizer(PV_PROTECTION))


def _meaning(raw: Raw) -> Hashable:
    """What binding depends on."""
    marks = annotations_of(raw)
    return (
        uid_of(raw),
        is_deleting(raw),
        nested(raw, "spec", "volumeName"),
        nested(raw, "spec", "storageClassName"),
        nested(raw, "spec", "claimRef", "uid"),
        marks.get(names.SELECTED_NODE),
        marks.get(BIND_COMPLETED),
        PV_PROTECTION in finalizers_of(raw),
    )


def _capacity(volume: Raw) -> int:
    return storage_bytes(volume, "spec", "capacity")


def _set_phase(phase: str) -> Edit:
    def edit(raw: Raw) -> None:
        raw.setdefault("status", {})["phase"] = phase

    return edit
