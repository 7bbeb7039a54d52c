"""Harvester's validators of VolumeRemoteBackups and VolumeRemoteRestores (v1.8.2)."""

from __future__ import annotations

from windrow.emulator.admission.denials import internal, invalid
from windrow.emulator.admission.kubevirt.causes import text
from windrow.emulator.kit.listers import Listers, key_of
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


def _check_fields_stay(new: Raw, old: Raw, *fields: str) -> None:
    for field in fields:
        if text(new, "spec", field) != text(old, "spec", field):
            raise invalid(f"spec.{field} cannot be changed", f"spec.{field}")
