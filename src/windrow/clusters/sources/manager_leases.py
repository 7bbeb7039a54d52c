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

All credentials that lead to one API server have one elector in a namespace, and any of them serves it: that one of them
is rejected, may not use Leases, or leads elsewhere from now on changes nothing for the others. Which server it is follows
from the kubeconfig, never from what the server says of itself: a tenant's own server could claim to be any Harvester,
and answer for others' Leases. Where two kubeconfigs name one Harvester differently, two electors hold one Lease, as one
holder. So a Lease is released only when the process ends. Where no credential leads there any more, it expires. It is
held on when the last Cluster there is gone: a copy, which still has that Cluster, would make all of it anew.

A user who may not use Leases, or a namespace that does not exist, leaves the Clusters there unguarded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta

from windrow.client.client import Client
from windrow.client.leader_election import LeaderElectionConfig, LeaderElector, LeadershipLost, NotLeader
from windrow.client.transport import Transport, TransportMiddleware
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.sources.harvesters import HarvesterClients, server_of
from windrow.clusters.sources.users import UserIndex
from windrow.clusters.state import ManagerLease, Place
from windrow.core.clock import Clock, sleep
from windrow.core.crash import handle_crash
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.core.wait import start_in
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound, OutcomeUnknown, Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import LEASE, ObjectRef

log = with_values(logging.getLogger(__name__))

LEASE_DURATION = timedelta(minutes=3)
RENEW_DEADLINE = timedelta(minutes=2)
CONFIG = LeaderElectionConfig(
    LEASE_DURATION, RENEW_DEADLINE, retry_period=timedelta(seconds=10), renew_period=timedelta(minutes=1)
)
# After an answer that cannot be used.
RETRY_INTERVAL = timedelta(minutes=1)
# Of one request, so that there is time for the other credentials before the Lease is lost.
REQUEST_TIMEOUT_S = 15.0


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


@dataclass(frozen=True, slots=True)
class _Seat:
    """A namespace behind one API server, as a kubeconfig names that server."""

    server: ClientConfig
    namespace: str


def _seat(access: ClientConfig, namespace: str) -> _Seat:
    return _Seat(server_of(access), namespace)


class _AnyCredential:
    """Sends by the credentials of `places` that lead to the seat now, each with its own client.

    Where one is rejected, or may not, the next is asked. The one that was served last comes first, one that was not last.
    """

    def __init__(self, seat: _Seat, clients: HarvesterClients) -> None:
        self._seat, self._clients = seat, clients
        self.places: deque[Place] = deque()

    async def send(self, request: Request) -> Reply:
        refusal: Reply | None = None
        for place in tuple(self.places):
            if (client := self._find_client(place)) is None:
                continue
            if place in self.places:
                self.places.remove(place)
                self.places.append(place)
            reply = await self._send_by(client, request)
            if reply.status not in (401, 403):
                if reply.status < 429 and place in self.places:
                    self.places.remove(place)
                    self.places.appendleft(place)
                return reply
            if refusal is None or reply.status == 403:  # which says more than that the user is not known
                refusal = reply
        if refusal is None:
            raise Unreachable(f"no credential leads to {self._seat.server.server} now")
        return refusal

    async def _send_by(self, client: Client, request: Request) -> Reply:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await client.transport.send(request)
        except TimeoutError:
            raise OutcomeUnknown(f"no answer within {REQUEST_TIMEOUT_S:.0f} s") from None

    def _find_client(self, place: Place) -> Client | None:
        try:
            access = self._clients.get_config(place.credential, place.cluster_namespace)
            if _seat(access, place.namespace) != self._seat:
                return None  # its Secret has changed
            return self._clients.get_client(place.credential, place.cluster_namespace)
        except (CredentialError, KubeError):
            return None  # the credential's own probe says why

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        raise NotImplementedError  # an elector does not watch

    async def aclose(self) -> None:
        pass  # the clients own their connections


class _Shared:
    """What holds the Lease at one seat, for all places there."""

    def __init__(self, seat: _Seat, clients: HarvesterClients) -> None:
        self.seat = seat
        self.credentials = _AnyCredential(seat, clients)
        self.elector: LeaderElector | None = None
        self.task: asyncio.Task[None] | None = None
        self.has_held = False
        self.told: ManagerLease | None = None

    async def hold(self) -> None:
        self.has_held = True
        await asyncio.Event().wait()


class ManagerLeases:
    """The Leases at the places of Clusters. `on_change` is called with the credentials of one whose state changed.

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
        self._group: asyncio.TaskGroup | None = None
        self._used: UserIndex[Place] = UserIndex()
        self._kept: set[Place] = set()  # whose Clusters are gone: the only place of its Lease, which is held
        self._seats: dict[Place, _Seat] = {}  # of the places whose credential can be read
        self._shared: dict[_Seat, _Shared] = {}

    def read(self, places: Iterable[Place]) -> ManagerLease:
        """The state at all of `places` at this instant, which is the worst of them."""
        if self._identity is None:
            return ManagerLease()
        found = [self._read(place, self._identity) for place in sorted(places, key=str)]
        order = ("taken", "pending", "unguarded", "held")
        worst = (lease for state in order for lease in found if lease.state == state)
        return next(worst, ManagerLease())

    def _read(self, place: Place, identity: ManagerIdentity) -> ManagerLease:
        seat = self._seats.get(place)
        if seat is None:
            return ManagerLease("pending", f"{place.namespace}/{identity.lease_name}")
        return self._read_seat(seat, identity)

    def _read_seat(self, seat: _Seat, identity: ManagerIdentity) -> ManagerLease:
        name, elector = f"{seat.namespace}/{identity.lease_name}", self._shared[seat].elector
        if elector is None:
            return ManagerLease("pending", name)
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

    def require(self, request: Request, access: ClientConfig) -> None:
        """Raises NotLeader where `request`, a write to `access`, is in a namespace whose Lease is not held now."""
        namespace = _namespace_of(request)
        seat = _seat(access, namespace)
        if self._identity is None or seat not in self._shared:
            return
        lease = self._read_seat(seat, self._identity)
        if not lease.permits and not request.path.startswith(LEASE.path(namespace)):
            raise NotLeader(
                f"{request.method} {request.path} not sent: this manager does not hold {lease} on Harvester now; another "
                "manager with a copy of its state may act there"
            )

    def may_write(self, credential: str, namespace: str) -> bool:
        """The same for a program that has the credential. After the last yes no other manager begins for LEASE_DURATION less
        RENEW_DEADLINE, long after a plugin that is left alone has ended."""
        places = {one for one in self._seats if (one.credential, one.namespace) == (credential, namespace)}
        return self.read(places).permits

    def open(self, group: asyncio.TaskGroup, cluster: ObjectRef, places: frozenset[Place]) -> None:
        """Hold the Leases at the places of this Cluster from now on. May be repeated."""
        if self._identity is None:
            return
        self._group = group
        before = self._used.used_by(cluster)
        self._used.update(cluster, places)
        self._assign(before | places)

    def close(self, cluster: ObjectRef) -> None:
        """The Cluster is gone. A Lease that only it needed is held on, if it is held."""
        places = self._used.used_by(cluster)
        _, ended = self._used.update(cluster, ())
        for place in ended:
            seat = self._seats.get(place)
            if seat is None:
                continue
            shared = self._shared[seat]
            if (
                len(shared.credentials.places) == 1
                and shared.elector is not None
                and shared.elector.may_write
            ):
                self._kept.add(place)
        self._assign(places)

    def restart(self, credential: str) -> None:
        """The credential has changed: hold the Lease where it leads now."""
        changed = [place for place in self._used.in_use() | self._kept if place.credential == credential]
        self._assign(changed)
        for place in changed:
            shared = self._shared.get(self._seats[place]) if place in self._seats else None
            if shared is not None and shared.elector is not None:
                shared.elector.attempt_now()

    def _assign(self, places: Iterable[Place]) -> None:
        """Let each place have its seat, or none."""
        wanted = self._used.in_use()
        for place in sorted(places, key=str):
            before = self._seats.get(place)
            found = self._find_seat(place) if place in wanted or place in self._kept else None
            if place in wanted or found != before:
                self._kept.discard(place)
            seat = found if place in wanted or place in self._kept else None
            if seat == before:
                continue
            if seat is None:
                del self._seats[place]
            else:
                self._seats[place] = seat
                self._join(seat, place)
            if before is not None:
                self._leave(before, place)

    def _find_seat(self, place: Place) -> _Seat | None:
        try:
            access = self._clients.get_config(place.credential, place.cluster_namespace)
        except (CredentialError, KubeError):
            return None  # the credential's own probe says why; a change of its Secret is reported
        return _seat(access, place.namespace)

    def _join(self, seat: _Seat, place: Place) -> None:
        shared = self._shared.get(seat)
        if shared is None:
            shared = self._shared[seat] = _Shared(seat, self._clients)
            shared.credentials.places.append(place)
            shared.task = start_in(self._group, self._run(shared), name=f"hold lease in {place.namespace}")
        else:
            shared.credentials.places.append(place)
            self._on_change(place.credential)  # its Cluster has not read this Lease yet
            for kept in self._kept.intersection(shared.credentials.places):
                self._kept.discard(kept)
                del self._seats[kept]
                shared.credentials.places.remove(kept)

    def _leave(self, seat: _Seat, place: Place) -> None:
        shared = self._shared[seat]
        shared.credentials.places.remove(place)
        if shared.credentials.places:
            return
        del self._shared[seat]
        if shared.task is not None:
            shared.task.cancel()

    def _may_release(self, shared: _Shared) -> bool:
        """Whether the process ends. After a failure it begins anew, and where it has no place any more, another elector may
        rely on the same Lease."""
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0 and self._shared.get(shared.seat) is shared

    async def _run(self, shared: _Shared) -> None:
        assert self._identity is not None
        while True:
            with handle_crash(  # of one Harvester, which must not end what holds the Leases of the others
                log,
                "holding a Lease failed; trying again in %s",
                RETRY_INTERVAL,
                namespace=shared.seat.namespace,
            ) as crash:
                shared.elector = self._elector(shared, self._identity)
                try:
                    await shared.elector.run(shared.hold)
                except LeadershipLost:
                    self._report(shared)
                    for kept in self._kept.intersection(shared.credentials.places):
                        self._kept.discard(kept)
                        self._assign([kept])
            if crash.error is not None:
                shared.elector = None
                await sleep(self._clock, RETRY_INTERVAL)

    def _elector(self, shared: _Shared, identity: ManagerIdentity) -> LeaderElector:
        def takes_over(holder: str) -> bool:
            return not shared.has_held and identity.is_of_this_store(holder)

        return LeaderElector(
            Client(shared.credentials),
            shared.seat.namespace,
            identity.lease_name,
            identity.holder,
            self._clock,
            self._rng,
            CONFIG,
            takes_over=takes_over,
            on_attempt=lambda: self._report(shared),
            may_release=lambda: self._may_release(shared),
        )

    def _report(self, shared: _Shared) -> None:
        if self._identity is None or self._shared.get(shared.seat) is not shared:
            return
        now = self._read_seat(shared.seat, self._identity)
        if now != shared.told:
            shared.told = now
            for credential in sorted({place.credential for place in shared.credentials.places}):
                self._on_change(credential)


class LeasedTransport(TransportMiddleware):
    """Sends no write for which `require` raises; innermost, so that no wait comes after."""

    def __init__(self, inner: Transport, require: Callable[[Request], None]) -> None:
        super().__init__(inner)
        self._require = require

    async def send(self, request: Request) -> Reply:
        if not request.is_read:
            self._require(request)
        return await self._inner.send(request)


def _namespace_of(request: Request) -> str:
    """The namespace in the path, "" for none."""
    _, _, rest = request.path.partition("/namespaces/")
    return rest.partition("/")[0]
