"""Users and kernel parameters of a simulated machine: the two things of the system that RKE2 looks at.

Users live on the disk. Parameters are the kernel's: gone at power-off, set at boot from sysctl.d and by `sysctl`.
"""

from __future__ import annotations

from windrow.emulator.guests.box import Box
from windrow.emulator.guests.shell import Call, Command

_STANDING = frozenset(
    {"root", "daemon", "nobody", "www-data", "syslog", "messagebus", "ubuntu", "systemd-network"}
)
# What a kernel starts with, for the parameters that are judged (reference/04 §7.12, number 9).
_KERNEL = {
    "vm.overcommit_memory": "0",
    "vm.panic_on_oom": "0",
    "kernel.panic": "0",
    "kernel.panic_on_oops": "0",
    "kernel.keys.root_maxbytes": "25000000",
}
HARDENED = {
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
}
_DIRECTORIES = ("/usr/lib/sysctl.d", "/run/sysctl.d", "/etc/sysctl.d")


def has_user(box: Box, name: str) -> bool:
    return name in _STANDING or name in _users(box)


def add_user(box: Box, name: str) -> None:
    _users(box).add(name)


def _users(box: Box) -> set[str]:
    found: set[str] = box.hardware.root.state.setdefault("users", set())
    return found


def kernel_parameter(box: Box, name: str) -> str:
    return box.kernel.get(name, _KERNEL.get(name, ""))


def has_module(box: Box, name: str) -> bool:
    """Whether the kernel can load a module: the image has it, and nothing in modprobe.d forbids it."""
    if name in box.hardware.image_lacks:
        return False
    forbidding = (f"blacklist {name}", f"install {name} ")
    lines = [
        " ".join(line.split())
        for path in box.list_under("/etc/modprobe.d")
        if path.endswith(".conf")
        for line in (box.read(path) or b"").decode("utf-8", "replace").splitlines()
    ]
    return not any(line == forbidding[0] or line.startswith(forbidding[1]) for line in lines)


def wrong_parameters(box: Box) -> list[str]:
    """The parameters that are not as a hardened node needs them, as `name=value - expected value`."""
    return [
        f"{name}={kernel_parameter(box, name)} - expected {wanted}"
        for name, wanted in HARDENED.items()
        if kernel_parameter(box, name) != wanted
    ]


def apply_sysctl_files(box: Box) -> None:
    """What systemd-sysctl does at boot."""
    paths = [
        path for directory in _DIRECTORIES for path in box.list_under(directory) if path.endswith(".conf")
    ]
    for path in [*sorted(paths, key=lambda one: one.rsplit("/", 1)[-1]), "/etc/sysctl.conf"]:
        _apply(box, path)


def _apply(box: Box, path: str) -> bool:
    content = box.read(path)
    for line in (content or b"").decode("utf-8", "replace").splitlines():
        _set(box, line.split("#", 1)[0].split(";", 1)[0])
    return content is not None


def _set(box: Box, line: str) -> None:
    name, sign, value = line.partition("=")
    if sign:
        box.kernel[name.strip().lstrip("-").replace("/", ".")] = value.strip()


async def _sysctl(call: Call) -> int:
    words = call.argv[1:]
    if "--system" in words:
        apply_sysctl_files(call.box)
        return 0
    for place, word in enumerate(words):
        if word in ("-p", "--load"):
            path = words[place + 1] if place + 1 < len(words) else "/etc/sysctl.conf"
            return 0 if _apply(call.box, path) else 1
        if word.startswith("--load="):
            return 0 if _apply(call.box, word.partition("=")[2]) else 1
        if "=" in word:
            _set(call.box, word)
        elif not word.startswith("-"):
            value = kernel_parameter(call.box, word)
            call.print(value if "-n" in words else f"{word} = {value}")
    return 0


async def _useradd(call: Call) -> int:
    words = iter(call.argv[1:])
    name = ""
    for word in words:
        if word in _VALUED:
            next(words, "")
        elif not word.startswith("-"):
            name = word
    if not name:
        return 2
    if has_user(call.box, name):
        call.complain(f"user '{name}' already exists")
        return 9
    add_user(call.box, name)
    return 0


_VALUED = frozenset(
    {"-c", "--comment", "-d", "--home-dir", "-g", "--gid", "-G", "--groups", "-s", "--shell", "-u", "--uid"}
)


async def _id(call: Call) -> int:
    name = next((word for word in call.argv[1:] if not word.startswith("-")), "root")
    if not has_user(call.box, name):
        call.complain(f"'{name}': no such user")
        return 1
    call.print("0" if "-u" in call.argv and name == "root" else "1000" if "-u" in call.argv else name)
    return 0


SYSTEM_COMMANDS: dict[str, Command] = {
    "sysctl": _sysctl,
    "useradd": _useradd,
    "adduser": _useradd,
    "id": _id,
}
