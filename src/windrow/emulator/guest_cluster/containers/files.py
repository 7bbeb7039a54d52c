"""The filesystem of a container: a root of its own, and below the mount paths what the pod's volumes hold.

A volume is a tree of files: that of a claim, of a Secret or an empty directory, or a directory of the node itself
(hostPath), where what the container writes is written on the node.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from windrow.emulator.guest_os.hardware import Disk, File
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.storage import MountedVolume
from windrow.kubernetes.objects import Raw


class FileTree(Protocol):
    """Files by their path in the volume, which is "" where the volume is one file."""

    @property
    def read_only(self) -> bool: ...

    def find(self, path: str) -> File | None: ...

    def list_files(self, path: str) -> list[str]:
        """The file itself, or all files below the directory."""
        ...

    def is_directory(self, path: str) -> bool: ...

    def write(self, path: str, content: bytes, mode: int, owner: str) -> None: ...

    def remove(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None: ...


@dataclass(slots=True)
class StoredTree:
    """Files that are the volume's own: those of a Secret, a ConfigMap, an empty directory."""

    files: dict[str, File]
    read_only: bool = False

    def find(self, path: str) -> File | None:
        return self.files.get(path)

    def list_files(self, path: str) -> list[str]:
        if path in self.files:
            return [path]
        prefix = path.rstrip("/") + "/"
        return [name for name in self.files if name.startswith(prefix)]

    def is_directory(self, path: str) -> bool:
        return path in ("", "/") or bool(path not in self.files and self.list_files(path))

    def write(self, path: str, content: bytes, mode: int, owner: str) -> None:
        self.files[path] = File(content, mode, owner)

    def remove(self, path: str) -> bool:
        paths = self.list_files(path)
        for name in paths:
            del self.files[name]
        return bool(paths)

    def make_directory(self, path: str) -> None:
        """Directories without files are not kept."""


@dataclass(slots=True)
class VolumeTree:
    """The mounted volume of a claim. While the server of an NFS export does not answer, a real container waits until it is
    back; this one finds no file, and writes none."""

    volume: MountedVolume
    node: GuestOS

    @property
    def read_only(self) -> bool:
        return self.volume.read_only

    def _files(self) -> StoredTree:
        if self.volume.answers():
            return StoredTree(self.volume.disk.files)
        server = self.volume.source.rpartition(":")[0]
        self.node.log("kernel", f"nfs: server {server} not responding, still trying")
        return StoredTree({})

    def find(self, path: str) -> File | None:
        return self._files().find(path)

    def list_files(self, path: str) -> list[str]:
        return self._files().list_files(path)

    def is_directory(self, path: str) -> bool:
        return self._files().is_directory(path)

    def write(self, path: str, content: bytes, mode: int, owner: str) -> None:
        self._files().write(path, content, mode, owner)

    def remove(self, path: str) -> bool:
        return self._files().remove(path)

    def make_directory(self, path: str) -> None:
        """As above."""


@dataclass(slots=True)
class HostTree:
    """A directory or file of the node."""

    node: GuestOS
    source: str
    read_only: bool = False

    def host_path(self, path: str) -> str:
        """Where the node has it."""
        return posixpath.normpath("/" + f"{self.source}/{path}".lstrip("/"))

    def find(self, path: str) -> File | None:
        return self.node.find(self.host_path(path))

    def list_files(self, path: str) -> list[str]:
        start = len(self.source.rstrip("/"))
        return [name[start:] for name in self.node.list_files(self.host_path(path))]

    def is_directory(self, path: str) -> bool:
        return self.node.is_directory(self.host_path(path))

    def write(self, path: str, content: bytes, mode: int, owner: str) -> None:
        self.node.budget.check_disk(len(content))
        self.node.write(self.host_path(path), content, mode, owner)

    def remove(self, path: str) -> bool:
        return self.node.remove(self.host_path(path))

    def make_directory(self, path: str) -> None:
        self.node.make_directory(self.host_path(path))


@dataclass(frozen=True, slots=True)
class Mount:
    """One volumeMount: where the container has which part of a volume."""

    path: str
    tree: FileTree
    read_only: bool = False
    sub_path: str = ""

    def inner(self, path: str) -> str:
        """The path in the volume."""
        rest = path[len(self.path.rstrip("/")) :]
        return f"/{self.sub_path}{rest}" if self.sub_path else rest

    def covers(self, path: str) -> bool:
        return path == self.path or path.startswith(self.path.rstrip("/") + "/")


def list_mounts(container: Raw, trees: Mapping[str, FileTree]) -> list[Mount]:
    """The mounts of the container whose volumes are there."""
    return [
        Mount(
            posixpath.normpath(one["mountPath"]),
            tree,
            bool(one.get("readOnly")) or tree.read_only,
            str(one.get("subPath") or "").strip("/"),
        )
        for one in container.get("volumeMounts") or ()
        if (tree := trees.get(one["name"])) is not None
    ]


def find_mount(mounts: Iterable[Mount], path: str) -> Mount | None:
    """The mount that has the path, of several the innermost."""
    path = posixpath.normpath(path)
    covering = [one for one in mounts if one.covers(path)]
    return max(covering, key=lambda one: len(one.path), default=None)


def find_host_path(mounts: Iterable[Mount], path: str) -> str | None:
    """What the container has at the path, as a path of the node; None where it is not the node's."""
    mount = find_mount(mounts, path)
    if mount is None or not isinstance(mount.tree, HostTree):
        return None
    return mount.tree.host_path(mount.inner(posixpath.normpath(path)))


class ContainerOS(GuestOS):
    """What a container sees of files; network, clock and power are those of its node."""

    def __init__(self, node: GuestOS, mounts: Sequence[Mount], hostname: str = "") -> None:
        super().__init__(replace(node.hardware, root=Disk(), disks=()), node.host, node.delays, node.spawn)
        self.mounts = tuple(mounts)
        self.addresses, self.addresses_changed = node.addresses, node.addresses_changed
        super().write("/etc/hostname", hostname.encode() or node.hostname.encode())
        for one in mounts:
            super().make_directory(one.path)

    def find(self, path: str) -> File | None:
        path = posixpath.normpath(path)
        mount = find_mount(self.mounts, path)
        return super().find(path) if mount is None else mount.tree.find(mount.inner(path))

    def write(self, path: str, content: bytes, mode: int = 0o644, owner: str = "root:root") -> None:
        path = posixpath.normpath(path)
        mount = find_mount(self.mounts, path)
        if mount is None:
            super().write(path, content, mode, owner)
        elif self._may_write(mount, path):
            mount.tree.write(mount.inner(path), content, mode, owner)

    def append(self, path: str, content: bytes) -> None:
        old = self.find(path)
        before = b"" if old is None else old.content
        self.write(path, before + content, 0o644 if old is None else old.mode)

    def remove(self, path: str) -> bool:
        path = posixpath.normpath(path)
        mount = find_mount(self.mounts, path)
        if mount is None:
            return super().remove(path)
        return self._may_write(mount, path) and mount.tree.remove(mount.inner(path))

    def is_directory(self, path: str) -> bool:
        path = posixpath.normpath(path)
        mount = find_mount(self.mounts, path)
        if mount is None:
            return super().is_directory(path)
        return mount.tree.is_directory(mount.inner(path))

    def make_directory(self, path: str) -> None:
        path = posixpath.normpath(path)
        mount = find_mount(self.mounts, path)
        if mount is None:
            super().make_directory(path)
        elif self._may_write(mount, path):
            mount.tree.make_directory(mount.inner(path))

    def list_under(self, path: str) -> list[str]:
        prefix = posixpath.normpath(path).rstrip("/") + "/"
        own = (name for name in super().list_under(path) if find_mount(self.mounts, name) is None)
        return sorted({*own, *(name for name in self._mounted_paths(prefix))})

    def _mounted_paths(self, prefix: str) -> set[str]:
        found: set[str] = set()
        for mount in self.mounts:
            if mount.covers(prefix.rstrip("/") or "/"):
                names = mount.tree.list_files(mount.inner(prefix.rstrip("/")))
            elif mount.path.startswith(prefix):
                names = mount.tree.list_files(mount.inner(mount.path))
            else:
                continue
            skipped = len(f"/{mount.sub_path}") if mount.sub_path else 0
            paths = (posixpath.normpath(mount.path + "/" + name[skipped:].lstrip("/")) for name in names)
            found.update(
                one for one in paths if one.startswith(prefix) and find_mount(self.mounts, one) is mount
            )
        return found

    def _may_write(self, mount: Mount, path: str) -> bool:
        if mount.read_only:
            self.console(f"cannot write {path}: Read-only file system")
        return not mount.read_only
