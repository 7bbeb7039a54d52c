"""What a simulated machine has of storage while it is powered on: its disks, what is mounted, and the sockets of drivers.

Nothing is mounted but by the simulated mounter of a CSI driver. The data of a mounted volume are those of its disk, which
follow the claim on Harvester, or those of the disk behind an NFS export, which several machines may have mounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from windrow.emulator.guest_cluster.csi.port import CsiCall, CsiFailed
from windrow.emulator.guest_os.hardware import BlockDevice, Disk
from windrow.emulator.guest_os.notifier import Notifier
from windrow.kubernetes.objects import Raw


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """What is seen at a path: the filesystem on a disk, `disk.files` by their path in it, or the disk itself.

    `source` says of which server an NFS export is mounted, as `server:/path`; `answers` whether that server answers.
    """

    disk: Disk
    read_only: bool = False
    block: bool = False
    source: str = ""
    answers: Callable[[], bool] = field(default=lambda: True, compare=False, repr=False)


class MountTable:
    """What is mounted where, the latest on top."""

    def __init__(self) -> None:
        self._mounted: dict[str, MountedVolume] = {}

    def find(self, path: str) -> MountedVolume | None:
        """What is mounted at exactly this path."""
        return self._mounted.get(path)

    def mount(self, path: str, volume: MountedVolume) -> None:
        self._mounted[path] = volume

    def unmount(self, path: str) -> None:
        """May be repeated."""
        self._mounted.pop(path, None)

    def paths_of(self, disk: Disk) -> list[str]:
        """Where this disk is mounted."""
        return [path for path, mounted in self._mounted.items() if mounted.disk is disk]


class NodeStorage:
    """The storage of one machine since power-on. `changed` is notified when a disk or a socket comes or goes."""

    def __init__(self, list_disks: Callable[[], tuple[BlockDevice, ...]], changed: Notifier) -> None:
        self.list_disks = list_disks
        self.mounts = MountTable()
        self.changed = changed
        self.kubelet_volumes: dict[str, Any] = {}  # what the kubelet finds mounted when it is started again
        self.kubelet_containers: dict[str, Any] = {}  # likewise the containers, by the uid of their pod
        # Programs that run as containers, by cluster and pod: the distribution's service ends without them.
        self.chart_pods: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._sockets: dict[str, CsiCall] = {}

    def listen(self, path: str, call: CsiCall) -> None:
        """Serve a driver at a socket. One that is there is replaced."""
        self._sockets[path] = call
        self.changed.notify()

    def close(self, path: str, call: CsiCall) -> None:
        """The driver's process has ended; the socket of the next one stays."""
        if self._sockets.get(path) is call:
            del self._sockets[path]
            self.changed.notify()

    def is_listening(self, path: str) -> bool:
        return path in self._sockets

    def dial(self, path: str) -> CsiCall:
        """Calls on whatever serves the socket at the moment of each call."""

        async def call(method: str, request: Raw) -> Raw:
            found = self._sockets.get(path)
            if found is None:
                raise CsiFailed(
                    "UNAVAILABLE",
                    "connection error: desc = "
                    f'"transport: Error while dialing: dial unix {path}: connect: no such file or directory"',
                )
            return await found(method, request)

        return call
