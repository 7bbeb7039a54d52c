"""The relay of a chaos run: what is cut is reset, what is stalled stays open, what is swallowed was executed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.chaos.relay import LOOPBACK, Relay

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Site = tuple[Relay, list[bytes], Callable[[], Awaitable[Stream]]]


@asynccontextmanager
async def an_echo_behind_a_relay() -> AsyncIterator[Site]:
    """The relay, what the server received, and how to connect."""
    received: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            received.append(line)
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, LOOPBACK, 0)
    async with server, Relay(server.sockets[0].getsockname()[1]) as relay:
        opened: list[asyncio.StreamWriter] = []

        async def connect() -> Stream:
            stream = await asyncio.open_connection(LOOPBACK, relay.port)
            opened.append(stream[1])
            return stream

        yield relay, received, connect
        for writer in opened:
            writer.close()


async def ask(stream: Stream, line: bytes, within: float = 5.0) -> bytes:
    stream[1].write(line)
    async with asyncio.timeout(within):
        return await stream[0].readline()


async def test_bytes_pass() -> None:
    async with an_echo_behind_a_relay() as (_, _, connect):
        assert await ask(await connect(), b"a\n") == b"a\n"


async def test_a_cut_resets_what_is_open_and_nothing_opens_until_it_is_over() -> None:
    async with an_echo_behind_a_relay() as (relay, _, connect):
        stream = await connect()
        await ask(stream, b"a\n")

        relay.accepts = False
        assert relay.cut() == 1
        with pytest.raises(ConnectionError):
            await ask(stream, b"b\n")
        refused, _ = await connect()
        with pytest.raises(ConnectionError):
            await refused.read()

        relay.accepts = True
        assert await ask(await connect(), b"e\n") == b"e\n"


async def test_what_is_stalled_goes_on_where_it_was() -> None:
    async with an_echo_behind_a_relay() as (relay, received, connect):
        stream = await connect()
        await ask(stream, b"a\n")

        relay.stall()
        with pytest.raises(TimeoutError):
            await ask(stream, b"b\n", within=0.05)
        assert received == [b"a\n"]

        relay.resume()
        assert await stream[0].readline() == b"b\n"


async def test_a_swallowed_reply_is_of_a_request_that_arrived() -> None:
    async with an_echo_behind_a_relay() as (relay, received, connect):
        stream = await connect()
        await ask(stream, b"a\n")

        relay.swallows = True
        with pytest.raises(TimeoutError):
            await ask(stream, b"b\n", within=0.05)
        assert received == [b"a\n", b"b\n"]


async def test_a_silenced_connection_carries_nothing_and_new_ones_work() -> None:
    async with an_echo_behind_a_relay() as (relay, _, connect):
        old = await connect()
        await ask(old, b"a\n")

        assert relay.silence() == 1
        with pytest.raises(TimeoutError):
            await ask(old, b"b\n", within=0.05)
        assert await ask(await connect(), b"c\n") == b"c\n"
