from __future__ import annotations

import asyncio
import errno
import struct
from pathlib import Path

import pytest

from windrow.drivers.faults import Fault
from windrow.drivers.platforms import find_loader
from windrow.drivers.probe import probe_flags, translate_error
from windrow.protocols.dockermachine import Flag
from windrow.testing.clock import LoopClock, run_driven

DRIVER = Path("/x/docker-machine-driver-noop")
FLAGS = (Flag("string", "noop-a", "", "", ""),)


def a_dynamic_elf(loader: bytes) -> bytes:
    """An ELF with a table of two program headers, the second of which names the loader."""
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 2, 62, 1) + struct.pack("<QQQ", 0, 64, 0)
    head += struct.pack("<IHHHHHH", 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 0, 0, 0)
    interp = struct.pack("<IIQQQQQQ", 3, 4, 64 + 2 * 56, 0, 0, len(loader) + 1, 0, 0)
    return head + load + interp + loader + b"\0"


def asked(answer: object, after: float = 0.0) -> object:
    async def ask_flags(path: Path) -> tuple[Flag, ...]:
        await asyncio.sleep(after)
        if isinstance(answer, Exception):
            raise answer
        return FLAGS

    async def story() -> object:
        return await probe_flags(DRIVER, ask_flags, LoopClock())

    return run_driven(story())


def test_the_flags_are_those_that_the_driver_tells():
    assert asked(FLAGS, 9.9) == FLAGS


def test_ten_seconds_are_the_longest_and_the_program_is_told_to_end():
    ended: list[bool] = []

    async def ask_flags(path: Path) -> tuple[Flag, ...]:
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append(True)
        return ()

    async def story() -> None:
        clock = LoopClock()
        begun = clock.now()
        with pytest.raises(Fault, match="gave no answer within 10 s; run it by hand"):
            await probe_flags(DRIVER, ask_flags, clock)
        assert (clock.now() - begun).total_seconds() == 10

    run_driven(story())
    assert ended == [True]


class Told(Exception):
    def __init__(
        self, how: str = "ended with exit code 1 before it printed its address: GLIBC_2.38 not found"
    ) -> None:
        self.message = f"plugin docker-machine-driver-noop {how}"
        self.hint = "install another one"


def wrapped(error: OSError) -> Exception:
    told = Told()
    told.__cause__ = error
    return told


@pytest.mark.parametrize(
    ("error", "sentence", "reason"),
    [
        (
            PermissionError(errno.EACCES, "no"),
            "docker-machine-driver-noop may not be run; put the state",
            "NotExecutable",
        ),
        (
            OSError(errno.ENOEXEC, "no"),
            "docker-machine-driver-noop is no program for this system",
            "NotExecutable",
        ),
        (FileNotFoundError(errno.ENOENT, "no"), "docker-machine-driver-noop is not there", "NotExecutable"),
        (TimeoutError(), "docker-machine-driver-noop gave no answer within 10 s", "NoAnswer"),
        (
            Told(),
            "docker-machine-driver-noop ended with exit code 1 before it printed its address: GLIBC_2.38 not found; "
            "name a build for this system",
            "NoAnswer",
        ),
        (
            wrapped(PermissionError(errno.EACCES, "no")),
            "docker-machine-driver-noop may not be run",
            "NotExecutable",
        ),
        (
            wrapped(ConnectionRefusedError(errno.ECONNREFUSED, "no")),
            "name a build for this system",
            "NoAnswer",
        ),
        (ValueError("a\nb"), "could not be asked for its create flags: a b; name a build", "NoAnswer"),
        (ValueError(), "could not be asked for its create flags: ValueError", "NoAnswer"),
    ],
)
def test_what_goes_wrong_is_told_with_the_cure(error: Exception, sentence: str, reason: str):
    with pytest.raises(Fault) as caught:
        asked(error)

    assert sentence in str(caught.value)
    assert caught.value.reason == reason
    assert caught.value.is_retryable


@pytest.mark.parametrize(
    "how",
    [
        "ended with exit code 0 before it printed its address",
        "ended with exit code 0 before it printed its address; its last words: hello",
        "ended with exit code 1 before it printed its address",
        "printed 'hello' where 127.0.0.1:PORT was expected",
    ],
)
def test_what_does_not_greet_as_a_driver_is_called_none(how: str):
    with pytest.raises(Fault) as caught:
        asked(Told(how))

    assert caught.value.hint == "name another file: this is no docker-machine driver"


@pytest.mark.parametrize("how", ["ended with SIGILL before it printed its address", "closed the connection"])
def test_what_may_be_a_driver_for_another_system_is_not_called_none(how: str):
    with pytest.raises(Fault) as caught:
        asked(Told(how))

    assert caught.value.hint.startswith("name a build for this system")


def test_a_missing_loader_is_named(tmp_path: Path):
    program = tmp_path / "docker-machine-driver-noop"
    program.write_bytes(a_dynamic_elf(b"/lib/ld-musl-x86_64.so.1"))

    fault = translate_error(FileNotFoundError(errno.ENOENT, "no"), program)

    assert str(fault) == (
        "docker-machine-driver-noop needs the loader /lib/ld-musl-x86_64.so.1, which is not here; "
        "name a build that is linked statically, or for the C library of this system"
    )


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n", a_dynamic_elf(b"")[:150]])
def test_what_names_no_loader_has_none(tmp_path: Path, content: bytes):
    (tmp_path / "x").write_bytes(content)

    assert find_loader(tmp_path / "x") == ""
    assert find_loader(tmp_path / "absent") == ""
