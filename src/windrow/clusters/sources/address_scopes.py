"""Under which identity of a Harvester a Cluster claims addresses: an answer that no server gives of itself.

IPAddresses are named after the uid of Harvester's Namespace kube-system, so that all credentials for one Harvester claim
in one scope, and no address is claimed twice. That uid is what a server says: one of a tenant could say another's. So a
uid alone admits to nothing. A server, as a kubeconfig names it, is admitted to a scope

* where no other Cluster has a claim there;
* where it is the server of one that has;
* where the uid of a Lease of this manager, read through both servers in one namespace, is the same. Harvester's API
  server chose that uid, and who may not read Leases there does not know it.

Where the two uids differ, the servers are two: the later one has a scope of its own, whose IPAddresses have other names.
Where neither can be shown, since no credential may read the Lease of the other, the later one waits: were it admitted,
a tenant could say so; were it sent away, one Harvester could give one address to two machines.

Clusters of one namespace are of one tenant, and vouch for each other.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from windrow.clusters.api.addresses import IPAddress, new_scope, uid_of_scope
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.sources.addresses import AddressBook
from windrow.clusters.sources.harvesters import HarvesterClients, server_of
from windrow.clusters.sources.users import UserIndex
from windrow.clusters.state import AddressScope, Place
from windrow.core.clock import Clock
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import uid_of
from windrow.kubernetes.resources import LEASE, ObjectRef

# Of all that one Cluster is compared with in one reconcile: a tenant's server may be silent.
COMPARISON_TIME = timedelta(seconds=10)
# After a comparison that showed nothing.
RETRY_INTERVAL = timedelta(minutes=1)
# At which one server is asked: one for each of two credentials, else two of one.
MAX_PLACES = 2

Comparison = Literal["same", "other", "unknown"]


@dataclass(frozen=True, slots=True)
class _Member:
    """A Cluster that claims addresses: in which scope, and by its servers the places where these can be asked."""

    scope: str
    cluster: ObjectRef
    servers: Mapping[str, tuple[Place, ...]]


@dataclass(frozen=True, slots=True)
class _Question:
    """Whether the server of a candidate and that of a member are one Harvester. Without a member nothing can be compared, and
    `because` says what is waited for."""

    server: str
    other: str | None = None
    member: _Member | None = None
    because: str = ""

    @property
    def pair(self) -> frozenset[str]:
        return frozenset(filter(None, (self.server, self.other)))


class AddressScopes:
    """The scopes of the Clusters that claim addresses. `exists` says whether there is a Cluster with a uid."""

    def __init__(
        self,
        clients: HarvesterClients,
        addresses: AddressBook,
        clock: Clock,
        lease_name: str,
        exists: Callable[[str], bool],
    ) -> None:
        self._clients, self._addresses, self._clock = clients, addresses, clock
        self._lease_name, self._exists = lease_name, exists
        self._members: dict[str, _Member] = {}  # by the uid of the Cluster
        # Of two servers, and since when.
        self._results: dict[frozenset[str], tuple[Comparison, timedelta]] = {}
        # Until when a Cluster is not compared, since it took all of its time.
        self._paused: dict[ObjectRef, timedelta] = {}
        self._servers: UserIndex[str] = UserIndex()

    def forget(self, cluster: ObjectRef) -> None:
        """The Cluster is gone, or has neither address pools nor addresses any more."""
        for uid in [uid for uid, member in self._members.items() if member.cluster == cluster]:
            del self._members[uid]
        self._paused.pop(cluster, None)
        self._servers.update(cluster, ())
        self._drop_results()

    def _drop_results(self) -> None:
        """Of servers that no Cluster has any more."""
        used = set(self._servers.in_use()).union(*(one.servers for one in self._members.values()))
        self._results = {pair: found for pair, found in self._results.items() if pair <= used}

    async def find(
        self,
        cluster: ObjectRef,
        uid: str,
        harvester: str,
        credentials: Iterable[str],
        places: Iterable[Place],
    ) -> AddressScope:
        """The scope of the Cluster on the Harvester with this uid, through the servers of `credentials`, at least one; without a
        name while that is not shown, or a credential cannot be read. Takes at most COMPARISON_TIME."""
        try:
            servers = self._list_servers(cluster.namespace, credentials, places)
        except (CredentialError, KubeError) as error:
            return AddressScope("", because=f"a credential Secret that can be read ({error.message})")
        _, ended = self._servers.update(cluster, servers)
        candidate = _Member("", cluster, servers)
        end = self._clock.monotonic() + COMPARISON_TIME
        while True:
            decided = self._decide(uid, candidate, harvester)
            if isinstance(decided, str):
                # Nothing else has its turn since the decision: two that come at once would not see each other.
                self._members[uid] = replace(candidate, scope=decided)
                self._paused.pop(cluster, None)
                if ended:
                    self._drop_results()
                return AddressScope(decided, self._servers_in(decided), min(servers))
            left = max(self._time_left(decided.pair), self._pause_left(cluster))
            if left > timedelta():
                return AddressScope("", because=decided.because, retry_at=self._clock.now() + left)
            result = await self._compare(decided, candidate, end - self._clock.monotonic())
            self._results[decided.pair] = (result, self._clock.monotonic())
            if result == "unknown" and self._clock.monotonic() >= end:
                self._paused[cluster] = self._clock.monotonic() + RETRY_INTERVAL

    def _list_servers(
        self, namespace: str, credentials: Iterable[str], places: Iterable[Place]
    ) -> Mapping[str, tuple[Place, ...]]:
        found: dict[str, tuple[Place, ...]] = {}
        known = sorted(places, key=str)
        for one in sorted(credentials):
            server = digest_of(self._clients.get_config(one, namespace))
            own = (place for place in known if place.credential == one)
            found[server] = (*found.get(server, ()), *own)
        return {server: _choose_places(places) for server, places in found.items()}

    def _time_left(self, pair: frozenset[str]) -> timedelta:
        """Until the two are compared again; zero where that can be now."""
        result, since = self._results.get(pair, ("unknown", None))
        if since is None or result != "unknown":
            return timedelta()
        return max(since + RETRY_INTERVAL - self._clock.monotonic(), timedelta())

    def _pause_left(self, cluster: ObjectRef) -> timedelta:
        return self._paused.get(cluster, timedelta()) - self._clock.monotonic()

    def _order_of(self, question: _Question) -> tuple[timedelta, timedelta]:
        """The least is asked next: what was asked longest ago, so that one silent server does not take the time of all."""
        _, since = self._results.get(question.pair, ("unknown", timedelta.min))
        return self._time_left(question.pair), since

    # -- decisions -------------------------------------------------------------------------------------------------

    def _decide(self, uid: str, candidate: _Member, harvester: str) -> str | _Question:
        """The scope, else what is to be asked first."""
        known = self._members.get(uid)
        if (
            known is not None
            and known.servers.keys() >= candidate.servers.keys()
            and uid_of_scope(known.scope) == harvester
        ):
            return known.scope
        claims = self._addresses.with_uid(harvester)
        others = {other: one for other, one in self._members.items() if other != uid}
        scopes = {claim.harvester for claim in claims} | {one.scope for one in others.values()}
        own = {claim.harvester for claim in claims if claim.cluster_uid == uid}
        for scope in sorted(scopes, key=lambda one: (one not in own, len(one), one)):
            if uid_of_scope(scope) != harvester:
                continue
            members = {other: one for other, one in others.items() if one.scope == scope}
            there = [claim for claim in claims if claim.harvester == scope]
            admitted = self._is_admitted(uid, candidate, members, there)
            if isinstance(admitted, _Question):
                return admitted
            if admitted:
                return scope
        return harvester if harvester not in scopes else new_scope(harvester, min(candidate.servers))

    def _is_admitted(
        self, uid: str, candidate: _Member, members: Mapping[str, _Member], claims: Sequence[IPAddress]
    ) -> bool | _Question:
        """Whether it may claim in the scope that has these members and claims."""
        namespace = candidate.cluster.namespace
        own = [claim for claim in claims if claim.cluster_uid == uid]
        others = [claim for claim in claims if claim.cluster_uid != uid]
        namespaces = {claim.machine_namespace for claim in others}
        namespaces |= {one.cluster.namespace for one in members.values()}
        if namespaces <= {namespace}:
            return True
        if any(not claim.server for claim in own):
            return True  # claims of before servers were recorded vouch for the Cluster that has them
        known = {claim.server for claim in claims}.union(*(one.servers for one in members.values()))
        owners = {claim.cluster_uid for claim in others} - members.keys()
        found: list[Comparison | _Question] = [
            "same" if server in known else self._find_result(server, members.values(), owners)
            for server in sorted(candidate.servers)
        ]
        for one in found:
            if isinstance(one, _Question):
                return one
        if len(set(found)) == 1:
            return found[0] == "same"
        # One part of its machines is on this Harvester, and the other is on one that says it were the same.
        why = "credentials for one Harvester in all pools (they lead to two servers that say one uid, and only one of them is it)"
        return _Question(min(candidate.servers), because=why)

    def _find_result(
        self, server: str, members: Iterable[_Member], owners: Set[str]
    ) -> Comparison | _Question:
        """What is known of the server beside those of the members; else what is to be asked, or waited for. `owners` are
        uids with claims that no member has."""
        unknown = []
        results = set()
        for member in members:
            for other in sorted(member.servers):
                result, _ = self._results.get(frozenset((server, other)), ("unknown", None))
                if result == "same":
                    return "same"
                results.add(result)
                if result == "unknown":
                    unknown.append(_Question(server, other, member))
        if "other" in results:
            return "other"  # the members are one Harvester, as far as can be shown
        if any(map(self._exists, owners)):  # not reconciled since the start
            why = "the Clusters of another namespace to be reconciled that have addresses on a Harvester of this uid"
            unknown.append(_Question(server, because=why))
        # Where no Cluster is left that could be compared, the claims are those of Clusters that are gone.
        if not unknown:
            return "same"
        return min(unknown, key=self._order_of)

    def _servers_in(self, scope: str) -> frozenset[str]:
        return frozenset().union(*(one.servers for one in self._members.values() if one.scope == scope))

    # -- comparison ------------------------------------------------------------------------------------------------

    async def _compare(self, question: _Question, candidate: _Member, time: timedelta) -> Comparison:
        """Whether one Lease is shown by both servers, at a place of either. Unknown where that takes longer than `time`."""
        if question.member is None or question.other is None or not self._lease_name:
            return "unknown"
        ours = candidate.servers[question.server]
        theirs = question.member.servers[question.other]
        try:
            async with asyncio.timeout(time.total_seconds()):
                for showing, asked in ((ours, theirs), (theirs, ours)):
                    for place in showing:
                        result = await self._compare_at(place, asked)
                        if result != "unknown":
                            return result
        except TimeoutError:
            return "unknown"
        return "unknown"

    async def _compare_at(self, place: Place, asked: Iterable[Place]) -> Comparison:
        shown = await self._read_lease(place, place.namespace)
        if not shown:
            return "unknown"
        for through in asked:
            found = await self._read_lease(through, place.namespace)
            if found == shown:
                return "same"
            # It was not created anew between the two.
            if found is not None and await self._read_lease(place, place.namespace) == shown:
                return "other"
        return "unknown"

    async def _read_lease(self, place: Place, namespace: str) -> str | None:
        """The uid of the Lease there, "" where there is none, None where that cannot be read."""
        try:
            client = self._clients.get_client(place.credential, place.cluster_namespace)
            raw = await client.find(LEASE.ref(self._lease_name, namespace))
        except (CredentialError, KubeError):
            return None
        return uid_of(raw) if raw is not None else ""


def _choose_places(places: Sequence[Place]) -> tuple[Place, ...]:
    """Where a server is asked: of two credentials rather than of one, since their users may have different rights."""
    first = {place.credential: place for place in reversed(places)}
    rest = (place for place in places if first[place.credential] is not place)
    return (*sorted(first.values(), key=str), *rest)[:MAX_PLACES]


def select_claims(
    claims: Iterable[IPAddress], harvester: str, server: str, cluster_uid: str = ""
) -> list[IPAddress]:
    """Those on the Harvester of this uid that the server is: of the scope in which the Cluster has claims, else of those with a
    claim through the server. Where neither is known, those of all, since a claim too many gives no address away."""
    near = [one for one in claims if uid_of_scope(one.harvester) == harvester]
    own = {one.harvester for one in near if cluster_uid and one.cluster_uid == cluster_uid}
    scopes = own or {one.harvester for one in near if one.server == server}
    return [one for one in near if not scopes or one.harvester in scopes]


def digest_of(access: ClientConfig) -> str:
    """A name for the server of a kubeconfig, without what it is: users of other namespaces may read IPAddresses."""
    server = server_of(access)
    text = (server.server, server.ca, server.proxy_url, str(server.insecure), server.tls_server_name)
    return hashlib.sha256("\0".join(text).encode()).hexdigest()[:16]
