"""A host of docker-machine as a script: starts the real plugin process and calls it in the order that a test says.

Blocking, and as strict as the Go hosts: the first line is the address, the greeting is compared, answers are matched
by number. Heartbeats are sent by a thread, as rancher-machine's are by a goroutine.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Event, Lock, Thread
from typing import Any

from windrow.protocols import dockermachine as wire
from windrow.protocols.gob import Type
from windrow.protocols.netrpc import Client, Response

# The ELF, where one was built; else the same program as the console script starts it.
ELF = os.environ.get("WINDROW_DRIVER_ELF", "")
PLUGIN: tuple[str, ...] = (ELF,) if ELF else (sys.executable, "-m", "windrow.plugin")
ADDRESS_WITHIN_S = 10.0

# What rancher-machine's command line leaves in its plugin's arguments.
HOST_ARGV = ("rancher-machine", "--storage-path", "/store", "create", "--driver=harvester")

_BEAT_S = wire.HEARTBEAT_INTERVAL_S


class Said(Exception):
    """The plugin's answer is an error."""


class Gone(Exception):
    """The connection ended before the answer came."""


@dataclass
class Plugin:
    """One plugin process and one connection to it."""

    process: subprocess.Popen[bytes]
    address: tuple[str, int]
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    service: str = wire.SERVICE

    def __post_init__(self) -> None:
        self._client = Client(wire.DEFAULT_LIMITS)
        self._answers: dict[int, Response] = {}
        self._changed = Condition()
        self._sending = Lock()
        self._greeted = self._over = False
        self._stop = Event()
        self.calls: list[str] = []
        self.socket = socket.create_connection(self.address, timeout=10)
        self.socket.settimeout(None)
        self.socket.sendall(self._client.data_to_send())
        Thread(target=self._listen, daemon=True).start()
        with self._changed:
            assert self._changed.wait_for(lambda: self._greeted or self._over, 10)

    def call(self, method: str, value: Any = None, within: float = 60) -> Any:
        """The answer's value. Raises Said, Gone, TimeoutError."""
        return self.result(self.begin(method, value), within)

    def begin(self, method: str, value: Any = None) -> int:
        """Send the call and do not wait."""
        return self.begin_as(method, wire.METHODS[method].argument, {} if value is None else value)

    def begin_as(self, method: str, kind: Type, value: Any) -> int:
        """The same with an argument of any type."""
        if method != "Heartbeat":
            self.calls.append(method)
        with self._sending:
            number = self._client.call(f"{self.service}.{method}", kind, value)
            with suppress(OSError):
                self.socket.sendall(self._client.data_to_send())
        return number

    def result(self, number: int, within: float = 60) -> Any:
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._answers or self._over, within):
                raise TimeoutError(f"no answer within {within} s; {self.out} {self.err}")
            if number not in self._answers:
                raise Gone
            answer = self._answers.pop(number)
        if answer.error:
            raise Said(answer.error)
        return answer.value

    def is_answered(self, number: int) -> bool:
        return number in self._answers

    def beat(self) -> None:
        """Heartbeats every five seconds from now on, until the connection ends."""

        def go_on() -> None:
            while not self._stop.wait(_BEAT_S):
                with suppress(Said, Gone, TimeoutError):
                    self.call("Heartbeat", within=60)

        Thread(target=go_on, daemon=True).start()

    def close(self, within: float = 60) -> int:
        """As a host ends: Close, whose answer may be lost, then the process; its exit code."""
        self._stop.set()
        with suppress(Gone):
            self.call("Close")
        return self.process.wait(within)

    def vanish(self) -> None:
        """As a host that was killed: its connection drops, and nothing more is heard."""
        self._stop.set()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # a close alone waits for the thread that reads
        self.socket.close()

    def fall_silent(self) -> None:
        """As a host that was stopped: the connection stands, and nothing more is heard."""
        self._stop.set()

    def _listen(self) -> None:
        with suppress(OSError, ValueError):
            while block := self.socket.recv(65536):
                with self._sending:
                    answers = self._client.feed(block)
                    ready = self._client.data_to_send()
                    if ready:
                        self.socket.sendall(ready)
                with self._changed:
                    self._greeted = True
                    self._answers |= {answer.seq: answer for answer in answers}
                    self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()


@contextmanager
def a_plugin(
    *,
    argv: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    program: Sequence[str] = PLUGIN,
) -> Iterator[Plugin]:
    """A running plugin, dialled. Killed at the end, if it did not end by itself."""
    process = start(argv=argv, env=env, folder=folder, program=program)
    try:
        address = read_address(process)
        plugin = Plugin(process, address)
        _drain(process, plugin)
        yield plugin
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(10)


def start(
    *,
    argv: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    token: str = wire.TOKEN,
    program: Sequence[str] = PLUGIN,
) -> subprocess.Popen[bytes]:
    around = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", wire.NAME_ENV: "harvester", **(env or {})}
    if token:
        around[wire.TOKEN_ENV] = token
    return subprocess.Popen(
        [*program, *argv],
        env=around,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def read_address(process: subprocess.Popen[bytes]) -> tuple[str, int]:
    """From the first line, within the time that hosts allow."""
    started = time.monotonic()
    assert process.stdout is not None
    line = process.stdout.readline().decode().strip()
    assert time.monotonic() - started < ADDRESS_WITHIN_S
    host, _, port = line.rpartition(":")
    assert host == "127.0.0.1", (line, process.stderr and process.stderr.read())
    return host, int(port)


def _drain(process: subprocess.Popen[bytes], plugin: Plugin) -> None:
    def read(stream: Any, lines: list[str]) -> None:
        with suppress(ValueError, OSError):
            for line in stream:
                lines.append(line.decode().rstrip("\n"))

    for stream, lines in ((process.stdout, plugin.out), (process.stderr, plugin.err)):
        Thread(target=read, args=(stream, lines), daemon=True).start()
