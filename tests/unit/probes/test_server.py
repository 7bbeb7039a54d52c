import asyncio
import resource
import socket
import ssl
from contextlib import asynccontextmanager

import pytest

from windrow.app.clock import SystemClock
from windrow.probes.endpoints import Response
from windrow.probes.identity import SelfSignedIdentity
from windrow.probes.server import CannotListen, HealthServer


def a_site(answer, host="127.0.0.1", port=0, **rest):
    identity = SelfSignedIdentity(SystemClock(), "localhost")
    return HealthServer(answer, identity, host, port, **rest).serving()


async def get(port, path="/", host="127.0.0.1", **headers):
    """(status line, body)"""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: x",
        "Connection: close",
        *(f"{k}: {v}" for k, v in headers.items()),
    ]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    raw = await reader.read()
    writer.close()
    head, _, body = raw.decode().partition("\r\n\r\n")
    return head.splitlines()[0], body


async def echo(asked):
    return Response(200, f"{asked.method} {asked.path} {dict(asked.query)} {asked.token}")


async def test_a_request_arrives_as_a_value():
    async with a_site(echo) as site:
        answer = await get(site.port, "/healthz?verbose&exclude=a&exclude=b", Authorization="bearer  secret ")

    assert answer == ("HTTP/1.1 200 OK", "GET /healthz {'verbose': [''], 'exclude': ['a', 'b']} secret")


async def test_other_ways_to_authenticate_are_none():
    async with a_site(echo) as site:
        assert (await get(site.port, Authorization="Basic eDp5"))[1].endswith("{} ")


async def test_a_fault_of_ours_is_an_answer_and_stays_ours(caplog):
    async def broken(asked):
        raise RuntimeError("secret detail")

    async with a_site(broken) as site:
        status, body = await get(site.port)

    assert status == "HTTP/1.1 500 Internal Server Error"
    assert "secret" not in body
    assert "secret detail" in caplog.text


async def test_a_port_that_is_taken_has_the_error_text_of_go():
    async with a_site(echo) as site:
        with pytest.raises(CannotListen) as caught:
            await a_site(echo, port=site.port).__aenter__()

    assert str(caught.value) == (
        f"failed to create listener: failed to listen on 127.0.0.1:{site.port}: "
        f"listen tcp 127.0.0.1:{site.port}: bind: address already in use"
    )


async def test_a_port_can_be_shared_when_that_is_wished():
    async with a_site(echo, share_port=True) as site, a_site(echo, port=site.port, share_port=True) as other:
        assert other.port == site.port


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
async def test_every_address_means_those_of_both_families():
    try:
        with socket.socket(socket.AF_INET6) as taken:
            taken.bind(("::1", 0))
            port = taken.getsockname()[1]
    except OSError:
        pytest.skip("no IPv6 here")
    async with a_site(echo, host="0.0.0.0", port=port):
        answers = [await get(port, host=host) for host in ("127.0.0.1", "::1")]

    assert answers == [("HTTP/1.1 200 OK", "GET / {} ")] * 2


async def test_old_versions_of_tls_are_refused():
    async with a_site(echo, minimum_version=ssl.TLSVersion.TLSv1_3) as site:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", site.port, ssl=context)


async def connect(port):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return await asyncio.open_connection("127.0.0.1", port, ssl=context)


async def ends(reader):
    """Whether the other side ends it; what it said before does not matter."""
    try:
        async with asyncio.timeout(10):
            await reader.read()
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@asynccontextmanager
async def connect_all(port, count):
    """That many connections that send nothing, each for one descriptor here and one of the server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3 * count:
        pytest.skip(f"only {hard} file descriptors may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * count), hard))
    held = []
    try:
        for _ in range(count):
            one = socket.socket()
            one.setblocking(False)
            held.append(one)
            await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", port))
        yield
    finally:
        for one in held:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_eleven_hundred_idle_connections_keep_no_probe_away():
    async with a_site(echo) as site, connect_all(site.port, 1100):
        status, _ = await get(site.port)

    assert status == "HTTP/1.1 200 OK"


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: "])
async def test_a_request_that_does_not_end_is_given_up(sent):
    async with a_site(echo, head_timeout_s=0.2) as site:
        reader, writer = await connect(site.port)
        writer.write(sent)

        assert await ends(reader)
        writer.close()


async def test_a_connection_between_two_requests_is_closed_in_time():
    async with a_site(echo, keepalive_s=0.2) as site:
        reader, writer = await connect(site.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")

        assert await ends(reader)
        writer.close()


async def test_a_handshake_that_does_not_begin_is_ended():
    async with a_site(echo, handshake_timeout_s=0.2) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)

        assert await ends(reader)
        writer.close()


async def test_an_answer_that_takes_longer_than_silence_may_is_given():
    async def slow(asked):
        await asyncio.sleep(0.4)
        return Response(200, "late")

    async with a_site(slow, keepalive_s=0.2) as site:
        assert await get(site.port) == ("HTTP/1.1 200 OK", "late")


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: "])
async def test_of_too_many_connections_the_oldest_are_closed_and_probes_get_through(sent):
    async with a_site(echo, max_connections=4) as site:
        crowd = []
        for _ in range(12):
            reader, writer = await connect(site.port)
            writer.write(sent)
            crowd.append((reader, writer))
        status, _ = await get(site.port)
        ended = [await ends(reader) for reader, _ in crowd[:8]]
        for _, writer in crowd:
            writer.close()

    assert status == "HTTP/1.1 200 OK"
    assert all(ended)


async def test_handshakes_that_do_not_begin_keep_no_probe_away():
    async with a_site(echo, max_connections=4) as site:
        crowd = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(12)]
        status, _ = await get(site.port)
        for _, writer in crowd:
            writer.close()

    assert status == "HTTP/1.1 200 OK"


async def test_a_body_is_not_read():
    async with a_site(echo) as site:
        reader, writer = await connect(site.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 10**6)

        assert await ends(reader)
        writer.close()


async def test_two_requests_on_one_connection_are_both_answered():
    async with a_site(echo) as site:
        reader, writer = await connect(site.port)
        answers = []
        for _ in range(2):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            answers.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
            await reader.readexactly(len("GET /healthz {} "))
        writer.close()

    assert answers == [b"HTTP/1.1 200 OK"] * 2
