"""The operating system of a simulated machine while it is powered on: its files, console, network and clock.

It lives for one power-on. What must outlive that stands in the root disk.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, Protocol

from windrow.core.clock import sleep
from windrow.emulator.guests.delays import GuestDelays
from windrow.emulator.guests.hardware import File, Hardware, Wires
from windrow.emulator.guests.pulse import Pulse


class Spawn(Protocol):
    """Starts a task that lives no longer than the machine's power."""

    def __call__(self, work: Coroutine[Any, Any, None], name: str) -> Any: ...


class Box:
    """One running operating system."""

    def __init__(self, hardware: Hardware, wires: Wires, delays: GuestDelays, spawn: Spawn) -> None:
        self.hardware = hardware
        self.wires = wires
        self.delays = delays
        self.spawn = spawn
        self.addresses: dict[str, tuple[str, ...]] = {}
        self.subnets: dict[str, str] = {}  # the network that an interface's first address is in
        self.moved = Pulse()  # told when an address comes or goes
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.kernel: dict[str, str] = {}  # parameters that were set since power-on
        self._booted = self.now()
        self._said: dict[str, dict[str, int]] = {}

    # -- time and console

    def now(self) -> datetime:
        return self.wires.clock.now()

    async def pause(self, seconds: float) -> None:
        """Let `seconds` of simulated time pass, faster or slower by the wires' speed."""
        if seconds > 0:
            await sleep(self.wires.clock, timedelta(seconds=seconds / self.wires.speed))

    def console(self, line: str) -> None:
        """Lines on the serial console, each with the machine's uptime, as kernels stamp them."""
        uptime = (self.now() - self._booted).total_seconds() * self.wires.speed
        for part in line.splitlines() or [""]:
            self.wires.console(f"[{uptime:8.1f}] {part}")

    def say(self, who: str, line: str) -> None:
        """A log line of service `who`. While it has nothing new to say, a line that it repeats is shown the 1st, 2nd
        and then every 60th time."""
        said = self._said.setdefault(who, {})
        if line not in said:
            said.clear()
        said[line] = count = said.get(line, 0) + 1
        if count <= 2 or count % 60 == 0:
            self.console(f"{who}: {line}" + (f" (repeated {count} times)" if count >= 60 else ""))

    def power(self, verb: str) -> None:
        """The guest asks for its own end: "poweroff" or "reboot"."""
        if not self.ended.done():
            self.ended.set_result("reboot" if verb == "reboot" else "poweroff")

    # -- network

    @property
    def address(self) -> str:
        """The address of the first interface that has one, "" without network."""
        for nic in self.hardware.nics:
            if found := self.addresses.get(nic.name):
                return found[0]
        return ""

    def bind(self, interface: str, address: str) -> None:
        """One more address on an interface, which is made when it is not there. May be repeated."""
        held = self.addresses.get(interface, ())
        if address not in held:
            self.addresses[interface] = (*held, address)
            self.moved.tell()

    def unbind(self, interface: str, address: str) -> None:
        """The interface has the address no more. May be repeated."""
        held = self.addresses.get(interface, ())
        if address in held:
            self.addresses[interface] = tuple(one for one in held if one != address)
            self.moved.tell()

    @property
    def hostname(self) -> str:
        return (self.read("/etc/hostname") or b"localhost").decode().strip()

    # -- files

    def find(self, path: str) -> File | None:
        return self.hardware.root.files.get(posixpath.normpath(path))

    def read(self, path: str) -> bytes | None:
        found = self.find(path)
        return None if found is None else found.content

    def write(self, path: str, content: bytes, mode: int = 0o644, owner: str = "root:root") -> None:
        self.hardware.root.files[posixpath.normpath(path)] = File(content, mode, owner)

    def append(self, path: str, content: bytes) -> None:
        old = self.find(path)
        if old is None:
            self.write(path, content)
        else:
            old.content += content

    def exists(self, path: str) -> bool:
        return self.is_file(path) or self.is_directory(path)

    def is_file(self, path: str) -> bool:
        return posixpath.normpath(path) in self.hardware.root.files

    def is_directory(self, path: str) -> bool:
        path = posixpath.normpath(path)
        if path == "/" or path in self._directories or path in _STANDING:
            return True
        return any(name.startswith(path + "/") for name in (*self.hardware.root.files, *self._directories))

    def make_directory(self, path: str) -> None:
        self._directories.add(posixpath.normpath(path))

    def list_under(self, path: str) -> list[str]:
        """Paths of all files below a directory, sorted."""
        prefix = posixpath.normpath(path).rstrip("/") + "/"
        return sorted(name for name in self.hardware.root.files if name.startswith(prefix))

    def remove(self, path: str) -> bool:
        """Remove a file or a whole directory; False when there was nothing."""
        path = posixpath.normpath(path)
        doomed = [path] if self.is_file(path) else self.list_under(path)
        for name in doomed:
            self.hardware.root.files.pop(name, None)
        gone = {name for name in self._directories if name == path or name.startswith(path + "/")}
        self._directories.difference_update(gone)
        return bool(doomed or gone)

    @property
    def _directories(self) -> set[str]:
        found: set[str] = self.hardware.root.state.setdefault("directories", set())
        return found


_STANDING = frozenset(
    [
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/etc/systemd",
        "/etc/systemd/system",
        "/home",
        "/lib",
        "/opt",
        "/proc",
        "/root",
        "/run",
        "/run/systemd/system",
        "/sbin",
        "/srv",
        "/sys",
        "/tmp",
        "/usr",
        "/usr/bin",
        "/usr/local",
        "/usr/local/bin",
        "/usr/local/lib",
        "/var",
        "/var/lib",
        "/var/log",
        "/var/tmp",
    ]
)
