"""Whether a place on Harvester is that of this cluster: it holds the VM of one of its nodes, by uid.

Another namespace in a renewed cloud config may be a slip, or half of a file. Whoever followed it would make every
load balancer a second time, and take the addresses of the first away. Asks the guest for nodes list, Harvester for
virtualmachines list; both only when the place has changed.

A start takes the file as it is, and `NamespaceCheck` then holds the service controller back: as long as the place is not known
to be ours, nothing is done for a service that has no load balancer there. One of these proves it, once and for all:

* the VM of one of our nodes, by uid;
* a load balancer of one of our services, by name, with an address that the service shows. Whoever copies a whole
  Harvester from a backup has these, though each VM has a new uid there;
* no service shows an address: then there is nothing to lose.

The last is how people insist, too: without the annotation kube-vip.io/loadbalancerIPs on any service all of them are
given addresses in the new place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.cloudprovider import names
from windrow.cloudprovider.nodes.readings import GuestNode, GuestVm
from windrow.cloudprovider.services.load_balancers import LoadBalancer
from windrow.cloudprovider.services.readings import Service
from windrow.cloudprovider.services.state import ClusterSettings, Unavailable
from windrow.core.clock import Clock
from windrow.harvester.identity import vm_uid_of
from windrow.harvester.resources import VM
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import nested, uid_of
from windrow.kubernetes.resources import NODE, SERVICE

PAGE = 100
CHECK_TIMEOUT_S = 30.0
_HINT = "correct the file; or, where it is meant so, restart this program: at its start it takes the file as it is"
# How soon those who are held back look again, beside at news of VMs and load balancers.
RECHECK_PERIOD = timedelta(minutes=1)
RELIST_WAIT = timedelta(seconds=2)
NODES_NAMED = 3


async def check_namespace(guest: Client, host: Client, namespace: str) -> str:
    """Why this may be no place of ours, with the cure; "" when it is, or when no node says which VM it runs in."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return await _compare_vms(guest, host, namespace)
    except KubeError as error:
        return f"whether namespace {namespace!r} holds VMs of our nodes cannot be asked: {error}"
    except TimeoutError:
        return f"whether namespace {namespace!r} holds VMs of our nodes was not answered in {CHECK_TIMEOUT_S:.0f} s"


async def _compare_vms(guest: Client, host: Client, namespace: str) -> str:
    vm_uids = {vm_uid_of(nested(raw, "spec", "providerID", default="")) for raw in await guest.list(NODE)}
    ours = vm_uids - {""}
    if not ours:
        return ""
    async for page in host.pages(VM, namespace, limit=PAGE):
        if any(uid_of(raw) in ours for raw in page.items):
            return ""
    return f"namespace {namespace!r} holds none of the VMs that our {len(ours)} nodes run in; {_HINT}"


class NamespaceCheck:
    """What the caches prove of the place that is in use. It stays proven, whatever goes from there afterwards."""

    def __init__(
        self,
        nodes: Informer[GuestNode],
        vms: Informer[GuestVm],
        services: Informer[Service],
        balancers: Informer[LoadBalancer],
        policy: ClusterSettings,
        clock: Clock,
        on_verified: Callable[[], None],
    ) -> None:
        self._nodes, self._vms = nodes, vms
        self._services, self._balancers = services, balancers
        self._policy = policy
        self._clock = clock
        self._on_verified = on_verified
        self._is_verified = False

    async def run(self) -> None:
        """Tell `proven` as soon as it is; ends then."""
        await self._services.wait_for_sync()
        await self._balancers.wait_for_sync()
        asked = asyncio.Event()

        async def follow(changes: AsyncIterator[Any]) -> None:
            async for _ in changes:
                asked.set()

        async with asyncio.TaskGroup() as group:
            caches: tuple[Informer[Any], ...] = (self._nodes, self._vms, self._balancers)
            following = [group.create_task(follow(cache.changes())) for cache in caches]
            while self.find_problem() is not None:
                await asked.wait()
                asked.clear()
            for task in following:
                task.cancel()
        self._on_verified()

    def find_problem(self) -> Unavailable | None:
        """Why this may be no place of ours, with the cure; None once it is known to be."""
        self._is_verified = self._is_verified or self._is_own_namespace()
        return None if self._is_verified else self._describe_problem()

    def _is_own_namespace(self) -> bool:
        return self._no_service_has_address() or self._holds_vm() or self._holds_address()

    def _no_service_has_address(self) -> bool:
        if not self._services.has_synced:
            return False
        return not any(one.has_finalizer and one.addresses for one in self._services.values())

    def _holds_vm(self) -> bool:
        ours = {node.vm_uid for node in self._nodes.values()} - {""}
        return bool(ours) and any(vm.uid in ours for vm in self._vms.values())

    def _holds_address(self) -> bool:
        return any(self._is_shown(one) for one in self._balancers.values())

    def _is_shown(self, balancer: LoadBalancer) -> bool:
        owner = balancer.owner
        if owner.cluster != self._policy.cluster or not balancer.allocated:
            return False
        service = self._services.get(SERVICE.ref(owner.service, owner.namespace))
        if service is None or self._policy.name_for(service) != balancer.name:
            return False
        return bool(service.assigned & set(balancer.allocated))

    def _describe_problem(self) -> Unavailable:
        now, namespace = self._clock.now(), self._policy.namespace
        for cache in (self._nodes, self._vms):
            if cache.has_synced:
                continue
            if cache.error is None:
                return Unavailable(until=now + RELIST_WAIT)
            why = f"the {cache.kind.plural} cannot be listed: {cache.error}"
            return Unavailable(
                f"whether namespace {namespace!r} on Harvester is ours is not known: {why}",
                now + RECHECK_PERIOD,
            )
        return Unavailable(_wrong_namespace(namespace, self._expected()), now + RECHECK_PERIOD)

    def _expected(self) -> str:
        """The VMs that should be there, by the names of their nodes."""
        found = sorted(node.name for node in self._nodes.values() if node.vm_uid)
        more = f" and {len(found) - NODES_NAMED} more" if len(found) > NODES_NAMED else ""
        return f"{', '.join(found[:NODES_NAMED])}{more}"


def _wrong_namespace(namespace: str, expected: str) -> str:
    wanted = (
        f"none of the VMs of our nodes (such as {expected})"
        if expected
        else "no VM that a node of ours names"
    )
    return (
        f"namespace {namespace!r} on Harvester holds {wanted}, and no load balancer with an address that our services "
        "show, so it may be a wrong one, and everything stays as it is; name the namespace of the VMs in the context "
        f"of the cloud config; or, where it is meant so, remove the annotation {names.VIP_ADDRESSES} from all services: "
        "then they are given new addresses"
    )
