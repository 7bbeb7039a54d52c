from __future__ import annotations

import asyncio
import errno
import struct
from pathlib import Path

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.drivers.api import Fault
from windrow.drivers.installer import probe_flags, translate_error
from windrow.protocols.dockermachine import Flag

DRIVER = Path("/x/docker-machine-driver-noop")
FLAGS = (Flag("string", "noop-a", "", "", ""),)


def asked(answer: object, after: float = 0.0) -> object:
    async def ask_flags(path: Path) -> tuple[Flag, ...]:
        await asyncio.sleep(after)
        if isinstance(answer, Exception):
            raise answer
        return FLAGS

    async def story() -> object:
        return await probe_flags(DRIVER, ask_flags, LoopClock())

    return run_driven(story())


def test_the_flags_are_those_of_the_driver():
    assert asked(FLAGS, 9.9) == FLAGS


def test_a_probe_ends_after_ten_seconds_and_cancels_the_program():
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
        with pytest.raises(Fault, match="did not answer within 10 s; run it by hand"):
            await probe_flags(DRIVER, ask_flags, clock)
        assert (clock.now() - begun).total_seconds() == 10

    run_driven(story())
    assert ended == [True]


class ProbeError(Exception):
    def __init__(
        self, how: str = "ended with exit code 1 before it printed its address: GLIBC_2.38 not found"
    ) -> None:
        self.message = f"plugin docker-machine-driver-noop {how}"
        self.hint = "install another one"


def wrapped(error: OSError) -> Exception:
    told = ProbeError()
    told.__cause__ = error
    return told


@pytest.mark.parametrize(
    ("error", "sentence", "reason"),
    [
        (
            PermissionError(errno.EACCES, "no"),
            "docker-machine-driver-noop is not executable; put the state",
            "NotExecutable",
        ),
        (
            OSError(errno.ENOEXEC, "no"),
            "docker-machine-driver-noop is no executable for this system",
            "NotExecutable",
        ),
        (FileNotFoundError(errno.ENOENT, "no"), "docker-machine-driver-noop does not exist", "NotExecutable"),
        (TimeoutError(), "docker-machine-driver-noop did not answer within 10 s", "ProbeFailed"),
        (
            ProbeError(),
            "docker-machine-driver-noop ended with exit code 1 before it printed its address: GLIBC_2.38 not found; "
            "use a build for this system",
            "ProbeFailed",
        ),
        (
            wrapped(PermissionError(errno.EACCES, "no")),
            "docker-machine-driver-noop is not executable",
            "NotExecutable",
        ),
        (
            wrapped(ConnectionRefusedError(errno.ECONNREFUSED, "no")),
            "use a build for this system",
            "ProbeFailed",
        ),
        (
            ValueError("a\nb"),
            "cannot read the create flags of docker-machine-driver-noop: a b; use a build",
            "ProbeFailed",
        ),
        (
            ValueError(),
            "cannot read the create flags of docker-machine-driver-noop: ValueError",
            "ProbeFailed",
        ),
    ],
)
def test_each_error_has_a_hint(error: Exception, sentence: str, reason: str):
    with pytest.raises(Fault) as caught:
        asked(error)

    assert sentence in str(caught.value)
    assert caught.value.reason == reason
    assert caught.value.is_retryable


@pytest.mark.parametrize(
    "how",
    [
        "ended with exit code 0 before it printed its address",
        "ended with exit code 0 before it printed its address; its last output: hello",
        "ended with exit code 1 before it printed its address",
        "printed 'hello' where 127.0.0.1:PORT was expected",
    ],
)
def test_a_program_without_the_protocol_is_no_driver(how: str):
    with pytest.raises(Fault) as caught:
        asked(ProbeError(how))

    assert caught.value.hint == "use another file: this is no docker-machine driver"


@pytest.mark.parametrize("how", ["ended with SIGILL before it printed its address", "closed the connection"])
def test_a_program_that_may_be_a_driver_for_another_system_counts_as_one(how: str):
    with pytest.raises(Fault) as caught:
        asked(ProbeError(how))

    assert caught.value.hint.startswith("use a build for this system")


def an_elf_with_loader(loader: bytes) -> bytes:
    """The header of a 64-bit ELF file, a program header that is no PT_INTERP, and one that is."""
    head = struct.pack("<4sBB10xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    entries = [struct.pack("<IIQQQQQQ", kind, 4, 176, 0, 0, len(loader), len(loader), 1) for kind in (6, 3)]
    return b"".join([head, *entries, loader])


def test_a_missing_loader_is_named(tmp_path: Path):
    program = tmp_path / "docker-machine-driver-noop"
    program.write_bytes(an_elf_with_loader(b"/lib/ld-musl-x86_64.so.1\0"))

    fault = translate_error(FileNotFoundError(errno.ENOENT, "no"), program)

    assert str(fault) == (
        "docker-machine-driver-noop needs the loader /lib/ld-musl-x86_64.so.1, which does not exist here; "
        "use a build that is linked statically, or for the C library of this system"
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"\x7fELF", an_elf_with_loader(b"")[:70], an_elf_with_loader(b"")],
    ids=["empty", "magic only", "cut", "empty path"],
)
def test_a_program_that_names_no_loader_is_reported_without_one(content: bytes, tmp_path: Path):
    program = tmp_path / "docker-machine-driver-noop"
    program.write_bytes(content)

    fault = translate_error(FileNotFoundError(errno.ENOENT, "no"), program)

    assert "needs the loader (of the C library), which does not exist here" in str(fault)
