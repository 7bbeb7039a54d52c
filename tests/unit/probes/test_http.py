import asyncio
import socket
import ssl

import pytest

from windrow.assembly.clock import SystemClock
from windrow.probes.answers import Answer
from windrow.probes.http import PortTaken, Site
from windrow.probes.identity import MadeUp


def a_site(answer, host="127.0.0.1", port=0, **rest):
    return Site(answer, MadeUp(SystemClock(), "localhost"), host, port, **rest)


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
    return Answer(200, f"{asked.method} {asked.path} {dict(asked.query)} {asked.token}")


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


async def test_a_port_that_somebody_has_is_told_as_go_tells_it():
    async with a_site(echo) as site:
        with pytest.raises(PortTaken) as caught:
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
