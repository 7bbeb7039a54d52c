"""HttpTransport against servers that misbehave at the level of bytes. What well-behaved ones do is in the contract."""

import asyncio
import gzip
import logging
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.clock import NOON

from windrow.app.clock import SystemClock
from windrow.client.http_transport import (
    EVENTS_PER_S,
    EVENTS_PER_TURN,
    LARGE_ANSWERS,
    LISTED_KIB_PER_S,
    ConnectionPool,
    HttpTransport,
)
from windrow.client.transport import TransportMiddleware, find_certificate_end
from windrow.core import pki
from windrow.kubernetes import requests
from windrow.kubernetes.errors import CertificateError, OutcomeUnknown, ServerError, Unauthorized, Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.resources import NODE

READ = requests.get(NODE.ref("a"))
REMOVE = requests.delete(NODE.ref("a"))
WATCH = requests.watch(NODE, version="1")

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Server:
    """Answers each request with the next of `answers`, raw, and remembers the heads it saw; None hangs up."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.heads = []
        self.connections = 0

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while self._answers:
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                length = [line for line in self.heads[-1].split("\r\n") if line.startswith("Content-Length")]
                if length:
                    await reader.readexactly(int(length[0].split(":")[1]))
                answer = self._answers.pop(0)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


@asynccontextmanager
async def listening(server, tls=None):
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    async with listener:
        yield listener.sockets[0].getsockname()[1]


@asynccontextmanager
async def connected_to(*answers, tls=None, limits=None, **access):
    server = Server(*answers)
    async with listening(server, tls) as port:
        scheme = "https" if tls else "http"
        access = ClientConfig(f"{scheme}://127.0.0.1:{port}", **access)
        async with HttpTransport(access, SystemClock(), **(limits or {})) as transport:
            yield server, transport


async def collect(transport, seen):
    async with transport.stream(WATCH) as events:
        async for event in events:
            seen.append(event.object)


async def events_of(transport):
    seen = []
    await collect(transport, seen)
    return seen


@pytest.fixture(scope="module")
def authority():
    return pki.new_ca("test", SystemClock().now(), 1)


def server_tls(authority, path, **names):
    now = SystemClock().now()
    names = names or {"ips": ["127.0.0.1"]}
    certificate, key = pki.issue_certificate(
        *authority, common_name="server", server=True, now=now, lifetime=timedelta(hours=1), **names
    )
    file = path / "server.pem"
    file.write_text(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


async def test_connections_are_kept_and_used_again():
    async with connected_to(OK, OK, OK) as (server, transport):
        for _ in range(3):
            await transport.send(READ)

    assert server.connections == 1


async def test_a_connection_lost_after_sending_leaves_the_outcome_open():
    async with connected_to(None) as (_, transport):
        with pytest.raises(OutcomeUnknown, match="GET /api/v1/nodes/a") as caught:
            await transport.send(READ)

    assert "may or may not" not in caught.value.message  # a read changes nothing


async def test_an_answer_cut_short_leaves_the_outcome_open():
    async with connected_to(OK[:-1]) as (_, transport):
        with pytest.raises(OutcomeUnknown, match="middle of the answer"):
            await transport.send(READ)


async def test_a_write_on_a_kept_connection_that_breaks_is_not_sent_twice():
    async with connected_to(OK, None, OK) as (server, transport):
        await transport.send(READ)
        with pytest.raises(OutcomeUnknown, match=r"DELETE .* may or may not have been carried out"):
            await transport.send(REMOVE)

    assert [head.split()[0] for head in server.heads] == ["GET", "DELETE"]


async def test_a_refused_connection_names_server_and_credential():
    async with listening(Server()) as port:
        pass
    access = ClientConfig(f"http://127.0.0.1:{port}", token="s3cret", user="admin")
    async with HttpTransport(access, SystemClock()) as transport:
        with pytest.raises(Unreachable, match="connection refused") as caught:
            await transport.send(READ)

    message = str(caught.value)
    assert f"http://127.0.0.1:{port}" in message
    assert "the token of user 'admin'" in message
    assert "is the API server running" in message
    assert "s3cret" not in message


async def test_an_unknown_name_is_named():
    async with HttpTransport(ClientConfig("https://nowhere.invalid"), SystemClock()) as transport:
        with pytest.raises(Unreachable, match="name is not known"):
            await transport.send(READ)


async def test_a_token_is_not_sent_in_clear_text_over_a_network():
    async with HttpTransport(ClientConfig("http://192.0.2.1", token="t"), SystemClock()) as transport:
        with pytest.raises(CertificateError, match="clear text"):
            await transport.send(READ)


async def test_redirects_are_not_followed():
    answer = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    async with connected_to(answer, token="t") as (_, transport):
        reply = await transport.send(READ)

    assert reply.status == 302


async def test_request_headers_are_those_of_the_request():
    request = replace(requests.merge_patch(NODE.ref("a"), {}), headers=(("User-Agent", "me"),))
    async with connected_to(OK, token="t") as (server, transport):
        await transport.send(request)

    head = server.heads[0]
    for line in (
        "PATCH /api/v1/nodes/a HTTP/1.1",
        "Authorization: Bearer t",
        "Content-Type: application/merge-patch+json",
        "User-Agent: me",
    ):
        assert line in head


async def test_a_path_in_the_server_address_goes_before_every_request():
    server = Server(OK)
    async with listening(server) as port:
        access = ClientConfig(f"http://127.0.0.1:{port}/k8s/clusters/local")
        async with HttpTransport(access, SystemClock()) as transport:
            await transport.send(requests.list_(NODE, labels="a in (b,c)"))

    assert server.heads[0].startswith(
        "GET /k8s/clusters/local/api/v1/nodes?labelSelector=a+in+%28b%2Cc%29 HTTP/1.1"
    )


# --- watches ----------------------------------------------------------------------------------------------------------


async def test_events_are_split_from_any_chunks():
    lines = b"".join(b'{"type":"ADDED","object":{"n":%d}}\n' % number for number in range(5))
    pieces = [lines[at : at + 7] for at in range(0, len(lines), 7)]
    async with connected_to(CHUNKED + b"".join(map(chunk, pieces)) + END) as (_, transport):
        assert await events_of(transport) == [{"n": number} for number in range(5)]


async def test_an_event_may_be_larger_than_any_buffer():
    big = "x" * 3_000_000
    line = b'{"type":"ADDED","object":{"big":"%s"}}\n' % big.encode()
    pieces = [line[at : at + 60_000] for at in range(0, len(line), 60_000)]
    async with connected_to(CHUNKED + b"".join(map(chunk, pieces)) + END) as (_, transport):
        assert await events_of(transport) == [{"big": big}]


async def test_a_watch_without_its_end_is_broken_not_ended():
    line = b'{"type":"ADDED","object":{}}\n'
    seen = []
    async with connected_to(CHUNKED + chunk(line)) as (_, transport):
        with pytest.raises(OutcomeUnknown):
            await collect(transport, seen)

    assert seen == [{}]


async def test_a_watch_that_ends_inside_an_event_is_broken():
    async with connected_to(CHUNKED + chunk(b'{"type":"ADD') + END) as (_, transport):
        with pytest.raises(OutcomeUnknown, match="middle of an event"):
            await events_of(transport)


async def test_a_watch_of_something_else_is_broken():
    async with connected_to(CHUNKED + chunk(b"<html>\n") + END) as (_, transport):
        with pytest.raises(OutcomeUnknown, match="html"):
            await events_of(transport)


# --- TLS --------------------------------------------------------------------------------------------------------------


async def test_a_server_signed_by_the_ca_is_trusted(authority, tmp_path):
    async with connected_to(OK, tls=server_tls(authority, tmp_path), ca=authority[0]) as (_, transport):
        assert (await transport.send(READ)).status == 200


async def test_a_server_signed_by_another_is_not(authority, tmp_path):
    other, _ = pki.new_ca("other", SystemClock().now(), 1)
    async with connected_to(OK, tls=server_tls(authority, tmp_path), ca=other) as (server, transport):
        with pytest.raises(CertificateError, match="certificate-authority-data"):
            await transport.send(READ)

    assert server.heads == []


async def test_a_certificate_for_another_host_is_not_trusted_unless_the_kubeconfig_names_it(
    authority, tmp_path
):
    tls = server_tls(authority, tmp_path, dns=["kubernetes"])
    async with connected_to(OK, tls=tls, ca=authority[0]) as (_, transport):
        with pytest.raises(CertificateError, match="tls-server-name"):
            await transport.send(READ)
    async with connected_to(OK, tls=tls, ca=authority[0], tls_server_name="kubernetes") as (_, transport):
        assert (await transport.send(READ)).status == 200


async def test_without_a_ca_the_systems_authorities_decide(authority, tmp_path):
    async with connected_to(OK, tls=server_tls(authority, tmp_path)) as (_, transport):
        with pytest.raises(CertificateError):
            await transport.send(READ)


async def test_insecure_skip_tls_verify_logs_a_warning(authority, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        async with connected_to(OK, tls=server_tls(authority, tmp_path), insecure=True) as (_, transport):
            assert (await transport.send(READ)).status == 200

    assert "NOT verified" in caplog.text


async def test_a_malformed_ca_is_named():
    access = ClientConfig(
        "https://127.0.0.1:1", ca="-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    )
    async with HttpTransport(access, SystemClock()) as transport:
        with pytest.raises(CertificateError, match="is no certificate"):
            await transport.send(READ)


class Plain:
    """A web server without TLS: calls whatever is not HTTP a bad request."""

    async def serve(self, reader, writer):
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()


async def test_a_plain_server_behind_https_is_named():
    async with listening(Plain()) as port:
        transport = HttpTransport(ClientConfig(f"https://127.0.0.1:{port}"), SystemClock())
        with pytest.raises(Unreachable, match="no TLS there") as caught:
            await transport.send(READ)
        await transport.aclose()

    assert not isinstance(caught.value, CertificateError)


def refuse_one(listener, tls):
    """Accept one connection as servers outside Python do: a refused certificate is answered with a TLS alert."""
    connection, _ = listener.accept()
    received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
    handshake = tls.wrap_bio(received, to_send, server_side=True)
    with connection:
        while data := connection.recv(65536):  # to the client's end: a reset could overtake the alert
            received.write(data)
            with suppress(ssl.SSLError):
                handshake.do_handshake()
            connection.sendall(to_send.read())


async def test_a_client_certificate_that_the_server_refuses_is_an_unauthorized_credential(
    authority, tmp_path
):
    tls = server_tls(authority, tmp_path)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(cadata=authority[0])
    now = SystemClock().now()
    other = pki.new_ca("other", now, 1)
    certificate, key = pki.issue_certificate(
        *other, common_name="me", client=True, now=now, lifetime=timedelta(hours=1)
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        refusing = asyncio.get_running_loop().run_in_executor(None, refuse_one, listener, tls)
        server = f"https://127.0.0.1:{listener.getsockname()[1]}"
        access = ClientConfig(server, ca=authority[0], certificate=certificate, key=key, user="me")
        async with HttpTransport(access, SystemClock()) as transport:
            with pytest.raises(Unauthorized, match="client certificate of user 'me'"):
                await transport.send(READ)
        await refusing


# --- proxies ----------------------------------------------------------------------------------------------------------


class Proxy:
    """An HTTP CONNECT proxy that leads every tunnel to one port, or refuses it."""

    def __init__(self, port=0, refusal=b""):
        self.port = port
        self.refusal = refusal
        self.asked = []

    async def serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head.splitlines()[0])
        if self.refusal:
            writer.write(self.refusal)
            await writer.drain()
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))


async def _pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def test_a_server_is_reached_by_its_own_name_through_the_proxy(authority, tmp_path):
    server = Server(OK)
    async with listening(server, server_tls(authority, tmp_path, ips=["10.9.8.7"])) as port:
        proxy = Proxy(port)
        async with listening(proxy) as proxy_port:
            access = ClientConfig(
                "https://10.9.8.7:6443",
                ca=authority[0],
                token="t",
                proxy_url=f"http://127.0.0.1:{proxy_port}",
            )
            async with HttpTransport(access, SystemClock()) as transport:
                assert (await transport.send(READ)).status == 200

    assert proxy.asked == ["CONNECT 10.9.8.7:6443 HTTP/1.1"]
    assert "Bearer t" in server.heads[0]


async def test_a_proxy_that_refuses_is_named_without_its_password():
    refusal = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
    async with listening(Proxy(refusal=refusal)) as port:
        access = ClientConfig("https://10.9.8.7:6443", proxy_url=f"http://me:s3cret@127.0.0.1:{port}")
        async with HttpTransport(access, SystemClock()) as transport:
            with pytest.raises(Unreachable, match="the proxy answered 502") as caught:
                await transport.send(READ)

    message = str(caught.value)
    assert f"https://10.9.8.7:6443 through the proxy 127.0.0.1:{port}" in message
    assert "s3cret" not in message


async def test_a_proxy_that_is_not_there_is_named():
    async with listening(Server()) as port:
        pass
    access = ClientConfig("https://10.9.8.7:6443", proxy_url=f"http://127.0.0.1:{port}")
    async with HttpTransport(access, SystemClock()) as transport:
        with pytest.raises(Unreachable, match="proxy itself cannot be reached: connection refused"):
            await transport.send(READ)


async def test_an_answer_without_end_is_given_up_and_its_connection_closed():
    """A tenant chooses the server of a credential: what that sends must not take the memory of the manager."""
    answer = CHUNKED + chunk(b"x" * 2000) * 3
    async with connected_to(answer, limits={"max_reply_bytes": 5000}) as (_, transport):
        with pytest.raises(ServerError, match="sends an answer of more than 0 MiB; is it an API server"):
            await transport.send(READ)


async def test_a_small_answer_that_unpacks_to_a_large_one_is_given_up():
    body = gzip.compress(bytes(2**20))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with connected_to(head + body, limits={"max_reply_bytes": 2**19}) as (_, transport):
        with pytest.raises(ServerError, match="sends an answer of more than 0 MiB"):
            await transport.send(READ)


async def test_an_answer_that_takes_longer_than_its_time_is_given_up():
    async def say_nothing(reader, writer):
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        access = ClientConfig(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with HttpTransport(access, SystemClock(), response_timeout_s=0.05) as transport:
            with pytest.raises(OutcomeUnknown, match="no answer in time"):
                await transport.send(READ)


async def test_an_event_without_end_ends_the_watch():
    answer = CHUNKED + chunk(b'{"type":"ADDED","object":{}}\n') + chunk(b"x" * 2000) * 3
    async with (
        connected_to(answer, limits={"max_event_bytes": 5000}) as (_, transport),
        transport.stream(WATCH) as events,
    ):
        assert (await anext(events)).type == "ADDED"
        with pytest.raises(ServerError, match="sends an event of more than"):
            await anext(events)


async def test_an_answer_that_unpacks_to_hundreds_of_times_its_size_is_given_up():
    body = gzip.compress(bytes(6 * 2**20))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with connected_to(head + body) as (_, transport):
        with pytest.raises(ServerError, match="unpacks to more than 200 times its size"):
            await transport.send(READ)


class SteppingClock:
    """Its time passes by its own sleeps only."""

    def __init__(self):
        self.slept = timedelta()

    def now(self):
        return NOON + self.slept

    def monotonic(self):
        return self.slept

    async def sleep_until(self, instant):
        self.slept += max(instant - self.now(), timedelta())


def flood(events):
    return CHUNKED + chunk(b'{"type":"MODIFIED","object":{}}\n' * events) + END


async def test_events_that_come_without_pause_are_read_at_a_rate(caplog):
    """All watches of one credential together: a tenant's server does not take the manager's time from the others."""
    clock = SteppingClock()
    async with listening(Server(flood(60), flood(60))) as port:
        access = ClientConfig(f"http://127.0.0.1:{port}")
        async with HttpTransport(access, clock, events_at_once=20) as transport:
            seen = await events_of(transport) + await events_of(transport)
    assert len(seen) == 120
    assert clock.slept.total_seconds() == pytest.approx(100 / EVENTS_PER_S)
    assert caplog.text.count("events a second; they are read at that rate") == 1


async def test_others_have_their_turn_between_the_events_of_a_flood():
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with connected_to(flood(1000)) as (_, transport), transport.stream(WATCH) as events:
        await anext(events)
        counting = asyncio.create_task(count_turns())
        for _ in range(900):
            await anext(events)
        counting.cancel()
    assert turns >= 900 // EVENTS_PER_TURN - 1


async def test_lists_that_follow_each_other_without_end_are_read_at_a_rate():
    clock, size = SteppingClock(), 2**16
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
    async with listening(Server(*[answer] * 5)) as port:
        access = ClientConfig(f"http://127.0.0.1:{port}")
        async with HttpTransport(access, clock, listed_kib_at_once=64) as transport:
            for _ in range(4):
                await transport.send(requests.list_(NODE, limit=500))
            slept = clock.slept
            await transport.send(READ)  # only lists wait
    assert clock.slept == slept
    assert slept.total_seconds() == pytest.approx(2 * 64 / LISTED_KIB_PER_S, rel=0.02)


@pytest.mark.parametrize("share", ["a credential", "all"])
async def test_large_answers_are_read_a_few_at_a_time(share):
    """Each is below the bound of one answer; all that the servers of tenants send at once is not."""
    most = 1 if share == "a credential" else LARGE_ANSWERS
    begun, go_on, body = asyncio.Semaphore(0), asyncio.Event(), b"x" * 4000

    async def serve(reader, writer):
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        is_large = b"small" not in path
        rest = body if is_large else b"{}"
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(rest))
        if b"held" in path:
            writer.write(rest[:3000])
            rest = rest[3000:]
            begun.release()
            await go_on.wait()
        writer.write(rest)
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener, ConnectionPool() as pool:
        access = ClientConfig(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")

        def connect():
            return HttpTransport(access, SystemClock(), pool=pool, large_answer_bytes=1000)

        one = connect()

        def get(name):
            transport = one if share == "a credential" else connect()
            return asyncio.create_task(transport.send(requests.get(NODE.ref(name))))

        async def fence():
            for _ in range(5):  # small answers wait for none
                assert (await get("small")).body == b"{}"

        held = [get("held") for _ in range(most)]
        for _ in held:
            await begun.acquire()
        await fence()
        late = get("late")
        await fence()
        assert not late.done()
        go_on.set()
        assert [(await task).body for task in [*held, late]] == [body] * (most + 1)


async def test_a_watch_tells_when_the_certificate_of_its_server_ends(authority, tmp_path):
    events = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
    tls = server_tls(authority, tmp_path)
    async with connected_to(events, tls=tls, ca=authority[0]) as (_, transport):
        assert transport.certificate_end is None
        async with transport.stream(READ):
            assert (
                timedelta(minutes=59) < transport.certificate_end - SystemClock().now() < timedelta(hours=1)
            )
            assert find_certificate_end(TransportMiddleware(transport)) == transport.certificate_end


async def test_a_server_that_is_not_verified_tells_nothing(authority, tmp_path):
    events = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
    tls = server_tls(authority, tmp_path)
    async with connected_to(events, tls=tls, insecure=True) as (_, transport), transport.stream(READ):
        assert transport.certificate_end is None
    assert find_certificate_end(object()) is None
