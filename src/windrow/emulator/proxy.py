"""Serves a simulated Harvester to other processes: its API on loopback, its network behind an HTTP proxy.

A tunnel to a simulated address ends in a listener that is started for its handler on demand. Tunnels to real ports of
this machine are allowed one by one. Everything else is refused with 502 and the reason. When an address is closed (its
machine lost power), its listener and tunnels break at once. A request for an `http://`
address is passed on as it is, one for each connection, so that `curl --proxy` reaches plain services.

A connection without a whole request is closed after `HEAD_WITHIN_S`, and gives way to new ones (`core.connections`);
a tunnel stays.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType

from windrow.apiserver.http import Listener
from windrow.core.acceptor import Acceptor, open_sockets
from windrow.core.connections import ConnectionLimits
from windrow.emulator.harvester import Harvester
from windrow.emulator.kit.network import Network
from windrow.kubernetes.handler import Handler

LOOPBACK = "127.0.0.1"
LOCAL_NAMES = frozenset({LOOPBACK, "localhost", "::1"})
CHUNK = 64 * 1024
HEAD_WITHIN_S = 30

Address = tuple[str, int]


class BadConnect(ValueError):
    """The request is not one that this proxy serves; `status` is the answer's code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def read_head(head: bytes) -> tuple[Address, bytes]:
    """The address of a request, and the head to forward: none of a CONNECT. Raises BadConnect."""
    line, _, fields = head.partition(b"\r\n")
    parts = line.decode("latin-1").split()
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadConnect(400, f"wanted an HTTP/1.1 request, found {line.decode('latin-1')[:80]!r}")
    method, target, version = parts
    if method == "CONNECT":
        return _parse_address(target), b""
    if not target.startswith("http://"):
        text = f"this is a proxy to the simulated network, found a {method} request to the proxy itself"
        raise BadConnect(405, f"{text}; use it as a proxy, for example as proxy-url of a kubeconfig")
    host, _, path = target.removeprefix("http://").partition("/")
    kept = [one for one in fields.split(b"\r\n") if not one.lower().startswith(_HOP)]
    first = f"{method} /{path} {version}".encode("latin-1")
    has_port = ":" in host.rpartition("]")[2]
    return _parse_address(host if has_port else f"{host}:80"), b"\r\n".join(
        [first, b"Connection: close", *kept]
    )


_HOP = (b"connection:", b"proxy-connection:", b"keep-alive:")


def _parse_address(target: str) -> Address:
    host, _, port = target.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadConnect(400, f"wanted host:port, found {target[:80]!r}")
    return host.strip("[]"), int(port)


Begin = Callable[[], None]  # the head of the request is whole


class _Connection(asyncio.StreamReaderProtocol):
    """A connection to the proxy, which tells the acceptor of its request and of its end."""

    def __init__(
        self,
        serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter, Begin], Awaitable[None]],
        acceptor: Acceptor,
    ) -> None:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Awaitable[None]:
            return serve(reader, writer, self._begin)

        super().__init__(asyncio.StreamReader(limit=CHUNK), connected)
        self._acceptor = acceptor

    def _begin(self) -> None:
        self._acceptor.set_used(self)
        self._acceptor.set_busy(self, True)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._acceptor.on_lost(self)


class Proxy:
    """The proxy while entered; `url` is what goes into `proxy-url`."""

    def __init__(
        self,
        network: Network,
        *,
        port: int = 0,
        limits: ConnectionLimits | None = None,
        head_within_s: float = HEAD_WITHIN_S,
    ) -> None:
        self.port = port
        self._network = network
        self._local: set[int] = set()
        self._listeners: dict[Address, tuple[Handler, asyncio.Task[None], asyncio.Future[int]]] = {}
        self._tunnels: dict[Address, set[asyncio.StreamWriter]] = {}
        self._limits = ConnectionLimits() if limits is None else limits
        self._head_within_s = head_within_s
        self._connections: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()
        self._tasks = asyncio.TaskGroup()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def allow(self, port: int) -> None:
        """Allow tunnels to this real port of the machine."""
        self._local.add(port)

    async def __aenter__(self) -> Proxy:
        await self._stack.enter_async_context(self._tasks)
        sockets = await open_sockets(LOOPBACK, self.port)
        self.port = sockets[0].getsockname()[1]
        acceptor = Acceptor(
            sockets,
            lambda: _Connection(self._serve, acceptor),
            self._limits,
            head_timeout_s=self._head_within_s,
        )
        acceptor.start()
        self._stack.callback(self._network.on_change(self._changed))
        self._stack.callback(self._end_all)
        self._stack.push_async_callback(acceptor.stop)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    def _end_all(self) -> None:
        for _, task, _ in self._listeners.values():
            task.cancel()
        for task in tuple(self._connections):
            task.cancel()

    # --- one connection -----------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begin: Begin) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._handle(reader, writer, begin)
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # closed by the peer
        except asyncio.CancelledError:
            pass  # the proxy ends, and this connection with it
        finally:
            self._connections.discard(task)
            writer.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begin: Begin) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            begin()
            address, passed_on = read_head(head)
            inner_reader, inner_writer = await self._open(address)
        except asyncio.LimitOverrunError:
            await _answer(writer, 431, "the request's head is too long")
            return
        except BadConnect as error:
            await _answer(writer, error.status, str(error))
            return
        writers = {writer, inner_writer}
        self._tunnels.setdefault(address, set()).update(writers)
        try:
            if passed_on:
                inner_writer.write(passed_on)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.drain()
            async with asyncio.TaskGroup() as pipes:
                pipes.create_task(_pipe(reader, inner_writer))
                pipes.create_task(_pipe(inner_reader, writer))
        except* ConnectionError:
            pass
        finally:
            self._tunnels.get(address, set()).difference_update(writers)
            inner_writer.close()

    async def _open(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to `address`. Raises BadConnect."""
        host, port = address
        if host in LOCAL_NAMES and port in self._local:
            target = port
        else:
            target = await self._listener(address)
        while True:
            try:
                return await asyncio.open_connection(LOOPBACK, target)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE) and self._limits.close_idle():
                    await asyncio.sleep(0)  # the loop closes its descriptor
                    continue
                raise BadConnect(502, f"{host}:{port} does not answer: {error.strerror or error}") from error

    async def _listener(self, address: Address) -> int:
        """The loopback port on which the handler at `address` is served."""
        host, port = address
        handler = self._network.find(host, port)
        if handler is None:
            raise BadConnect(
                502, f"nothing listens on {host}:{port} in the simulated network; this proxy reaches no other"
            )
        known = self._listeners.get(address)
        if known is None or known[0] is not handler:
            ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            task = self._tasks.create_task(self._listen(handler, ready), name=f"listener {host}:{port}")
            known = self._listeners[address] = (handler, task, ready)
        return await asyncio.shield(known[2])

    async def _listen(self, handler: Handler, ready: asyncio.Future[int]) -> None:
        async with Listener(handler) as listener:
            ready.set_result(listener.port)
            await asyncio.Event().wait()

    def _changed(self, host: str, port: int) -> None:
        address = (host, port)
        known = self._listeners.get(address)
        if known is None or self._network.find(host, port) is known[0]:
            return
        del self._listeners[address]
        known[1].cancel()
        for writer in self._tunnels.pop(address, set()):
            writer.transport.abort()


@dataclass(frozen=True, slots=True)
class ServedHarvester:
    """URLs of API and proxy. `kubeconfig` is the administrator's, with server and proxy."""

    url: str
    proxy_url: str
    kubeconfig: str = field(repr=False)
    proxy: Proxy = field(repr=False)


@asynccontextmanager
async def serve(harvester: Harvester, port: int = 0, proxy_port: int = 0) -> AsyncIterator[ServedHarvester]:
    """Serve `harvester`, which the caller runs, until the block ends; with port 0 the system chooses."""
    await harvester.ready.wait()
    async with (
        Listener(harvester.handler, port=port) as listener,
        Proxy(harvester.network, port=proxy_port) as proxy,
    ):
        proxy.allow(listener.port)
        url = f"https://127.0.0.1:{listener.port}"
        yield ServedHarvester(url, proxy.url, harvester.admin_kubeconfig(url, proxy.url), proxy)


# --- bytes ------------------------------------------------------------------------------------------------------


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    finally:
        # Half-close: the other direction stays open.
        with suppress(OSError, RuntimeError):
            writer.write_eof() if writer.can_write_eof() else writer.close()


async def _answer(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = (text + "\n").encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
