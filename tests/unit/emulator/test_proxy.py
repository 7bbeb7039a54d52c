"""The CONNECT proxy against clients that send half a request, or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.probes.test_server import connect_all, ends

from windrow.core.connections import ConnectionLimits
from windrow.emulator.kit.network import Network
from windrow.emulator.proxy import Proxy


@asynccontextmanager
async def a_proxy(**rest: Any) -> AsyncIterator[Proxy]:
    """A proxy that leads to a port which sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, Proxy(Network(), **rest) as proxy:
        proxy.allow(server.sockets[0].getsockname()[1])
        yield proxy


def a_request(proxy: Proxy) -> bytes:
    [port] = proxy._local
    return f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode()


async def a_tunnel(proxy: Proxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(a_request(proxy))
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert head.startswith(b"HTTP/1.1 200")
    return reader, writer


async def is_echoed(tunnel: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bool:
    reader, writer = tunnel
    writer.write(b"hello")
    return await asyncio.wait_for(reader.readexactly(5), 5) == b"hello"


@pytest.mark.parametrize("sent", [b"", b"CONN", b"CONNECT 10.0.0.1:6443 HTTP/1.1\r\nHost: x\r\n"])
async def test_a_request_that_does_not_end_is_given_up(sent: bytes) -> None:
    async with a_proxy(head_within_s=0.2) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(sent)

        assert await ends(reader)
        writer.close()


async def test_a_tunnel_outlives_the_time_for_a_head() -> None:
    async with a_proxy(head_within_s=0.1) as proxy:
        tunnel = await a_tunnel(proxy)
        await asyncio.sleep(0.3)

        assert await is_echoed(tunnel)
        tunnel[1].close()


async def test_idle_connections_give_way_and_tunnels_stay() -> None:
    limits = ConnectionLimits(total=8, per_address=8, reserve=0)
    async with a_proxy(limits=limits) as proxy:
        first = await a_tunnel(proxy)
        held = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(30)]
        second = await a_tunnel(proxy)

        assert len(limits) <= 8
        assert await ends(held[0][0])
        assert await is_echoed(first)
        assert await is_echoed(second)
        for _, writer in (*held, first, second):
            writer.close()


async def test_eleven_hundred_idle_connections_lock_no_client_out() -> None:
    async with a_proxy() as proxy, connect_all(proxy.port, 1100):
        tunnel = await a_tunnel(proxy)

        assert await is_echoed(tunnel)
        tunnel[1].close()


async def test_ended_connections_are_not_counted() -> None:
    limits = ConnectionLimits()
    async with a_proxy(limits=limits) as proxy:
        for _ in range(3):
            tunnel = await a_tunnel(proxy)
            assert await is_echoed(tunnel)
            tunnel[1].close()
            await ends(tunnel[0])
        async with asyncio.timeout(5):
            while len(limits):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
