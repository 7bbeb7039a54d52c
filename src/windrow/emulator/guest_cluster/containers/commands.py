"""Programs by which a container acts on its node: chroot, nsenter, systemctl.

A container whose image has no shell has the programs of the node where it mounts their directories at the same paths, with
the libraries that they are linked with.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windrow.emulator.guest_cluster.containers.files import (
    ContainerOS,
    HostTree,
    Mount,
    find_host_path,
    find_mount,
)
from windrow.emulator.guest_cluster.containers.images import has_shell
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.shell.commands import FILE_AND_TEXT_COMMANDS, parse_options
from windrow.emulator.guest_os.shell.run import Command, Invocation, Shell
from windrow.kubernetes.objects import Raw, nested

SHELLS = ("sh", "bash", "ash", "dash")
_ENTRY_POINTS = (*SHELLS, "chroot", "nsenter")
_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_LIBRARIES = ("/lib", "/lib64")
_NO_SYSTEMD = (
    "System has not been booted with systemd as init system (PID 1). Can't operate.\n"
    "Failed to connect to system scope bus via local transport: Host is down"
)
START_ERROR = 128
_NOT_EXECUTED, _NOT_FOUND, _CANNOT = 126, 127, 125


def is_simulated(words: Sequence[str]) -> bool:
    """Whether a container with this command line does anything: a script of a shell, chroot or nsenter."""
    if not words:
        return False
    name = posixpath.basename(words[0])
    if name in SHELLS:
        return words[1:2] != [] and (
            words[1].startswith("/") or (words[1].startswith("-") and len(words) > 2)
        )
    return name in _ENTRY_POINTS and len(words) > 1


@dataclass(frozen=True, slots=True)
class Privileges:
    """What a container may do beside its files."""

    privileged: bool = False
    host_pid: bool = False
    may_chroot: bool = True

    @classmethod
    def of(cls, pod: Raw, container: Raw) -> Privileges:
        context = {
            **nested(pod, "spec", "securityContext", default={}),
            **(container.get("securityContext") or {}),
        }
        dropped = nested(context, "capabilities", "drop", default=[])
        privileged = bool(context.get("privileged"))
        is_root = not context.get("runAsUser") and not context.get("runAsNonRoot")
        keeps = privileged or not {"ALL", "SYS_CHROOT", "CAP_SYS_CHROOT"}.intersection(dropped)
        return cls(privileged, bool(nested(pod, "spec", "hostPID")), is_root and keeps)


def find_start_error(program: str, image: str, mounts: Sequence[Mount]) -> str:
    """What the container runtime says of a program that the container does not have, "" where it has it."""
    if has_shell(image) or _host_programs(program, mounts):
        return ""
    found = f'exec: "{program}": '
    found += (
        f"stat {program}: no such file or directory"
        if "/" in program
        else "executable file not found in $PATH"
    )
    return (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
        f"unable to start container process: error during container init: {found}"
    )


def _host_programs(program: str, mounts: Sequence[Mount]) -> bool:
    directories = [posixpath.dirname(program)] if "/" in program else _PATH
    return any(find_host_path(mounts, one) in _PATH for one in directories)


def lacks_libraries(image: str, mounts: Sequence[Mount]) -> bool:
    """Whether programs of the node cannot be loaded, since their libraries are not mounted."""
    return not has_shell(image) and any(find_host_path(mounts, one) != one for one in _LIBRARIES)


def container_commands(node: GuestOS, image: str, rights: Privileges) -> Mapping[str, Command]:
    """What the shells of a container can run."""
    host = _HostAccess(node, rights)
    own = {"chroot": host.chroot, "nsenter": host.enter, "systemctl": host.systemctl}
    return {**(FILE_AND_TEXT_COMMANDS if has_shell(image) else node.commands), **own}


@dataclass(frozen=True, slots=True)
class _HostAccess:
    node: GuestOS
    rights: Privileges

    async def chroot(self, call: Invocation) -> int:
        _, words = parse_options(call.argv[1:], interleaved=False)
        path, *command = words or [""]
        if not self.rights.may_chroot:
            return _fail(call, f"cannot change root directory to '{path}': Operation not permitted")
        if not call.guest.is_directory(path):
            return _fail(call, f"cannot change root directory to '{path}': No such file or directory")
        command = command or ["/bin/sh", "-i"]
        if _mounts(call) and find_host_path(_mounts(call), path) == "/":
            mount = find_mount(_mounts(call), path)
            return await self._on_node(call, command, read_only=mount is not None and mount.read_only)
        call.print_error(f"failed to run command '{command[0]}': No such file or directory")
        return _NOT_FOUND

    async def enter(self, call: Invocation) -> int:
        """`nsenter -t 1 -m … command`."""
        options, words = parse_options(call.argv[1:], ("t", "target"), interleaved=False)
        target = options.get("t") or options.get("target") or ""
        mounts = bool(options.keys() & {"m", "mount", "a", "all"})
        command = words or ["/bin/sh", "-i"]
        if target != "1":
            return _fail(call, f"not simulated: the namespaces of process {target or '(none)'}", 1)
        if self.rights.host_pid and not self.rights.privileged:
            return _fail(call, "cannot open /proc/1/ns/mnt: Permission denied", 1)
        if not self.rights.host_pid or not mounts:  # process 1 is the container's own, or its files are
            return await call.shell.child().run(command, call.streams)
        return await self._on_node(call, command)

    async def systemctl(self, call: Invocation) -> int:
        """With the node's /run it speaks to the node's systemd."""
        if find_host_path(_mounts(call), "/run") != "/run":
            call.streams.err += (_NO_SYSTEMD + "\n").encode()
            return 1
        return await self.node.commands["systemctl"](call)

    async def _on_node(self, call: Invocation, command: list[str], *, read_only: bool = False) -> int:
        system = (
            ContainerOS(self.node, [Mount("/", HostTree(self.node, "/"), True)]) if read_only else self.node
        )
        shell = Shell(
            system, self.node.commands, call.shell.state.variables, call.argv[0], log=call.shell.log
        )
        shell.deadline = call.shell.deadline
        return await shell.run(command, call.streams)


def _mounts(call: Invocation) -> Sequence[Mount]:
    return call.guest.mounts if isinstance(call.guest, ContainerOS) else ()


def _fail(call: Invocation, why: str, code: int = _CANNOT) -> int:
    call.print_error(why)
    return code
