"""What `make driver` leaves in dist/ is what Rancher's installer takes."""

from __future__ import annotations

import hashlib
import re
import struct
import tarfile
from pathlib import Path

import pytest
from scripts.driver import sources
from tests.elf.conftest import BUILT

NAME = "docker-machine-driver-harvester"


@pytest.fixture
def archive(driver: Path) -> Path:
    found = sorted(BUILT.parent.glob(f"{NAME}-*.tar.gz"))
    if not found or driver != BUILT:
        pytest.skip("no archive in dist/; run: make driver")
    return found[0]


def test_the_archive_holds_the_program_and_nothing_else(archive: Path, driver: Path) -> None:
    with tarfile.open(archive) as opened:
        members = opened.getmembers()
        program = opened.extractfile(members[0])

        assert [member.name for member in members] == [NAME]
        assert members[0].isreg()
        assert members[0].mode == 0o755
        assert (members[0].uid, members[0].gid, members[0].uname) == (0, 0, "")
        assert program is not None
        assert program.read() == driver.read_bytes()


def test_its_checksum_lies_beside_it(archive: Path) -> None:
    line = archive.with_name(f"{archive.name}.sha256").read_text()

    assert line == f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n"


def test_the_program_is_an_elf_that_asks_for_no_loader_and_no_library(driver: Path) -> None:
    kinds = program_headers(driver.read_bytes())

    assert LOAD in kinds
    assert INTERPRETER not in kinds
    assert DYNAMIC not in kinds


LOAD, DYNAMIC, INTERPRETER = 1, 2, 3


def program_headers(content: bytes) -> list[int]:
    """The kinds of the program headers of a 64-bit little-endian ELF file."""
    assert content[:6] == b"\x7fELF\x02\x01"
    (start,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    return [struct.unpack_from("<I", content, start + index * size)[0] for index in range(count)]


def test_no_folder_of_the_build_is_in_the_program(driver: Path) -> None:
    content = driver.read_bytes()

    here = f"{BUILT.parent.parent}/".encode()
    found = [path for path in (here, b"/root/", b"/home/", b"windrow-driver-", b".cache/") if path in content]

    assert found == []


def test_the_build_says_which_sources_are_inside(archive: Path, driver: Path) -> None:
    told = archive.with_name(archive.name.replace(".tar.gz", ".BUILDINFO")).read_text()

    inside = dict(re.findall(r"^  (\S+) (\S+) \(Debian", told, re.MULTILINE))

    assert inside.keys() == set(sources.PACKAGES.values())
    assert f"sha256: {hashlib.sha256(driver.read_bytes()).hexdigest()}" in told
    assert "windrow.plugin.__main__" in told


def test_nothing_that_a_driver_does_not_need_is_frozen(archive: Path) -> None:
    told = archive.with_name(archive.name.replace(".tar.gz", ".BUILDINFO")).read_text()

    modules = re.findall(r"^  (\S+) \d+ \(", told, re.MULTILINE)

    assert "windrow.plugin.__main__" in modules
    unwanted = (
        "asyncio",
        "aiohttp",
        "msgspec",
        "cryptography",
        "rich",
        "logging",
        "http.client",
        "email",
        "windrow.clusters",
    )
    assert [name for name in modules if name.startswith(unwanted)] == []
