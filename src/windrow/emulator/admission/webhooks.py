"""Harvester's admission webhooks: dispatch to the mutators and validators of each kind.

Validators are pure functions of the object, its old state, and the Listers.
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
from windrow.emulator.admission.vm_validator import check_vm, images_asked
from windrow.emulator.host.networks import BadNetwork, label_network
from windrow.emulator.kit.listers import Key, Listers
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import PVC, ApiResource

MayRead = Callable[[UserInfo, ApiResource, Key], Awaitable[bool]]
SYSTEM_USERS = ("system:serviceaccount:harvester-system:", "system:serviceaccount:kube-system:")


class Webhooks:
    """`admit` is the admission hook. `may_read` authorizes `get` of an object for a user."""

    def __init__(self, listers: Listers, rng: Rng, may_read: MayRead) -> None:
        self._listers = listers
        self._rng = rng
        self._may_read = may_read
        self._rules: dict[ApiResource, Callable[[AdmissionRequest], Awaitable[KubeError | None]]] = {
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
        if rule is None:
            return
        refusal = await rule(operation)
        if refusal is not None:
            raise refusal

    async def _vm(self, operation: AdmissionRequest) -> KubeError | None:
        vm, old = operation.object, operation.old_object
        if operation.verb == "delete" or vm is None:
            return None
        if operation.subresource != "status":
            mutate_vm(vm, old, self._listers, self._rng)
        refusal = check_vm(vm, old, self._listers)
        if refusal is not None:
            return refusal
        return await self._check_images(vm, operation) or object_validator.check_vm_quota(
            vm, old, self._listers
        )

    async def _check_images(self, vm: Raw, operation: AdmissionRequest) -> KubeError | None:
        if operation.subresource or operation.user.username.startswith(SYSTEM_USERS):
            return None
        asked_before = images_asked(operation.old_object) if operation.old_object else []
        for key in images_asked(vm):
            if key in asked_before or await self._may_read(operation.user, kinds.IMAGE, key):
                continue
            text = f'user "{operation.user.username}" is not allowed to access image {key[0]}/{key[1]}'
            return invalid(text, "metadata.annotations[harvesterhci.io/volumeClaimTemplates]")
        return None

    async def _claim(self, operation: AdmissionRequest) -> KubeError | None:
        if operation.verb == "delete":
            if operation.old_object is None or operation.user.username.endswith(":generic-garbage-collector"):
                return None
            return object_validator.check_claim_removal(operation.old_object, self._listers)
        if operation.verb == "create" and operation.object is not None:
            return object_validator.check_claim(operation.object, self._listers)
        return None

    async def _image(self, operation: AdmissionRequest) -> KubeError | None:
        if operation.verb == "delete":
            return object_validator.check_image_removal(operation.old_object or {}, self._listers)
        if operation.object is None:
            return None
        object_validator.label_image(operation.object)
        return object_validator.check_image(operation.object, operation.old_object, self._listers)

    async def _key_pair(self, operation: AdmissionRequest) -> KubeError | None:
        if operation.verb == "delete" or operation.object is None:
            return None
        return object_validator.check_key_pair(operation.object)

    async def _network(self, operation: AdmissionRequest) -> KubeError | None:
        if operation.verb == "delete":
            return object_validator.check_network_removal(operation.old_object or {}, self._listers)
        if operation.object is None:
            return None
        refusal = object_validator.check_network(operation.object)
        if refusal is None:
            try:
                label_network(operation.object)
            except BadNetwork:
                return None
        return refusal

    async def _snapshot_quota(self, operation: AdmissionRequest) -> KubeError | None:
        name = nested(operation.object, "metadata", "name")
        if operation.verb == "create" and name != "default-resource-quota":
            return invalid("name must be default-resource-quota", "metadata.name")
        return None

    async def _template_version(self, operation: AdmissionRequest) -> KubeError | None:
        return object_validator.check_template_version(operation.verb, operation.object, operation.old_object)
