"""Docker-machine plugins as a host uses them: start the binary, speak to it, end it.

    start ──> address line ──> dial, CONNECT ──> GetVersion ──> SetConfigRaw ──> calls … ──> Close ──> reaped
                                                    └── from here a heartbeat every 5 s, beside the calls

Facts: reference/01 §1. Every wait has a limit, both pipes are drained for ever, and the process is gone when the
context is left, however it is left; when this process dies, the plugin's own watchdog ends it within 10 s. What runs
beside the caller are callbacks of the event loop (pipes, pidfd, connection, heartbeat): there is no task to lose.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windrow.formats.json import NotJson, loads
from windrow.machines.children import CUT, Child
from windrow.machines.plugin_line import Line, Lost
from windrow.machines.redaction import Redaction
from windrow.wire import dockermachine as wire
from windrow.wire.gob import EMPTY, fits

# How long a plugin may take for each call. What makes, changes or removes a machine may wait for it to be done.
_LONG = {
    "PreCreateCheck": 180.0,
    "Create": 3600.0,
    "Remove": 1500.0,
    "Start": 1500.0,
    "Stop": 1500.0,
    "Restart": 1500.0,
    "Kill": 1500.0,
}
_ASKING = 60.0  # those that ask the infrastructure
_LOCAL = 20.0  # those that only look into the plugin's own memory
_LOCAL_CALLS = frozenset(
    {"GetVersion", "SetConfigRaw", "GetConfigRaw", "GetCreateFlags", "SetConfigFromFlags", "DriverName"}
    | {"GetMachineName", "Heartbeat", "Close"}
)
# Pipes and connections end a moment before the process that held them.
_AFTERWARDS = 0.5
LAST_LINES = 5
LOGGED = 2000
CONFIG_LIMIT = 256 * 1024  # it is kept in the ledger
TOLD = 1500  # of an error's text: a panic comes with its whole stack
_SEARCHED = 64 * 1024  # how far into it secrets are looked for, before it is cut

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the host waits for what, in seconds."""

    address: float = 10.0
    dial: float = 10.0
    close: float = 3.0
    term: float = 2.0
    heartbeat: float = float(wire.HEARTBEAT_S)
    silence: float = 60.0  # heartbeats without an answer, after which the plugin counts as hung
    calls: Mapping[str, float] = field(default_factory=dict)  # instead of the limits above

    def limit(self, method: str) -> float:
        usual = _LONG.get(method) or (_LOCAL if method in _LOCAL_CALLS else _ASKING)
        return self.calls.get(method, usual)


class PluginError(Exception):
    """Something is wrong with the plugin itself, not with what it was asked."""

    def __init__(self, fact: str, cure: str) -> None:
        super().__init__(f"{fact}; {cure}")
        self.fact, self.cure = fact, cure


class PluginUnusable(PluginError):
    """It cannot be started, does not speak the protocol, or speaks another version of it."""


class PluginGone(PluginError):
    """It ended, or the connection to it broke, while it was asked."""


class PluginSlow(PluginError):
    """It did not answer in time. What it was doing may have been done."""


class DriverSaid(Exception):
    """The driver's answer to a call is an error; `text` is all that there is of it."""

    def __init__(self, method: str, text: str) -> None:
        super().__init__(text)
        self.method, self.text = method, text

    @property
    def is_unknown_call(self) -> bool:
        """Whether the plugin does not have this method at all."""
        return self.text.startswith(("rpc: can't find method", "rpc: can't find service"))


class Plugin:
    """An open plugin. Calls may run side by side."""

    def __init__(self, line: Line, child: Child, patience: Patience, words: _Words) -> None:
        self._line, self._child, self._patience, self._words = line, child, patience, words
        self._service = wire.SERVICE
        self._extensions: frozenset[str] | None = None
        self.pid = child.pid

    async def call(self, method: str, value: Any = None) -> Any:
        """The driver's answer. Raises DriverSaid, PluginGone, PluginSlow, PluginUnusable."""
        types = wire.METHODS[method]
        limit = self._patience.limit(method)
        answer = self._line.ask(f"{self._service}.{method}", types.argument, {} if value is None else value)
        try:
            async with asyncio.timeout(limit):
                reply = await answer
        except TimeoutError:
            raise PluginSlow(
                f"{self._words.name} did not answer {method} within {limit:g} s{self._words.last()}",
                "it is asked again; what it was doing may have been done",
            ) from None
        except Lost as lost:
            raise await self._explain(method, str(lost)) from None
        finally:
            answer.cancel()
        if reply.error:
            raise DriverSaid(method, self._words.start_of(reply.error, TOLD))
        if types.reply is not EMPTY and not fits(types.reply, reply.value):
            raise PluginUnusable(
                f"{self._words.name} answered {method} with a value of another type", _REPLACE_IT
            )
        return reply.value

    async def set_config(self, config: bytes) -> None:
        await self.call("SetConfigRaw", config)

    async def get_config(self) -> bytes:
        return bytes(await self.call("GetConfigRaw"))

    async def get_memory(self) -> dict[str, Any]:
        """The driver's configuration as an object, as it would be kept. Raises PluginUnusable where it is none."""
        raw = await self.get_config()
        try:
            memory = loads(raw) if len(raw) <= CONFIG_LIMIT else None
        except NotJson:
            memory = None
        if not isinstance(memory, dict):
            raise PluginUnusable(
                f"{self._words.name} keeps a configuration that is no JSON object of at most {CONFIG_LIMIT} bytes",
                _REPLACE_IT,
            )
        return memory

    async def get_flags(self) -> tuple[wire.Flag, ...]:
        """The create flags, in the driver's order. Raises PluginUnusable for flags of an unknown kind."""
        value = await self.call("GetCreateFlags")
        try:
            return tuple(wire.read_flags(value))
        except ValueError as error:
            raise PluginUnusable(
                f"{self._words.name} has create flags that cannot be read: {error}", _REPLACE_IT
            ) from error

    async def get_extensions(self) -> frozenset[str]:
        """The methods beyond docker-machine's that the plugin has; only our own has any."""
        if self._extensions is None:
            try:
                self._extensions = frozenset(str(await self.call(wire.EXTENSIONS)).split())
            except DriverSaid:
                self._extensions = frozenset()
        return self._extensions

    async def set_flags(self, values: Mapping[str, Any]) -> None:
        await self.call("SetConfigFromFlags", wire.write_options(values))

    async def _explain(self, method: str, how: str) -> PluginError:
        """Why the connection is lost; how the process ended says more than that it did."""
        async with _at_most(_AFTERWARDS):
            await self._child.exited.wait()
        ended = f" (it ended with {_end(self._child.code)})" if self._child.code is not None else ""
        return PluginGone(
            f"{self._words.name} was lost during {method}: {how}{ended}{self._words.last()}",
            "it is started anew; if it ends again, ask its makers",
        )

    async def greet(self) -> None:
        """Agree on the service's name and the version. Raises PluginUnusable, PluginGone, PluginSlow."""
        try:
            version = await self.call("GetVersion")
        except DriverSaid:
            self._service = wire.OLD_SERVICE
            try:
                version = await self.call("GetVersion")
            except DriverSaid as said:
                raise PluginUnusable(
                    f"{self._words.name} does not answer GetVersion: {said.text}", _REPLACE_IT
                ) from said
        if version != wire.API_VERSION:
            raise PluginUnusable(
                f"{self._words.name} speaks version {version} of the plugin protocol, not {wire.API_VERSION}",
                "install a build of the driver for docker-machine or rancher-machine",
            )
        self._line.beat(f"{self._service}.Heartbeat", self._patience.heartbeat, self._patience.silence)

    async def close(self) -> None:
        """Ask the plugin to end; it may end before it answers."""
        self._line.stop_beating()
        try:
            await self.call("Close")
        except PluginGone:
            return
        except (DriverSaid, PluginError) as error:
            log.debug("%s: Close: %s", self._words.name, error)


_REPLACE_IT = "install a docker-machine driver for this system under that path"


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
    patience: Patience | None = None,
) -> AsyncIterator[Plugin]:
    """A plugin that answers, until the block is left; then its process is gone.

    `env` is its whole environment but for the protocol's own variables. `argv` is what follows the binary: nothing
    for docker/machine, the host's own arguments for rancher-machine. `config` is given to it first of all. Its lines
    become our log records under `label`, without any of `secrets`.
    Raises PluginUnusable, PluginGone, PluginSlow, DriverSaid.
    """
    patience = patience or Patience()
    words = _Words(f"plugin {path.name}", label or driver, Redaction(secrets, (label, driver)))
    child = _start(path, driver, env, argv, folder, words)
    line: Line | None = None
    try:
        line = await _dial(await _address(child, words, patience), words, patience)
        plugin = Plugin(line, child, patience, words)
        await plugin.greet()
        if config is not None:
            await plugin.set_config(config)
        yield plugin
        await _part(plugin, child, patience)
    finally:
        if line is not None:
            line.drop()
        await child.bury()


def _start(
    path: Path, driver: str, env: Mapping[str, str], argv: Sequence[str], folder: Path | None, words: _Words
) -> Child:
    own = {wire.TOKEN_ENV: wire.TOKEN, wire.NAME_ENV: driver}
    try:
        return Child([str(path), *argv], {**env, **own}, words.out, words.err, folder)
    except (OSError, ValueError) as error:
        raise PluginUnusable(f"{words.name} cannot be started: {error}", _cure_of(error)) from error


def _cure_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return (
            "shorten the fields of its credential: together they are more than the system hands to a program"
        )
    return _REPLACE_IT


async def _address(child: Child, words: _Words, patience: Patience) -> tuple[str, int]:
    """The address that the plugin prints as its first line."""
    heard = asyncio.ensure_future(words.first.wait())
    ended = asyncio.ensure_future(child.out_ended.wait())
    try:
        await asyncio.wait({heard, ended}, timeout=patience.address, return_when=asyncio.FIRST_COMPLETED)
    finally:
        heard.cancel()
        ended.cancel()
    if words.first.is_set():
        return _read_address(words.address, words)
    if child.out_ended.is_set():
        async with _at_most(_AFTERWARDS):
            await child.exited.wait()
        how = f"ended with {_end(child.code)}" if child.code is not None else "closed its output"
        raise PluginUnusable(f"{words.name} {how} before it printed its address{words.last()}", _REPLACE_IT)
    raise PluginUnusable(
        f"{words.name} printed no address within {patience.address:g} s{words.last()}", _REPLACE_IT
    )


def _read_address(text: str, words: _Words) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    host = host.strip("[]")
    try:
        if ipaddress.ip_address(host).is_loopback and 0 < int(port) < 65536:
            return host, int(port)
    except ValueError:
        pass
    raise PluginUnusable(
        f"{words.name} printed {words.plain(text)[:80]!r} where 127.0.0.1:PORT was expected", _REPLACE_IT
    )


async def _dial(address: tuple[str, int], words: _Words, patience: Patience) -> Line:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(patience.dial):
            _, line = await loop.create_connection(Line, *address)
    except (OSError, TimeoutError) as error:
        raise PluginUnusable(
            f"{words.name} cannot be reached at {address[0]}:{address[1]}, where it says it is: "
            f"{error or 'no answer'}{words.last()}",
            _REPLACE_IT,
        ) from error
    return line


async def _part(plugin: Plugin, child: Child, patience: Patience) -> None:
    """See the plugin off: it is asked, then told, and what is left after that is killed."""
    async with _at_most(patience.close):
        await plugin.close()
        await child.exited.wait()
    if child.exited.is_set():
        return
    child.terminate()
    async with _at_most(patience.term):
        await child.exited.wait()


@asynccontextmanager
async def _at_most(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        return


def _end(code: int | None) -> str:
    if code is None:
        return "no code"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class _Words:
    """What the plugin prints: the address first, then log lines of which the last are kept for error texts."""

    def __init__(self, name: str, label: str, hide: Redaction) -> None:
        self.name, self._hide = name, hide
        self.address = ""
        self.first = asyncio.Event()
        self._label = label
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    def out(self, line: str) -> None:
        if not self.first.is_set():
            self.address = line
            self.first.set()
            return
        self._tell(logging.INFO, line)

    def err(self, line: str) -> None:
        self._tell(logging.WARNING, line)

    def last(self) -> str:
        """The last lines as the end of a sentence; empty where there are none."""
        if not self._last:
            return ""
        return f"; its last words: {' | '.join(self._last)[-600:]}"

    def plain(self, line: str) -> str:
        """The line without secrets; of one that was cut, also without the beginning of one."""
        kept, cut, more = line.rpartition(CUT)
        return f"{self._hide.start_of(kept)}{cut}{more}" if cut else self._hide(line)

    def start_of(self, text: str, most: int) -> str:
        """So much of the text, without secrets. They are looked for behind that place too."""
        kept = text[:_SEARCHED]
        return (self._hide(kept) if kept == text else self._hide.start_of(kept))[:most]

    def _tell(self, level: int, line: str) -> None:
        if text := self.plain(line.strip())[:LOGGED]:
            self._last.append(text[:300])
            log.log(level, "(%s) %s", self._label, text)
