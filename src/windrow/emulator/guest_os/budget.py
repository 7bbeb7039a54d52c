"""What the scripts of one simulated machine may use of the emulator: steps, memory, nested commands, disk.

All scripts of a machine share one budget, and only the passing of time gives steps back: a script that sleeps runs for
as long as it likes, one that does not is killed. Nothing in a script can catch that: `ScriptKilled` ends its outermost
shell. A full disk is an error of the command that writes, as on a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from windrow.core.wait import yield_turn
from windrow.emulator.guest_os.hardware import Disk

MAX_STEPS = 50_000  # without a pause
MAX_DEPTH = 40
MAX_WORDS = 1 << 20  # characters in the variables of a shell, and in the words of a command
MAX_INPUT = 4 << 20  # bytes that one command reads
MAX_PIPED = 64 << 20  # bytes in all pipes of a machine
MAX_DISK = 128 << 20
KILLED = 137
_STEPS_PER_S = 1_000
_STEPS_A_TURN = 50  # then all other tasks have their turn
_BYTES_A_STEP = 4096
_ITEM = 64  # bytes beside those of its characters
_BLOCK = 4096  # bytes that a file takes at least


class ScriptKilled(Exception):
    """The whole script is killed."""


class DiskFull(Exception):
    """The machine's disk has no room for what a command writes."""


class ScriptBudget:
    """The budget of one power-on."""

    def __init__(self, monotonic: Callable[[], timedelta], disk: Disk) -> None:
        self._monotonic = monotonic
        self._disk = disk
        self._steps = float(MAX_STEPS)
        self._refilled = monotonic()
        self._turn = _STEPS_A_TURN
        self._piped = 0
        self._room = 0  # on the disk, when it was last measured, less what was written since

    async def spend(self, size: int = 0) -> None:
        """Pay for one step that handles `size` bytes. Raises ScriptKilled."""
        # Commands look at all files, for instance for a directory.
        steps = 1 + (size + 16 * len(self._disk.files)) // _BYTES_A_STEP
        self._steps -= steps
        if self._steps < 0:
            now = self._monotonic()
            gained = max((now - self._refilled).total_seconds(), 0.0) * _STEPS_PER_S
            self._steps, self._refilled = min(self._steps + gained, MAX_STEPS), now
            if self._steps < 0:
                self._steps = 0.0
                raise ScriptKilled(f"Killed: {MAX_STEPS} steps without a pause; the simulation runs no more")
        self._turn -= steps
        if self._turn <= 0:
            self._turn = _STEPS_A_TURN
            await yield_turn()

    def check_depth(self, depth: int) -> None:
        """Raises ScriptKilled."""
        if depth > MAX_DEPTH:
            raise ScriptKilled(f"Killed: more than {MAX_DEPTH} nested commands")

    def check_words(self, words: Iterable[str]) -> None:
        """All variables of a shell, or all words of a command. Raises ScriptKilled."""
        self.check_size(sum(len(word) + _ITEM for word in words))

    def check_size(self, size: int) -> None:
        """A word of `size` characters. Raises ScriptKilled."""
        if size > MAX_WORDS:
            raise self._out_of_memory("words and variables", MAX_WORDS)

    def check_input(self, size: int) -> None:
        """What one command reads. Raises ScriptKilled."""
        if size > MAX_INPUT:
            raise self._out_of_memory("one command's input", MAX_INPUT)

    def pipe(self, size: int) -> None:
        """There is that much more in pipes, or less. Raises ScriptKilled."""
        self._piped += size
        if size > 0 and self._piped > MAX_PIPED:
            raise self._out_of_memory("pipes", MAX_PIPED)

    def check_disk(self, size: int) -> None:
        """A command is about to write a file or a directory of `size` bytes. Raises DiskFull."""
        size += _BLOCK
        if size > self._room:
            directories = len(self._disk.state.get("directories", ()))
            used = sum(len(one.content) + _BLOCK for one in self._disk.files.values()) + directories * _BLOCK
            self._room = MAX_DISK - used
        if size > self._room:
            raise DiskFull
        self._room -= size

    def _out_of_memory(self, where: str, limit: int) -> ScriptKilled:
        return ScriptKilled(f"Out of memory: Killed, more than {limit >> 20} MiB in {where}")
