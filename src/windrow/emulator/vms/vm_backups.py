"""Backups and snapshots of VMs, and restores from them: VirtualMachineBackups and VirtualMachineRestores (v1.8.2).

Both types of a backup keep the VM's spec and a VolumeSnapshot of each claim, of the class that the setting csi-driver-config has
for the type. A restore makes claims from these, and a new VM with them, or has an existing one take them. Simplified: there is
no target for backups, so what was backed up is kept with the snapshots; Secrets are neither kept nor copied; guests are not frozen.
"""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta

from windrow.core.clock import format_time
from windrow.core.formats.json import NotJson, dumps, loads
from windrow.emulator import kinds, names
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Key, Listers
from windrow.emulator.quantities import quantity_or_zero
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
    new_object,
    owner_reference,
    uid_of,
)
from windrow.kubernetes.resources import PVC, ObjectRef, ref_of

RESTORED_BY, LAST_RESTORE = "restore.harvesterhci.io/name", "restore.harvesterhci.io/last-restore-uid"
_KEPT_SPEC = ("accessModes", "resources", "storageClassName", "volumeMode")


class NotPossible(Exception):
    """The message is that of the status."""


def claims_by_volume(spec: Raw) -> dict[str, str]:
    """The claims of a VM's template by the names of its volumes."""
    volumes = nested(spec, "template", "spec", "volumes", default=[])
    return {
        str(one["name"]): str(one["persistentVolumeClaim"]["claimName"])
        for one in volumes
        if one.get("persistentVolumeClaim")
    }


def snapshot_classes(backup: Raw, listers: Listers) -> dict[str, str]:
    """The class of the VolumeSnapshots by driver. Raises NotPossible."""
    try:
        known = loads(listers.setting("csi-driver-config") or "{}")
    except NotJson as error:
        raise NotPossible(str(error)) from error
    field = (
        "volumeSnapshotClassName"
        if backup["spec"].get("type") == "snapshot"
        else "backupVolumeSnapshotClassName"
    )
    found = {}
    for volume in nested(backup, "status", "volumeBackups", default=[]):
        driver = volume["csiDriverName"]
        if driver not in known:
            raise NotPossible(f"can't find CSI driver {driver} in setting CSIDriverInfo")
        found[driver] = str(known[driver].get(field, ""))
    return found


class VmBackupController:
    """The controller of VirtualMachineBackups."""

    def __init__(self, client: AdminClient, listers: Listers, clock: ScaledClock, delays: Delays) -> None:
        self._client, self._listers = client, listers
        self._clock, self._delays = clock, delays

    async def reconcile(self, key: Key) -> timedelta | None:
        backup = await self._client.find(kinds.VM_BACKUP.ref(key[1], key[0]))
        if backup is None or is_deleting(backup) or nested(backup, "status", "readyToUse"):
            return None
        try:
            status = deepcopy(backup.get("status") or {})
            if "volumeBackups" not in status:
                status = self._begin(backup)
            backup = {**backup, "status": status}
            await self._take_snapshots(backup)
        except NotPossible as error:
            now = format_time(self._clock.now())
            failed = {**(backup.get("status") or {}), "error": {"time": now, "message": str(error)}}
            await self._write(backup, _with_conditions(failed, self._clock, ready=False, error=str(error)))
            return self._clock.after(self._delays.claim_retry)
        await self._write(backup, backup["status"])
        return None

    def _begin(self, backup: Raw) -> Raw:
        vm = self._find_source(backup)
        status: Raw = {
            "sourceUID": uid_of(vm),
            "source": {
                "metadata": {
                    "name": name_of(vm),
                    "namespace": namespace_of(vm),
                    "annotations": dict(annotations_of(vm)),
                    "labels": dict(labels_of(vm)),
                },
                "spec": vm["spec"],
            },
            "volumeBackups": [
                self._render_volume(backup, vm, volume, claim)
                for volume, claim in claims_by_volume(vm["spec"]).items()
            ],
            "readyToUse": False,
        }
        status["csiDriverVolumeSnapshotClassNames"] = snapshot_classes(
            {**backup, "status": status}, self._listers
        )
        return status

    def _find_source(self, backup: Raw) -> Raw:
        source, namespace = backup["spec"]["source"], namespace_of(backup)
        if source.get("kind") != "VirtualMachine":
            raise NotPossible(f"unsupported source: {source.get('kind')} {source.get('name')}")
        vm = self._listers.vms.get((namespace, source["name"]))
        if vm is None:
            raise NotPossible(f'virtualmachines.kubevirt.io "{source["name"]}" not found')
        if is_deleting(vm):
            raise NotPossible(f"vm {namespace}/{source['name']} is being deleted")
        return vm

    def _render_volume(self, backup: Raw, vm: Raw, volume: str, claim: str) -> Raw:
        found = self._listers.claims.get((namespace_of(vm), claim))
        if found is None:
            raise NotPossible(f'persistentvolumeclaims "{claim}" not found')
        bound = str(nested(found, "spec", "volumeName", default=""))
        made = self._listers.volumes.get(("", bound))
        if made is None:
            raise NotPossible(f'persistentvolumes "{bound}" not found')
        return {
            "name": f"{name_of(backup)}-volume-{claim}",
            "volumeName": volume,
            "csiDriverName": nested(made, "spec", "csi", "driver"),
            "persistentVolumeClaim": {
                "metadata": {
                    "name": claim,
                    "namespace": namespace_of(vm),
                    "labels": dict(labels_of(found)),
                    "annotations": dict(annotations_of(found)),
                },
                "spec": found["spec"],
            },
            "readyToUse": False,
            "volumeSize": int(quantity_or_zero(nested(made, "spec", "capacity", "storage"))),
        }

    async def _take_snapshots(self, backup: Raw) -> None:
        """A snapshot of each volume; the backup's status says what became of them."""
        classes, status = snapshot_classes(backup, self._listers), backup["status"]
        owner = {**owner_reference(kinds.VM_BACKUP, backup), "controller": True}
        for volume in status["volumeBackups"]:
            source = {"persistentVolumeClaimName": volume["persistentVolumeClaim"]["metadata"]["name"]}
            spec = {"source": source, "volumeSnapshotClassName": classes[volume["csiDriverName"]]}
            wanted = new_object(
                kinds.SNAPSHOT, volume["name"], namespace_of(backup), owners=[owner], spec=spec
            )
            snapshot = await self._client.ensure(kinds.SNAPSHOT, wanted)
            found = snapshot.get("status") or {}
            told = {
                field: found[field] for field in ("readyToUse", "creationTime", "error") if field in found
            }
            volume.update({"readyToUse": False, **told})
        ready = all(one["readyToUse"] for one in status["volumeBackups"])
        failed = next((one["name"] for one in status["volumeBackups"] if one.get("error")), "")
        error = f"VolumeSnapshot {failed} in error state" if failed else ""
        if ready:
            status["creationTime"] = format_time(self._clock.now())
        status["readyToUse"] = ready
        status.pop("error", None)
        if error:
            status["error"] = {"time": format_time(self._clock.now()), "message": error}
        backup["status"] = _with_conditions(status, self._clock, ready=ready, error=error)

    async def _write(self, backup: Raw, status: Raw) -> None:
        await self._client.mutate(ref_of(kinds.VM_BACKUP, backup), lambda raw: raw.update(status=status))


class VmRestoreController:
    """The controller of VirtualMachineRestores."""

    def __init__(self, client: AdminClient, listers: Listers, clock: ScaledClock, delays: Delays) -> None:
        self._client, self._listers = client, listers
        self._clock, self._delays = clock, delays

    async def reconcile(self, key: Key) -> timedelta | None:
        restore = await self._client.find(kinds.VM_RESTORE.ref(key[1], key[0]))
        if restore is None or is_deleting(restore) or nested(restore, "status", "complete"):
            return None
        spec = restore["spec"]
        backup = self._listers.vm_backups.get(
            (spec["virtualMachineBackupNamespace"], spec["virtualMachineBackupName"])
        )
        if backup is None or not nested(backup, "status", "readyToUse"):
            return self._clock.after(self._delays.claim_retry)  # refused at creation; it was deleted since
        restores = [self._render_restore(restore, one) for one in backup["status"]["volumeBackups"]]
        bound = [
            await self._restore_claim(restore, *pair)
            for pair in zip(backup["status"]["volumeBackups"], restores, strict=True)
        ]
        vm = await self._ensure_vm(restore, backup, restores)
        status: Raw = {**(restore.get("status") or {}), "restores": restores, "targetUID": uid_of(vm)}
        if not all(bound):
            status = _with_progress(status, self._clock, "Creating new PVCs", "Waiting for new PVCs")
        elif not nested(vm, "status", "ready"):
            await self._start(vm)
            waiting = "Waiting for target vm to be ready"
            status = _with_progress(status, self._clock, waiting, waiting)
        else:
            done = {"complete": True, "restoreTime": format_time(self._clock.now())}
            status = _with_conditions({**status, **done}, self._clock, ready=True)
        owner = owner_reference(kinds.VM, vm, controller=True, block=True)
        await self._write(ref_of(kinds.VM_RESTORE, restore), status, owner)
        return None  # the next change of its claims or its VM comes here

    def _render_restore(self, restore: Raw, volume: Raw) -> Raw:
        backup, name = restore["spec"]["virtualMachineBackupName"], volume["volumeName"]
        claim = f"restore-{backup}-{uid_of(restore)}-{name}"
        return {
            "volumeName": name,
            "persistentVolumeClaimSpec": {
                "metadata": {"name": claim, "namespace": namespace_of(restore)},
                "spec": volume["persistentVolumeClaim"]["spec"],
            },
            "volumeBackupName": volume["name"],
        }

    async def _restore_claim(self, restore: Raw, volume: Raw, made: Raw) -> bool:
        """Whether the claim that is made from the snapshot is bound. May be repeated."""
        before = volume["persistentVolumeClaim"]
        marks = {
            key: value
            for key, value in before["metadata"]["annotations"].items()
            if not key.startswith("pv.kubernetes.io")
        }
        source = {"apiGroup": kinds.SNAPSHOT.group, "kind": kinds.SNAPSHOT.kind, "name": volume["name"]}
        claim = new_object(
            PVC,
            made["persistentVolumeClaimSpec"]["metadata"]["name"],
            namespace_of(restore),
            labels=before["metadata"]["labels"],
            annotations={**marks, RESTORED_BY: name_of(restore)},
            spec={
                **{field: before["spec"][field] for field in _KEPT_SPEC if field in before["spec"]},
                "dataSource": source,
            },
        )
        found = await self._client.ensure(PVC, claim)
        return bool(nested(found, "status", "phase") == "Bound")

    async def _ensure_vm(self, restore: Raw, backup: Raw, restores: list[Raw]) -> Raw:
        """The target with the restored claims, made or changed once. May be repeated."""
        name, source = restore["spec"]["target"]["name"], backup["status"]["source"]
        ref = kinds.VM.ref(name, namespace_of(restore))
        marks = {
            LAST_RESTORE: f"{name_of(restore)}-{uid_of(restore)}",
            RESTORED_BY: name_of(restore),
            names.CLAIM_TEMPLATES: dumps([_render_template(one) for one in restores]).decode(),
        }
        spec = _with_claims(source["spec"], restores)
        found = await self._client.find(ref)
        if found is None:
            return await self._client.create(kinds.VM, _render_new_vm(restore, spec, marks))
        if annotations_of(found).get(LAST_RESTORE) == marks[LAST_RESTORE]:
            return found

        def replace(raw: Raw) -> None:
            raw["spec"] = {**spec, "runStrategy": "Halted"}
            raw["metadata"]["annotations"] = {**annotations_of(raw), **marks}

        return await self._client.mutate(ref, replace) or found

    async def _start(self, vm: Raw) -> None:
        """One that was stopped for the restore runs again."""
        if nested(vm, "spec", "runStrategy") == "Halted":
            await self._client.mutate(
                ref_of(kinds.VM, vm), lambda raw: raw["spec"].update(runStrategy="RerunOnFailure")
            )

    async def _write(self, ref: ObjectRef, status: Raw, owner: Raw) -> None:
        def edit(raw: Raw) -> None:
            raw["metadata"]["ownerReferences"] = [owner]
            raw["status"] = status

        await self._client.mutate(ref, edit)


def _render_new_vm(restore: Raw, spec: Raw, marks: dict[str, str]) -> Raw:
    """A VM of its own: without the cards' MAC addresses, unless they are to be kept."""
    name, template = restore["spec"]["target"]["name"], spec["template"]
    if not restore["spec"].get("keepMacAddress"):
        for one in nested(template, "spec", "domain", "devices", "interfaces", default=[]):
            one.pop("macAddress", None)
    labels = {"harvesterhci.io/creator": "harvester", "harvesterhci.io/vmName": name}
    metadata = {
        "annotations": dict(nested(template, "metadata", "annotations", default={})),
        "labels": labels,
    }
    made = {
        "runStrategy": spec.get("runStrategy", "RerunOnFailure"),
        "template": {"metadata": metadata, "spec": template["spec"]},
    }
    return new_object(kinds.VM, name, namespace_of(restore), annotations=marks, spec=made)


def _with_claims(spec: Raw, restores: list[Raw]) -> Raw:
    """A copy of a VM's spec that has the restored claims."""
    copied: Raw = loads(dumps(spec))
    claims = {one["volumeName"]: one["persistentVolumeClaimSpec"]["metadata"]["name"] for one in restores}
    for volume in nested(copied, "template", "spec", "volumes", default=[]):
        if volume["name"] in claims and volume.get("persistentVolumeClaim"):
            volume["persistentVolumeClaim"]["claimName"] = claims[volume["name"]]
    return copied


def _render_template(restore: Raw) -> Raw:
    found = restore["persistentVolumeClaimSpec"]
    spec = {field: found["spec"][field] for field in _KEPT_SPEC if field in found["spec"]}
    return {"metadata": {"name": found["metadata"]["name"]}, "spec": spec}


def _with_conditions(status: Raw, clock: ScaledClock, *, ready: bool, error: str = "") -> Raw:
    progressing = Condition("InProgress", "True", "", "Operation in progress")
    waiting = Condition("Ready", "False", "", "Not ready")
    if error:
        progressing, waiting = (
            Condition("InProgress", "False", "Error", error),
            Condition("Ready", "False", "", "Not Ready"),
        )
    if ready:
        complete = "Operation complete"
        progressing, waiting = (
            Condition("InProgress", "False", "", complete),
            Condition("Ready", "True", "", complete),
        )
    return _set(status, clock, progressing, waiting)


def _with_progress(status: Raw, clock: ScaledClock, progress: str, waiting: str) -> Raw:
    return _set(
        status, clock, Condition("InProgress", "True", "", progress), Condition("Ready", "False", "", waiting)
    )


def _set(status: Raw, clock: ScaledClock, *conditions: Condition) -> Raw:
    found = list(status.get("conditions") or ())
    for one in conditions:
        found = set_condition(found, one, clock.now())
    return {**status, "conditions": found}
