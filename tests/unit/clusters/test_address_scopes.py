"""Under which identity addresses are claimed: what a server says of itself admits it to no scope of others."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.test_addresses import a_claim

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.client.transport import Transport, TransportMiddleware
from windrow.clusters.api.addresses import read_ip_address
from windrow.clusters.api.kinds import CLUSTER, IP_ADDRESS
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.clusters.api.secrets import SecretData, read_secret_data
from windrow.clusters.sources.address_scopes import (
    COMPARISON_TIME,
    RETRY_INTERVAL,
    AddressScopes,
    digest_of,
    select_claims,
)
from windrow.clusters.sources.addresses import AddressBook
from windrow.clusters.sources.harvesters import HarvesterClients, server_of
from windrow.clusters.state import AddressScope, Place
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import LEASE, NAMESPACE, SECRET

GOOD = "https://10.0.0.1:6443"
VIP = "https://10.0.0.9:6443"  # the same Harvester
EVIL = "https://10.0.0.3:6443"  # says whatever it likes
HARVESTER = "hv"  # the uid that all of them say
LEASE_NAME = "windrow-state"


class Connection(TransportMiddleware):
    """To the server of a kubeconfig. A user called after a namespace may read Leases in that one alone."""

    def __init__(self, server: Transport, access: ClientConfig) -> None:
        super().__init__(server)
        self.access = access

    async def send(self, request: Request) -> Reply:
        if self.access.token == "silent":
            await asyncio.Event().wait()
        if self.access.token not in ("admin", *request.path.split("/")):
            return Reply(403, dumps({"kind": "Status", "reason": "Forbidden", "message": "no"}))
        return await super().send(request)


@dataclass
class Rig:
    clock: LoopClock = field(default_factory=LoopClock)
    alive: set[str] = field(default_factory=set)
    lease_name: str = LEASE_NAME

    def __post_init__(self) -> None:
        rng = Rng(1)
        self.harvester, self.evil = (ApiServer(MemoryStore(), self.clock, Rng(seed)) for seed in (1, 2))
        informer = Informer(self.harvester.local(), SECRET, "", read_secret_data, self.clock, rng)
        self.secrets: MutationCache[SecretData] = MutationCache(
            informer, lambda one: one.resource_version, self.clock, ttl=timedelta(days=1)
        )
        self.version = 0
        claims = Informer(self.harvester.local(), IP_ADDRESS, "", read_ip_address, self.clock, rng)
        self.book = AddressBook(claims)
        self.restart()

    def restart(self) -> None:
        def connect(access: ClientConfig) -> Transport:
            api = self.evil if access.server == EVIL else self.harvester
            return Connection(api.local(), access)

        self.clients = HarvesterClients(self.secrets, connect)
        self.scopes = AddressScopes(
            self.clients, self.book, self.clock, self.lease_name, lambda uid: uid in self.alive
        )

    async def lease(self, server: str, namespace: str) -> None:
        api = self.evil if server == EVIL else self.harvester
        client = Client(api.local())
        if await client.find(LEASE.ref(LEASE_NAME, namespace)) is None:
            if await client.find(NAMESPACE.ref(namespace)) is None:
                await client.create(NAMESPACE, new_object(NAMESPACE, namespace))
            raw = new_object(LEASE, LEASE_NAME, namespace, spec={"holderIdentity": "us"})
            await client.create(LEASE, raw, namespace)

    async def find(
        self, name: str, server: str, token: str = "admin", *, also: str = "", leased: bool = True
    ) -> AddressScope:
        """The scope of Cluster `name` of the namespace of that name, whose machines are in it on Harvester, too."""
        credentials = [self._write(name, "cc", server, token)]
        if also:
            credentials.append(self._write(name, "also", also, token))
        if leased:
            await self.lease(server, name)
        places = [Place(one, name, name) for one in credentials]
        self.alive.add(f"uid-{name}")
        ref = CLUSTER.ref(name, name)
        return await self.scopes.find(ref, f"uid-{name}", HARVESTER, credentials, places)

    async def name(self, *args: Any, **kwargs: Any) -> str:
        scope = await self.find(*args, **kwargs)
        return scope.name

    def digest(self, credential: str) -> str:
        return digest_of(self.clients.read_config(credential))

    def _write(self, namespace: str, name: str, server: str, token: str) -> str:
        text = render_kubeconfig(ClientConfig(server, token=token), "harvester")
        data = {CREDENTIAL_KEY: base64.b64encode(text.encode()).decode()}
        self.version += 1
        raw = new_object(SECRET, name, namespace, data=data)
        raw["metadata"]["resourceVersion"] = str(self.version)
        self.secrets.mutated(raw)
        return f"{namespace}:{name}"

    def claim(self, cluster: str, scope: str, server: str = "", address: str = "10.9.0.11") -> None:
        claim = replace(
            a_claim(address, cluster, scope),
            machine=f"{cluster}/m",
            cluster_uid=f"uid-{cluster}",
            server=server,
        )
        self.book.put(claim)


def test_a_server_that_says_the_uid_of_another_has_a_scope_of_its_own() -> None:
    """Whichever of the two comes first."""

    async def story() -> None:
        for first, second in ((GOOD, EVIL), (EVIL, GOOD)):
            rig = Rig()
            one = await rig.find("first", first)
            other = await rig.find("second", second)
            assert one.name == HARVESTER
            assert other.name == f"{HARVESTER}@{other.server}"
            assert not one.servers & other.servers
            # What the credential of the one shows is no address of the other.
            assert rig.digest("first:cc") in one.servers
            assert rig.digest("second:cc") not in one.servers
            assert rig.digest("second:cc") in other.servers
            assert rig.digest("first:cc") not in other.servers

    run_driven(story())


def test_two_servers_of_one_harvester_have_one_scope() -> None:
    """As a Lease that both show proves, although one of the users may read Leases in its own namespace alone."""

    async def story() -> None:
        for tokens in (("admin", "admin"), ("admin", "second"), ("first", "admin")):
            rig = Rig()
            assert await rig.name("first", GOOD, tokens[0]) == HARVESTER
            scope = await rig.find("second", VIP, tokens[1])
            assert scope.name == HARVESTER
            assert len(scope.servers) == 2
            assert rig.digest("first:cc") in scope.servers
            # A third that names the server of either is admitted as it is.
            assert await rig.name("third", VIP, "third", leased=False) == HARVESTER

    run_driven(story())


def test_where_nothing_shows_that_two_servers_are_one_the_later_waits_and_asks_again() -> None:
    async def story() -> None:
        rig = Rig()
        assert await rig.name("first", GOOD, "first") == HARVESTER
        for server in (VIP, EVIL):
            scope = await rig.find("second", server, "second")
            assert scope.name == ""
            assert not scope.servers
            assert scope.retry_at == rig.clock.now() + RETRY_INTERVAL
        assert await rig.name("first", GOOD, "first") == HARVESTER

        await rig.find("second", VIP, "second")
        assert await rig.name("second", VIP, "admin") == ""  # not before
        await asyncio.sleep(RETRY_INTERVAL.total_seconds())
        assert await rig.name("second", VIP, "admin") == HARVESTER

    run_driven(story())


def test_without_leases_nothing_is_shown_and_one_server_is_enough() -> None:
    async def story() -> None:
        rig = Rig(lease_name="")
        assert await rig.name("first", GOOD) == HARVESTER
        assert await rig.name("second", GOOD) == HARVESTER
        assert await rig.name("third", VIP) == ""

    run_driven(story())


def test_a_silent_server_is_given_up_soon() -> None:
    async def story() -> None:
        rig = Rig()
        assert await rig.name("first", EVIL, "silent") == HARVESTER
        async with asyncio.timeout(60):
            assert await rig.name("second", GOOD, "second") == ""

    run_driven(story())


def test_clusters_of_one_namespace_vouch_for_each_other() -> None:
    async def story() -> None:
        rig = Rig()
        rig.claim("first", HARVESTER)
        first = rig._write("first", "cc", GOOD, "first")
        second = rig._write("first", "other", VIP, "first")
        for uid, credential in (("uid-first", first), ("uid-second", second)):
            ref = CLUSTER.ref(uid, "first")
            scope = await rig.scopes.find(ref, uid, HARVESTER, [credential], [])
            assert scope.name == HARVESTER

    run_driven(story())


def test_claims_of_an_earlier_version_keep_their_scope() -> None:
    """Two Clusters that shared a uid go on sharing it, through whatever servers; a third has to show that it is there."""

    async def story() -> None:
        rig = Rig()
        rig.claim("first", HARVESTER)
        rig.claim("second", HARVESTER, address="10.9.0.12")
        assert await rig.name("first", GOOD, "first") == HARVESTER
        assert await rig.name("second", VIP, "second") == HARVESTER
        assert (await rig.name("third", EVIL)).startswith(f"{HARVESTER}@")

    run_driven(story())


def test_after_a_restart_each_cluster_has_the_scope_that_its_claims_record() -> None:
    async def story() -> None:
        rig = Rig()
        found = {}
        for name, server in (("first", GOOD), ("second", EVIL)):
            scope = await rig.find(name, server)
            found[name] = scope.name
            rig.claim(name, scope.name, scope.server, f"10.9.0.{len(found)}")
        rig.restart()
        # The later one is reconciled first, and the other cannot be asked yet.
        assert await rig.name("second", EVIL) == found["second"]
        assert await rig.name("first", GOOD) == found["first"]

    run_driven(story())


def test_a_cluster_that_is_not_reconciled_yet_is_waited_for_and_one_that_is_gone_is_not() -> None:
    async def story() -> None:
        rig = Rig()
        rig.claim("first", HARVESTER, "of-first")
        rig.alive.add("uid-first")
        assert await rig.name("second", GOOD) == ""
        rig.alive.discard("uid-first")
        await asyncio.sleep(RETRY_INTERVAL.total_seconds())
        assert await rig.name("second", GOOD) == HARVESTER

    run_driven(story())


def test_a_credential_that_is_replaced_by_one_of_another_server_leaves_the_scope() -> None:
    """Also where its Cluster has claims there."""

    async def story() -> None:
        rig = Rig()
        await rig.find("first", GOOD)
        second = await rig.find("second", GOOD)
        rig.claim("second", second.name, second.server)
        assert (await rig.name("second", EVIL)).startswith(f"{HARVESTER}@")
        assert await rig.name("first", GOOD) == HARVESTER

    run_driven(story())


def test_a_cluster_of_two_servers_of_which_one_only_says_it_is_there_claims_nothing() -> None:
    async def story() -> None:
        rig = Rig()
        assert await rig.name("first", GOOD) == HARVESTER
        await rig.lease(EVIL, "second")
        assert await rig.name("second", GOOD, also=EVIL) == ""
        assert await rig.name("second", GOOD, also=VIP) == HARVESTER

    run_driven(story())


def test_two_that_come_at_once_see_each_other() -> None:
    async def story() -> None:
        rig = Rig()
        for name, server in (("first", GOOD), ("second", EVIL), ("third", VIP)):
            rig._write(name, "cc", server, "admin")
            await rig.lease(server, name)
        names = await asyncio.gather(
            rig.name("first", GOOD), rig.name("second", EVIL), rig.name("third", VIP)
        )
        assert names[0] == names[2] == HARVESTER
        assert names[1].startswith(f"{HARVESTER}@")

    run_driven(story())


def test_a_cluster_that_is_gone_is_forgotten() -> None:
    async def story() -> None:
        rig = Rig()
        assert await rig.name("first", EVIL) == HARVESTER
        rig.scopes.forget(CLUSTER.ref("first", "first"))
        assert await rig.name("second", GOOD) == HARVESTER

    run_driven(story())


def test_no_scope_without_a_credential_that_can_be_read() -> None:
    async def story() -> None:
        rig = Rig()
        ref = CLUSTER.ref("one", "one")
        scope = await rig.scopes.find(ref, "uid-one", HARVESTER, ["one:absent"], [])
        assert scope == AddressScope(
            "",
            because="a credential Secret that can be read (the credential Secret one/absent does not exist)",
        )

    run_driven(story())


def test_each_part_of_a_kubeconfig_that_says_where_it_leads_makes_another_server() -> None:
    """And what says who asks makes none."""
    access = ClientConfig(GOOD, ca="ca")
    others = (
        replace(access, server=VIP),
        replace(access, ca="another"),
        replace(access, proxy_url="http://proxy"),
        replace(access, insecure=True),
        replace(access, tls_server_name="harvester"),
    )
    assert len({digest_of(one) for one in (access, *others)}) == 6
    assert {server_of(one) for one in others} == set(others)
    assert digest_of(replace(access, token="t", user="u")) == digest_of(access)


async def a_silent_member(rig: Rig, name: str, server: str, places: int = 1) -> None:
    """It has claims from before, and is reconciled; its server answers nothing."""
    rig.claim(name, HARVESTER, f"of-{name}", f"10.9.1.{len(rig.alive)}")
    rig.claim(name, HARVESTER, "", f"10.9.2.{len(rig.alive)}")
    rig.alive.add(f"uid-{name}")
    credential = rig._write(name, "cc", server, "silent")
    known = [Place(credential, f"{name}-{number}", name) for number in range(places)]
    scope = await rig.scopes.find(CLUSTER.ref(name, name), f"uid-{name}", HARVESTER, [credential], known)
    assert scope.name == HARVESTER


def test_silent_servers_hold_a_reconcile_for_one_deadline_a_minute() -> None:
    """However many there are, and however many namespaces their Clusters have machines in."""

    async def story() -> None:
        rig = Rig()
        for number in range(4):
            await a_silent_member(rig, f"silent{number}", f"https://10.0.1.{number}:6443", 10)
        begun = rig.clock.monotonic()
        waiting = await rig.find("second", GOOD)
        assert waiting.name == ""
        assert rig.clock.monotonic() - begun == COMPARISON_TIME
        assert waiting.retry_at == rig.clock.now() + RETRY_INTERVAL
        begun = rig.clock.monotonic()
        assert await rig.find("second", GOOD) == waiting
        assert rig.clock.monotonic() == begun

    run_driven(story())


def test_what_was_asked_longest_ago_is_asked_first() -> None:
    """So that a silent server hides no other."""

    async def story() -> None:
        rig = Rig()
        for number in range(2):
            await a_silent_member(rig, f"silent{number}", f"https://10.0.1.{number}:6443")
        rig.claim("honest", HARVESTER, "")
        assert await rig.name("honest", VIP) == HARVESTER
        names = []
        for _ in range(3):
            names.append(await rig.name("second", GOOD))
            await asyncio.sleep(RETRY_INTERVAL.total_seconds())
        assert names[-1] == HARVESTER
        assert names[0] == ""

    run_driven(story())


def test_a_server_is_asked_with_two_credentials_rather_than_with_one() -> None:
    async def story() -> None:
        rig = Rig()
        may_not, may = rig._write("first", "a", GOOD, "none"), rig._write("first", "b", GOOD, "admin")
        await rig.lease(GOOD, "first")
        places = [Place(may_not, f"n{one}", "first") for one in range(3)] + [Place(may, "first", "first")]
        ref = CLUSTER.ref("first", "first")
        assert (await rig.scopes.find(ref, "uid-first", HARVESTER, [may_not, may], places)).name == HARVESTER
        assert await rig.name("second", VIP, "second") == HARVESTER
        (own,) = rig.scopes._members["uid-first"].servers.values()
        assert own == (Place(may_not, "n0", "first"), Place(may, "first", "first"))

    run_driven(story())


def test_what_is_waited_for_is_said_where_no_proof_of_the_server_is_missing() -> None:
    async def story() -> None:
        rig = Rig()
        rig.claim("first", HARVESTER, "of-first")
        rig.alive.add("uid-first")
        scope = await rig.find("second", GOOD)
        assert scope.because.startswith("the Clusters of another namespace to be reconciled")
        assert "first" not in scope.because
        rig = Rig()
        await rig.find("first", GOOD)
        await rig.lease(EVIL, "second")
        assert (await rig.find("second", GOOD, also=EVIL)).because.startswith("credentials for one Harvester")
        assert (await rig.find("third", VIP, "third", leased=False)).because == ""

    run_driven(story())


def test_results_of_servers_that_no_cluster_has_any_more_are_dropped() -> None:
    async def story() -> None:
        rig = Rig()
        await rig.find("first", GOOD)
        for server in (EVIL, VIP):
            await rig.find("second", server)
            assert len(rig.scopes._results) == 1
        rig.scopes.forget(CLUSTER.ref("second", "second"))
        assert rig.scopes._results == {}
        assert rig.scopes._members.keys() == {"uid-first"}

    run_driven(story())


def test_the_claims_beside_a_cluster_are_those_of_its_scope() -> None:
    """Of its own claims, else of those through its server; where neither is known, all count."""

    async def story() -> None:
        rig = Rig()
        for name, scope, server in (
            ("liar", HARVESTER, "evil"),
            ("first", f"{HARVESTER}@good", "good"),
            ("other", "hv2", "good"),
        ):
            rig.claim(name, scope, server, f"10.9.0.{len(name)}")
        claims = list(rig.book._by_name.values())

        def found(server: str, uid: str = "") -> set[str]:
            return {one.cluster_uid for one in select_claims(claims, HARVESTER, server, uid)}

        assert found("good") == found("unknown", "uid-first") == found("evil", "uid-first") == {"uid-first"}
        assert found("evil") == {"uid-liar"}
        assert found("unknown") == found("unknown", "uid-none") == {"uid-liar", "uid-first"}

    run_driven(story())
