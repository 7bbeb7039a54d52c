"""Harvester's admission webhooks: dispatch to the mutators and validators of each kind.

Validators are pure functions of the object, its old state, and the Listers; they raise the denial.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from windrow.apiserver.admission import AdmissionRequest
from windrow.apiserver.request.info import UserInfo
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.admission import object_validator
from windrow.emulator.admission.denials import invalid
from windrow.emulator.admission.vm_mutator import mutate_vm
from windrow.emulator.admission.vm_shape import is_shaped
from windrow.emulator.admission.vm_validator import check_vm, images_asked
from windrow.emulator.host.networks import label_network
from windrow.emulator.kit.listers import Key, Listers
from windrow.emulator.release import Release
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import PVC, ApiResource

MayRead = Callable[[UserInfo, ApiResource, Key], Awaitable[bool]]
SYSTEM_USERS = ("system:serviceaccount:harvester-system:", "system:serviceaccount:kube-system:")


class Webhooks:
    """`admit` is the admission hook. `may_read` authorizes `get` of an object for a user."""

    def __init__(self, listers: Listers, rng: Rng, may_read: MayRead, release: Release) -> None:
        self._release = release
        self._listers = listers
        self._rng = rng
        self._may_read = may_read
        self._rules: dict[ApiResource, Callable[[AdmissionRequest], Awaitable[None]]] = {
            kinds.VM: self._vm,
            PVC: self._claim,
            kinds.IMAGE: self._image,
            kinds.KEY_PAIR: self._key_pair,
            kinds.NAD: self._network,
            kinds.SNAPSHOT_QUOTA: self._snapshot_quota,
            kinds.TEMPLATE_VERSION: self._template_version,
        }

    async def admit(self, operation: AdmissionRequest) -> None:
        rule = self._rules.get(operation.kind)
        if rule is not None:
            await rule(operation)

    async def _vm(self, operation: AdmissionRequest) -> None:
        vm, old = operation.object, operation.old_object
        if operation.verb == "delete" or vm is None or not is_shaped(vm):
            return  # the schema refuses another shape
        if operation.subresource != "status":
            mutate_vm(vm, old, self._listers, self._rng)
        check_vm(vm, old, self._listers)
        if self._release.checks_image_access:
            await self._check_images(vm, operation)

    async def _check_images(self, vm: Raw, operation: AdmissionRequest) -> None:
        if operation.subresource or operation.user.username.startswith(SYSTEM_USERS):
            return
        asked_before = images_asked(operation.old_object) if operation.old_object else []
        for key in images_asked(vm):
            if key not in asked_before and not await self._may_read(operation.user, kinds.IMAGE, key):
                text = f'user "{operation.user.username}" is not allowed to access image {key[0]}/{key[1]}'
                raise invalid(text, "metadata.annotations[harvesterhci.io/volumeClaimTemplates]")

    async def _claim(self, operation: AdmissionRequest) -> None:
        by_collector = operation.user.username.endswith(":generic-garbage-collector")
        if operation.verb == "delete" and operation.old_object is not None and not by_collector:
            object_validator.check_claim_removal(operation.old_object, self._listers)
        if operation.verb == "create" and operation.object is not None:
            object_validator.check_claim(operation.object, self._listers)

    async def _image(self, operation: AdmissionRequest) -> None:
        if operation.verb == "delete":
            object_validator.check_image_removal(operation.old_object or {}, self._listers)
        elif operation.object is not None:
            object_validator.label_image(operation.object)
            object_validator.check_image(operation.object, operation.old_object, self._listers)

    async def _key_pair(self, operation: AdmissionRequest) -> None:
        if operation.verb != "delete" and operation.object is not None:
            object_validator.check_key_pair(operation.object)

    async def _network(self, operation: AdmissionRequest) -> None:
        if operation.verb == "delete":
            object_validator.check_network_removal(operation.old_object or {}, self._listers)
        elif operation.object is not None:
            object_validator.check_network(operation.object)
            label_network(operation.object)

    async def _snapshot_quota(self, operation: AdmissionRequest) -> None:
        name = nested(operation.object, "metadata", "name")
        if operation.verb == "create" and name != "default-resource-quota":
            raise invalid("name must be default-resource-quota", "metadata.name")

    async def _template_version(self, operation: AdmissionRequest) -> None:
        object_validator.check_template_version(operation.verb, operation.object, operation.old_object)
