"""The port Transport, on both implementations, against our own API server behind TLS."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from windrow.apiserver.http import Listener
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.client.in_process import InProcessTransport
from windrow.client.informer import Informer
from windrow.core import pki
from windrow.core.rng import Rng
from windrow.kubernetes import requests
from windrow.kubernetes.errors import (
    AlreadyExists,
    CertificateError,
    Forbidden,
    NotFound,
    Unauthorized,
    Unreachable,
)
from windrow.kubernetes.handler import TlsIdentity
from windrow.kubernetes.kubeconfig import ClientConfig, parse_kubeconfig, render_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import CONFIG_MAP, NAMESPACE, NODE

HOUR = timedelta(hours=1)
CLOCK = SystemClock()
CA = pki.new_ca("servers", CLOCK.now(), 1)
CLIENT_CA = pki.new_ca("clients", CLOCK.now(), 1)
OTHER_CA = pki.new_ca("strangers", CLOCK.now(), 1)


def issued(authority, **what):
    return pki.issue_certificate(*authority, now=CLOCK.now(), lifetime=HOUR, **what)


@dataclass
class Rig:
    """One API server, the access to it as its administrator, and the way to dial."""

    server: ApiServer
    access: ClientConfig
    dial: object

    def client(self, **differing):
        return Client(self.dial(replace(self.access, **differing)))


async def only_reads_for_viewers(caller, verb, target):
    return caller.username != "guest" or verb in ("get", "list", "watch")


def new_server():
    chain, key = issued(CA, common_name="server", server=True, ips=["127.0.0.1"], dns=["kubernetes"])
    server = ApiServer(
        MemoryStore(),
        CLOCK,
        Rng(1),
        name="test",
        tls=TlsIdentity(chain, key, CLIENT_CA[0]),
        authorize=only_reads_for_viewers,
    )
    server.tokens["admin-token"] = ("admin", ("system:masters",), None)
    server.tokens["guest-token"] = ("guest", (), None)
    return server


@asynccontextmanager
async def over_sockets(server):
    async with Listener(server) as listener:
        opened = []

        def dial(access):
            opened.append(HttpTransport(access, CLOCK))
            return opened[-1]

        yield f"https://127.0.0.1:{listener.port}", dial
        for transport in opened:
            await transport.aclose()


@asynccontextmanager
async def in_process(server):
    def find(host, port):
        return server if port == 6443 else None

    yield "https://127.0.0.1:6443", lambda access: InProcessTransport(access, find, CLOCK)


@pytest.fixture(params=[over_sockets, in_process], ids=["sockets", "in process"])
async def rig(request):
    server = new_server()
    async with request.param(server) as (address, dial):
        access = ClientConfig(address, ca=CA[0], token="admin-token", user="admin")
        yield Rig(server, access, dial)


def config_map(name, **data):
    return new_object(CONFIG_MAP, name, "default", data=data)


REF = CONFIG_MAP.ref("a", "default")


async def test_what_is_created_can_be_read_changed_and_deleted(rig):
    client = rig.client()
    await client.create(CONFIG_MAP, config_map("a", x="1"))
    await client.patch(REF, {"data": {"y": "2"}})
    read = await client.get(REF)
    await client.delete(REF, uid=read["metadata"]["uid"])

    assert read["data"] == {"x": "1", "y": "2"}
    assert await client.find(REF) is None


async def test_error_replies_become_their_errors(rig):
    client = rig.client()
    await client.create(CONFIG_MAP, config_map("a"))

    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAP, config_map("a"))
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAP.ref("b", "default"))


async def test_find_does_not_take_an_unknown_kind_for_a_missing_object(rig):
    unknown = replace(CONFIG_MAP, plural="confusionmaps")

    with pytest.raises(NotFound):
        await rig.client().find(unknown.ref("a", "default"))


async def test_a_long_list_comes_whole(rig):
    client = rig.client()
    for number in range(1100):
        await client.create(CONFIG_MAP, config_map(f"m{number}"))

    found = await client.list(CONFIG_MAP, "default")

    assert {f"m{number}" for number in range(1100)} <= {raw["metadata"]["name"] for raw in found}
    assert {(raw["kind"], raw["apiVersion"]) for raw in found} == {("ConfigMap", "v1")}


async def test_a_watch_delivers_the_changes_after_its_version(rig):
    client = rig.client()
    listing = await client.list_with_version(CONFIG_MAP, "default")
    await client.create(CONFIG_MAP, config_map("a"))
    await client.delete(REF)

    request = requests.watch(CONFIG_MAP, "default", version=listing.resource_version)
    async with rig.client().transport.stream(request) as events:
        seen = [await anext(events), await anext(events)]

    assert [(event.type, event.object["metadata"]["name"]) for event in seen] == [
        ("ADDED", "a"),
        ("DELETED", "a"),
    ]


async def test_a_watch_ends_cleanly_when_its_time_is_over(rig):
    listing = await rig.client().list_with_version(CONFIG_MAP, "default")
    request = requests.watch(CONFIG_MAP, "default", version=listing.resource_version, timeout_s=1)

    async with asyncio.timeout(10):
        async with rig.client().transport.stream(request) as events:
            left = [event.type async for event in events]

    assert set(left) <= {"BOOKMARK"}


@pytest.mark.parametrize("verb", ["send", "stream"])
async def test_a_rejected_credential_is_named(rig, verb):
    with pytest.raises(Unauthorized) as caught:
        await attempt(rig.client(token="stale", user="someone"), verb)

    message = str(caught.value)
    assert rig.access.server in message
    assert "the token of user 'someone'" in message
    assert "ask for a new kubeconfig" in message


async def test_a_missing_right_is_forbidden_not_unauthorized(rig):
    with pytest.raises(Forbidden):
        await rig.client(token="guest-token").create(CONFIG_MAP, config_map("a"))


@pytest.mark.parametrize("verb", ["send", "stream"])
async def test_a_server_of_another_ca_is_not_trusted(rig, verb):
    with pytest.raises(CertificateError, match="certificate-authority-data"):
        await attempt(rig.client(ca=OTHER_CA[0]), verb)


async def test_a_certificate_is_checked_for_the_name_the_kubeconfig_gives(rig):
    assert await rig.client(tls_server_name="kubernetes").list(NAMESPACE)
    with pytest.raises(CertificateError):
        await rig.client(tls_server_name="elsewhere").list(NAMESPACE)


async def test_only_insecure_skip_tls_verify_turns_verification_off(rig):
    assert await rig.client(ca=OTHER_CA[0], insecure=True).list(NAMESPACE)


@pytest.mark.parametrize("verb", ["send", "stream"])
async def test_without_a_listener_the_connection_is_refused(rig, verb):
    with pytest.raises(Unreachable, match="connection refused"):
        await attempt(rig.client(server="https://127.0.0.1:1"), verb)


async def test_a_client_certificate_is_an_identity(rig):
    certificate, key = issued(CLIENT_CA, common_name="me", organizations=["system:masters"], client=True)

    assert await rig.client(token="", certificate=certificate, key=key).list(NAMESPACE)


async def test_a_client_certificate_of_another_ca_is_rejected(rig):
    certificate, key = issued(OTHER_CA, common_name="me", organizations=["system:masters"], client=True)

    # Over sockets Python's TLS hangs up without a word; in process the refusal can be told.
    with pytest.raises(Exception, match="client certificate"):
        await rig.client(token="", certificate=certificate, key=key).list(NAMESPACE)


async def test_without_a_credential_requests_are_anonymous(rig):
    with pytest.raises(Unauthorized, match="no credential"):
        await rig.client(token="").list(NAMESPACE)


async def test_a_rendered_kubeconfig_names_the_same_server(rig):
    access = parse_kubeconfig(render_kubeconfig(rig.access, "test"))

    assert await Client(rig.dial(access)).list(NAMESPACE)


async def test_an_informer_follows_the_server(rig):
    client = rig.client()
    cache = Informer(client.transport, CONFIG_MAP, "default", lambda raw: raw["data"]["x"], CLOCK, Rng(1))
    running = asyncio.create_task(cache.run())
    try:
        async with asyncio.timeout(10):
            changes = cache.changes()
            await cache.wait_for_sync()
            await client.create(CONFIG_MAP, config_map("a", x="1"))
            seen = [await anext(changes)]
            await client.patch(REF, {"data": {"x": "2"}})
            seen.append(await anext(changes))
            await client.delete(REF)
            seen.append(await anext(changes))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert seen == [(None, "1"), ("1", "2"), ("2", None)]


async def attempt(client, verb):
    if verb == "send":
        await client.list(NODE)
        return
    async with client.transport.stream(requests.watch(NODE)):
        pass
