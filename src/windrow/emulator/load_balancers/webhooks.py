"""Admission webhook of LoadBalancers and IPPools.

Every denial has code 500, although a retry cannot succeed (reference 02 §4.2).
"""

from __future__ import annotations

from windrow.apiserver.admission import AdmissionRequest
from windrow.emulator import kinds
from windrow.emulator.admission.denials import internal_error
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Listers
from windrow.emulator.load_balancers import names
from windrow.emulator.load_balancers.go_types import decoding_fault
from windrow.emulator.load_balancers.ip_pools.validation import (
    IN_USE,
    BadPool,
    check_pool,
    label_pool,
    split_network,
)
from windrow.emulator.load_balancers.validation import (
    find_create_problem,
    find_update_problem,
    mutate_balancer,
    needs_project,
)
from windrow.emulator.release import Release
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, is_deleting, name_of, namespace_of, nested
from windrow.kubernetes.resources import NAMESPACE


def refuse(message: str, webhook: str = names.VALIDATOR) -> KubeError:
    return internal_error(message, webhook)


class LoadBalancerWebhooks:
    """`mutate` is a hook before the schema, `validate` one after it. Pools and namespaces are read live; VMs from the listers."""

    def __init__(self, client: AdminClient, listers: Listers, release: Release) -> None:
        self._client = client
        self._listers = listers
        self._release = release

    async def mutate(self, operation: AdmissionRequest) -> None:
        raw = operation.object
        if raw is None or operation.kind not in (kinds.LOAD_BALANCER, kinds.IP_POOL):
            return
        if why := decoding_fault(operation.kind.kind, raw):
            raise refuse(why, names.MUTATOR)
        if operation.old_object is not None and is_deleting(raw):
            return
        if operation.kind == kinds.IP_POOL:
            await self._mutate_pool(raw, operation.verb)
        else:
            namespace = await self._namespace(raw)
            mutate_balancer(raw, namespace, self._listers.instances.values(), self._release)

    async def validate(self, operation: AdmissionRequest) -> None:
        if operation.kind == kinds.LOAD_BALANCER:
            self._validate_balancer(operation)
        elif operation.kind == kinds.IP_POOL:
            await self._validate_pool(operation)

    def _validate_balancer(self, operation: AdmissionRequest) -> None:
        balancer, old = operation.object, operation.old_object
        if balancer is None or (old is not None and is_deleting(balancer)):
            return
        problem = (
            find_create_problem(balancer, self._listers.vms.values(), self._release)
            if old is None
            else find_update_problem(balancer, old)
        )
        if problem:
            raise refuse(problem)

    async def _namespace(self, balancer: Raw) -> Raw:
        """LoadBalancers of VMs have no project annotation and need no namespace object."""
        name = namespace_of(balancer)
        found = await self._client.find(NAMESPACE.ref(name))
        if found is None and needs_project(balancer, self._release):
            text = f'get namespace {name} failed, error: namespaces "{name}" not found'
            raise refuse(text, names.MUTATOR)
        return found or {"metadata": {}}

    async def _mutate_pool(self, pool: Raw, verb: str) -> None:
        try:
            label_pool(pool, await self._network(pool))
        except BadPool as error:
            raise refuse(_told(pool, verb, error), names.MUTATOR) from error

    async def _validate_pool(self, operation: AdmissionRequest) -> None:
        pool, old = operation.object, operation.old_object
        if pool is None:
            if nested(old, "status", "allocated", default={}):
                raise refuse(IN_USE)
            return
        if old is not None and is_deleting(pool):
            return
        others = await self._client.list(kinds.IP_POOL)
        try:
            check_pool(pool, others, is_update=old is not None)
        except BadPool as error:
            raise refuse(_told(pool, operation.verb, error)) from error

    async def _network(self, pool: Raw) -> Raw | None:
        """The NetworkAttachmentDefinition of the pool's network. Raises BadPool."""
        place = split_network(pool)
        if place is None:
            return None
        found = await self._client.find(kinds.NAD.ref(place[1], place[0]))
        if found is None:
            raise BadPool(f'{kinds.NAD.group_resource} "{place[1]}" not found')
        return found


def _told(pool: Raw, verb: str, why: BadPool) -> str:
    return f"can't {verb} IP pool {name_of(pool)} because {why}"
