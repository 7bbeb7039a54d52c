"""The webhooks: mutators and validators of every kind, hung into the API server's admission.

Refusals are pure functions of the object, what it was, and the world; this module only chooses which apply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from windrow.apiserver.admission import Operation
from windrow.apiserver.calls import Caller
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.admission import object_rules
from windrow.emulator.admission.refusals import invalid
from windrow.emulator.admission.vm_defaults import mutate_vm
from windrow.emulator.admission.vm_rules import check_vm, images_asked
from windrow.emulator.networks import BadNetwork, label_network
from windrow.emulator.world import Key, World
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import PVC, ApiResource

MayRead = Callable[[Caller, ApiResource, Key], Awaitable[bool]]
SYSTEM_USERS = ("system:serviceaccount:harvester-system:", "system:serviceaccount:kube-system:")


class Webhooks:
    """`admit` is the hook. `may_read` answers whether a caller may `get` an object."""

    def __init__(self, world: World, rng: Rng, may_read: MayRead) -> None:
        self._world = world
        self._rng = rng
        self._may_read = may_read
        self._rules: dict[ApiResource, Callable[[Operation], Awaitable[KubeError | None]]] = {
            kinds.VM: self._vm,
            PVC: self._claim,
            kinds.IMAGE: self._image,
            kinds.KEY_PAIR: self._key_pair,
            kinds.NAD: self._network,
            kinds.SNAPSHOT_QUOTA: self._snapshot_quota,
            kinds.TEMPLATE_VERSION: self._template_version,
        }

    async def admit(self, operation: Operation) -> None:
        rule = self._rules.get(operation.kind)
        if rule is None:
            return
        refusal = await rule(operation)
        if refusal is not None:
            raise refusal

    async def _vm(self, operation: Operation) -> KubeError | None:
        vm, old = operation.object, operation.old
        if operation.verb == "delete" or vm is None:
            return None
        if operation.subresource != "status":
            mutate_vm(vm, old, self._world, self._rng)
        refusal = check_vm(vm, old, self._world)
        if refusal is not None:
            return refusal
        return await self._check_images(vm, operation) or object_rules.check_vm_quota(vm, old, self._world)

    async def _check_images(self, vm: Raw, operation: Operation) -> KubeError | None:
        if operation.subresource or operation.caller.user.startswith(SYSTEM_USERS):
            return None
        asked_before = images_asked(operation.old) if operation.old else []
        for key in images_asked(vm):
            if key in asked_before or await self._may_read(operation.caller, kinds.IMAGE, key):
                continue
            text = f'user "{operation.caller.user}" is not allowed to access image {key[0]}/{key[1]}'
            return invalid(text, "metadata.annotations[harvesterhci.io/volumeClaimTemplates]")
        return None

    async def _claim(self, operation: Operation) -> KubeError | None:
        if operation.verb == "delete":
            if operation.old is None or operation.caller.user.endswith(":generic-garbage-collector"):
                return None
            return object_rules.check_claim_removal(operation.old, self._world)
        if operation.verb == "create" and operation.object is not None:
            return object_rules.check_claim(operation.object, self._world)
        return None

    async def _image(self, operation: Operation) -> KubeError | None:
        if operation.verb == "delete":
            return object_rules.check_image_removal(operation.old or {}, self._world)
        if operation.object is None:
            return None
        object_rules.label_image(operation.object)
        return object_rules.check_image(operation.object, operation.old, self._world)

    async def _key_pair(self, operation: Operation) -> KubeError | None:
        if operation.verb == "delete" or operation.object is None:
            return None
        return object_rules.check_key_pair(operation.object)

    async def _network(self, operation: Operation) -> KubeError | None:
        if operation.verb == "delete":
            return object_rules.check_network_removal(operation.old or {}, self._world)
        if operation.object is None:
            return None
        refusal = object_rules.check_network(operation.object)
        if refusal is None:
            try:
                label_network(operation.object)
            except BadNetwork:
                return None
        return refusal

    async def _snapshot_quota(self, operation: Operation) -> KubeError | None:
        name = nested(operation.object, "metadata", "name")
        if operation.verb == "create" and name != "default-resource-quota":
            return invalid("name must be default-resource-quota", "metadata.name")
        return None

    async def _template_version(self, operation: Operation) -> KubeError | None:
        return object_rules.check_template_version(operation.verb, operation.object, operation.old)
