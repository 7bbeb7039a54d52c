"""The sandbox of downloaded plugins, with plugins that try to leave it."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import resource
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.machines.binaries import ROOT, a_binary

from windrow.machines.plugin.credentials import ResolvedCredential
from windrow.machines.plugin.launcher import ConcurrencyLimit, PluginLauncher, no_sandbox
from windrow.machines.plugin.process.child import ChildProcess
from windrow.machines.plugin.process.client import Plugin, PluginUnusable, Timeouts
from windrow.machines.plugin.process.orphans import HOST_ID_ENV, kill_orphans
from windrow.machines.plugin.process.sandbox import (
    Sandbox,
    SandboxFailed,
    call_in_sandbox,
    describe_sandbox,
    render_filter,
)
from windrow.machines.plugin.tracked_machine import TrackedMachine, load_tracked_machine

pytestmark = pytest.mark.skipif(not describe_sandbox(), reason="this kernel has no Landlock")

# What this interpreter needs, which is no program of the system where it was built in a home directory.
PYTHON = (ROOT, Path(sys.base_prefix), Path(sys.prefix))
SECRET = "s3cret-of-the-manager"

# A driver whose SetConfigRaw makes attempts: each is a name and a Python expression. It answers with what each gave.
HOSTILE = """
import ctypes, json, os, signal, socket
from tests.unit.machines.driver_server import serve
results = {}
def attempt(raw):
    for name, expression in json.loads(raw).items():
        try:
            results[name] = repr(eval(expression))
        except OSError as error:
            results[name] = f"refused: {type(error).__name__}"
serve({'SetConfigRaw': attempt, 'GetConfigRaw': lambda _: json.dumps(results).encode()})
"""


class Rig:
    """A state directory with a secret, two machines, and a launcher of the hostile driver."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.path = a_binary(state / "drivers", "hostile", HOSTILE)
        self.machine, self.other = self.a_machine("uid-1"), self.a_machine("uid-2")
        (state / "manager.db").write_text(SECRET)
        (self.other.folder / "user-data").write_text(SECRET)

    def a_machine(self, uid: str) -> TrackedMachine:
        config = {"WindrowMachineUID": uid, "MachineName": f"m-{uid}", "WindrowDriver": "hostile"}
        machine = load_tracked_machine(self.state / "machines", config)
        machine.save(config)
        return machine

    def launcher(self, *, sandboxed: bool) -> PluginLauncher:
        limit = ConcurrencyLimit(4)
        sandbox = Sandbox((self.path, *PYTHON))
        return PluginLauncher(
            lambda driver: self.path,
            SimpleNamespace(),  # type: ignore[arg-type]
            {"PATH": os.environ["PATH"], "HOME": str(Path.home())},
            Timeouts(),
            limit,
            limit,
            limit,
            find_sandbox=(lambda path: sandbox) if sandboxed else no_sandbox,
        )

    def credential(self, token: str = "own-t0ken") -> ResolvedCredential:
        return ResolvedCredential("ns:cc", {"token": token}, {"HOSTILE_TOKEN": token})


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    (tmp_path / "drivers").mkdir()
    return Rig(tmp_path)


async def answers(plugin: Plugin, attempts: dict[str, str]) -> dict[str, str]:
    await plugin.set_config(json.dumps(attempts).encode())
    found: dict[str, str] = json.loads(await plugin.get_config())
    return found


def attempts_of(rig: Rig, victim: int) -> dict[str, str]:
    """What is taken where there is no sandbox."""
    other, link = rig.other.folder, str(rig.machine.folder / "machines" / rig.machine.name / "link")
    return {
        "the state directory": f"os.listdir({str(rig.state)!r})",
        "the database": f"open({str(rig.state / 'manager.db')!r}).read()",
        "a link to the database": f"(os.symlink({str(rig.state / 'manager.db')!r}, {link!r}), open({link!r}).read())",
        "another machine's user data": f"open({str(other / 'user-data')!r}).read()",
        "another machine's record": f"open({str(other / 'machine.json')!r}).read()",
        "its own record, to write": f"open({str(rig.machine.folder / 'machine.json')!r}, 'a')",
        "its own program, to write": f"open({str(rig.path)!r}, 'a')",
        "the manager's environment": f"open('/proc/{os.getpid()}/environ').read()",
        "another plugin's environment": f"open('/proc/{victim}/environ').read()",
        "another plugin's memory": f"open('/proc/{victim}/mem', 'rb')",
        "another plugin's files": f"os.listdir('/proc/{victim}/fd')",
        "the list of processes": "os.listdir('/proc')",
        "passwords": "open('/etc/shadow').read()",
        "temporary files of others": "os.listdir('/tmp')",
        "a socket of another program": "socket.socket(socket.AF_UNIX)",
        "a signal to the manager": f"os.kill({os.getpid()}, 0)",
        "a signal to another plugin": f"os.kill({victim}, 0)",
    }


@pytest.mark.parametrize("sandboxed", [True, False])
async def test_a_downloaded_driver_gets_nothing_of_the_manager_or_of_other_machines(
    rig: Rig, sandboxed: bool
) -> None:
    """Without the sandbox the same driver gets what its user may read: the attempts are real."""
    launcher = rig.launcher(sandboxed=sandboxed)
    async with (
        launcher.open(rig.other, rig.credential("t0ken-of-another"), None) as victim,
        launcher.open(rig.machine, rig.credential(), None) as plugin,
    ):
        found = await answers(plugin, attempts_of(rig, victim.pid))

    taken = {name for name, result in found.items() if not result.startswith("refused")}
    if sandboxed:
        assert taken == set()
    else:
        assert taken >= {"the database", "another machine's user data", "another plugin's environment"}
        assert SECRET in found["the database"]


async def test_a_downloaded_driver_changes_no_attribute_of_the_managers_files_or_limit_of_its_process(
    rig: Rig,
) -> None:
    """A mode and a time are ignored, as docker-machine's library sets those of its keys; the rest is refused."""
    rig.state.chmod(0o700)
    database = rig.state / "manager.db"
    database.chmod(0o600)
    before, limits = database.stat(), resource.getrlimit(resource.RLIMIT_NOFILE)
    own = rig.machine.folder / "machines" / rig.machine.name / "program"
    async with rig.launcher(sandboxed=True).open(rig.machine, rig.credential(), None) as plugin:
        found = await answers(
            plugin,
            {
                "mode of the state directory": f"os.chmod({str(rig.state)!r}, 0o755)",
                "mode of the database": f"os.chmod({str(database)!r}, 0o644)",
                "time of the database": f"os.utime({str(database)!r}, (1, 1))",
                "attribute of the database": f"os.setxattr({str(database)!r}, 'user.a', b'')",
                "owner of the database": f"os.chown({str(database)!r}, -1, os.getgid())",
                "a setuid program": f"(os.umask(0), os.open({str(own)!r}, os.O_CREAT | os.O_WRONLY, 0o4755))",
                "limit of the manager": f"__import__('resource').prlimit({os.getpid()}, 7, {limits!r})",
                "own limit": "__import__('resource').prlimit(0, 7)[0] > 0",
                "processors of the manager": f"os.sched_setaffinity({os.getpid()}, os.sched_getaffinity(0))",
                "own processors": "os.sched_setaffinity(0, os.sched_getaffinity(0))",
                "priority of the manager": f"os.setpriority(os.PRIO_PROCESS, {os.getpid()}, 19)",
            },
        )

    refused = {name for name, result in found.items() if result == "refused: PermissionError"}
    assert refused == {
        "attribute of the database",
        "owner of the database",
        "a setuid program",
        "limit of the manager",
        "processors of the manager",
        "priority of the manager",
    }
    assert (rig.state.stat().st_mode & 0o777, database.stat()) == (0o700, before)
    assert not own.exists()


async def test_a_sandboxed_driver_has_what_drivers_need(rig: Rig) -> None:
    """A store for its machine, a home, programs and certificates of the system, names and the network."""
    machine = rig.machine
    machine.user_data_path.write_text("#cloud-config\n")
    key = machine.folder / "machines" / machine.name / "id_rsa"
    async with rig.launcher(sandboxed=True).open(machine, rig.credential(), None) as plugin:
        found = await answers(
            plugin,
            {
                "key": f"open({str(key)!r}, 'w').write('key')",
                "cache": f"open({str(machine.folder / 'cache' / 'image')!r}, 'w').write('iso')",
                "user data": f"open({str(machine.user_data_path)!r}).read()",
                "home": "os.environ['HOME'] == os.environ['TMPDIR'] == os.getcwd()",
                "a temporary file": "__import__('tempfile').NamedTemporaryFile().write(b'x')",
                "a program": "__import__('subprocess').check_output(['/bin/echo', 'hello'])",
                "names": "socket.getaddrinfo('localhost', 443)[0][0].name",
                "a connection": "socket.create_server(('127.0.0.1', 0)).getsockname()[0]",
                "its credential": "os.environ['HOSTILE_TOKEN']",
                "no new privileges": "ctypes.CDLL(None).prctl(39, 0, 0, 0, 0)",
                "core dumps": "__import__('resource').getrlimit(4)",
            },
        )

    assert found == {
        "key": "3",
        "cache": "3",
        "user data": repr("#cloud-config\n"),
        "home": "True",
        "a temporary file": "1",
        "a program": repr(b"hello\n"),
        "names": repr("AF_INET"),
        "a connection": repr("127.0.0.1"),
        "its credential": repr("own-t0ken"),
        "no new privileges": "1",
        "core dumps": "(0, 0)",
    }
    assert key.read_text() == "key"


async def test_a_driver_whose_sandbox_cannot_be_set_up_is_not_started(rig: Rig, tmp_path: Path) -> None:
    launcher = rig.launcher(sandboxed=True)
    absent = Sandbox((tmp_path / "absent",))
    refusing = PluginLauncher(
        launcher.find_binary,
        launcher.resolver,
        {},
        Timeouts(),
        launcher.queries,
        launcher.operations,
        launcher.creates,
        find_sandbox=lambda path: absent,
    )
    with pytest.raises(
        PluginUnusable, match=r"not started: the sandbox of downloaded drivers cannot be set up"
    ):
        async with refusing.open(rig.machine, rig.credential(), None):
            pass


@pytest.mark.parametrize("kind", ["readable", "writable"])
def test_nothing_runs_in_a_sandbox_that_lacks_one_of_its_paths(tmp_path: Path, kind: str) -> None:
    with pytest.raises(SandboxFailed, match="the sandbox of downloaded drivers cannot be set up"):
        call_in_sandbox(Sandbox(**{kind: (tmp_path / "absent",)}), lambda: None)
    call_in_sandbox(Sandbox(**{kind: (tmp_path,)}), lambda: None)


async def test_the_manager_itself_is_not_restricted_by_the_sandbox_of_a_plugin(rig: Rig) -> None:
    """Also what it starts later is not."""
    async with rig.launcher(sandboxed=True).open(rig.machine, rig.credential(), None):
        assert (rig.state / "manager.db").read_text() == SECRET
        assert os.listdir("/proc/self/fd")
        started = await asyncio.create_subprocess_exec(
            "/bin/cat", str(rig.state / "manager.db"), stdout=asyncio.subprocess.PIPE
        )
        assert (await started.communicate())[0].decode() == SECRET


async def test_a_process_that_shed_its_environment_is_killed_with_those_of_its_host() -> None:
    """It has the mark of its host in a limit, which the sandbox keeps it from changing; the manager has it no more."""
    host, limits = f"shed-{os.getpid()}", resource.getrlimit(resource.RLIMIT_RTTIME)
    lines: asyncio.Queue[str] = asyncio.Queue()
    code = (
        "import os, resource\n"
        "try: resource.setrlimit(resource.RLIMIT_RTTIME, (0, 0))\n"
        "except (OSError, ValueError): print('refused', flush=True)\n"
        "os.execve('/bin/sh', ['sh', '-c', 'echo started; exec /bin/sleep 300'], {})"
    )
    child = ChildProcess(
        [sys.executable, "-c", code],
        {HOST_ID_ENV: host, "PATH": "/bin"},
        lines.put_nowait,
        lambda line: None,
        sandbox=Sandbox(PYTHON),
    )
    try:
        async with asyncio.timeout(20):
            assert [await lines.get(), await lines.get()] == ["refused", "started"]
        assert kill_orphans(host + "0") == 0
        assert kill_orphans(host) == 1
    finally:
        await child.kill_and_wait()
    assert resource.getrlimit(resource.RLIMIT_RTTIME) == limits


def test_what_the_work_in_a_sandbox_raises_is_raised_by_the_call(tmp_path: Path) -> None:
    def work() -> Any:
        raise LookupError

    with pytest.raises(LookupError):
        call_in_sandbox(Sandbox((), (tmp_path,)), work)


# What programs open wherever they run, on one system or another: loaders, certificates, names, users, times, what a runtime asks of
# the kernel.
NEEDED = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"),
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem", "/etc/ssl/openssl.cnf"),
    *("/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/var/lib/ca-certificates"),
    *("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf"),
    *("/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group", "/etc/mime.types"),
    *("/etc/localtime", "/etc/timezone", "/etc/alternatives"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/dev/null", "/dev/full", "/dev/zero", "/dev/random", "/dev/urandom"),
    *("/proc/sys", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"),
    *("/sys/devices/system/cpu", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage"),
)
# Of the same directories, what holds secrets or shows other processes.
WITHHELD = (
    "/etc/shadow",
    "/etc/ssl/private",
    "/etc/ssl",
    "/etc",
    "/root",
    "/proc",
    "/proc/1",
    "/dev",
    "/var",
)


def test_in_a_sandbox_the_system_can_be_read_where_programs_need_it_and_nowhere_else() -> None:
    def opened(paths: tuple[str, ...]) -> list[str]:
        return [path for path in paths if is_readable(path)]

    there = tuple(path for path in NEEDED if Path(path).exists())
    assert len(there) > 20
    assert call_in_sandbox(Sandbox(), lambda: opened(there)) == list(there)
    assert call_in_sandbox(Sandbox(), lambda: opened(WITHHELD)) == []


def is_readable(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


def test_nothing_in_a_sandbox_has_a_capability() -> None:
    def find_capabilities() -> bytes:
        found = ctypes.create_string_buffer(24)  # effective, permitted, inheritable: 32 bits each, twice
        assert ctypes.CDLL(None).capget(struct.pack("=Ii", 0x20080522, 0), found) == 0
        return found.raw

    assert call_in_sandbox(Sandbox(), find_capabilities) == bytes(24)


def test_in_a_sandbox_files_are_truncated_where_they_may_be_written_only(tmp_path: Path) -> None:
    writable, readable = tmp_path / "own", tmp_path / "shared"
    for folder in (writable, readable):
        folder.mkdir()
        (folder / "file").write_text("whole")

    def truncate(folder: Path) -> bool:
        try:
            os.truncate(folder / "file", 1)
        except OSError:
            return False
        return True

    sandbox = Sandbox((readable,), (writable,))
    assert call_in_sandbox(sandbox, lambda: (truncate(writable), truncate(readable))) == (True, False)
    assert ((writable / "file").read_text(), (readable / "file").read_text()) == ("w", "whole")


# -- the filter of system calls, executed by an interpreter of its few instructions ---------------------------------


def decide(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """The return value of the filter for a system call: the kernel's struct seccomp_data is number, architecture, …"""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    steps = [struct.unpack_from("=HBBI", program, place) for place in range(0, len(program), 8)]
    place, loaded = 0, 0
    while True:
        code, if_true, if_false, value = steps[place]
        place += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from("=I", data, value)
            case 0x15:
                place += if_true if loaded == value else if_false
            case 0x35:
                place += if_true if loaded >= value else if_false
            case 0x45:
                place += if_true if loaded & value else if_false
            case 0x06:
                return value
            case _:
                raise AssertionError(f"instruction {code:#x}")


X86_64, AARCH64 = (0, 0xC000003E), (1, 0xC00000B7)
ALLOWED = 0x7FFF0000


@pytest.mark.parametrize(
    ("architecture", "read", "ptrace", "socket"), [(X86_64, 0, 101, 41), (AARCH64, 63, 117, 198)]
)
def test_the_filter_allows_the_network_and_denies_other_processes(
    architecture: tuple[int, int], read: int, ptrace: int, socket: int
) -> None:
    column, audit = architecture
    program = render_filter(column)

    assert decide(program, audit, read) == ALLOWED
    assert decide(program, audit, ptrace) == 0x50000 | errno.EPERM
    assert decide(program, audit, 425) == 0x50000 | errno.EPERM  # io_uring_setup
    for family, wanted in ((2, ALLOWED), (10, ALLOWED), (16, ALLOWED), (1, 0x50000 | errno.EAFNOSUPPORT)):
        assert decide(program, audit, socket, family) == wanted


@pytest.mark.parametrize(
    ("architecture", "prlimit", "setrlimit", "fchmod", "clone", "openat"),
    [(X86_64, 302, 160, 91, 56, 257), (AARCH64, 261, 164, 52, 220, 56)],
)
def test_the_filter_judges_by_argument(
    architecture: tuple[int, int], prlimit: int, setrlimit: int, fchmod: int, clone: int, openat: int
) -> None:
    column, audit = architecture
    program, denied = render_filter(column), 0x50000 | errno.EPERM

    assert decide(program, audit, prlimit, 0) == ALLOWED
    assert decide(program, audit, prlimit, 0, 7) == ALLOWED
    assert decide(program, audit, prlimit, 4711, 7) == denied
    assert decide(program, audit, prlimit, 0, 15) == denied  # the mark of its host
    assert decide(program, audit, setrlimit, 7) == ALLOWED
    assert decide(program, audit, setrlimit, 15) == denied
    assert decide(program, audit, fchmod, 3, 0o600) == 0x50000
    assert decide(program, audit, clone, 0x3D0F00) == ALLOWED  # a thread
    assert decide(program, audit, clone, 0x10000000) == denied  # a user namespace
    assert decide(program, audit, 435) == 0x50000 | errno.ENOSYS  # clone3
    assert decide(program, audit, openat, 0, 0, 0o100, 0o644) == ALLOWED
    assert decide(program, audit, openat, 0, 0, 0o100, 0o4755) == denied
    assert decide(program, audit, openat, 0, 0, 0, 0o4755) == ALLOWED  # no mode without O_CREAT


def test_system_calls_of_another_architecture_end_the_process_or_do_not_exist() -> None:
    program = render_filter(0)

    assert decide(program, 0x40000003, 0) == 0x80000000  # i386
    assert decide(program, 0xC000003E, 0x40000000 | 41) == 0x50000 | errno.ENOSYS  # x32


# What the filter makes of the kernel's system calls, whatever their arguments: asm/unistd_64.h and asm-generic/unistd.h.
REFUSED = {
    # chown, fchown, lchown, fchownat, mknod, mknodat; setxattr and removexattr with l and f before them; ptrace,
    # process_vm_readv, process_vm_writev, kcmp, add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd, unshare,
    # setns; setpriority, ioprio_set, mount, umount2, pivot_root, chroot
    X86_64: {
        *(92, 93, 94, 260, 133, 259, 188, 189, 190, 197, 198, 199, 101, 310, 311, 312, 248, 249, 250),
        *(321, 298, 323, 272, 308, 141, 251, 165, 166, 155, 161),
    },
    AARCH64: {
        *(55, 54, 33, 5, 6, 7, 14, 15, 16, 117, 270, 271, 272, 217, 218, 219),
        *(280, 241, 282, 97, 268, 140, 30, 40, 39, 41, 51),
    },
}
# Of one number everywhere: io_uring_setup, open_tree, move_mount, fsopen, fsconfig, fsmount, pidfd_getfd, mount_setattr,
# setxattrat, removexattrat, file_setattr
REFUSED_EVERYWHERE = {425, 428, 429, 430, 431, 432, 438, 442, 463, 466, 469}
# chmod, fchmod, fchmodat, utime, utimes, futimesat, utimensat; fchmodat2
IGNORED = {X86_64: {90, 91, 268, 132, 235, 261, 280, 452}, AARCH64: {52, 53, 88, 452}}
ABSENT = {435, 437}  # clone3, openat2


@pytest.mark.parametrize("architecture", [X86_64, AARCH64])
def test_the_filter_refuses_ignores_or_lacks_these_system_calls_and_no_others(
    architecture: tuple[int, int],
) -> None:
    column, audit = architecture
    program = render_filter(column)
    found: dict[int, set[int]] = {}
    for number in range(600):
        # Arguments with which the calls that are judged by them do nothing that is refused: this process, no flags.
        found.setdefault(decide(program, audit, number), set()).add(number)

    # Sockets of family 0, AF_UNSPEC, do not exist.
    socket = 41 if architecture == X86_64 else 198
    del found[ALLOWED]
    assert found == {
        0x50000 | errno.EPERM: REFUSED[architecture] | REFUSED_EVERYWHERE,
        0x50000: IGNORED[architecture],
        0x50000 | errno.ENOSYS: ABSENT,
        0x50000 | errno.EAFNOSUPPORT: {socket},
    }


@pytest.mark.parametrize(
    ("architecture", "numbers"), [(X86_64, (203, 144, 142, 314)), (AARCH64, (122, 119, 118, 274))]
)
def test_a_plugin_schedules_no_process_but_its_own(
    architecture: tuple[int, int], numbers: tuple[int, ...]
) -> None:
    column, audit = architecture
    program = render_filter(column)

    for number in numbers:  # sched_setaffinity, sched_setscheduler, sched_setparam, sched_setattr
        assert decide(program, audit, number, 0) == ALLOWED
        assert decide(program, audit, number, 4711) == 0x50000 | errno.EPERM


def test_a_plugin_creates_no_file_that_is_setuid_or_setgid() -> None:
    denied = 0x50000 | errno.EPERM
    program, audit = render_filter(0), X86_64[1]
    for mode in (0o4755, 0o2755, 0o6755):
        assert decide(program, audit, 85, 0, mode) == denied  # creat
        for flags in (0o100, 0x400000):  # O_CREAT, O_TMPFILE
            assert decide(program, audit, 2, 0, flags, mode) == denied
            assert decide(program, audit, 257, 0, 0, flags, mode) == denied
            assert decide(render_filter(1), AARCH64[1], 56, 0, 0, flags, mode) == denied
    assert decide(program, audit, 85, 0, 0o1777) == ALLOWED
    assert decide(program, audit, 2, 0, 0o100, 0o755) == ALLOWED
    assert decide(program, audit, 2, 0, 0, 0o4755) == ALLOWED
