"""Admission webhook of LoadBalancers and IPPools.

Every denial has code 500, although a retry cannot succeed (reference 02 §4.2).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from windrow.apiserver.admission import AdmissionRequest
from windrow.emulator import kinds
from windrow.emulator.admission.denials import internal_error
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Listers
from windrow.emulator.load_balancers import names
from windrow.emulator.load_balancers.ip_pools.validation import (
    IN_USE,
    BadPool,
    check_pool,
    label_pool,
    negative_priority,
    split_network,
)
from windrow.emulator.load_balancers.validation import (
    find_create_problem,
    find_update_problem,
    is_for_cluster,
    mutate_balancer,
)
from windrow.emulator.release import Release
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, is_deleting, name_of, namespace_of, nested
from windrow.kubernetes.resources import NAMESPACE, ApiResource


def refuse(message: str, webhook: str = names.VALIDATOR) -> KubeError:
    return internal_error(message, webhook)


class LoadBalancerWebhooks:
    """`admit` is the hook. Pools and namespaces are read live; VMs from the listers."""

    def __init__(self, client: AdminClient, listers: Listers, release: Release) -> None:
        self._client = client
        self._listers = listers
        self._release = release
        self._hooks: dict[ApiResource, Callable[[AdmissionRequest], Awaitable[None]]] = {
            kinds.LOAD_BALANCER: self._admit_load_balancer,
            kinds.IP_POOL: self._admit_pool,
        }

    async def admit(self, operation: AdmissionRequest) -> None:
        rule = self._hooks.get(operation.kind)
        if rule is not None:
            await rule(operation)

    async def _admit_load_balancer(self, operation: AdmissionRequest) -> None:
        balancer, old = operation.object, operation.old_object
        if operation.verb == "delete" or balancer is None or is_deleting(balancer):
            return
        instances = list(self._listers.instances.values())
        namespace = await self._namespace(balancer)
        mutate_balancer(balancer, namespace, instances, self._release)
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
        if found is None and is_for_cluster(balancer):
            text = f'get namespace {name} failed, error: namespaces "{name}" not found'
            raise refuse(text, names.MUTATOR)
        return found or {"metadata": {}}

    async def _admit_pool(self, operation: AdmissionRequest) -> None:
        pool, old = operation.object, operation.old_object
        if operation.verb == "delete":
            if nested(old, "status", "allocated", default={}):
                raise refuse(IN_USE)
            return
        if pool is None or is_deleting(pool):
            return
        if why := negative_priority(pool):
            raise refuse(why, names.MUTATOR)
        head = f"can't {operation.verb} IP pool {name_of(pool)} because"
        try:
            label_pool(pool, await self._network(pool))
        except BadPool as error:
            raise refuse(f"{head} {error}", names.MUTATOR) from error
        others = await self._client.list(kinds.IP_POOL)
        try:
            check_pool(pool, others, is_update=old is not None)
        except BadPool as error:
            raise refuse(f"{head} {error}") from error

    async def _network(self, pool: Raw) -> Raw | None:
        """The NetworkAttachmentDefinition of the pool's network. Raises BadPool."""
        place = split_network(pool)
        if place is None:
            return None
        found = await self._client.find(kinds.NAD.ref(place[1], place[0]))
        if found is None:
            raise BadPool(f'{kinds.NAD.group_resource} "{place[1]}" not found')
        return found
