"""The NFS servers of the simulated network: which volumes are exported where, and what a client is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.emulator.guest_os.hardware import Disk

REFUSED = "mount.nfs: Connection refused"
TIMED_OUT = "mount.nfs: Connection timed out"


@dataclass(frozen=True, slots=True)
class NfsExport:
    """One volume that is exported: its data, and how large it is now."""

    disk: Disk
    size: Callable[[], int]


class MountRefused(Exception):
    """The message is what mount.nfs prints."""


class NfsServers:
    """Exports by the address of their server and their path. An address is known while its Service is there."""

    def __init__(self) -> None:
        self._exports: dict[tuple[str, str], NfsExport] = {}
        self._addresses: dict[str, str] = {}  # by path

    def serve(self, address: str, path: str, export: NfsExport) -> None:
        """Export a volume at this address and no other. May be repeated."""
        self.stop(path)
        self._addresses[path] = address
        self._exports[address, path] = export

    def stop(self, path: str) -> None:
        """Nothing answers for the volume any more; its address stays. May be repeated."""
        self._exports.pop((self._addresses.get(path, ""), path), None)

    def forget(self, path: str) -> None:
        """The volume's address is gone as well. May be repeated."""
        self.stop(path)
        self._addresses.pop(path, None)

    def find(self, address: str, path: str) -> NfsExport | None:
        return self._exports.get((address, path))

    def mount(self, address: str, path: str) -> NfsExport:
        """What the address exports. Raises MountRefused."""
        found = self.find(address, path)
        if found is not None:
            return found
        if any(server == address for server, _ in self._exports):
            raise MountRefused(
                f"mount.nfs: mounting {address}:{path} failed, reason given by server: No such file or directory"
            )
        raise MountRefused(REFUSED if address in self._addresses.values() else TIMED_OUT)
