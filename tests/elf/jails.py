"""Places with little in them, to start the one-file driver in: the environments of Rancher and of its machine jobs.

A jail is a folder in a mount namespace of its own; the program in it runs as an ordinary user with an empty
environment but for what a host passes. Making one needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

USER = 1000
BUSYBOX = "/bin/busybox"


@dataclass(frozen=True, slots=True)
class Jail:
    """What there is in it."""

    name: str
    proc: bool = False
    tmp: Literal["of root", "writable", "noexec"] = "of root"
    read_only: bool = False
    libraries: Literal["all", "glibc", "none"] = "all"

    def __str__(self) -> str:
        return self.name


JAILS = (
    Jail("A: Rancher's chroot, no /proc, /tmp not writable"),
    Jail("B: no /proc, /tmp writable", tmp="writable"),
    Jail("C: /proc and /tmp writable, as in a job's pod", proc=True, tmp="writable"),
    Jail("D: /tmp mounted noexec", proc=True, tmp="noexec"),
    Jail("E: root file system read-only", proc=True, read_only=True),
    Jail("F: glibc only, no libz", libraries="glibc"),
    Jail("G: no C library at all", libraries="none"),
)

# Where Debian and others keep them; the loader must lie at the path that programs name.
GLIBC = ("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libresolv.so.2")
LIBRARIES: Mapping[str, Sequence[str]] = {
    "all": (*GLIBC, "libz.so.1", "libselinux.so.1", "libpcre2-8.so.0"),
    "glibc": GLIBC,
    "none": (),
}
FOLDERS = ("/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib64")


def why_not() -> str:
    """Why no jail can be made here; empty if it can."""
    if os.geteuid() != 0:
        return "a jail needs root"
    missing = [tool for tool in ("unshare", "chroot", "busybox") if not shutil.which(tool)]
    if missing:
        return f"a jail needs {', '.join(missing)}"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    return f"no mount namespace here: {tried.stderr.strip()}" if tried.returncode else ""


def furnish(jail: Jail, program: Path, folder: Path) -> None:
    """Put into the folder what the jail has: the program, a static busybox, libraries."""
    for name in ("bin", "lib64", "lib/x86_64-linux-gnu", "proc", "tmp"):
        (folder / name).mkdir(parents=True)
    (folder / "tmp").chmod(0o755)
    shutil.copy(program, folder / program.name)
    (folder / program.name).chmod(0o755)
    shutil.copy(shutil.which("busybox") or BUSYBOX, folder / "bin" / "busybox")
    # A busybox linked with the host's C library: it starts where there is one.
    shutil.copy("/bin/true", folder / "bin" / "dynamic")
    for library in LIBRARIES[jail.libraries]:
        found = next((path for parent in FOLDERS if (path := Path(parent) / library).exists()), None)
        if found is not None:
            shutil.copy(found, folder / "lib/x86_64-linux-gnu" / library)
    loader = folder / "lib/x86_64-linux-gnu" / GLIBC[0]
    if loader.exists():
        shutil.copy(loader, folder / "lib64" / GLIBC[0])


def command(
    jail: Jail, folder: Path, words: Sequence[str], environment: Mapping[str, str] | None = None
) -> list[str]:
    """A command line that runs `words` in the jail; its process becomes that program's."""
    mounts = ['mount --bind "$0" "$0"', 'cd "$0"']
    if jail.proc:
        mounts.append('mount -t proc proc "$0/proc"')
    if jail.tmp != "of root":
        mounts.append(
            f'mount -t tmpfs -o mode=1777{",noexec" if jail.tmp == "noexec" else ""} tmpfs "$0/tmp"'
        )
    if jail.read_only:
        mounts.append('mount -o remount,bind,ro "$0"')
    mounts.append('exec "$@"')
    passed = [f"{name}={value}" for name, value in (environment or {}).items()]
    return [
        *("unshare", "--mount", "--propagation", "private", "sh", "-ec", "; ".join(mounts), str(folder)),
        *(
            "env",
            "-i",
            *passed,
            shutil.which("chroot") or "chroot",
            f"--userspec={USER}:{USER}",
            "--groups=",
            str(folder),
        ),
        *words,
    ]


def ask(jail: Jail, folder: Path, script: str) -> str:
    """What a line of shell says inside, by the busybox there."""
    words = ["/bin/busybox", "sh", "-c", script]
    done = subprocess.run(
        command(jail, folder, words), capture_output=True, text=True, check=False, timeout=20
    )
    return done.stdout.strip()
