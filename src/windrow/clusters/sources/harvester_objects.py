"""What Harvester has of our Clusters, kept current by watches, whichever driver makes the machines.

* VMs that carry the uid of a Cluster, whether a Machine records them or not: a management API that was restored to an
  earlier state does not know the machines whose statuses it would have to ask for;
* the PersistentVolumeClaims of machines, until they are gone;
* the ServiceAccounts of guests, and their tokens;
* the LoadBalancers of endpoints, where a Cluster has one;
* the addresses of all VMs that a credential may see, in any namespace, where a Cluster claims addresses: a VM may have one
  that nothing here records;
* the IPPools, where a Cluster has addresses of one.

One informer for each kind, credential and namespace. One that is refused (a credential need not have every right) is
tried again seldom, and nothing is known of its kind meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from windrow.bootstrap.guest_account import TOKEN_TYPE
from windrow.client.informer import Informer
from windrow.client.transport import Transport
from windrow.clusters.api.addresses import IPPool, read_ip_pool
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.endpoint_balancer import ObservedBalancer, read_owned_balancer
from windrow.clusters.orphans import (
    MachineClaim,
    OrphanVm,
    ReportingVm,
    read_cluster_vm,
    read_machine_claim,
    read_reporting_vm,
)
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.clusters.sources.users import UserIndex
from windrow.clusters.state import Place
from windrow.core.clock import Clock
from windrow.core.crash import handle_crash
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.core.wait import Stopped, run_until, start_in, wait_first
from windrow.harvester.names import CLUSTER_UID, CREATOR, CREATOR_NODE_DRIVER
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER, VM, VMI
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import annotations_of, is_deleting, name_of
from windrow.kubernetes.resources import PVC, SECRET, SERVICE_ACCOUNT, ApiResource, ObjectRef
from windrow.machines.port import HARVESTER

V = TypeVar("V")

log = with_values(logging.getLogger(__name__))

CREATOR_SELECTOR = f"{CREATOR}={CREATOR_NODE_DRIVER}"
# After a credential that cannot be read, or that may not list.
RETRY_INTERVAL = timedelta(minutes=1)


def machine_places(cluster: Cluster) -> frozenset[Place]:
    return frozenset(
        Place(pool.credential, pool.vm_namespace, cluster.namespace)
        for pool in cluster.pools
        if pool.driver == HARVESTER and ":" in pool.credential
    )


@dataclass(frozen=True, slots=True)
class AccountObject:
    """A ServiceAccount, or the Secret with its token, that was made for a guest."""

    name: str
    cluster_uid: str


def read_account_object(raw: Mapping[str, Any]) -> AccountObject | None:
    cluster_uid = annotations_of(raw).get(CLUSTER_UID, "")
    return AccountObject(name_of(raw), cluster_uid) if cluster_uid and not is_deleting(raw) else None


def _key_of(vm: OrphanVm | ReportingVm) -> tuple[object, ...]:
    return vm.namespace, vm.name, frozenset(vm.addresses)


def _cluster_uid_of(one: Owned) -> str:
    """ "" for what is of no cluster."""
    return "" if isinstance(one, IPPool | ReportingVm) else one.cluster_uid


Owned = OrphanVm | ReportingVm | IPPool | MachineClaim | AccountObject | ObservedBalancer
EVERYWHERE = ""  # the namespace of a Place that is all of them


@dataclass(frozen=True, slots=True)
class _Kind:
    resource: ApiResource
    read: Callable[[Mapping[str, Any]], Owned | None]
    labels: str = ""
    fields: str = ""


_KINDS = (
    _Kind(VM, read_cluster_vm, labels=CREATOR_SELECTOR),
    _Kind(PVC, read_machine_claim),
    _Kind(SERVICE_ACCOUNT, read_account_object),
    _Kind(SECRET, read_account_object, fields=f"type={TOKEN_TYPE}"),
)
_BALANCERS = _Kind(LOAD_BALANCER, read_owned_balancer)
_ADDRESSES = (
    _Kind(VM, read_cluster_vm, labels=CREATOR_SELECTOR),
    _Kind(VMI, read_reporting_vm, labels=CREATOR_SELECTOR),
)


_IP_POOLS = _Kind(IP_POOL, read_ip_pool)


@dataclass(frozen=True, slots=True)
class _Kept:
    """VMs with addresses as an informer that has ended showed them, through `access`. Whether they are there is unknown."""

    access: ClientConfig
    vms: tuple[OrphanVm | ReportingVm, ...]


@dataclass(slots=True)
class _Watched:
    informer: Informer[Owned] | None = None
    access: ClientConfig | None = None  # of the informer
    kept: _Kept | None = None  # until another informer has listed what is there
    restart: asyncio.Event = field(default_factory=asyncio.Event)
    was_refused: bool = False  # so nothing will be known of it
    task: asyncio.Task[None] | None = None

    def list_of(self, cluster_uid: str) -> Iterator[Owned]:
        """What is shown of the cluster."""
        informer = self.informer
        if informer is not None:
            yield from filter(None, map(informer.get, informer.index_keys(cluster_uid)))

    def list_addressed(self) -> tuple[OrphanVm | ReportingVm, ...]:
        """The VMs with addresses that the informer shows now."""
        values = self.informer.values() if self.informer is not None else ()
        return tuple(one for one in values if isinstance(one, OrphanVm | ReportingVm) and one.addresses)

    def keep(self) -> None:
        """The informer has ended: what it showed last is unknown, not gone."""
        if self.informer is not None and self.informer.has_synced and self.access is not None:
            self.kept = _Kept(self.access, self.list_addressed())
        self.informer = self.access = None

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()


class HarvesterObjects:
    """The objects of clusters at their places.

    `on_change` is called with each before and after a change, `on_sync` with a credential whose objects are known now.
    """

    def __init__(
        self,
        clients: HarvesterClients,
        clock: Clock,
        rng: Rng,
        on_change: Callable[[Owned | None, Owned | None], None],
        on_sync: Callable[[str], None],
    ) -> None:
        self._clients, self._clock, self._rng = clients, clock, rng
        self._on_change, self._on_sync = on_change, on_sync
        self._watched: dict[tuple[Place, ApiResource], _Watched] = {}
        self._used: UserIndex[Place] = UserIndex()
        self._with_balancers: UserIndex[Place] = UserIndex()
        self._with_addresses: UserIndex[Place] = UserIndex()
        self._with_ip_pools: UserIndex[Place] = UserIndex()

    def list_vms(self, cluster_uid: str, places: Iterable[Place]) -> tuple[OrphanVm, ...] | None:
        """Those of the cluster, without those that are being deleted; None while one of `places` is not watched."""
        found = self._list(VM, OrphanVm, cluster_uid, places)
        return None if found is None else tuple(sorted((vm for vm in found if not vm.is_deleting), key=str))

    def list_claims(self, cluster_uid: str, places: Iterable[Place]) -> list[MachineClaim] | None:
        return self._list(PVC, MachineClaim, cluster_uid, places)

    def has_account(self, name: str, token: str, cluster_uid: str, place: Place) -> bool | None:
        """Whether the ServiceAccount and the Secret with its token are there; None while they are not watched."""
        account, secret = AccountObject(name, cluster_uid), AccountObject(token, cluster_uid)
        accounts = self._list(SERVICE_ACCOUNT, AccountObject, cluster_uid, (place,))
        secrets = self._list(SECRET, AccountObject, cluster_uid, (place,))
        if accounts is None or secrets is None:
            return None
        return account in accounts and secret in secrets

    def list_balancers(self, cluster_uid: str, place: Place) -> list[ObservedBalancer] | None:
        """The LoadBalancers that were made for the endpoint of the cluster; None while they are not watched."""
        return self._list(LOAD_BALANCER, ObservedBalancer, cluster_uid, (place,))

    def has_tried_addresses(self, credentials: Iterable[str], cluster_namespace: str) -> bool:
        """Whether the addresses of all VMs that these may see were read, as far as Harvester lets them."""
        watched = (
            self._watched.get((Place(credential, EVERYWHERE, cluster_namespace), kind.resource))
            for credential in credentials
            for kind in _ADDRESSES
        )
        return all(
            one is not None and (one.was_refused or (one.informer is not None and one.informer.has_synced))
            for one in watched
        )

    def list_shown_vms(self, cluster_uid: str) -> Iterator[OrphanVm]:
        """The VMs of the cluster that any watch shows, which may not be all."""
        for (_, kind), watched in self._watched.items():
            if kind == VM and watched.informer is not None:
                for one in watched.list_of(cluster_uid):
                    if isinstance(one, OrphanVm):
                        yield one

    def list_addressed(
        self, is_wanted: Callable[[str, ClientConfig], bool]
    ) -> Iterator[OrphanVm | ReportingVm]:
        """The VMs with addresses that are shown, or were shown last, to credentials through kubeconfigs which are wanted. One may
        come repeatedly."""
        for (place, kind), watched in self._watched.items():
            if kind not in (VM, VMI):
                continue
            if watched.access is not None and is_wanted(place.credential, watched.access):
                yield from watched.list_addressed()
            if watched.kept is not None and is_wanted(place.credential, watched.kept.access):
                yield from watched.kept.vms

    def _list(
        self, kind: ApiResource, type: type[V], cluster_uid: str, places: Iterable[Place]
    ) -> list[V] | None:
        found: list[V] = []
        for place in places:
            watched = self._watched.get((place, kind))
            if watched is None or watched.informer is None or not watched.informer.is_watching:
                return None
            found += (one for one in watched.list_of(cluster_uid) if isinstance(one, type))
        return found

    def watch(self, group: asyncio.TaskGroup, cluster: ObjectRef, places: frozenset[Place]) -> None:
        """Watch the places of this Cluster from now on, and those no more that no Cluster has. May be repeated."""
        begun, ended = self._used.update(cluster, places)
        self._begin_and_end(group, begun, ended, _KINDS)

    def watch_balancers(self, group: asyncio.TaskGroup, cluster: ObjectRef, places: frozenset[Place]) -> None:
        """The same for LoadBalancers, which few Clusters have."""
        begun, ended = self._with_balancers.update(cluster, places)
        self._begin_and_end(group, begun, ended, (_BALANCERS,))

    def watch_addresses(
        self, group: asyncio.TaskGroup, cluster: ObjectRef, credentials: frozenset[str]
    ) -> None:
        """The same for the addresses of all VMs that these credentials may see."""
        places = {Place(credential, EVERYWHERE, cluster.namespace) for credential in credentials}
        begun, ended = self._with_addresses.update(cluster, places)
        self._begin_and_end(group, begun, ended, _ADDRESSES)

    def watch_ip_pools(
        self, group: asyncio.TaskGroup, cluster: ObjectRef, credentials: frozenset[str]
    ) -> None:
        """The same for the IPPools of Harvester."""
        places = {Place(credential, EVERYWHERE, cluster.namespace) for credential in credentials}
        begun, ended = self._with_ip_pools.update(cluster, places)
        self._begin_and_end(group, begun, ended, (_IP_POOLS,))

    def list_ip_pool_users(self) -> frozenset[ObjectRef]:
        """The Clusters that have addresses of one."""
        places = self._with_ip_pools.in_use()
        return frozenset(user for place in places for user in self._with_ip_pools.users_of(place))

    def find_ip_pools(self, credential: str, cluster_namespace: str) -> Mapping[str, IPPool] | None:
        """The IPPools by name; None where they were not read."""
        watched = self._watched.get((Place(credential, EVERYWHERE, cluster_namespace), IP_POOL))
        if watched is None or watched.informer is None or not watched.informer.has_synced:
            return None
        return {one.name: one for one in watched.informer.values() if isinstance(one, IPPool)}

    def list_ip_pools(self) -> Iterator[tuple[str, IPPool]]:
        """All IPPools that are watched, each with the credential that shows it."""
        for (place, kind), watched in self._watched.items():
            if kind == IP_POOL and watched.informer is not None:
                yield from (
                    (place.credential, one) for one in watched.informer.values() if isinstance(one, IPPool)
                )

    def _begin_and_end(
        self, group: asyncio.TaskGroup, begun: Iterable[Place], ended: Iterable[Place], kinds: Iterable[_Kind]
    ) -> None:
        for place in ended:
            for kind in kinds:
                watched = self._watched.pop((place, kind.resource))
                watched.stop()
                watched.keep()
                self._report_gone(watched)
        for place in begun:
            for kind in kinds:
                watched = self._watched[place, kind.resource] = _Watched()
                name = f"watch {kind.resource.plural} of {place.namespace}"
                watched.task = start_in(group, self._run(place, kind, watched), name=name)

    def restart(self, credential: str) -> None:
        """The credential has changed: watch with what it is now."""
        for (place, _), watched in self._watched.items():
            if place.credential == credential:
                watched.restart.set()

    async def _run(self, place: Place, kind: _Kind, watched: _Watched) -> None:
        while True:
            watched.restart.clear()
            watched.was_refused = False
            with handle_crash(  # of one Harvester, which must not end what watches the others
                log,
                "watching %s failed; trying again in %s",
                kind.resource.plural,
                RETRY_INTERVAL,
                secret=place.credential,
                namespace=place.namespace,
            ):
                try:
                    access = self._clients.get_config(place.credential, place.cluster_namespace)
                    client = self._clients.get_client(place.credential, place.cluster_namespace)
                    watched.keep()
                    watched.informer = self._informer(client.transport, place, kind, watched)
                    watched.access = access
                    await run_until(self._follow(watched.informer), watched.restart.wait())
                except Stopped:
                    continue
                except (Forbidden, NotFound):
                    watched.was_refused = True
                except (CredentialError, KubeError):
                    pass  # the credential's own probe says why
            watched.keep()
            if watched.was_refused and place.namespace == EVERYWHERE:
                self._on_sync(place.credential)
            await wait_first(self._clock, RETRY_INTERVAL, watched.restart)

    def _report_gone(self, watched: _Watched) -> None:
        """What was kept and is not shown any more is gone, or no Cluster asks for it: a machine may wait for its address."""
        kept, watched.kept = watched.kept, None
        if kept is None:
            return
        now = {_key_of(one) for one in watched.list_addressed()}
        for one in kept.vms:
            if _key_of(one) not in now:
                self._on_change(one, None)

    def _informer(
        self, transport: Transport, place: Place, kind: _Kind, watched: _Watched
    ) -> Informer[Owned]:
        def on_state() -> None:
            if watched.informer is not None and watched.informer.is_watching:
                self._report_gone(watched)
                self._on_sync(place.credential)

        return Informer(
            transport,
            kind.resource,
            place.namespace,
            kind.read,
            self._clock,
            self._rng,
            labels=kind.labels,
            fields=kind.fields,
            raise_refusals=True,
            on_state=on_state,
            index=_cluster_uid_of,
        )

    async def _follow(self, informer: Informer[Owned]) -> None:
        async def report() -> None:
            async for before, after in informer.changes():
                self._on_change(before, after)

        await run_until(informer.run(), report())
