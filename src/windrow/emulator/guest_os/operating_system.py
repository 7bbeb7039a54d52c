"""The operating system of a simulated machine while it is powered on: its files, console, network and clock.

It exists for one power-on. State that must outlive it is kept on the root disk.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from ipaddress import ip_interface
from typing import TYPE_CHECKING, Any

from windrow.core.clock import sleep
from windrow.emulator.guest_os.budget import ScriptBudget
from windrow.emulator.guest_os.delays import GuestDelays
from windrow.emulator.guest_os.hardware import BlockDevice, File, Hardware, HostInterface
from windrow.emulator.guest_os.kernel_files import list_disk_files, list_kernel_files
from windrow.emulator.guest_os.notifier import Notifier
from windrow.emulator.guest_os.storage import NodeStorage

if TYPE_CHECKING:
    from windrow.emulator.guest_os.shell.run import Command

Spawn = Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]


_JOURNAL_LINES = 50


class GuestOS:
    """One running operating system. `spawn` starts a task that is cancelled when the machine loses power."""

    def __init__(self, hardware: Hardware, host: HostInterface, delays: GuestDelays, spawn: Spawn) -> None:
        self.hardware = hardware
        self.host = host
        self.delays = delays
        self.spawn = spawn
        self.addresses: dict[str, tuple[str, ...]] = {}
        self.subnets: dict[str, tuple[str, ...]] = {}  # the networks on the link of each interface
        self.files_changed = Notifier()  # notified when a file is written or removed
        self.addresses_changed = Notifier()  # notified when an address is added or removed
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.storage = NodeStorage(lambda: self.hardware.disks, Notifier())
        self.kernel_files = {path: File(text, 0o444) for path, text in list_kernel_files(hardware).items()}
        self.kernel_parameters: dict[str, str] = {}  # parameters that were set since power-on
        self.commands: dict[str, Command] = {}  # what its shells can run; the machine fills it at boot
        self.budget = ScriptBudget(self.monotonic, hardware.root)
        self.journal: dict[str, deque[tuple[datetime, str]]] = {}  # the last lines of each service
        self._booted = self.monotonic()
        self._repeats: dict[str, dict[str, int]] = {}

    # -- time and console

    def now(self) -> datetime:
        """The wall clock, for stamps and certificates."""
        return self.host.clock.now()

    def monotonic(self) -> timedelta:
        """The monotonic clock, by which everything in the guest becomes due."""
        return self.host.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of simulated time, divided by the host's time scale."""
        if seconds > 0:
            await sleep(self.host.clock, self.scaled(seconds))

    def scaled(self, seconds: float) -> timedelta:
        """`seconds` of simulated time, divided by the host's time scale."""
        return timedelta(seconds=seconds / self.host.time_scale)

    def console(self, line: str) -> None:
        """Write lines on the serial console, each with the machine's uptime, as kernels do."""
        uptime = (self.monotonic() - self._booted).total_seconds() * self.host.time_scale
        for part in line.splitlines() or [""]:
            self.host.console(f"[{uptime:8.1f}] {part}")

    def log(self, service: str, line: str) -> None:
        """A log line of `service`. Until the service logs another line, a repeated one is shown the 1st, the 2nd and
        then every 60th time."""
        self.journal.setdefault(service, deque(maxlen=_JOURNAL_LINES)).append((self.now(), line))
        counts = self._repeats.setdefault(service, {})
        if line not in counts:
            counts.clear()
        counts[line] = count = counts.get(line, 0) + 1
        if count <= 2 or count % 60 == 0:
            self.console(f"{service}: {line}" + (f" (repeated {count} times)" if count >= 60 else ""))

    def request_shutdown(self, kind: str) -> None:
        """End this power-on from within the guest: "poweroff" or "reboot"."""
        if not self.ended.done():
            self.ended.set_result("reboot" if kind == "reboot" else "poweroff")

    def has_power(self) -> bool:
        """Whether this power-on goes on: it ends when it is shut down or reset, and when power is cut."""
        return not self.ended.done()

    # -- disks

    def change_disks(self, disks: tuple[BlockDevice, ...]) -> None:
        """The kernel and udev notice which disks there are now."""
        for path in list_disk_files(self.hardware.disks):
            self.kernel_files.pop(path, None)
        self.hardware = replace(self.hardware, disks=disks)
        for path, text in list_disk_files(disks).items():
            self.kernel_files[path] = File(text, 0o444)
        self.files_changed.notify()
        self.storage.changed.notify()

    # -- network

    @property
    def address(self) -> str:
        """The address of the first interface that has one, "" without network."""
        for nic in self.hardware.nics:
            if found := self.addresses.get(nic.name):
                return found[0]
        return ""

    def add_subnet(self, interface: str, address: str) -> None:
        """The network of `address`, which has a prefix length, is on the link of the interface. May be repeated."""
        found = str(ip_interface(address).network)
        self.subnets[interface] = tuple(dict.fromkeys((*self.subnets.get(interface, ()), found)))

    def add_address(self, interface: str, address: str) -> None:
        """One more address on an interface, which is made when it is not there. May be repeated."""
        before = self.addresses.get(interface, ())
        if address not in before:
            self.addresses[interface] = (*before, address)
            self.addresses_changed.notify()

    def remove_address(self, interface: str, address: str) -> None:
        """The interface has the address no more. May be repeated."""
        before = self.addresses.get(interface, ())
        if address in before:
            self.addresses[interface] = tuple(one for one in before if one != address)
            self.addresses_changed.notify()

    @property
    def hostname(self) -> str:
        return (self.read("/etc/hostname") or b"localhost").decode().strip()

    # -- files

    def find(self, path: str) -> File | None:
        path = posixpath.normpath(path)
        return self.hardware.root.files.get(path) or self.kernel_files.get(path)

    def read(self, path: str) -> bytes | None:
        found = self.find(path)
        return None if found is None else found.content

    def read_text(self, path: str) -> str:
        """The text of a file, "" where there is none."""
        return (self.read(path) or b"").decode("utf-8", "replace")

    def write(self, path: str, content: bytes, mode: int = 0o644, owner: str = "root:root") -> None:
        self.hardware.root.files[posixpath.normpath(path)] = File(content, mode, owner)
        self.files_changed.notify()

    def append(self, path: str, content: bytes) -> None:
        old = self.find(path)
        if old is None:
            self.write(path, content)
        else:
            old.content += content
            self.files_changed.notify()

    def exists(self, path: str) -> bool:
        return self.is_file(path) or self.is_directory(path)

    def is_file(self, path: str) -> bool:
        return self.find(path) is not None

    def is_directory(self, path: str) -> bool:
        path = posixpath.normpath(path)
        if path == "/" or path in self._directories or path in _IMAGE_DIRECTORIES:
            return True
        names = (*self.hardware.root.files, *self._directories, *self.kernel_files)
        return any(name.startswith(path + "/") for name in names)

    def make_directory(self, path: str) -> None:
        self._directories.add(posixpath.normpath(path))

    def list_under(self, path: str) -> list[str]:
        """Paths of all files below a directory, sorted."""
        prefix = posixpath.normpath(path).rstrip("/") + "/"
        names = {*self.hardware.root.files, *self.kernel_files}
        return sorted(name for name in names if name.startswith(prefix))

    def list_files(self, path: str) -> list[str]:
        """The path of the file itself, or of all files below the directory, as the disk has them."""
        return [posixpath.normpath(path)] if self.is_file(path) else self.list_under(path)

    def remove(self, path: str) -> bool:
        """Remove a file or a whole directory; False when there was nothing. What is the kernel's stays."""
        path = posixpath.normpath(path)
        paths = [name for name in self.list_files(path) if name in self.hardware.root.files]
        for name in paths:
            del self.hardware.root.files[name]
        directories = {name for name in self._directories if name == path or name.startswith(path + "/")}
        self._directories.difference_update(directories)
        self.files_changed.notify()
        return bool(paths or directories)

    @property
    def _directories(self) -> set[str]:
        found: set[str] = self.hardware.root.state.setdefault("directories", set())
        return found


_IMAGE_PATHS = (
    "/bin /boot /dev /etc /etc/systemd /etc/systemd/system /home /lib /opt /proc /root /run "
    "/run/systemd/system /sbin /srv /sys /tmp /usr /usr/bin /usr/local /usr/local/bin /usr/local/lib "
    "/var /var/lib /var/log /var/tmp"
)
_IMAGE_DIRECTORIES = frozenset(_IMAGE_PATHS.split())
