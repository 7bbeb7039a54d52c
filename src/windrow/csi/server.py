"""Adapter module of grpcio: serves CSI on a socket, and gives each error its status code.

What holds for each call, whatever implements it:

* An error of `windrow.csi.errors` becomes the code of its kind (`STATUS_CODES`), with message and hint as text. Any other
  exception is a defect: it is logged with its traceback, answered INTERNAL, and ends nothing but the call.
* A call ends before its caller stops listening: shortly before the deadline of the call, and after `CALL_TIMEOUT` at the
  latest. It is ABORTED then, for the same call may be repeated, and says what it waited for.
* A call whose caller has gone is cancelled.
* One line is logged for each call that failed, and at DEBUG for each other: the method, the ids, how long. Of a request
  nothing else is logged: secrets and contexts never appear.

The socket is a file of mode 0600. It takes the place of one that is left of a process before, or that a process has which
is about to end; that one leaves it alone then. A file that is no socket is not replaced.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from typing import Any, Never
from urllib.parse import urlsplit

import grpc
from google.protobuf.message import Message

from windrow.core.clock import Clock, sleep
from windrow.core.errors import UserError
from windrow.core.wait import run_until
from windrow.csi import errors
from windrow.csi.errors import printable
from windrow.csi.waits import begin_call
from windrow.protocols.csi.services import IDENTITY, SERVICES, Serve, methods_of, rpc_handler

# The code of each kind of error; a narrower error has that of its nearest base.
STATUS_CODES: Mapping[type[errors.CsiError], grpc.StatusCode] = {
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.OutOfRange: grpc.StatusCode.OUT_OF_RANGE,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Aborted: grpc.StatusCode.ABORTED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.Unimplemented: grpc.StatusCode.UNIMPLEMENTED,
    errors.Internal: grpc.StatusCode.INTERNAL,
    errors.CsiError: grpc.StatusCode.INTERNAL,
}

# The side-cars of the chart wait 110 s, kubelet 120 s.
CALL_TIMEOUT = timedelta(seconds=105)
# How long before the caller's deadline a call is ended, so that the answer arrives.
ANSWER_MARGIN = timedelta(milliseconds=300)
# What the call may still do in that time: it is cancelled, and cleans up.
STOP_GRACE_S = 5.0
MAX_REQUEST_BYTES = 1 << 20
# Calls at once, those of Identity not counted: a driver with much to do is alive, and a probe has to find that.
MAX_CALLS = 512
_MAX_PROBES = 64
# The fields of requests that are logged: names and ids, nothing that could hold a secret.
_LOGGED = ("name", "volume_id", "node_id", "source_volume_id", "snapshot_id")
_MAX_LOGGED = 128

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.so_reuseport", 0),
)


class CannotServe(UserError):
    """The endpoint cannot be used."""


@dataclass(frozen=True, slots=True)
class UnixEndpoint:
    """A socket file."""

    path: str


@dataclass(frozen=True, slots=True)
class TcpEndpoint:
    """A port of this machine: calls are not authenticated, so no other address is taken."""

    host: str
    port: int


Endpoint = UnixEndpoint | TcpEndpoint


def parse_endpoint(text: str) -> Endpoint:
    """`unix:///csi/csi.sock`, or `tcp://127.0.0.1:10000`. Raises CannotServe for anything else."""
    hint = "give --endpoint as unix:///csi/csi.sock"
    scheme, _, rest = text.partition("://")
    if scheme.lower() == "unix" and rest.startswith("/") and "\0" not in rest:
        return UnixEndpoint(rest)
    if scheme.lower() == "unix":
        raise CannotServe(f"endpoint {text!r} names no absolute path", hint)
    if scheme.lower() != "tcp":
        raise CannotServe(f"endpoint {text!r} is neither unix:// nor tcp://", hint)
    try:
        parts = urlsplit(f"tcp://{rest}")
        address, port = ip_address(parts.hostname or ""), parts.port
    except ValueError as error:
        raise CannotServe(f"endpoint {text!r} is no address with a port: {error}", hint) from error
    if not address.is_loopback:
        raise CannotServe(
            f"endpoint {text!r} can be reached from other machines, and CSI knows no authentication", hint
        )
    if port is None:
        raise CannotServe(f"endpoint {text!r} has no port", hint)
    return TcpEndpoint(f"[{address}]" if address.version == 6 else str(address), port)


def status_code(error: errors.CsiError) -> grpc.StatusCode:
    """The code of the error's kind."""
    return next(STATUS_CODES[kind] for kind in type(error).__mro__ if kind in STATUS_CODES)


def guarded_methods(services: Mapping[str, object], clock: Clock, log: logging.Logger) -> Mapping[str, Serve]:
    """The methods of the services by name, each as the socket's server guards it, for calls within this process.

    The context of a call has `time_remaining()` and an `abort(code, text)` that raises.
    """
    barrier = _Barrier(clock, log)
    found = (barrier.served(service, implementation) for service, implementation in services.items())
    return {name: serve for methods in found for name, serve in methods.items()}


@asynccontextmanager
async def serving(
    endpoint: Endpoint, services: Mapping[str, object], clock: Clock, log: logging.Logger
) -> AsyncIterator[Endpoint]:
    """Serves while the context lasts; yields where (for port 0, the port that was given).

    `services` has the implementation of each service by its name (`protocols.csi.services`). At the end calls that run have
    `STOP_GRACE_S` to finish; a socket file is removed. Raises CannotServe.
    """
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS + _MAX_PROBES)
    barrier = _Barrier(clock, log)
    for service, implementation in services.items():
        server.add_generic_rpc_handlers((rpc_handler(service, barrier.served(service, implementation)),))
    bound = _bind(server, endpoint)
    socket = _file_id(bound.path) if isinstance(bound, UnixEndpoint) else None
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(STOP_GRACE_S)
        if isinstance(bound, UnixEndpoint) and _file_id(bound.path) == socket:
            with suppress(OSError):
                os.unlink(bound.path)


def _bind(server: grpc.aio.Server, endpoint: Endpoint) -> Endpoint:
    if isinstance(endpoint, TcpEndpoint):
        try:
            return TcpEndpoint(endpoint.host, server.add_insecure_port(f"{endpoint.host}:{endpoint.port}"))
        except RuntimeError as error:
            raise CannotServe(
                f"cannot listen at {endpoint.host}:{endpoint.port}", "choose another port"
            ) from error
    _bind_unix(server, endpoint.path)
    return endpoint


def _bind_unix(server: grpc.aio.Server, path: str) -> None:
    """gRPC removes at its end whatever has the name that it bound, so it binds another one, which is then given this name."""
    if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise CannotServe(f"{path} exists and is no socket", "remove it, or choose another --endpoint")
    before = os.umask(0o177)
    try:
        os.umask(0o077)
        with tempfile.TemporaryDirectory(prefix=".", dir=os.path.dirname(path)) as folder:
            os.umask(0o177)
            server.add_insecure_port(f"unix://{folder}/s")
            os.replace(f"{folder}/s", path)
    except (RuntimeError, OSError) as error:
        raise CannotServe(
            f"cannot listen at {path}",
            "its folder has to exist and be writable, and its path may have 95 characters",
        ) from error
    finally:
        os.umask(before)


def _file_id(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class _Barrier:
    """What each call passes on its way to the implementation."""

    def __init__(self, clock: Clock, log: logging.Logger) -> None:
        self._clock = clock
        self._log = log
        self._running = 0

    def served(self, service: str, implementation: object) -> dict[str, Serve]:
        """The methods that the implementation has."""
        assert service in SERVICES
        found = ((name, getattr(implementation, name, None)) for name in methods_of(service))
        admit = nullcontext if service == IDENTITY else self._admitted
        return {name: self._guard(name, method, admit) for name, method in found if method is not None}

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if self._running >= MAX_CALLS:
            raise errors.Unavailable(f"{MAX_CALLS} calls are under way", "repeat the same call later")
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def _guard(
        self,
        name: str,
        method: Callable[[Any], Awaitable[Message]],
        admit: Callable[[], AbstractContextManager[None]],
    ) -> Serve:
        async def serve(request: Message, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
            began = self._clock.monotonic()
            try:
                with admit():
                    response = await self._in_time(method, request, context.time_remaining())
            except errors.CsiError as error:
                code, text = status_code(error), printable(str(error))
                self._log.warning("%s: %s: %s", _describe(name, request), code.name, text)
            except asyncio.CancelledError:
                self._log.info("%s: its caller has gone", _describe(name, request))
                raise
            except Exception as error:
                self._log.exception("%s: unexpected error", _describe(name, request))
                code, text = grpc.StatusCode.INTERNAL, f"unexpected {type(error).__name__}; see the log"
            else:
                took = (self._clock.monotonic() - began).total_seconds()
                self._log.debug("%s: OK after %.3f s", _describe(name, request), took)
                return response
            return await _refuse(context, code, text)

        return serve

    async def _in_time(
        self, method: Callable[[Any], Awaitable[Message]], request: Message, remaining_s: float | None
    ) -> Message:
        limit = CALL_TIMEOUT
        if remaining_s is not None:
            limit = min(limit, timedelta(seconds=remaining_s) - ANSWER_MARGIN)
        timeout, wait = _OutOfTime(), begin_call()
        try:
            return await run_until(method(request), sleep(self._clock, max(limit, timedelta(0))), timeout)
        except _OutOfTime as error:
            if error is not timeout:
                raise
            what = wait.what or "an answer"
            raise errors.Aborted(f"out of time while waiting for {what}", "repeat the same call") from None


class _OutOfTime(Exception):
    pass


async def _refuse(context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, text: str) -> Never:
    # Of a byte beyond ASCII gRPC makes three in a header that may have 8 KiB.
    await context.abort(code, text.encode()[: errors.MAX_MESSAGE].decode(errors="ignore"))
    raise AssertionError("abort() raises")


def _describe(name: str, request: Message) -> str:
    """The method and the ids of its request; text from outside is shortened and quoted."""
    fields = (
        f" {field}={str(getattr(request, field))[:_MAX_LOGGED]!r}"
        for field in _LOGGED
        if getattr(request, field, "")
    )
    return name + "".join(fields)
