"""Windrow's programs as processes of their own, which a run kills and stops."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

BIN = Path(sys.executable).parent
START_WITHIN_S = 60.0


class DidNotStart(Exception):
    """A program ended, or did not write its files in time."""


class Failed(Exception):
    """A command ended with another code than 0."""


async def run_windrow(folder: Path, *arguments: str) -> None:
    """Run a command of `windrow` to its end. Raises Failed."""
    process = await asyncio.create_subprocess_exec(
        BIN / "windrow",
        *arguments,
        cwd=folder,
        env=_base_env(folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise Failed(
            f"windrow {' '.join(arguments)}: {process.returncode}: {said.decode('utf-8', 'replace')}"
        )


def _base_env(folder: Path) -> dict[str, str]:
    home = folder / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    env = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8"}
    kept = {name: os.environ[name] for name in ("PYTHONPYCACHEPREFIX",) if name in os.environ}
    return {**env, **kept}


@dataclass
class Program:
    """One program; `writes` are the files by which it says that it serves. Each start is a process session of its own."""

    name: str
    argv: Sequence[str]
    folder: Path
    writes: Sequence[Path] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    sessions: list[int] = field(default_factory=list)
    stopped: bool = False
    # One fault at a time does something to a program.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def start(self) -> None:
        """Return once it serves. Raises DidNotStart."""
        began = time.time()
        self._spawn({**_base_env(self.folder), **self.env})
        deadline = time.monotonic() + START_WITHIN_S
        while not all(path.exists() and path.stat().st_mtime >= began - 0.01 for path in self.writes):
            if not self.alive:
                raise DidNotStart(f"{self.name} ended with {self.process.returncode}: {self.last_lines()}")
            if time.monotonic() > deadline:
                raise DidNotStart(
                    f"{self.name} did not serve within {START_WITHIN_S:.0f} s: {self.last_lines()}"
                )
            await asyncio.sleep(0.02)

    def _spawn(self, env: Mapping[str, str]) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv,
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.sessions.append(self.process.pid)

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            assert self.process is not None
            self.process.send_signal(number)
            self.stopped = number == signal.SIGSTOP or (self.stopped and number != signal.SIGCONT)

    async def kill(self) -> None:
        """SIGKILL. Returns when the process is gone."""
        self.signal(signal.SIGKILL)
        await self.wait()

    async def end(self, within: float = 30) -> int | None:
        """SIGTERM; the exit code, or None where it had to be killed."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            return await self.wait(within)
        except subprocess.TimeoutExpired:
            await self.kill()
            return None

    async def wait(self, within: float | None = None) -> int | None:
        """The exit code, once the process has ended. Raises subprocess.TimeoutExpired."""
        if self.process is None:
            return None
        code = await asyncio.to_thread(self.process.wait, within)
        self.stopped = False
        return code

    def last_lines(self, number: int = 5) -> str:
        with suppress(OSError):
            return " | ".join(self.log.read_text(errors="replace").splitlines()[-number:])
        return ""

    def others(self) -> list[tuple[int, str]]:
        """The processes, with their commands, that this program started and that live: those of its sessions."""
        return [
            (pid, command)
            for pid, session, command in list_processes()
            if session in self.sessions and not (self.alive and pid == self.pid)
        ]


def list_processes() -> list[tuple[int, int, str]]:
    """Process id, session id and command line of every process but zombies."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            )
            if after_name[0] != "Z":
                found.append((int(folder.name), int(after_name[3]), command))
    return found
