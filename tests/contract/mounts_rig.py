"""The adapter of Mounts for Linux, in a mount namespace of its own with loop devices; a process that ends takes all with it.

`namespace_rig` starts that process and sends it what the tests call; run as a program, this module is that process. The disks'
serials and their names in by-id are files of the test, in the form in which the kernel and udev have them.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import tests
from tests.support.loop_devices import LoopDevice

from windrow.app.clock import SystemClock
from windrow.core.errors import UserError
from windrow.csi.mounts.devices import Device, DeviceTree
from windrow.csi.mounts.formatting import Formatting, FormattingRecords
from windrow.csi.mounts.linux.mounts import LinuxMounts
from windrow.csi.mounts.mountinfo import parse_mountinfo
from windrow.csi.mounts.port import FilesystemMount, NetworkShare, VolumeDevice

_LENGTH = struct.Struct(">I")
_NAMESPACE = ("unshare", "--mount", "--propagation", "private", "--")
_TOOLS = ("unshare", "blkid", "mkfs.ext4", "mkfs.ext3", "fsck", "resize2fs")
_CAP_SYS_RESOURCE = 24
MIB = 1 << 20
DEVICE_TIMEOUT = timedelta(milliseconds=200)


def why_not() -> str:
    """Why there can be no loop devices in a namespace here; empty if they can."""
    if os.geteuid() != 0:
        return "mounts of loop devices need root"
    if missing := [tool for tool in _TOOLS if not shutil.which(tool)]:
        return f"mounts of loop devices need {', '.join(missing)}"
    if not os.path.exists("/dev/loop-control"):
        return "mounts of loop devices need /dev/loop-control"
    tried = subprocess.run([*_NAMESPACE, "true"], capture_output=True, text=True, check=False)
    return f"no mount namespace can be made here: {tried.stderr.strip()}" if tried.returncode else ""


def can_grow_ext4() -> bool:
    """Whether a mounted ext4 can be grown here: the kernel asks for CAP_SYS_RESOURCE."""
    status = Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)


class LinuxRig:
    """The adapter and its disks; what a test does with them has to happen in this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._dev, self._sys = folder / "dev", folder / "sys"
        self._disks: dict[str, LoopDevice] = {}
        for made in (self._dev / "disk/by-id", self._sys / "class/block", self._sys / "dev/block"):
            made.mkdir(parents=True)
        self.mounts = self._new_mounts()

    def _new_mounts(self) -> LinuxMounts:
        devices = DeviceTree(self._dev, self._sys)
        # Kernels of test machines have no NFS; ramfs takes its options, and shows the source that it was given.
        return LinuxMounts(SystemClock(), self._folder / "formatting", devices, DEVICE_TIMEOUT, "ramfs")

    def restart(self) -> None:
        self.mounts = self._new_mounts()

    def attach(self, volume: VolumeDevice, size: int, content: str = "") -> None:
        disk = LoopDevice(self._folder / f"disk{len(self._disks)}", size)
        self._disks[volume.volume_id] = disk
        self._add_device(disk, volume)
        if content:
            self.put(volume, content)

    def _add_device(self, disk: LoopDevice, volume: VolumeDevice) -> None:
        number = os.stat(disk.path).st_rdev
        numbers = f"{os.major(number)}:{os.minor(number)}"
        block = self._sys / "class/block" / disk.name
        block.mkdir()
        (block / "dev").write_text(f"{numbers}\n")
        (block / "diskseq").symlink_to(f"/sys/class/block/{disk.name}/diskseq")
        if volume.serial:
            (block / "serial").write_text(f"{volume.serial}\n")
        (self._sys / "dev/block" / numbers).symlink_to(f"../../class/block/{disk.name}")
        (self._dev / disk.name).symlink_to(disk.path)
        ending = volume.serial or f"drive-ua-{volume.volume_id}"
        (self._dev / "disk/by-id" / f"scsi-0QEMU_QEMU_HARDDISK_{ending}").symlink_to(f"../../{disk.name}")

    def put(self, volume: VolumeDevice, content: str) -> None:
        """Something is on the disk: a filesystem, a partition table, or what blkid does not know."""
        path = self._disks[volume.volume_id].path
        if content == "dos":
            subprocess.run(["sfdisk", "-q", path], input=b",,L\n", check=True, capture_output=True)
        elif content == "unknown":
            self.write_raw(volume, 4096, b"rows of a database")
        else:
            force = {"xfs": "-f"}.get(content, "-F")
            subprocess.run([f"mkfs.{content}", "-q", force, path], check=True, capture_output=True)

    def write_raw(self, volume: VolumeDevice, offset: int, data: bytes) -> None:
        with open(self._disks[volume.volume_id].path, "r+b", buffering=0) as file:
            file.seek(offset)
            file.write(data)
            os.fsync(file.fileno())

    def read_raw(self, volume: VolumeDevice, offset: int, size: int) -> bytes:
        with open(self._disks[volume.volume_id].path, "rb", buffering=0) as file:
            file.seek(offset)
            return file.read(size)

    def content(self, volume: VolumeDevice) -> str:
        """What blkid names: a type, or that of a partition table."""
        command = [
            "blkid",
            "-p",
            "-o",
            "value",
            "-s",
            "TYPE",
            "-s",
            "PTTYPE",
            self._disks[volume.volume_id].path,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def cut(self, volume: VolumeDevice, size: int) -> None:
        """Reads beyond `size` bytes fail, as of a disk with unreadable sectors."""
        disk = self._disks[volume.volume_id]
        os.truncate(disk.file, size)
        subprocess.run(["blockdev", "--flushbufs", disk.path], check=True)

    def exchange(self, volume: VolumeDevice, other: VolumeDevice, size: int) -> None:
        """Once, after the volume's disk was found and before it is opened: another volume's disk has taken its place."""
        opened = self.mounts._disks.opened

        def exchanged(*args: Any) -> Any:
            del self.mounts._disks.opened  # type: ignore[attr-defined]
            self.detach(volume)
            self.attach(other, size, "ext4")
            return opened(*args)

        self.mounts._disks.opened = exchanged  # type: ignore[method-assign]

    def resize(self, volume: VolumeDevice, size: int) -> None:
        self._disks[volume.volume_id].resize(size)

    def hold_lock(self, volume: VolumeDevice, seconds: str) -> None:
        """Another program locks the disk."""
        path = self._disks[volume.volume_id].path
        subprocess.Popen(["flock", "--no-fork", path, "sleep", seconds])
        while subprocess.run(["flock", "-n", path, "true"], check=False).returncode == 0:
            pass

    async def stage_both(self, one: VolumeDevice, other: VolumeDevice, path: str) -> list[str]:
        """Two volumes at one path at once: the names of the errors."""
        calls = [self.mounts.stage(volume, path, FilesystemMount("ext4")) for volume in (one, other)]
        return [type(found).__name__ for found in await asyncio.gather(*calls, return_exceptions=True)]

    def serve(self, share: NetworkShare) -> None:
        """The server of the share answers: nothing to do."""

    def mount_tmpfs(self, path: str) -> None:
        os.makedirs(path)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=True)

    def mount_by_go(self, volume: VolumeDevice, target: str) -> None:
        """The filesystem is mounted at the target directly, as the Go driver does it."""
        os.makedirs(target, exist_ok=True)
        subprocess.run(["mount", self._disks[volume.volume_id].path, target], check=True)

    def bind_by_go(self, volume: VolumeDevice, target: str) -> None:
        """The block device is mounted at the target once more, as the Go driver does it."""
        Path(target).touch()
        subprocess.run(["mount", "--bind", self._disks[volume.volume_id].path, target], check=True)

    def set_superblock(self, volume: VolumeDevice, field: str, value: str) -> None:
        """Change a field of the superblock of an ext4, checksum included."""
        path = self._disks[volume.volume_id].path
        command = ["debugfs", "-w", "-R", f"set_super_value {field} {value}", path]
        subprocess.run(command, check=True, capture_output=True)

    def mounted(self, path: str) -> list[str]:
        """What is stacked at the path: "rw" or "ro" for each mount."""
        found = parse_mountinfo(Path("/proc/self/mountinfo").read_bytes())
        return ["ro" if one.read_only else "rw" for one in found if one.path == path]

    def options(self, path: str) -> list[str]:
        found = parse_mountinfo(Path("/proc/self/mountinfo").read_bytes())
        return sorted(next(one.options for one in found if one.path == path))

    def write(self, path: str, text: str) -> None:
        Path(path).write_text(text)

    def read(self, path: str) -> str:
        return Path(path).read_text()

    def is_block(self, path: str) -> bool:
        return Path(path).is_block_device()

    def record_mkfs(self, volume: VolumeDevice) -> None:
        """A driver that was killed while mkfs ran, which ended by itself: its record is there."""
        device = Device(self._disks[volume.volume_id].name, "")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        sequence = DeviceTree(self._dev, self._sys).sequence(device)
        FormattingRecords(self._folder / "formatting").write(
            Formatting(volume.volume_id, device.name, sequence, boot)
        )

    def start_mkfs(self, volume: VolumeDevice, stop: int) -> None:
        """A driver and its mkfs that were killed: the record is there, and part of what mkfs writes."""
        self.record_mkfs(volume)
        self.write_raw(volume, stop, b"group descriptors")

    def detach(self, volume: VolumeDevice) -> None:
        """The disk goes away, and its content stays in its file."""
        disk = self._disks.pop(volume.volume_id)
        for link in (self._dev / disk.name, *(self._dev / "disk/by-id").iterdir()):
            if os.path.basename(os.readlink(link)) == disk.name:
                link.unlink()
        number = os.stat(disk.path).st_rdev
        (self._sys / "dev/block" / f"{os.major(number)}:{os.minor(number)}").unlink()
        shutil.rmtree(self._sys / "class/block" / disk.name)
        disk.close()

    def attach_again(self, volume: VolumeDevice, file: str) -> None:
        """The same disk is attached anew."""
        disk = LoopDevice(self._folder / file, None)
        self._disks[volume.volume_id] = disk
        self._add_device(disk, volume)

    def records(self) -> int:
        folder = self._folder / "formatting"
        return len(os.listdir(folder)) if folder.exists() else 0

    def close(self) -> None:
        for disk in self._disks.values():
            disk.close()


class _Remote:
    """Sends each call to the process of the namespace."""

    def __init__(self, process: asyncio.subprocess.Process, subject: str) -> None:
        self._process = process
        self._subject = subject

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            message = pickle.dumps((self._subject, name, args, kwargs))
            self._process.stdin.write(_LENGTH.pack(len(message)) + message)
            (length,) = _LENGTH.unpack(await self._process.stdout.readexactly(_LENGTH.size))
            kind, *rest = pickle.loads(await self._process.stdout.readexactly(length))
            if kind == "error":
                raise _error(*rest)
            return rest[0]

        return call


class NamespaceRig(_Remote):
    """A LinuxRig in another process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process, "rig")
        self.mounts = _Remote(process, "mounts")


@asynccontextmanager
async def namespace_rig(folder: Path) -> AsyncIterator[NamespaceRig]:
    """A process in a mount namespace with a LinuxRig in `folder`."""
    process = await asyncio.create_subprocess_exec(
        *(*_NAMESPACE, sys.executable, "-m", __name__, os.fspath(folder)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(tests.__path__[0]).parent,
    )
    try:
        yield NamespaceRig(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def _error(module: str, name: str, message: str, hint: str) -> Exception:
    kind = getattr(import_module(module), name)
    error = kind.__new__(kind)
    if isinstance(error, UserError):
        UserError.__init__(error, message, hint)
        return error
    return AssertionError(f"{name} in the namespace: {message}")


async def _serve(folder: Path) -> None:
    rig = LinuxRig(folder)
    for subject, name, args, kwargs in _requests():
        target = rig.mounts if subject == "mounts" else rig
        try:
            result = getattr(target, name)(*args, **kwargs)
            answer: tuple[Any, ...] = ("done", await result if asyncio.iscoroutine(result) else result)
        except Exception as error:
            kind = type(error)
            texts = (error.message, error.hint) if isinstance(error, UserError) else (repr(error), "")
            answer = ("error", kind.__module__, kind.__name__, *texts)
        message = pickle.dumps(answer)
        sys.stdout.buffer.write(_LENGTH.pack(len(message)) + message)
        sys.stdout.buffer.flush()
    rig.close()


def _requests() -> Iterator[Any]:
    while header := sys.stdin.buffer.read(_LENGTH.size):
        yield pickle.loads(sys.stdin.buffer.read(_LENGTH.unpack(header)[0]))


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]).resolve()))
