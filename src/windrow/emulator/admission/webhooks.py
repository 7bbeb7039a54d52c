"""Harvester's admission webhooks: dispatch to the mutators and validators of each kind.

Both are pure functions of the object, its old state, and the Listers; they raise the denial.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from windrow.apiserver.admission import AdmissionRequest
from windrow.apiserver.request.info import UserInfo
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.admission import (
    claims,
    images,
    migrations,
    namespaces,
    networks,
    object_validator,
    remote_backups,
    settings,
    storage_classes,
)
from windrow.emulator.admission.denials import MUTATOR, check_decodes, internal, invalid
from windrow.emulator.admission.vm_mutator import mutate_vm
from windrow.emulator.admission.vm_validator import check_vm, images_asked
from windrow.emulator.kit.listers import Key, Listers
from windrow.emulator.release import Release
from windrow.emulator.storage.classes import check_resize, class_of, set_default
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import NAMESPACE, PVC, SECRET, STORAGE_CLASS, ApiResource

MayRead = Callable[[UserInfo, ApiResource, Key], Awaitable[bool]]
SYSTEM_USERS = ("system:serviceaccount:harvester-system:", "system:serviceaccount:kube-system:")
COLLECTOR = ":generic-garbage-collector"


class Webhooks:
    """`mutate` is a hook before the schema, `validate` one after it. `may_read` authorizes `get` of an object for a user."""

    def __init__(self, listers: Listers, rng: Rng, may_read: MayRead, release: Release) -> None:
        self._release = release
        self._listers = listers
        self._rng = rng
        self._may_read = may_read

    async def mutate(self, operation: AdmissionRequest) -> None:
        """Changes the object in place. What has another shape is left to the schema."""
        new, old, listers = operation.object, operation.old_object, self._listers
        if new is None or operation.subresource == "status":
            return
        if operation.kind == kinds.IMAGE or (operation.kind == kinds.TEMPLATE_VERSION and old is None):
            check_decodes(operation.kind.kind, new)
        if operation.kind == kinds.VM:
            mutate_vm(new, old, listers, self._rng, self._release)
        elif operation.kind == kinds.VMI:
            if old is None:
                self._check_instance(operation, new)
        elif operation.kind == PVC:
            if old is None:
                set_default(new, listers.classes.values())
                claims.mark_golden_image(new, listers)
        elif operation.kind == STORAGE_CLASS:
            storage_classes.mutate_class(new)
        elif operation.kind == kinds.IMAGE:
            images.mutate_image(new, old, listers, self._release)
        elif operation.kind == kinds.NAD:
            networks.mutate_network(new, old, listers)
        elif operation.kind == kinds.TEMPLATE_VERSION and old is None:
            object_validator.mutate_template_version(new)
        elif operation.kind == kinds.MIGRATION and old is None:
            migrations.mutate_migration(new)

    def _check_instance(self, operation: AdmissionRequest, new: Raw) -> None:
        """Harvester's mutator of instances reads the VM of their name, and up to 1.7 fails without one."""
        key = operation.namespace, operation.name
        if not self._release.takes_instances_without_vm and key not in self._listers.vms:
            raise internal(f'virtualmachine.kubevirt.io "{key[1]}" not found', MUTATOR)

    async def validate(self, operation: AdmissionRequest) -> None:
        new, old = operation.object, operation.old_object
        if operation.verb == "delete":
            if old is not None:
                self._validate_removal(operation, old)
        elif new is not None:
            self._validate(operation, new, old)
            if operation.kind == kinds.VM and self._release.checks_image_access:
                await self._check_images(new, operation)

    def _validate(self, operation: AdmissionRequest, new: Raw, old: Raw | None) -> None:
        listers = self._listers
        if operation.kind == kinds.VM:
            check_vm(new, old, listers)
        elif operation.subresource:
            return
        elif operation.kind == PVC:
            if old is None:
                claims.check_claim(new, listers)
            else:
                check_resize(new, old, listers.classes.get(("", class_of(old) or "")))
                claims.check_claim_update(new, old, listers)
        elif operation.kind == STORAGE_CLASS:
            storage_classes.check_class(new, old, listers)
        elif operation.kind == kinds.IMAGE:
            images.check_image(new, old, listers)
        elif operation.kind == kinds.SETTING:
            settings.check_setting(new, listers)
        elif operation.kind == kinds.KEY_PAIR:
            object_validator.check_key_pair(new)
        elif operation.kind == kinds.NAD:
            networks.check_network(new, old, listers)
        elif operation.kind == kinds.REMOTE_BACKUP:
            remote_backups.check_backup(new, old, listers)
        elif operation.kind == kinds.REMOTE_RESTORE:
            remote_backups.check_restore(new, old, listers)
        elif operation.kind == kinds.VM_BACKUP and old is None:
            remote_backups.check_vm_backup(new, listers)
        elif operation.kind == kinds.VM_RESTORE:
            remote_backups.check_vm_restore(new, old, listers)
        elif operation.kind == kinds.SNAPSHOT_QUOTA:
            object_validator.check_snapshot_quota(new, old)
        elif operation.kind == kinds.TEMPLATE_VERSION:
            if old is not None:
                object_validator.refuse_template_version_change()
            object_validator.check_template_version(new, listers)
        elif operation.kind == kinds.MIGRATION:
            if old is None:
                migrations.check_new_migration(new, listers)
            else:
                migrations.check_migration_change(new, old)
        elif operation.kind == NAMESPACE and old is not None:
            namespaces.check_namespace_change(new, old, listers)

    def _validate_removal(self, operation: AdmissionRequest, old: Raw) -> None:
        listers = self._listers
        by_collector = operation.user.username.endswith(COLLECTOR)
        if operation.kind == PVC and not by_collector:
            claims.check_claim_removal(old, listers)
        elif operation.kind == SECRET:
            claims.check_secret_removal(old, listers)
        elif operation.kind == STORAGE_CLASS:
            storage_classes.check_class_removal(old, listers)
        elif operation.kind == kinds.IMAGE:
            images.check_image_removal(old, listers)
        elif operation.kind == kinds.SETTING:
            settings.check_setting_removal(old)
        elif operation.kind == kinds.NAD:
            networks.check_network_removal(old, listers)
        elif operation.kind == kinds.TEMPLATE_VERSION and not by_collector:
            object_validator.check_template_version_removal(old, listers)

    async def _check_images(self, vm: Raw, operation: AdmissionRequest) -> None:
        if operation.subresource or operation.user.username.startswith(SYSTEM_USERS):
            return
        asked_before = images_asked(operation.old_object) if operation.old_object else []
        for key in images_asked(vm):
            if key not in asked_before and not await self._may_read(operation.user, kinds.IMAGE, key):
                text = f'user "{operation.user.username}" is not allowed to access image {key[0]}/{key[1]}'
                raise invalid(text, "metadata.annotations[harvesterhci.io/volumeClaimTemplates]")
