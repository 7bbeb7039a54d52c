"""Work in forks of this process: begun, waited for, and ended when they are stuck. Linux: pidfd, /proc.

A fork that is about to signal every process, as a mutant of a process id does, ends instead, and has failed. What a fork
prints goes nowhere, unless WINDROW_MUTANTS_VERBOSE is set. It counts as stuck when neither it nor a process
below it has used any CPU for `STUCK_SECONDS`: however busy the machine, what can run does run within them.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

STUCK_SECONDS = 30.0
# What `on_end` gets for a fork that raised, or was ended by a signal.
FAILED = 1


@dataclass
class _Fork:
    on_end: Callable[[int], None]
    pidfd: int
    cpu: int
    # When it was seen to use CPU.
    since: float


class Forks:
    """`clock` tells seconds, and starts anywhere."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[int, _Fork] = {}
        self._watched = clock()

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, work: Callable[[], int], on_end: Callable[[int], None]) -> None:
        """`work` in a fork, which ends with the code that it returns; `on_end` gets it, during `wait`."""
        sys.stdout.flush()
        child = os.fork()
        if not child:
            _run(work)
        self._running[child] = _Fork(on_end, os.pidfd_open(child), 0, self._clock())

    def wait(self, deadline: float) -> None:
        """Until one has ended, for a second, or until the deadline."""
        timeout = min(1.0, max(0.0, deadline - self._clock()))
        pidfds = {fork.pidfd: child for child, fork in self._running.items()}
        ended, _, _ = select.select(list(pidfds), [], [], timeout)
        for pidfd in ended:
            self._end(pidfds[pidfd])
        if (now := self._clock()) - self._watched < 1:
            return
        self._watched = now
        for child, fork in self._running.items():
            cpu = sum(_list_cpu(child).values())
            if cpu != fork.cpu:
                fork.cpu, fork.since = cpu, now
            elif now - fork.since > STUCK_SECONDS:
                _kill(child)

    def kill_all(self) -> None:
        """Without a word to `on_end`."""
        for child, fork in self._running.items():
            _kill(child)
            os.waitpid(child, 0)
            os.close(fork.pidfd)
        self._running.clear()

    def _end(self, child: int) -> None:
        fork = self._running.pop(child)
        _, status = os.waitpid(child, 0)
        os.close(fork.pidfd)
        code = os.waitstatus_to_exitcode(status)
        fork.on_end(code if code >= 0 else FAILED)


def _run(work: Callable[[], int]) -> None:
    code = FAILED
    try:
        if not os.environ.get("WINDROW_MUTANTS_VERBOSE"):
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (1, 2):
                os.dup2(nowhere, stream)
        os.kill, os.killpg = _guard(os.kill), _guard(os.killpg)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _guard(send: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """For kill(2), -1 and process group 1 are every process, 0 is the group that the run itself is of, and 1 the init process."""

    def guarded(target: int, signal_number: int) -> None:
        if target <= 1:
            os._exit(FAILED)
        send(target, signal_number)

    return guarded


def _list_cpu(root: int) -> dict[int, int]:
    """The clock ticks that a process and those below it have used, by process id."""
    used: dict[int, int] = {}
    below: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            used[int(folder.name)] = sum(map(int, fields[11:15]))
            below.setdefault(int(fields[1]), []).append(int(folder.name))
    found: dict[int, int] = {}
    waiting = [root]
    while waiting:
        process = waiting.pop()
        if process in used:
            found[process] = used[process]
        waiting += below.get(process, ())
    return found


def _kill(root: int) -> None:
    for process in _list_cpu(root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
