"""A small disk of its own for a program's state, to be filled and made read-only. As root a tmpfs; else a limit of size."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# A backup wants 64 MiB free where the database is.
SIZE_MB = 160


@dataclass
class Disk:
    """A directory at `path`; with `mounted` a tmpfs of its own."""

    path: Path
    mounted: bool = False

    def mount(self) -> None:
        """Mount a tmpfs where that is possible."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            options = f"size={SIZE_MB}m,mode=0700"
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)],
                capture_output=True,
                check=False,
            )
            self.mounted = done.returncode == 0

    def unmount(self) -> None:
        """What is on it is kept in the directory below, for who looks at it later."""
        if not self.mounted:
            return
        kept = self.path.with_name(f"{self.path.name}.kept")
        subprocess.run(["cp", "-a", str(self.path), str(kept)], capture_output=True, check=False)
        subprocess.run(["umount", "--lazy", str(self.path)], capture_output=True, check=False)
        with suppress(OSError):
            self.path.rmdir()
            kept.rename(self.path)

    def fill(self, pid: int) -> None:
        """From now on the process `pid` finds no space here."""
        if not self.mounted:
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
            return
        for block in (1 << 20, 4096):
            with (self.path / "ballast").open("ab", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(block))

    def free(self, pid: int) -> None:
        if not self.mounted:
            with suppress(ProcessLookupError):
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
            return
        (self.path / "ballast").unlink(missing_ok=True)

    def copy_to(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.path, folder)

    def replace_by(self, folder: Path) -> None:
        """What is here becomes a copy of `folder`, as on a disk that was rolled back: files keep their inodes."""
        kept = {path.relative_to(folder) for path in folder.rglob("*")}
        for path in sorted(self.path.rglob("*"), reverse=True):
            if path.relative_to(self.path) not in kept:
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copytree(folder, self.path, dirs_exist_ok=True)

    def make_read_only(self, wanted: bool) -> bool:
        """Whether it is so now; no process may have a file open for writing."""
        mode = "ro" if wanted else "rw"
        done = subprocess.run(
            ["mount", "-o", f"remount,{mode}", str(self.path)], capture_output=True, check=False
        )
        return self.mounted and done.returncode == 0
