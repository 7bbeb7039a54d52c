"""The sandbox of downloaded plugins: Landlock, seccomp and no capabilities, inherited from the thread that starts one.

A downloaded driver is a program of other people that runs as this user. So it may open the system's programs, libraries
and certificates, and the directories that it is given; not the state directory, nor /proc. It cannot get back what was
taken from it (`no_new_privs`), reach or signal processes outside of its sandbox, or connect to a Unix socket: those of a
container runtime or of systemd would start a program without a sandbox.

Landlock governs neither the attributes of files (modes, owners, times, ACLs) nor the limits and priorities of processes,
and this user owns the manager's: the filter of system calls keeps a plugin from changing them. A mode or a time is
ignored rather than refused, since docker-machine's library sets those of its key files, which are private in any case.

All of that belongs to a thread, not to a process, and a child has what the thread had that forked it. So the plugin is
started by a thread that exists for nothing else: no code runs between fork and exec, and this process stays as it was.
What is not restricted: the network (drivers reach their infrastructure, wherever it is), memory and processor time.

Facts: landlock(7), seccomp(2), capabilities(7); the numbers are those of the kernel's headers.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
import struct
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from windrow.core.errors import UserError

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

T = TypeVar("T")

# What a program of the system needs, where it exists. Of /etc only what is no secret.
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_DATA = (
    # Not /etc/ssl and /etc/pki as a whole: both have a directory of private keys.
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem", "/etc/ssl/openssl.cnf"),
    *("/etc/pki/tls/certs", "/etc/pki/tls/cert.pem", "/etc/pki/ca-trust", "/etc/pki/trust"),
    *("/etc/ca-certificates", "/etc/crypto-policies", "/var/lib/ca-certificates"),
    *("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf"),
    *("/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group", "/etc/mime.types"),
    *("/etc/localtime", "/etc/timezone", "/etc/alternatives"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/dev/zero", "/dev/random", "/dev/urandom"),
    *("/proc/sys", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"),
    *("/sys/devices/system/cpu", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage"),
)
_DEVICES = ("/dev/null", "/dev/full")

MAX_FILE_BYTES = 2**30


class SandboxFailed(UserError):
    """The kernel has a sandbox and refuses this one: the plugin is not started."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What a plugin may open beside the system's own: `readable` files and directories, which it may also execute, and
    `writable` directories. All of them exist."""

    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()

    def with_paths(self, readable: Iterable[Path], writable: Iterable[Path]) -> Sandbox:
        """The same with these as well."""
        return Sandbox((*self.readable, *readable), (*self.writable, *writable))


@cache
def describe_sandbox() -> str:
    """What a sandbox is made of on this computer, as in `Landlock ABI 7, seccomp`; "" where there is none.

    Without Landlock there is no sandbox: a program that reads every file needs nothing else.
    """
    abi = _landlock_abi()
    if not abi:
        return ""
    return f"Landlock ABI {abi}{', seccomp' if _architecture() is not None else ''}"


def call_in_sandbox(sandbox: Sandbox, work: Callable[[], T]) -> T:
    """The result of `work`, called by a thread of its own within the sandbox, in which each process stays that it starts.

    Raises SandboxFailed, and what `work` raises.
    """
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            _enter(sandbox)
            result.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="sandbox")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def limit_process(pid: int) -> None:
    """No core dump, which would hold the plugin's credential, and no file of more than MAX_FILE_BYTES."""
    if resource is None:
        return
    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, MAX_FILE_BYTES)):
        try:
            resource.prlimit(pid, limit, (most, most))
        except (AttributeError, OSError, ValueError):  # it has ended, or its own limit is lower
            continue


def _enter(sandbox: Sandbox) -> None:
    """Restrict this thread for good."""
    try:
        _check(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        with closing(_Ruleset(_landlock_abi())) as rules:
            for path in _PROGRAMS:
                rules.allow(Path(path), _READ | _EXECUTE)
            for path in _DATA:
                rules.allow(Path(path), _READ)
            for path in _DEVICES:
                rules.allow(Path(path), _READ | _WRITE_FILE)
            for place in sandbox.readable:
                rules.allow(place, _READ | _EXECUTE, required=True)
            for place in sandbox.writable:
                rules.allow(place, _READ | _WRITE, required=True)
            _drop_capabilities()
            rules.enforce()
        _filter_system_calls()
    except OSError as error:
        raise SandboxFailed(
            f"the sandbox of downloaded drivers cannot be set up: {error}",
            "check whether the manager's own container or service allows Landlock and seccomp",
        ) from error


# -- Landlock ------------------------------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same for every architecture
_CREATE_RULESET_VERSION, _RULE_PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_READ = _READ_FILE | _READ_DIR
_ALL = (1 << 16) - 1
# Neither devices (bits 6 and 11 make them) nor ioctls on them.
_WRITE = _ALL & ~(_EXECUTE | _READ | _IOCTL_DEVICE | 1 << 6 | 1 << 11)
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
# How many of the access rights each ABI knows; a right that is not handled is not restricted.
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}
_SCOPES = 3  # abstract Unix sockets and signals, from ABI 6


class _Ruleset:
    """What a sandboxed thread may open: nothing but what is allowed here."""

    def __init__(self, abi: int) -> None:
        self._handled = (1 << _RIGHTS_BY_ABI.get(abi, 16)) - 1
        attributes = struct.pack("=Q", self._handled) + (struct.pack("=QQ", 0, _SCOPES) if abi >= 6 else b"")
        self._fd = _check(_libc().syscall(_CREATE_RULESET, attributes, len(attributes), 0))

    def allow(self, path: Path, rights: int, *, required: bool = False) -> None:
        """Allow what is at `path` and, for a directory, below; what does not exist is skipped unless `required`."""
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            if required:
                raise
            return
        try:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                rights &= _OF_FILES
            rule = struct.pack("=Qi", rights & self._handled, fd)
            _check(_libc().syscall(_ADD_RULE, self._fd, _RULE_PATH_BENEATH, rule, 0))
        finally:
            os.close(fd)

    def enforce(self) -> None:
        _check(_libc().syscall(_RESTRICT_SELF, self._fd, 0))

    def close(self) -> None:
        os.close(self._fd)


@cache
def _landlock_abi() -> int:
    """The version of Landlock that this kernel has; 0 without."""
    if not hasattr(os, "O_PATH") or platform.system() != "Linux":
        return 0
    return max(int(_libc().syscall(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)), 0)


# -- capabilities --------------------------------------------------------------------------------------------------


def _drop_capabilities() -> None:
    """No capability, also where the manager runs as root; with `no_new_privs` exec brings none back."""
    header = struct.pack("=Ii", 0x20080522, 0)  # version 3, this thread
    _check(_libc().capset(header, bytes(24)))


# -- seccomp -------------------------------------------------------------------------------------------------------

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# System calls that lead to another process's memory, keys or descriptors, or around the filter: by architecture.
_DENIED: dict[str, tuple[int, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "unshare": (272, 97),
    "setns": (308, 268),
    "io_uring_setup": (425, 425),  # its requests pass no filter
    # The attributes of files; an ACL is an extended attribute. aarch64 has only the newer of each family.
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "mknod": (133, None),  # a file with any mode
    "mknodat": (259, 33),
    # The priorities of all processes of this user, and mounts.
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
}
# They succeed and do nothing.
_IGNORED: dict[str, tuple[int, int | None]] = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
}
# They take a structure, which a filter cannot read: programs use clone and openat instead.
_ABSENT: dict[str, tuple[int, int | None]] = {"clone3": (435, 435), "openat2": (437, 437)}
# Denied for any process but the caller, which is 0 as the first argument.
_ONLY_ITSELF = {
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
}
# Limits: its own but for RLIMIT_RTTIME, by which orphans.py knows what a plugin started.
_PRLIMIT, _SETRLIMIT, _MARKED_LIMIT = (302, 261), (160, 164), 15
_CLONE = (56, 220)
_NEW_NAMESPACES = 0x7E020000
# Which argument is the mode of a new file; its setuid and setgid bits would start a program without the sandbox.
_CREATING: tuple[tuple[str, tuple[int, int | None], int], ...] = (
    ("open", (2, None), 2),
    ("openat", (257, 56), 3),
    ("creat", (85, None), 1),
)
_SETUID_OR_SETGID = 0o6000
_CREATE_FLAGS = 0x400040  # O_CREAT, O_TMPFILE; without them there is no mode
_SOCKET = (41, 198)
_FAMILIES = (2, 10, 16)  # AF_INET, AF_INET6, AF_NETLINK: all that reaches a network
_X32_BIT = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def _architecture() -> int | None:
    """0 for x86_64, 1 for aarch64; None where the numbers of system calls are not known here."""
    machine = platform.machine()
    return list(_AUDIT_ARCHITECTURES).index(machine) if machine in _AUDIT_ARCHITECTURES else None


def _filter_system_calls() -> None:
    """Deny, ignore or restrict what the tables above list, and deny sockets of other families than _FAMILIES."""
    column = _architecture()
    if column is None:
        return
    program = render_filter(column)
    count = len(program) // 8
    buffer = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", count, ctypes.addressof(buffer))
    _check(_libc().prctl(_PR_SET_SECCOMP, _FILTER_MODE, described, 0, 0))


def render_filter(column: int) -> bytes:
    """The filter's program in classic BPF, 8 bytes an instruction."""
    steps: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, list(_AUDIT_ARCHITECTURES.values())[column]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    for calls, answer in ((_DENIED, errno.EPERM), (_IGNORED, 0), (_ABSENT, errno.ENOSYS)):
        for numbers in calls.values():
            if (number := numbers[column]) is not None:
                steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | answer)]
    for own in _ONLY_ITSELF.values():
        steps += _deny_if(own[column], [(_LOAD, 0, 0, _FIRST_ARGUMENT_AT), (_EQUAL, 1, 0, 0)])
    first, second = (_LOAD, 0, 0, _FIRST_ARGUMENT_AT), (_LOAD, 0, 0, _FIRST_ARGUMENT_AT + 8)
    steps += _deny_if(_SETRLIMIT[column], [first, (_EQUAL, 0, 1, _MARKED_LIMIT)])
    steps += _deny_if(_PRLIMIT[column], [first, (_EQUAL, 0, 2, 0), second, (_EQUAL, 0, 1, _MARKED_LIMIT)])
    steps += _deny_if(_CLONE[column], [(_LOAD, 0, 0, _FIRST_ARGUMENT_AT), (_ANY_BIT, 0, 1, _NEW_NAMESPACES)])
    for name, numbers, place in _CREATING:
        mode = [(_LOAD, 0, 0, _FIRST_ARGUMENT_AT + 8 * place), (_ANY_BIT, 0, 1, _SETUID_OR_SETGID)]
        flags = [(_LOAD, 0, 0, _FIRST_ARGUMENT_AT + 8 * (place - 1)), (_ANY_BIT, 0, 3, _CREATE_FLAGS)]
        if (number := numbers[column]) is not None:
            steps += _deny_if(number, mode if name == "creat" else flags + mode)
    steps += [(_EQUAL, 1, 0, _SOCKET[column]), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _FIRST_ARGUMENT_AT)]
    for family in _FAMILIES:
        steps += [(_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
    steps.append((_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _deny_if(number: int, condition: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Deny the system call `number` where `condition` does not jump over the next instruction, else allow it."""
    return [
        (_EQUAL, 0, len(condition) + 2, number),
        *condition,
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


# -- the C library -------------------------------------------------------------------------------------------------


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)
