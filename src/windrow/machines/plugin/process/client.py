"""The client side of a docker-machine plugin: start the binary, call it, end it.

    start ──> address line ──> connect ──> GetVersion ──> SetConfigRaw ──> calls … ──> Close ──> reaped
                                               └── from here a heartbeat every 5 s, beside the calls

Facts: reference/01 §1. Every wait has a limit, both pipes are always drained, and the process has ended when the
context is left, however it is left; when this process dies, the plugin's own watchdog ends it within 10 s. Pipes,
pidfd, connection and heartbeat are callbacks of the event loop, so there is no task to leak.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windrow.core.errors import UserError
from windrow.core.formats.json import NotJson, loads
from windrow.core.wait import Stopped, run_until
from windrow.machines.plugin.process.child import CUT_MARK, ChildProcess
from windrow.machines.plugin.process.redaction import Redactor
from windrow.machines.plugin.process.rpc_connection import ConnectionLost, RpcConnection
from windrow.machines.plugin.process.sandbox import Sandbox, SandboxFailed
from windrow.protocols import dockermachine as wire
from windrow.protocols.gob import EMPTY, fits

# Time limits of calls, in seconds. Those that create, change or remove a machine may wait for the result.
_OPERATION_S = {
    "PreCreateCheck": 180.0,
    "Create": 3600.0,
    "Remove": 1500.0,
    "Start": 1500.0,
    "Stop": 1500.0,
    "Restart": 1500.0,
    "Kill": 1500.0,
}
_QUERY_S = 60.0  # calls that query the infrastructure
_LOCAL_S = 20.0  # calls that only read or set the plugin's own config
_LOCAL_CALLS = frozenset(
    {"GetVersion", "SetConfigRaw", "GetConfigRaw", "GetCreateFlags", "SetConfigFromFlags", "DriverName"}
    | {"GetMachineName", "Heartbeat", "Close"}
)
# Pipes and connections close shortly before the process ends.
_EXIT_GRACE_S = 0.5
LAST_LINES_KEPT = 5
LOG_LINE_LIMIT = 2000
# Lines of one plugin that are logged: so many at once, and so many in each second after that.
LOG_BURST, LOG_LINES_PER_S = 2000, 50.0
CONFIG_LIMIT = 256 * 1024  # it is recorded in the status of the Machine
ERROR_TEXT_LIMIT = 1500  # an error's text: a panic comes with its whole stack
_REDACTION_LIMIT = 64 * 1024  # the part of it that is searched for secrets before it is cut

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits, in seconds."""

    address: float = 10.0
    dial: float = 10.0
    close: float = 3.0
    term: float = 2.0
    heartbeat: float = float(wire.HEARTBEAT_INTERVAL_S)
    heartbeat_answer: float = 60.0  # unanswered heartbeats, after which the plugin counts as hung
    calls: Mapping[str, float] = field(default_factory=dict)  # overrides, by method

    def for_call(self, method: str) -> float:
        default = _OPERATION_S.get(method) or (_LOCAL_S if method in _LOCAL_CALLS else _QUERY_S)
        return self.calls.get(method, default)


class PluginError(UserError):
    """An error of the plugin itself, not of the request."""


class PluginUnusable(PluginError):
    """The plugin does not start, does not speak the protocol, or speaks another version of it."""


class PluginDisconnected(PluginError):
    """The plugin ended, or the connection to it broke, during a call."""


class PluginTimeout(PluginError):
    """The plugin did not answer in time. The call may still take effect."""


class DriverError(Exception):
    """The driver answered a call with an error; `text` is all there is of it."""

    def __init__(self, method: str, text: str) -> None:
        super().__init__(text)
        self.method, self.text = method, text


class Plugin:
    """A connected plugin. Calls may run concurrently."""

    def __init__(
        self,
        connection: RpcConnection,
        process: ChildProcess,
        timeouts: Timeouts,
        output: _PluginOutput,
        may_run: Callable[[], bool],
    ) -> None:
        self._connection, self._process, self._timeouts, self._output = connection, process, timeouts, output
        self._may_run = may_run
        self._service = wire.SERVICE
        self._extensions: frozenset[str] | None = None
        self.pid = process.pid

    async def call(self, method: str, value: Any = None) -> Any:
        """The driver's answer. Raises DriverError, PluginDisconnected, PluginTimeout, PluginUnusable."""
        types = wire.METHODS[method]
        timeout_s = self._timeouts.for_call(method)
        answer = self._connection.call(
            f"{self._service}.{method}", types.argument, {} if value is None else value
        )
        try:
            async with asyncio.timeout(timeout_s):
                reply = await answer
        except TimeoutError:
            raise PluginTimeout(
                f"{self._output.name} did not answer {method} within {timeout_s:g} s{self._output.last_lines()}",
                "the call is retried; it may have taken effect",
            ) from None
        except ConnectionLost as lost:
            raise await self._connection_error(method, str(lost)) from None
        finally:
            answer.cancel()
        if reply.error:
            raise DriverError(method, self._output.truncate(reply.error, ERROR_TEXT_LIMIT))
        if types.reply is not EMPTY and not fits(types.reply, reply.value):
            raise PluginUnusable(
                f"{self._output.name} answered {method} with a value of another type", _REINSTALL_HINT
            )
        return reply.value

    async def set_config(self, config: bytes) -> None:
        await self.call("SetConfigRaw", config)

    async def get_config(self) -> bytes:
        return bytes(await self.call("GetConfigRaw"))

    async def get_driver_config(self) -> dict[str, Any]:
        """The driver's config as an object. Raises PluginUnusable where it is none."""
        raw = await self.get_config()
        try:
            config = loads(raw) if len(raw) <= CONFIG_LIMIT else None
        except NotJson:
            config = None
        if not isinstance(config, dict):
            raise PluginUnusable(
                f"{self._output.name} has a config that is no JSON object of at most {CONFIG_LIMIT} bytes",
                _REINSTALL_HINT,
            )
        return config

    async def get_flags(self) -> tuple[wire.Flag, ...]:
        """The create flags, in the driver's order. Raises PluginUnusable for flags of an unknown type."""
        value = await self.call("GetCreateFlags")
        try:
            return tuple(wire.read_flags(value))
        except ValueError as error:
            raise PluginUnusable(
                f"{self._output.name} has create flags that cannot be read: {error}", _REINSTALL_HINT
            ) from error

    async def get_extensions(self) -> frozenset[str]:
        """The methods that extend docker-machine's protocol; only our own plugin has any."""
        if self._extensions is None:
            try:
                self._extensions = frozenset(str(await self.call(wire.LIST_EXTENSIONS)).split())
            except DriverError:
                self._extensions = frozenset()
        return self._extensions

    async def set_flags(self, values: Mapping[str, Any]) -> None:
        await self.call("SetConfigFromFlags", wire.write_options(values))

    async def _connection_error(self, method: str, reason: str) -> PluginError:
        """The error for a lost connection, with the exit code where the process has ended."""
        await self._process.wait_exited(_EXIT_GRACE_S)
        exit_text = (
            f" (it ended with {_exit_text(self._process.code)})" if self._process.code is not None else ""
        )
        return PluginDisconnected(
            f"{self._output.name} disconnected during {method}: {reason}{exit_text}{self._output.last_lines()}",
            "it is restarted; if it ends again, report it to the driver's maintainers",
        )

    async def negotiate_version(self) -> None:
        """Agree on the service's name and the protocol version. Raises PluginUnusable, PluginDisconnected,
        PluginTimeout."""
        try:
            version = await self.call("GetVersion")
        except DriverError:
            self._service = wire.LEGACY_SERVICE
            try:
                version = await self.call("GetVersion")
            except DriverError as error:
                raise PluginUnusable(
                    f"{self._output.name} does not answer GetVersion: {error.text}", _REINSTALL_HINT
                ) from error
        if version != wire.API_VERSION:
            raise PluginUnusable(
                f"{self._output.name} speaks version {version} of the plugin protocol, not {wire.API_VERSION}",
                "install a build of the driver for docker-machine or rancher-machine",
            )
        self._connection.start_heartbeat(
            f"{self._service}.Heartbeat",
            self._timeouts.heartbeat,
            self._timeouts.heartbeat_answer,
            self._may_run,
        )

    async def close(self) -> None:
        """Call Close; the plugin may end before it answers."""
        self._connection.stop_heartbeat()
        try:
            await self.call("Close")
        except PluginDisconnected:
            return
        except (DriverError, PluginError) as error:
            log.debug("%s: Close: %s", self._output.name, error)


_REINSTALL_HINT = "install a docker-machine driver for this system under that path"


@asynccontextmanager
async def open_plugin(
    path: Path,
    driver: str,
    *,
    env: Mapping[str, str],
    argv: Sequence[str] = (),
    config: bytes | None = None,
    label: str = "",
    secrets: Sequence[str] = (),
    folder: Path | None = None,
    sandbox: Sandbox | None = None,
    timeouts: Timeouts | None = None,
    may_run: Callable[[], bool] = lambda: True,
) -> AsyncIterator[Plugin]:
    """A connected plugin until the block is left; then its process has ended.

    `env` is its whole environment but for the protocol's own variables. `argv` are its arguments: none for
    docker/machine, the host's own arguments for rancher-machine. `folder` is its working directory. With `sandbox` it may
    open what that names, and what a program of the system needs. `config` is set first. Its output becomes log records
    under `label`, without any of `secrets`. While `may_run` says no none is started, and those that run get no heartbeat,
    which ends them. Raises PluginUnusable, PluginDisconnected, PluginTimeout, DriverError.
    """
    timeouts = timeouts or Timeouts()
    if not may_run():
        raise PluginUnusable(
            f"plugin {path.name} is not started: this manager does not hold its Lease now",
            "the manager that holds it continues",
        )
    output = _PluginOutput(f"plugin {path.name}", label or driver, Redactor(secrets, (label, driver)))
    process = _start(path, driver, env, argv, folder, sandbox, output)
    connection: RpcConnection | None = None
    try:
        connection = await _connect(await _read_address_line(process, output, timeouts), output, timeouts)
        plugin = Plugin(connection, process, timeouts, output, may_run)
        await plugin.negotiate_version()
        if config is not None:
            await plugin.set_config(config)
        yield plugin
        await _shut_down(plugin, process, timeouts)
    finally:
        if connection is not None:
            connection.abort()
        await process.kill_and_wait()


def _start(
    path: Path,
    driver: str,
    env: Mapping[str, str],
    argv: Sequence[str],
    folder: Path | None,
    sandbox: Sandbox | None,
    output: _PluginOutput,
) -> ChildProcess:
    protocol_env = {wire.TOKEN_ENV: wire.TOKEN, wire.NAME_ENV: driver}
    try:
        return ChildProcess(
            [str(path), *argv], {**env, **protocol_env}, output.on_stdout, output.on_stderr, folder, sandbox
        )
    except SandboxFailed as failed:
        raise PluginUnusable(f"{output.name} is not started: {failed.message}", failed.hint) from failed
    except (OSError, ValueError) as error:
        raise PluginUnusable(f"{output.name} cannot be started: {error}", _hint_for(error)) from error


def _hint_for(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return (
            "shorten the fields of its credential: together they are more than the system hands to a program"
        )
    return _REINSTALL_HINT


async def _read_address_line(
    process: ChildProcess, output: _PluginOutput, timeouts: Timeouts
) -> tuple[str, int]:
    """The address in the first line that the plugin prints."""
    with suppress(TimeoutError, Stopped):
        async with asyncio.timeout(timeouts.address):
            await run_until(output.address_printed.wait(), process.out_ended.wait())
    if output.address_printed.is_set():
        return _parse_address(output.address, output)
    if process.out_ended.is_set():
        await process.wait_exited(_EXIT_GRACE_S)
        reason = f"ended with {_exit_text(process.code)}" if process.code is not None else "closed its output"
        raise PluginUnusable(
            f"{output.name} {reason} before it printed its address{output.last_lines()}", _REINSTALL_HINT
        )
    raise PluginUnusable(
        f"{output.name} printed no address within {timeouts.address:g} s{output.last_lines()}",
        _REINSTALL_HINT,
    )


def _parse_address(text: str, output: _PluginOutput) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    host = host.strip("[]")
    try:
        if ipaddress.ip_address(host).is_loopback and 0 < int(port) < 65536:
            return host, int(port)
    except ValueError:
        pass
    raise PluginUnusable(
        f"{output.name} printed {output.redact_line(text)[:80]!r} where 127.0.0.1:PORT was expected",
        _REINSTALL_HINT,
    )


async def _connect(address: tuple[str, int], output: _PluginOutput, timeouts: Timeouts) -> RpcConnection:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeouts.dial):
            _, connection = await loop.create_connection(RpcConnection, *address)
    except (OSError, TimeoutError) as error:
        raise PluginUnusable(
            f"{output.name} cannot be reached at {address[0]}:{address[1]}: "
            f"{error or 'no answer'}{output.last_lines()}",
            _REINSTALL_HINT,
        ) from error
    return connection


async def _shut_down(plugin: Plugin, process: ChildProcess, timeouts: Timeouts) -> None:
    """Shut the plugin down: Close, then SIGTERM; the caller kills what is left."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeouts.close):
            await plugin.close()
            await process.exited.wait()
            return
    process.terminate()
    await process.wait_exited(timeouts.term)


def _exit_text(code: int | None) -> str:
    if code is None:
        return "no code"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class _PluginOutput:
    """The output of a plugin: the address line, then log lines, the last of which are kept for errors."""

    def __init__(self, name: str, label: str, redact: Redactor) -> None:
        self.name, self._redact = name, redact
        self.address = ""
        self.address_printed = asyncio.Event()
        self._label = label
        self._loop = asyncio.get_running_loop()
        self._allowed, self._counted_at, self._dropped = float(LOG_BURST), self._loop.time(), 0
        self._lines: deque[str] = deque(maxlen=LAST_LINES_KEPT)

    def on_stdout(self, line: str) -> None:
        if not self.address_printed.is_set():
            self.address = line
            self.address_printed.set()
            return
        self._log(logging.INFO, line)

    def on_stderr(self, line: str) -> None:
        self._log(logging.WARNING, line)

    def last_lines(self) -> str:
        """The last lines as the end of a message; empty where there are none."""
        if not self._lines:
            return ""
        lines = [text[:300] for line in self._lines if (text := self.redact_line(line))]
        return f"; its last output: {' | '.join(lines)[-600:]}"

    def redact_line(self, line: str) -> str:
        """The line without secrets; without the beginning of one where the line was cut."""
        kept, cut, more = line.rpartition(CUT_MARK)
        return f"{self._redact.redact_truncated(kept)}{cut}{more}" if cut else self._redact(line)

    def truncate(self, text: str, limit: int) -> str:
        """The first `limit` characters of the text, without secrets, also those that begin before the limit."""
        kept = text[:_REDACTION_LIMIT]
        return (self._redact(kept) if kept == text else self._redact.redact_truncated(kept))[:limit]

    def _may_log(self) -> bool:
        """A driver that prints without end fills neither the log nor the manager's time."""
        now = self._loop.time()
        self._allowed = min(LOG_BURST, self._allowed + (now - self._counted_at) * LOG_LINES_PER_S)
        self._counted_at = now
        if self._allowed < 1:
            self._dropped += 1
            return False
        self._allowed -= 1
        if self._dropped:
            log.warning(
                "(%s) %d lines of its output were dropped: it prints too many", self._label, self._dropped
            )
            self._dropped = 0
        return True

    def _log(self, level: int, line: str) -> None:
        if not (line := line.strip()):
            return
        self._lines.append(line)
        if self._may_log() and (text := self.redact_line(line)[:LOG_LINE_LIMIT]):
            log.log(level, "(%s) %s", self._label, text)
