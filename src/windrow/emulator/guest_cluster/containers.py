"""Containers that run a shell script: `command: [sh, -c, "…"]`, with the mounted volumes of their pod.

Every other image or command stands for a program that runs and does nothing. A script runs once for each start of its pod, in
the machine's simulated shell, on an empty filesystem of its own; what it writes below a `mountPath` is written to the volume,
whose data follow its claim on Harvester. The answer of a pod over HTTP has the text of the file that the variable
`SERVE_FILE` of its container names, so that something outside can read a volume.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_os.hardware import Disk, File
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.shell.commands import FILE_AND_TEXT_COMMANDS
from windrow.emulator.guest_os.shell.run import Shell
from windrow.emulator.guest_os.storage import MountedVolume
from windrow.emulator.kit.listers import key_of
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested, uid_of

SERVE_FILE = "SERVE_FILE"
_SHELLS = ("sh", "bash", "ash")


def scripts_of(pod: Raw) -> list[Raw]:
    """The containers of the pod that run a script, those of its initialisation first."""
    containers = [
        *nested(pod, "spec", "initContainers", default=[]),
        *nested(pod, "spec", "containers", default=[]),
    ]
    return [one for one in containers if _is_script(_words(one))]


def _words(container: Raw) -> list[str]:
    return [str(one) for one in (*(container.get("command") or ()), *(container.get("args") or ()))]


def _is_script(words: Sequence[str]) -> bool:
    return len(words) > 2 and posixpath.basename(words[0]) in _SHELLS and words[1].startswith("-")


def _variables(container: Raw) -> dict[str, str]:
    return {str(one["name"]): str(one.get("value") or "") for one in container.get("env") or ()}


@dataclass(frozen=True, slots=True)
class _Mount:
    path: str
    volume: MountedVolume
    read_only: bool


class ContainerOS(GuestOS):
    """What a container sees: a root filesystem of its own, and volumes below their mount paths."""

    def __init__(self, node: GuestOS, mounts: Sequence[_Mount]) -> None:
        super().__init__(replace(node.hardware, root=Disk(), disks=()), node.host, node.delays, node.spawn)
        self._mounts = sorted(mounts, key=lambda one: -len(one.path))
        for one in mounts:
            self.make_directory(one.path)

    def find(self, path: str) -> File | None:
        mount = self._mount_of(path)
        if mount is None:
            return super().find(path)
        return mount.volume.disk.files.get(_inner(mount, path)) if self._answers(mount) else None

    def write(self, path: str, content: bytes, mode: int = 0o644, owner: str = "root:root") -> None:
        mount = self._mount_of(path)
        if mount is None:
            super().write(path, content, mode, owner)
        elif self._may_write(mount, path):
            mount.volume.disk.files[_inner(mount, path)] = File(content, mode, owner)

    def append(self, path: str, content: bytes) -> None:
        old = self.find(path)
        self.write(path, content if old is None else old.content + content)

    def remove(self, path: str) -> bool:
        mount = self._mount_of(path)
        if mount is None:
            return super().remove(path)
        paths = self.list_files(path) if self._may_write(mount, path) else []
        for one in paths:
            mount.volume.disk.files.pop(_inner(mount, one), None)
        return bool(paths)

    def is_directory(self, path: str) -> bool:
        prefix = posixpath.normpath(path).rstrip("/") + "/"
        return super().is_directory(path) or any(one.startswith(prefix) for one in self._mounted_paths())

    def list_under(self, path: str) -> list[str]:
        prefix = posixpath.normpath(path).rstrip("/") + "/"
        mounted = (one for one in self._mounted_paths() if one.startswith(prefix))
        return sorted({*super().list_under(path), *mounted})

    def _mounted_paths(self) -> Iterator[str]:
        mounts = filter(self._answers, self._mounts)
        return (posixpath.normpath(one.path + name) for one in mounts for name in one.volume.disk.files)

    def _mount_of(self, path: str) -> _Mount | None:
        path = posixpath.normpath(path)
        return next((one for one in self._mounts if path.startswith(one.path + "/")), None)

    def _may_write(self, mount: _Mount, path: str) -> bool:
        if mount.read_only:
            self.console(f"cannot write {path}: Read-only file system")
        return not mount.read_only and self._answers(mount)

    def _answers(self, mount: _Mount) -> bool:
        """Where a real container would wait until the server is back, this one finds no file, and writes none."""
        if not mount.volume.answers():
            server = mount.volume.source.rpartition(":")[0]
            self.log("kernel", f"nfs: server {server} not responding, still trying")
            return False
        return True


def _inner(mount: _Mount, path: str) -> str:
    return posixpath.normpath(path)[len(mount.path) :]


def list_mounts(container: Raw, volumes: Mapping[str, MountedVolume]) -> list[_Mount]:
    """Where the container has which of its pod's volumes. `subPath` is not simulated."""
    return [
        _Mount(posixpath.normpath(one["mountPath"]), volume, bool(one.get("readOnly")) or volume.read_only)
        for one in container.get("volumeMounts") or ()
        if (volume := volumes.get(one["name"])) is not None and not volume.block
    ]


class Containers:
    """The containers of one kubelet that run scripts. They end with the machine's power."""

    def __init__(self, guest: GuestOS, cluster: GuestCluster) -> None:
        self._guest, self._cluster = guest, cluster
        self._running: dict[str, asyncio.Task[None]] = {}  # by the uid of the pod
        self._exit_codes: dict[str, int] = {}

    def start(self, pod: Raw, volumes: Mapping[str, MountedVolume]) -> None:
        """Run the scripts of a pod that has just been started, with its volumes by name."""
        self._serve_files(pod, volumes)
        if scripts_of(pod):
            self._running[uid_of(pod)] = self._guest.spawn(
                self._run(pod, volumes), f"pod {namespace_of(pod)}/{name_of(pod)}"
            )

    def stop(self, key: tuple[str, str], uid: str) -> None:
        """End what runs of a pod. May be repeated."""
        if (task := self._running.pop(uid, None)) is not None:
            task.cancel()
        self._exit_codes.pop(uid, None)
        self._cluster.served_files.pop(key, None)

    def is_running(self, pod: Raw) -> bool:
        """Whether a script of the pod has not ended."""
        return uid_of(pod) in self._running and uid_of(pod) not in self._exit_codes

    def exit_code(self, pod: Raw) -> int:
        """What the scripts of the pod ended with: 0, or the first other code."""
        return self._exit_codes.get(uid_of(pod), 0)

    async def _run(self, pod: Raw, volumes: Mapping[str, MountedVolume]) -> None:
        code = 0
        for container in scripts_of(pod):
            code = code or await self._run_script(pod, container, volumes)
        self._exit_codes[uid_of(pod)] = code
        self._cluster.on_pod_volumes(key_of(pod))

    async def _run_script(self, pod: Raw, container: Raw, volumes: Mapping[str, MountedVolume]) -> int:
        name = f"{namespace_of(pod)}/{name_of(pod)}"
        try:
            system = ContainerOS(self._guest, list_mounts(container, volumes))
            variables = {**_variables(container), "HOSTNAME": name_of(pod)}
            shell = Shell(
                system,
                dict(FILE_AND_TEXT_COMMANDS),
                variables,
                name,
                log=lambda line: self._guest.log(name, line),
            )
            return await shell.run(["sh", *_words(container)[1:]])
        except Exception as error:  # what a script does must not end the machine
            self._guest.log(name, f"panic: {type(error).__name__}: {error}")
            return 2

    def _serve_files(self, pod: Raw, volumes: Mapping[str, MountedVolume]) -> None:
        for container in nested(pod, "spec", "containers", default=[]):
            if path := _variables(container).get(SERVE_FILE):
                system = ContainerOS(self._guest, list_mounts(container, volumes))
                self._cluster.served_files[key_of(pod)] = partial(system.read_text, path)
