"""What systemd's SystemCallFilter= allows, loaded into a process by libseccomp, which systemd itself uses.

Facts: systemd.exec(5) (SystemCallFilter=, SystemCallErrorNumber=), seccomp_rule_add(3).
"""

from __future__ import annotations

import ctypes
import errno
import subprocess
from collections.abc import Iterable, Set

LIBRARY = "libseccomp.so.2"
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


def expand(names: Iterable[str]) -> Set[str]:
    """The calls of `names`, of which those with @ are groups."""
    found: set[str] = set()
    for name in names:
        if not name.startswith("@"):
            found.add(name)
            continue
        listed = subprocess.run(
            ["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True
        )
        lines = (line.strip() for line in listed.stdout.splitlines() if line.startswith("    "))
        found |= expand(line for line in lines if line and not line.startswith("#"))
    return found


def allow_only(calls: Set[str]) -> None:
    """Refuse every other call to this process and its children, for good, with EPERM."""
    library = ctypes.CDLL(LIBRARY)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_rule_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    context = library.seccomp_init(ERRNO | errno.EPERM)
    for name in calls:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # another architecture's
            assert library.seccomp_rule_add(context, ALLOW, number, 0) == 0, name
    assert library.seccomp_load(context) == 0
