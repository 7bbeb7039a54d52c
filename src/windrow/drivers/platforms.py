"""Whether a program can run here, told from its first bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from windrow.drivers.faults import Fault

ELF = b"\x7fELF"
MACH_O = b"\xcf\xfa\xed\xfe"  # 64 bits, little-endian: the only one that Rancher knows, too

# e_machine and cputype of those that drivers are built for, by the name that the operating system gives itself.
_ELF_MACHINES = {
    3: "i386",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    21: "ppc64le",
    22: "s390x",
    243: "riscv64",
    258: "loongarch64",
}
_MACH_MACHINES = {0x0100_0007: "x86_64", 0x0100_000C: "aarch64"}
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}
PT_INTERP = 3
_SYSTEMS = {"linux": "Linux", "darwin": "macOS"}


@dataclass(frozen=True, slots=True)
class Platform:
    """`system` as `sys.platform` and `machine` as `platform.machine()` name them."""

    system: str = "linux"
    machine: str = "x86_64"

    def __str__(self) -> str:
        return f"{_SYSTEMS.get(self.system, self.system)} on {_canonical(self.machine)}"


def is_program(head: bytes) -> bool:
    return head.startswith((ELF, MACH_O))


def find_platform_fault(head: bytes, host: Platform, name: str) -> Fault | None:
    """Why the program that begins with `head` cannot run here, None where it can."""
    theirs = _platform_of(head)
    if theirs is None:
        return Fault(f"{name} is cut short", "build it again, and take its new SHA-256", "BadArchive")
    if (theirs.system, _canonical(theirs.machine)) == (host.system, _canonical(host.machine)):
        return None
    return Fault(
        f"{name} is for {theirs}, and this is {host}",
        f"name the URL and the SHA-256 of the one for {host}",
        "WrongPlatform",
    )


def _platform_of(head: bytes) -> Platform | None:
    if len(head) < 20:
        return None
    if head.startswith(MACH_O):
        (number,) = struct.unpack_from("<I", head, 4)
        return Platform("darwin", _MACH_MACHINES.get(number, f"machine {number:#x}"))
    order = {1: "<", 2: ">"}.get(head[5])
    if order is None:
        return None
    (number,) = struct.unpack_from(f"{order}H", head, 18)
    machine = _ELF_MACHINES.get(number, f"machine {number}")
    if number == 21 and order == ">":
        machine = "ppc64"
    return Platform("linux", machine)


def _canonical(machine: str) -> str:
    return _ALIASES.get(machine.lower(), machine.lower())


def find_loader(path: Path) -> str:
    """The loader (of the C library) that a dynamic 64-bit ELF program asks for, "" where it names none."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
            if not head.startswith(ELF) or head[4:6] != b"\x02\x01":
                return ""
            (table,) = struct.unpack_from("<Q", head, 32)
            size, count = struct.unpack_from("<HH", head, 54)
            for number in range(min(count, 64)):
                file.seek(table + number * size)
                entry = file.read(56)
                if len(entry) == 56 and struct.unpack_from("<I", entry)[0] == PT_INTERP:
                    offset, length = (
                        struct.unpack_from("<Q", entry, 8)[0],
                        struct.unpack_from("<Q", entry, 32)[0],
                    )
                    file.seek(offset)
                    return file.read(min(length, 200)).rstrip(b"\0").decode("ascii", "replace")
    except (OSError, struct.error):
        pass
    return ""
