"""Leases on Harvester that keep managers apart whose states are copies of each other.

A backup that is restored elsewhere, or a copied state directory, makes a second manager that knows the same Clusters and
credentials. Harvester is the only place that both see. So a manager holds a Lease there, one in each namespace where its
Clusters have VMs, and creates, changes and deletes only while it does. The Lease is named after what copies have in
common; its holder names the store, which no two have in common, and the process.

* A process that starts on its own store takes the Lease of the one before it at once.
* One on another store waits until the Lease is released, or has not been renewed for LEASE_DURATION by its own monotonic
  clock. The former holder has stopped to act RENEW_DEADLINE after its last renewal.
* Of two processes on what cannot be told apart (a snapshot of the whole disk), the later one takes the Lease, and the
  former stops to act at its next renewal.

A user who may not use Leases, or a namespace that does not exist, leaves the Clusters there unguarded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from windrow.client.client import Client
from windrow.client.leader_election import LeaderElectionConfig, LeaderElector, LeadershipLost
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.sources.harvester_objects import Place
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.clusters.state import ManagerLease
from windrow.core.clock import Clock
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.core.wait import Stopped, run_until, wait_first
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound

log = with_values(logging.getLogger(__name__))

LEASE_DURATION = timedelta(minutes=3)
RENEW_DEADLINE = timedelta(minutes=2)
CONFIG = LeaderElectionConfig(
    LEASE_DURATION, RENEW_DEADLINE, retry_period=timedelta(seconds=10), renew_period=timedelta(minutes=1)
)
# After a credential that cannot be read, or an answer that cannot be used.
RETRY_INTERVAL = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class ManagerIdentity:
    """Who a manager is: `state` is a uid that copies of a state have in common, `store` one of its store alone, `process`
    one of the running process. `host` is for people."""

    state: str
    store: str
    process: str
    host: str = "manager"

    @property
    def lease_name(self) -> str:
        return f"windrow-{self.state}"

    @property
    def holder(self) -> str:
        return f"{self.host}_{self.store}_{self.process}"

    def is_of_this_store(self, holder: str) -> bool:
        """Whether the holder is a process on this store."""
        words = holder.rsplit("_", 2)
        return len(words) == 3 and words[1] == self.store


@dataclass(slots=True)
class _Guarded:
    elector: LeaderElector | None = None
    restart: asyncio.Event = field(default_factory=asyncio.Event)
    has_held: bool = False
    told: ManagerLease | None = None

    async def hold(self) -> None:
        self.has_held = True
        await asyncio.Event().wait()


class ManagerLeases:
    """The Leases at the places that were opened. `on_change` is called with the credential of one whose state changed.

    Without an identity there is no Lease, and every place counts as held.
    """

    def __init__(
        self,
        clients: HarvesterClients,
        identity: ManagerIdentity | None,
        clock: Clock,
        rng: Rng,
        on_change: Callable[[str], None],
    ) -> None:
        self._clients, self._identity, self._clock, self._rng = clients, identity, clock, rng
        self._on_change = on_change
        self._guarded: dict[Place, _Guarded] = {}

    def read(self, places: Iterable[Place]) -> ManagerLease:
        """The state at all of `places` at this instant, which is the worst of them."""
        found = [self._read(place) for place in sorted(places, key=str)] if self._identity else []
        order = ("taken", "pending", "unguarded", "held")
        worst = (lease for state in order for lease in found if lease.state == state)
        return next(worst, ManagerLease())

    def _read(self, place: Place) -> ManagerLease:
        guarded, identity = self._guarded.get(place), self._identity
        name = f"{place.namespace}/{identity.lease_name if identity else ''}"
        if identity is None or guarded is None or guarded.elector is None:
            return ManagerLease("pending", name)
        elector = guarded.elector
        if elector.may_write:
            return ManagerLease("held", name, identity.holder)
        if elector.holder not in ("", identity.holder):
            return ManagerLease("taken", name, elector.holder)
        # Who may not use Leases may still make VMs; and where there is no namespace, nothing can be made or deleted.
        match elector.problem:
            case Forbidden() as refused:
                return ManagerLease("unguarded", name, because=str(refused))
            case NotFound():
                return ManagerLease("unguarded", name)
            case _:
                return ManagerLease("pending", name)

    def open(self, group: asyncio.TaskGroup, places: Iterable[Place]) -> None:
        """Hold them from now on. May be repeated."""
        if self._identity is None:
            return
        for place in sorted(places, key=str):
            if place not in self._guarded:
                guarded = self._guarded[place] = _Guarded()
                group.create_task(
                    self._run(place, self._identity, guarded), name=f"hold lease in {place.namespace}"
                )

    def restart(self, credential: str) -> None:
        """The credential has changed: hold the Lease with what it is now."""
        for place, guarded in self._guarded.items():
            if place.credential == credential:
                guarded.restart.set()

    async def _run(self, place: Place, identity: ManagerIdentity, guarded: _Guarded) -> None:
        while True:
            guarded.restart.clear()
            try:
                client = self._clients.get_client(place.credential, place.cluster_namespace)
                elector = guarded.elector = self._elector(client, place, identity, guarded)
                await run_until(elector.run(guarded.hold), guarded.restart.wait())
            except (Stopped, LeadershipLost):
                self._report(place, guarded)
            except (CredentialError, KubeError):
                guarded.elector = None  # the credential's own probe says why
                await wait_first(self._clock, RETRY_INTERVAL, guarded.restart)
            except Exception:  # of one Harvester, which must not end what holds the Leases of the others
                guarded.elector = None
                log.exception(
                    "holding a Lease failed; trying again in %s", RETRY_INTERVAL, secret=place.credential
                )
                await wait_first(self._clock, RETRY_INTERVAL, guarded.restart)

    def _elector(
        self, client: Client, place: Place, identity: ManagerIdentity, guarded: _Guarded
    ) -> LeaderElector:
        def takes_over(holder: str) -> bool:
            return not guarded.has_held and identity.is_of_this_store(holder)

        return LeaderElector(
            client,
            place.namespace,
            identity.lease_name,
            identity.holder,
            self._clock,
            self._rng,
            CONFIG,
            takes_over=takes_over,
            on_attempt=lambda: self._report(place, guarded),
        )

    def _report(self, place: Place, guarded: _Guarded) -> None:
        now = self._read(place)
        if now != guarded.told:
            guarded.told = now
            self._on_change(place.credential)
