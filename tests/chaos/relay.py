"""A TCP relay in front of a server, whose connections a run cuts, stalls, or robs of their answers."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

LOOPBACK = "127.0.0.1"
CHUNK = 64 * 1024


@dataclass(eq=False)
class _Connection:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    # Set while bytes pass. A connection that is silenced has one of its own, which is never set again.
    flow: asyncio.Event

    def abort(self) -> None:
        _reset(self.client)
        _reset(self.server)


@dataclass
class Relay:
    """Forwards connections to port `target` of this computer while entered."""

    target: int
    port: int = 0
    accepts: bool = True
    swallows: bool = False  # whether what the server answers is lost
    _flow: asyncio.Event = field(default_factory=asyncio.Event)
    _open: set[_Connection] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._flow.set()
        self._server = await asyncio.start_server(self._serve, LOOPBACK, self.port, limit=CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def connections(self) -> int:
        return len(self._open)

    def cut(self) -> int:
        """Reset every open connection; how many there were."""
        found = tuple(self._open)
        for one in found:
            one.abort()
        return len(found)

    def stall(self) -> None:
        """From now on no byte passes, in no direction and on no connection, until `resume`."""
        self._flow.clear()

    def resume(self) -> None:
        self._flow.set()

    def silence(self) -> int:
        """The connections that are open now carry nothing for ever and stay open, as behind a firewall that has forgotten
        them; new ones work. How many there were."""
        for one in self._open:
            one.flow = asyncio.Event()
        return len(self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            if not self.accepts:
                _reset(writer)
                return
            await self._flow.wait()
            server_reader, server_writer = await asyncio.open_connection(LOOPBACK, self.target, limit=CHUNK)
        except OSError:
            _reset(writer)
            return
        connection = _Connection(writer, server_writer, self._flow)
        self._open.add(connection)
        try:
            with suppress(ExceptionGroup):
                async with asyncio.TaskGroup() as pumps:
                    pumps.create_task(self._pump(connection, reader, server_writer, answers=False))
                    pumps.create_task(self._pump(connection, server_reader, writer, answers=True))
        except asyncio.CancelledError:
            pass  # the relay ends, and this connection with it
        finally:
            self._open.discard(connection)
            writer.close()
            server_writer.close()

    async def _pump(
        self,
        connection: _Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        answers: bool,
    ) -> None:
        while data := await reader.read(CHUNK):
            await connection.flow.wait()
            if answers and self.swallows:
                continue
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST, which the other side cannot take for an end of the answer."""
    endpoint = writer.get_extra_info("socket")
    if endpoint is not None and endpoint.fileno() >= 0:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
