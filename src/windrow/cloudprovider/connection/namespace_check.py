"""Whether a namespace on Harvester is that of this cluster: it holds the VM of one of its nodes, by uid.

Another namespace in a renewed cloud config may be a mistake, or half of a file. Following it would create every load
balancer a second time, and take the addresses of the first ones away. `check_namespace` asks the guest for nodes list,
Harvester for virtualmachines list; both only when the namespace changes.

At a start the config is taken as it is, and `NamespaceCheck` holds the service controller back: until the namespace is
verified, nothing is done for a service without a load balancer there. Each of these verifies it, for the life of the
process:

* the VM of one of our nodes, by uid;
* a load balancer of one of our services, by name, with an address that the service shows: as after a restore of a whole
  Harvester, where each VM has a new uid;
* no service shows an address: then none can be lost. Removing the annotation kube-vip.io/loadbalancerIPs from all
  services is therefore how an operator overrides the check; they are given new addresses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.cloudprovider import names
from windrow.cloudprovider.nodes.controller import NodeController
from windrow.cloudprovider.services.controller import ServiceController
from windrow.cloudprovider.services.readings import LoadBalancer
from windrow.cloudprovider.services.state import Unavailable
from windrow.core.clock import Clock
from windrow.core.text import join_some
from windrow.harvester.identity import vm_uid_of
from windrow.harvester.resources import VM
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import nested, uid_of
from windrow.kubernetes.resources import NODE, SERVICE

PAGE = 100
CHECK_TIMEOUT_S = 30.0
_HINT = "correct the file; or, to use it all the same, restart the pod: at a start the file is not validated"
# How soon services that are held back are checked again, beside at changes of VMs and load balancers.
RECHECK_PERIOD = timedelta(minutes=1)
RELIST_WAIT = timedelta(seconds=2)
NODES_NAMED = 3


async def check_namespace(guest: Client, host: Client, namespace: str) -> str:
    """Why this may not be our namespace, with a hint; "" when it is, or when no Node has a providerID of Harvester."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return await _compare_vms(guest, host, namespace)
    except KubeError as error:
        return f"cannot list the VMs in namespace {namespace!r}: {error}"
    except TimeoutError:
        return f"cannot list the VMs in namespace {namespace!r}: no answer in {CHECK_TIMEOUT_S:.0f} s"


async def _compare_vms(guest: Client, host: Client, namespace: str) -> str:
    provider_ids = [nested(raw, "spec", "providerID") for raw in await guest.list(NODE)]
    ours = {vm_uid_of(one) for one in provider_ids if isinstance(one, str)} - {""}
    if not ours:
        return ""
    async for page in host.pages(VM, namespace, limit=PAGE):
        if any(uid_of(raw) in ours for raw in page.items):
            return ""
    return f"namespace {namespace!r} holds none of the VMs of this cluster's {len(ours)} nodes; {_HINT}"


class NamespaceCheck:
    """Verifies the namespace in use from the caches. Once verified it stays so, whatever is deleted there afterwards."""

    def __init__(self, nodes: NodeController, services: ServiceController, clock: Clock) -> None:
        self._nodes, self._vms = nodes.nodes, nodes.vms
        self._services, self._balancers = services.services, services.load_balancers
        self._settings, self._on_verified = services.settings, services.enqueue_all
        self._clock = clock
        self._is_verified = False

    async def run(self) -> None:
        """Reconcile all services as soon as the namespace is verified; returns then."""
        await self._services.wait_for_sync()
        await self._balancers.wait_for_sync()
        changed = asyncio.Event()

        async def follow(changes: AsyncIterator[Any]) -> None:
            async for _ in changes:
                changed.set()

        async with asyncio.TaskGroup() as group:
            caches: tuple[Informer[Any], ...] = (self._nodes, self._vms, self._balancers)
            following = [group.create_task(follow(cache.changes())) for cache in caches]
            while self.find_problem() is not None:
                await changed.wait()
                changed.clear()
            for task in following:
                task.cancel()
        self._on_verified()

    def find_problem(self) -> Unavailable | None:
        """Why this may not be our namespace, with a hint; None once it is verified."""
        self._is_verified = self._is_verified or self._is_own_namespace()
        return None if self._is_verified else self._describe_problem()

    def _is_own_namespace(self) -> bool:
        shows_address = any(one.has_finalizer and one.addresses for one in self._services.values())
        if self._services.has_synced and not shows_address:
            return True
        ours = {node.vm_uid for node in self._nodes.values()} - {""}
        return any(vm.uid in ours for vm in self._vms.values()) or any(
            self._is_shown(one) for one in self._balancers.values()
        )

    def _is_shown(self, balancer: LoadBalancer) -> bool:
        owner = balancer.owner
        if owner.cluster != self._settings.cluster or not balancer.allocated:
            return False
        service = self._services.get(SERVICE.ref(owner.service, owner.namespace))
        if service is None or self._settings.name_for(service) != balancer.name:
            return False
        return bool(service.assigned & set(balancer.allocated))

    def _describe_problem(self) -> Unavailable:
        now, namespace = self._clock.now(), self._settings.namespace
        for cache in (self._nodes, self._vms):
            if cache.has_synced:
                continue
            if cache.error is None:
                return Unavailable(until=now + RELIST_WAIT)
            why = f"the {cache.kind.plural} cannot be listed: {cache.error}"
            return Unavailable(
                f"namespace {namespace!r} on Harvester cannot be verified: {why}",
                now + RECHECK_PERIOD,
            )
        return Unavailable(_wrong_namespace(namespace, self._expected()), now + RECHECK_PERIOD)

    def _expected(self) -> str:
        """The nodes whose VMs should be there."""
        return join_some(sorted(node.name for node in self._nodes.values() if node.vm_uid), NODES_NAMED)


def _wrong_namespace(namespace: str, expected: str) -> str:
    nodes = f" (such as {expected})" if expected else ""
    return (
        f"namespace {namespace!r} on Harvester holds none of the VMs of this cluster's nodes{nodes}, and no "
        "LoadBalancer with an address that a service shows; set the namespace of the VMs in the context of the cloud "
        f"config; or, to use this namespace all the same, remove the annotation {names.VIP_ADDRESSES} from all "
        "services: they are given new addresses"
    )
