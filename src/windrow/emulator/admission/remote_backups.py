"""Harvester's validators of backups and restores (v1.8.2): of volumes, VolumeRemoteBackup and VolumeRemoteRestore, and of VMs,
VirtualMachineBackup and VirtualMachineRestore."""

from __future__ import annotations

from windrow.emulator.admission.denials import internal, invalid
from windrow.emulator.admission.kubevirt.causes import text
from windrow.emulator.kit.listers import Listers, claims_of_vm, key_of
from windrow.kubernetes.objects import Raw, nested


def check_backup(backup: Raw, old: Raw | None, listers: Listers) -> None:
    """Its source exists when it is made; what it is of stays."""
    if old is not None:
        _check_fields_stay(backup, old, "type", "source")
        return
    source, (namespace, _) = text(backup, "spec", "source"), key_of(backup)
    if not source:
        raise invalid("spec.source is required", "spec.source")
    if (namespace, source) not in listers.claims:
        why = f'persistentvolumeclaims "{source}" not found'
        raise internal(f"failed to get PVC {namespace}/{source}: {why}")


def check_restore(restore: Raw, old: Raw | None, listers: Listers) -> None:
    """Its backup is done when it is made, and none has its name; what it is from stays."""
    if old is not None:
        _check_fields_stay(restore, old, "type", "from")
        return
    source, (own_namespace, own_name) = text(restore, "spec", "from"), key_of(restore)
    if not source:
        raise invalid("spec.from is required", "spec.from")
    namespace, _, name = source.rpartition("/")
    namespace = namespace or own_namespace
    backup = listers.remote_backups.get((namespace, name))
    if backup is None:
        why = f'volumeremotebackups.harvesterhci.io "{name}" not found'
        raise internal(f"failed to get PVCBackup {namespace}/{name}: {why}")
    if nested(backup, "status", "success") is not True:
        raise invalid(f"PVCBackup {namespace}/{name} is not ready", "spec.from")
    if (own_namespace, own_name) in listers.remote_backups:
        why = f"a RemoteBackup with name {own_name} already exists in namespace {own_namespace}"
        raise invalid(why, "metadata.name")


def check_vm_backup(backup: Raw, listers: Listers) -> None:
    """Its VM exists with its claims, and does not migrate; there is a target for what is not a snapshot."""
    namespace, _ = key_of(backup)
    name, field = text(backup, "spec", "source", "name"), "spec.source.name"
    if not name:
        raise invalid("source VM name is empty", field)
    vm = listers.vms.get((namespace, name))
    if vm is None:
        raise invalid(f'virtualmachines.kubevirt.io "{name}" not found', field)
    if any(_moves(one, namespace, name) for one in listers.migrations.values()):
        raise invalid(f"vm {namespace}/{name} is in migration", field)
    for claim in claims_of_vm(vm):
        if claim not in listers.claims:
            why = f'failed to get PVC {namespace}/{claim[1]}: persistentvolumeclaims "{claim[1]}" not found'
            raise invalid(why, field)
    if text(backup, "spec", "type") != "snapshot" and not listers.setting("backup-target"):
        raise invalid("backup target is not set", "spec.type")


def _moves(migration: Raw, namespace: str, name: str) -> bool:
    is_its = (key_of(migration)[0], text(migration, "spec", "vmiName")) == (namespace, name)
    return is_its and text(migration, "status", "phase") not in ("", "Succeeded", "Failed")


def check_vm_restore(restore: Raw, old: Raw | None, listers: Listers) -> None:
    """Of a backup that is ready; into a new VM, or one that does not run. What it is of stays."""
    if old is not None:
        if restore.get("spec") != old.get("spec"):
            raise invalid("VirtualMachineRestore spec is immutable", "spec")
        return
    spec, (namespace, _) = restore["spec"], key_of(restore)
    name, field = text(spec, "target", "name"), "spec.virtualMachineBackupName"
    key = text(spec, "virtualMachineBackupNamespace"), text(spec, "virtualMachineBackupName")
    backup = listers.vm_backups.get(key)
    if backup is None:
        why = f'virtualmachinebackup.harvesterhci.io "{key[1]}" not found'
        raise invalid(f"can't get vmbackup {'/'.join(key)}, err: {why}", field)
    if nested(backup, "status", "readyToUse") is not True:
        raise invalid(f"VMBackup {'/'.join(key)} is not ready", field)
    is_new, keeps = spec.get("newVM"), text(spec, "deletionPolicy") == "retain"
    if key[0] != namespace:
        raise invalid("restore to other namespace with backup type snapshot is not supported", field)
    if not (is_new or keeps):
        raise invalid("delete policy with backup type snapshot for replacing VM is not supported", field)
    vm = listers.vms.get((namespace, name))
    if is_new and vm is not None:
        raise invalid(f"VM {name} is already exists", "spec.newVM")
    if not is_new and vm is None:
        raise invalid(f"can't replace nonexistent vm {name}", "spec.target.name")
    if not is_new and nested(vm, "status", "ready"):
        raise invalid(f'Please stop the VM "{name}" before doing a restore', "spec.target.name")


def _check_fields_stay(new: Raw, old: Raw, *fields: str) -> None:
    for field in fields:
        if text(new, "spec", field) != text(old, "spec", field):
            raise invalid(f"spec.{field} cannot be changed", f"spec.{field}")
