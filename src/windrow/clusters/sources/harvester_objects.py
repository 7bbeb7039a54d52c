"""The VMs on Harvester that carry the uid of a Cluster, whether a Machine records them or not.

One informer for each credential and namespace, whichever driver makes the machines: a management API that was restored
to an earlier state does not know the machines whose statuses it would have to ask for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from windrow.client.informer import Informer
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.orphans import OrphanVm, read_cluster_vm
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.core.wait import Stopped, run_until, wait_first
from windrow.harvester.names import CREATOR, CREATOR_NODE_DRIVER
from windrow.harvester.resources import VM
from windrow.kubernetes.errors import KubeError
from windrow.machines.port import HARVESTER

CREATOR_SELECTOR = f"{CREATOR}={CREATOR_NODE_DRIVER}"
# After a credential that cannot be read, or that may not list VMs.
RETRY_INTERVAL = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class VmPlace:
    """Where VMs of a Cluster are made, and the namespace of the Cluster, which the credential must allow."""

    credential: str
    namespace: str
    cluster_namespace: str


def vm_places(cluster: Cluster) -> frozenset[VmPlace]:
    return frozenset(
        VmPlace(pool.credential, pool.vm_namespace, cluster.namespace)
        for pool in cluster.pools
        if pool.driver == HARVESTER and ":" in pool.credential
    )


@dataclass(slots=True)
class _Watched:
    informer: Informer[OrphanVm] | None = None
    restart: asyncio.Event = field(default_factory=asyncio.Event)


class ClusterVms:
    """The VMs with a cluster's uid at the places that were opened.

    `on_vm` is called with each that has changed, `on_sync` with a credential whose VMs are known now.
    """

    def __init__(
        self,
        clients: HarvesterClients,
        clock: Clock,
        rng: Rng,
        on_vm: Callable[[OrphanVm], None],
        on_sync: Callable[[str], None],
    ) -> None:
        self._clients, self._clock, self._rng = clients, clock, rng
        self._on_vm, self._on_sync = on_vm, on_sync
        self._watched: dict[VmPlace, _Watched] = {}

    def list_vms(self, cluster_uid: str, places: Iterable[VmPlace]) -> tuple[OrphanVm, ...] | None:
        """Those of the cluster, without those that are being deleted; None while one of `places` is not watched."""
        found: list[OrphanVm] = []
        for place in places:
            watched = self._watched.get(place)
            if watched is None or watched.informer is None or not watched.informer.is_watching:
                return None
            found += (
                vm for vm in watched.informer.values() if vm.cluster_uid == cluster_uid and not vm.is_deleting
            )
        return tuple(sorted(found, key=str))

    def open(self, group: asyncio.TaskGroup, places: Iterable[VmPlace]) -> None:
        """Watch them from now on. May be repeated."""
        for place in sorted(places, key=str):
            if place not in self._watched:
                watched = self._watched[place] = _Watched()
                group.create_task(self._run(place, watched), name=f"watch VMs of {place.namespace}")

    def restart(self, credential: str) -> None:
        """The credential has changed: watch with what it is now."""
        for place, watched in self._watched.items():
            if place.credential == credential:
                watched.restart.set()

    async def _run(self, place: VmPlace, watched: _Watched) -> None:
        while True:
            watched.restart.clear()
            try:
                client = self._clients.get_client(place.credential, place.cluster_namespace)
                informer = Informer(
                    client.transport,
                    VM,
                    place.namespace,
                    read_cluster_vm,
                    self._clock,
                    self._rng,
                    labels=CREATOR_SELECTOR,
                    raise_refusals=True,
                    on_state=lambda: self._on_state(place, watched),
                )
                watched.informer = informer
                await run_until(self._follow(informer), watched.restart.wait())
            except Stopped:
                continue
            except (CredentialError, KubeError):
                watched.informer = None  # the credential's own probe says why
                await wait_first(self._clock, RETRY_INTERVAL, watched.restart)

    async def _follow(self, informer: Informer[OrphanVm]) -> None:
        async def report() -> None:
            async for before, after in informer.changes():
                if (vm := after or before) is not None:
                    self._on_vm(vm)

        await run_until(informer.run(), report())

    def _on_state(self, place: VmPlace, watched: _Watched) -> None:
        if watched.informer is not None and watched.informer.is_watching:
            self._on_sync(place.credential)
