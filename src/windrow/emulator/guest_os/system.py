"""Users, kernel parameters and kernel modules of a simulated machine: what RKE2 checks of its system.

Users are kept on the disk. Parameters are the kernel's: lost at power-off, set at boot from sysctl.d and by `sysctl`.
"""

from __future__ import annotations

from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.shell.commands import parse_options
from windrow.emulator.guest_os.shell.run import Command, Invocation

_IMAGE_USERS = frozenset(
    {"root", "daemon", "nobody", "www-data", "syslog", "messagebus", "ubuntu", "systemd-network"}
)
# The kernel's defaults of the parameters that RKE2 checks (reference/04 §7.12, number 9).
_KERNEL_DEFAULTS = {
    "vm.overcommit_memory": "0",
    "vm.panic_on_oom": "0",
    "kernel.panic": "0",
    "kernel.panic_on_oops": "0",
    "kernel.keys.root_maxbytes": "25000000",
}
HARDENED_PARAMETERS = {
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
}
_DIRECTORIES = ("/usr/lib/sysctl.d", "/run/sysctl.d", "/etc/sysctl.d")


def has_user(guest: GuestOS, name: str) -> bool:
    return name in _IMAGE_USERS or name in _users(guest)


def add_user(guest: GuestOS, name: str) -> None:
    _users(guest).add(name)


def _users(guest: GuestOS) -> set[str]:
    found: set[str] = guest.hardware.root.state.setdefault("users", set())
    return found


def get_kernel_parameter(guest: GuestOS, name: str) -> str:
    return guest.kernel_parameters.get(name, _KERNEL_DEFAULTS.get(name, ""))


def has_module(guest: GuestOS, name: str) -> bool:
    """Whether the kernel can load a module: the image has it, and nothing in modprobe.d forbids it."""
    if name in guest.hardware.missing_modules:
        return False
    forbidding = (f"blacklist {name}", f"install {name} ")
    lines = [
        " ".join(line.split())
        for path in guest.list_under("/etc/modprobe.d")
        if path.endswith(".conf")
        for line in guest.read_text(path).splitlines()
    ]
    return not any(line == forbidding[0] or line.startswith(forbidding[1]) for line in lines)


def list_wrong_parameters(guest: GuestOS) -> list[str]:
    """The parameters that are not as a hardened node needs them, as `name=value - expected value`."""
    return [
        f"{name}={get_kernel_parameter(guest, name)} - expected {wanted}"
        for name, wanted in HARDENED_PARAMETERS.items()
        if get_kernel_parameter(guest, name) != wanted
    ]


def apply_sysctl_files(guest: GuestOS) -> None:
    """What systemd-sysctl does at boot."""
    paths = [
        path for directory in _DIRECTORIES for path in guest.list_under(directory) if path.endswith(".conf")
    ]
    for path in [*sorted(paths, key=lambda one: one.rsplit("/", 1)[-1]), "/etc/sysctl.conf"]:
        _apply(guest, path)


def _apply(guest: GuestOS, path: str) -> bool:
    for line in guest.read_text(path).splitlines():
        _set(guest, line.split("#", 1)[0].split(";", 1)[0])
    return guest.is_file(path)


def _set(guest: GuestOS, line: str) -> None:
    name, sign, value = line.partition("=")
    if sign:
        guest.kernel_parameters[name.strip().lstrip("-").replace("/", ".")] = value.strip()


async def _sysctl(call: Invocation) -> int:
    options, words = parse_options(call.argv[1:])
    if "system" in options:
        apply_sysctl_files(call.guest)
        return 0
    if options.keys() & {"p", "load"}:
        paths = [options.get("load") or "", *words]
        return 0 if _apply(call.guest, next(filter(None, paths), "/etc/sysctl.conf")) else 1
    for word in words:
        if "=" in word:
            _set(call.guest, word)
        else:
            value = get_kernel_parameter(call.guest, word)
            call.print(value if "n" in options else f"{word} = {value}")
    return 0


_USER_OPTIONS = "comment home-dir gid groups shell uid gecos c d g G s u"


async def _useradd(call: Invocation) -> int:
    _, names = parse_options(call.argv[1:], _USER_OPTIONS.split())
    if not names:
        return 2
    if has_user(call.guest, names[-1]):
        call.print_error(f"user '{names[-1]}' already exists")
        return 9
    add_user(call.guest, names[-1])
    return 0


async def _id(call: Invocation) -> int:
    options, names = parse_options(call.argv[1:])
    name = names[0] if names else "root"
    if not has_user(call.guest, name):
        call.print_error(f"'{name}': no such user")
        return 1
    number = "0" if name == "root" else "1000"
    call.print(number if "u" in options and "n" not in options else name)
    return 0


async def _ip(call: Invocation) -> int:
    """`ip link add … type KIND`: whether the kernel has that kind of interface. None is kept, which is as in a namespace that
    ends with its process; what else `ip` does is not simulated."""
    if call.argv[1:3] != ["link", "add"] or "type" not in call.argv[:-1]:
        call.guest.console(f"not simulated: {' '.join(call.argv)}")
        return 0
    kind = call.argv[call.argv.index("type") + 1]
    if not has_module(call.guest, kind):
        call.print_error("Error: Unknown device type.")
        return 2
    return 0


async def _unshare(call: Invocation) -> int:
    """The command itself: namespaces are not simulated."""
    _, words = parse_options(call.argv[1:], interleaved=False)
    return await call.shell.child().run(words, call.streams) if words else 0


async def _journalctl(call: Invocation) -> int:
    """The last lines of one unit, of the few that are kept."""
    options, _ = parse_options(call.argv[1:], ("u", "unit", "n", "lines", "S", "since", "o", "output"))
    unit = (options.get("u") or options.get("unit") or "").removesuffix(".service")
    lines = list(call.guest.journal.get(unit, ()))
    count = options.get("n") or options.get("lines") or ""
    for at, line in lines[-int(count) :] if count.isdigit() and int(count) else lines:
        call.print(f"{at:%b %d %H:%M:%S} {call.guest.hostname} {unit}: {line}")
    if not lines:
        call.print("-- No entries --")
    return 0


SYSTEM_COMMANDS: dict[str, Command] = {
    "sysctl": _sysctl,
    "journalctl": _journalctl,
    "useradd": _useradd,
    "adduser": _useradd,
    "id": _id,
    "ip": _ip,
    "unshare": _unshare,
}
