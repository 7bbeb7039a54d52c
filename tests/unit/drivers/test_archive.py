"""What URLs may deliver: what is taken, under which name, and what is refused with which words."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.drivers.files import (
    DRIVER,
    HERE,
    URL,
    a_driver,
    a_link,
    a_mach_o,
    a_tar,
    a_tar_gz,
    a_zip,
    an_elf,
)

from windrow.drivers.api import Fault
from windrow.drivers.archive import (
    NOT_FOUND_MESSAGE,
    Limits,
    Platform,
    driver_name_of_member,
    driver_name_of_url,
    extract,
)

ELF = an_elf(b"the program")
MAC = Platform("darwin", "arm64")


def taken(
    data: bytes, folder: Path, url: str = URL, platform: Platform = HERE, **limits: int
) -> tuple[str, bytes]:
    source = folder / "file"
    source.write_bytes(data)
    target = io.BytesIO()
    name = extract(source, url, target, platform, Limits(**limits))
    return name, target.getvalue()


# -- taken -------------------------------------------------------------------------------------------------------

GOOD = {
    "tar.gz": a_tar_gz((DRIVER, ELF)),
    "tar": a_tar((DRIVER, ELF)),
    "zip": a_zip((DRIVER, ELF)),
    "zip, stored": a_zip((DRIVER, ELF), method=zipfile.ZIP_STORED),
    "below a directory": a_tar_gz((f"./bin/{DRIVER}", ELF)),
    "zip below a directory": a_zip((f"bin/{DRIVER}", ELF)),
    "beside other files": a_tar_gz(("README", b"read me"), (DRIVER, ELF), ("LICENSE", b"free")),
    "beside a link": a_tar_gz(a_link("latest", DRIVER), (DRIVER, ELF)),
    "beside its own checksum": a_tar_gz((f"{DRIVER}.sha256", b"0123"), (DRIVER, ELF)),
    "with a pax header": a_tar((DRIVER, ELF)),
    "gzip in several parts": gzip.compress(a_tar((DRIVER, ELF))[:700])
    + gzip.compress(a_tar((DRIVER, ELF))[700:]),
}


@pytest.mark.parametrize("form", GOOD)
def test_archives_that_are_extracted(form: str, tmp_path: Path):
    assert taken(GOOD[form], tmp_path) == ("noop", ELF)


def test_a_bare_binary_is_extracted(tmp_path: Path):
    assert taken(ELF, tmp_path, "https://x.example/docker-machine-driver-noop-linux-amd64?v=1") == (
        "noop",
        ELF,
    )


def test_a_binary_for_macos_is_extracted_there(tmp_path: Path):
    assert taken(a_tar_gz((DRIVER, a_mach_o())), tmp_path, platform=MAC) == ("noop", a_mach_o())


@pytest.mark.parametrize(
    ("last", "name"),
    [
        ("docker-machine-driver-harvester", "harvester"),
        ("docker-machine-driver-harvester-amd64", "harvester"),
        ("docker-machine-driver-harvester_linux", "harvester"),
        ("docker-machine-driver-harvester.v1", "harvester"),
        ("docker-machine-driver-%68arvester", "harvester"),
    ],
)
def test_the_name_in_an_url_ends_at_the_first_dash_underscore_or_dot(last: str, name: str):
    assert driver_name_of_url(f"https://x.example/a/{last}") == name


@pytest.mark.parametrize(
    ("member", "name"),
    [
        ("docker-machine-driver-harvester", "harvester"),
        ("bin/docker-machine-driver-harvester", "harvester"),
        ("docker-machine-driver-noop-linux-amd64", "noop-linux-amd64"),
    ],
)
def test_the_name_in_an_archive_is_all_that_follows_the_prefix(member: str, name: str):
    assert driver_name_of_member(member) == name


@pytest.mark.parametrize(
    "member",
    [
        "docker-machine-driver-",
        "docker-machine-driver-No",
        "docker-machine-driver-a_b",
        "docker-machine-driver-a.exe",
    ],
)
def test_names_that_no_kind_can_have_are_refused(member: str):
    with pytest.raises(Fault, match="has no valid driver name"):
        driver_name_of_member(member)


# -- refused -----------------------------------------------------------------------------------------------------


def a_device() -> tarfile.TarInfo:
    info = tarfile.TarInfo("dev/sda")
    info.type = tarfile.BLKTYPE
    return info


def a_zip_link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(DRIVER)
    info.external_attr = 0o120777 << 16
    return info


def an_encrypted_zip() -> bytes:
    data = bytearray(a_zip((DRIVER, ELF)))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def a_large_header() -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 64 * 2**20
    return info.tobuf(tarfile.USTAR_FORMAT) + bytes(2**20)


def a_zip64() -> bytes:
    """A zip whose zip64 record tells of a far longer list than its end does."""
    data = a_zip((DRIVER, ELF))
    place = data.rindex(b"PK\x05\x06")
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 2**20, 2**20, 2**30, 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, place, 1)
    return data[:place] + record + locator + data[place:]


def a_sparse(**headers: str) -> bytes:
    info = tarfile.TarInfo(DRIVER)
    info.size, info.pax_headers = len(ELF), {f"GNU.sparse.{key}": text for key, text in headers.items()}
    return info.tobuf(tarfile.PAX_FORMAT) + b"1\n0\n7\n".ljust(1024, b"\0") + bytes(1024)


def an_old_sparse() -> bytes:
    info = tarfile.TarInfo(DRIVER)
    info.type = tarfile.GNUTYPE_SPARSE
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)


def a_lasting_header() -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XGLTYPE, 64 * 2**10
    return info.tobuf(tarfile.USTAR_FORMAT) + bytes(2**17)


BAD = {
    "nothing": (b"", NOT_FOUND_MESSAGE),
    "text": (b"hello", NOT_FOUND_MESSAGE),
    "a script": (b"#!/bin/sh\n", f"{NOT_FOUND_MESSAGE} (the file is a script); drivers are programs"),
    "a web page": (b"\n<!DOCTYPE html>", f"{NOT_FOUND_MESSAGE} (the file is a web page)"),
    "xz": (lzma.compress(ELF), "(the file is an xz archive); pack it as tar.gz"),
    "bzip2": (bz2.compress(ELF), "(the file is a bzip2 archive); pack it as tar.gz"),
    "a program for Windows": (b"MZ\x90\x00", "(the file is a program for Windows)"),
    "an empty tar": (a_tar(), NOT_FOUND_MESSAGE),
    "an empty tar.gz": (a_tar_gz(), NOT_FOUND_MESSAGE),
    "an empty zip": (a_zip(), NOT_FOUND_MESSAGE),
    "no driver": (a_tar_gz(("README", b"x"), ("driver", ELF)), NOT_FOUND_MESSAGE),
    "no driver in a zip": (a_zip(("driver", ELF)), NOT_FOUND_MESSAGE),
    "a script in a tar": (a_tar_gz((DRIVER, b"#!/bin/sh\n")), f"{NOT_FOUND_MESSAGE} ({DRIVER} is a script)"),
    "a script in a zip": (
        a_zip((DRIVER, b"#!/usr/bin/python3\n")),
        f"{NOT_FOUND_MESSAGE} ({DRIVER} is a script)",
    ),
    "text of that name": (
        a_tar_gz((DRIVER, b"hello")),
        f"{NOT_FOUND_MESSAGE} ({DRIVER} is not a program (ELF or Mach-O))",
    ),
    "a symbolic link": (a_tar_gz(a_link(DRIVER, "/bin/sh")), f"{NOT_FOUND_MESSAGE} ({DRIVER} is a link)"),
    "a hard link": (
        a_tar_gz(a_link(DRIVER, "x", tarfile.LNKTYPE)),
        f"{NOT_FOUND_MESSAGE} ({DRIVER} is a link)",
    ),
    "a link in a zip": (
        a_zip((a_zip_link(), b"/bin/sh")),
        f"{NOT_FOUND_MESSAGE} ({DRIVER} is no regular file)",
    ),
    "a directory of that name": (a_tar_gz(a_link(DRIVER, "", tarfile.DIRTYPE)), NOT_FOUND_MESSAGE),
    "an absolute path": (
        a_tar_gz(("/etc/passwd", b"x"), (DRIVER, ELF)),
        "outside of it, /etc/passwd",
    ),
    "an absolute path in a zip": (a_zip(("/etc/passwd", b"x")), "outside of it, /etc/passwd"),
    "dots": (a_tar_gz((f"../../{DRIVER}", ELF)), f"outside of it, ../../{DRIVER}"),
    "dots in a zip": (a_zip((f"a/../../{DRIVER}", ELF)), "outside of it"),
    "dots as Windows writes them": (a_zip((f"..\\{DRIVER}", ELF)), "outside of it"),
    "a device": (a_tar_gz(a_device(), (DRIVER, ELF)), "contains a device, dev/sda"),
    "two drivers": (
        a_tar_gz((DRIVER, ELF), ("docker-machine-driver-other", ELF)),
        f"contains several drivers, {DRIVER} and docker-machine-driver-other",
    ),
    "two drivers in a zip": (a_zip((DRIVER, ELF), (f"x/{DRIVER}", ELF)), "contains several drivers"),
    "an encrypted zip": (an_encrypted_zip(), f"{DRIVER} is encrypted; pack it without a password"),
    "a zip in an unusual way": (a_zip((DRIVER, ELF), method=zipfile.ZIP_LZMA), "unsupported compression"),
    "a name of control characters": (
        a_tar_gz((f"{DRIVER}-\x1b[2J", b"#!")),
        f"({DRIVER}-?[2J is a script)",
    ),
    "a gzip cut short": (a_driver()[:-20], "the archive is broken"),
    "a gzip that is none": (b"\x1f\x8b" + bytes(30), "the archive is broken"),
    "a tar cut short": (a_tar((DRIVER, an_elf(bytes(5000))))[:2000], "the archive is broken"),
    "a zip cut short": (a_zip((DRIVER, ELF))[:-30], "the zip has no end record"),
    "a zip64": (a_zip64(), "the file is a zip64"),
    "holes, 0.0": (a_sparse(size="7", numblocks="1"), "contains a sparse file"),
    "holes, 0.1": (a_sparse(map="0,7"), "contains a sparse file"),
    "holes, 1.0": (a_sparse(major="1", minor="0", realsize="7"), "contains a sparse file"),
    "holes of old": (an_old_sparse(), "contains a sparse file"),
    "a header for all members that is too large": (a_lasting_header(), "has a header of 65536 bytes"),
    "a header that is too large": (a_large_header(), "has a header of 67108864 bytes"),
    "a program cut short": (a_tar_gz((DRIVER, ELF[:10])), "is truncated"),
}


@pytest.mark.parametrize("what", BAD)
def test_each_invalid_archive_is_refused_with_its_reason(what: str, tmp_path: Path):
    data, words = BAD[what]

    with pytest.raises(Fault) as caught:
        taken(data, tmp_path)

    assert words in str(caught.value)
    assert not caught.value.is_retryable
    assert str(caught.value).isprintable()


def test_a_program_under_an_url_of_another_name_is_refused(tmp_path: Path):
    with pytest.raises(Fault, match=r"the last part of its URL is 'noop'; serve it under a name"):
        taken(ELF, tmp_path, "https://x.example/noop")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (an_elf(machine=183), f"{DRIVER} is for Linux on aarch64, not Linux on x86_64"),
        (an_elf(machine=3), "is for Linux on i386"),
        (an_elf(machine=22, order=2), "is for Linux on s390x"),
        (an_elf(machine=999), "is for Linux on machine 999"),
        (a_mach_o(), f"{DRIVER} is for macOS on aarch64, not Linux on x86_64"),
    ],
)
def test_a_program_for_another_machine_is_refused(program: bytes, words: str, tmp_path: Path):
    with pytest.raises(Fault) as caught:
        taken(a_tar_gz((DRIVER, program)), tmp_path)

    assert words in caught.value.message
    assert caught.value.reason == "WrongPlatform"


def test_machines_have_several_names(tmp_path: Path):
    assert taken(a_driver(), tmp_path, platform=Platform("linux", "AMD64"))[0] == "noop"


# -- bombs -------------------------------------------------------------------------------------------------------


def test_limits_hold_for_the_binary_the_total_size_and_the_number_of_members(tmp_path: Path):
    large = an_elf(bytes(100_000))
    many = a_tar_gz(*((f"x{number}", b"") for number in range(50)), (DRIVER, ELF))

    for data in (a_tar_gz((DRIVER, large)), a_zip((DRIVER, large))):
        with pytest.raises(Fault, match="exceeds the size limit of drivers"):
            taken(data, tmp_path, program=50_000)
    with pytest.raises(Fault, match="exceeds the size limit of drivers"):
        taken(large, tmp_path, "https://x/docker-machine-driver-noop", program=50_000)
    with pytest.raises(Fault, match="has more than 1 MiB"):
        taken(a_tar_gz(("x", bytes(2**21)), (DRIVER, ELF)), tmp_path, total=2**20)
    with pytest.raises(Fault, match="has more than 20 members"):
        taken(many, tmp_path, members=20)
    with pytest.raises(Fault, match="has more than 20 members"):
        taken(a_zip(*((f"x{number}", b"") for number in range(50))), tmp_path, members=20)


def test_a_bomb_costs_no_memory(tmp_path: Path):
    bomb = gzip.compress(a_tar(("zeros", bytes(64 * 2**20)), (DRIVER, ELF)), 9)
    tracemalloc.start()
    try:
        with pytest.raises(Fault, match="has more than 32 MiB"):
            taken(bomb, tmp_path, total=32 * 2**20)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 8 * 2**20


def test_headers_that_are_many_and_large_cost_no_memory(tmp_path: Path):
    def member(number: int) -> bytes:
        info = tarfile.TarInfo(f"x{number}")
        info.pax_headers = {"comment": "c" * 2**19}
        return info.tobuf(tarfile.PAX_FORMAT)

    bomb = gzip.compress(b"".join(map(member, range(40))) + a_tar((DRIVER, ELF)))
    tracemalloc.start()
    try:
        assert taken(bomb, tmp_path) == ("noop", ELF)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 8 * 2**20


def test_a_zip_whose_list_is_too_long_is_not_read(tmp_path: Path):
    data = bytearray(a_zip((DRIVER, ELF)))
    place = data.rindex(b"PK\x05\x06")
    data[place + 12 : place + 16] = (2**30).to_bytes(4, "little")

    with pytest.raises(Fault, match="the zip's central directory has 1073741824 bytes"):
        taken(bytes(data), tmp_path)


# -- anything ----------------------------------------------------------------------------------------------------

SEEDS = [
    a_driver(),
    a_tar((DRIVER, ELF)),
    a_zip((DRIVER, ELF), ("README", b"read me" * 20)),
    a_zip((DRIVER, ELF)),
]


@settings(max_examples=500)
@given(
    seed=st.sampled_from(SEEDS),
    changes=st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 255)), max_size=8),
    cut=st.integers(0, 20_000),
)
def test_any_input_is_a_driver_or_a_fault(
    seed: bytes, changes: list[tuple[int, int]], cut: int, tmp_path: Path
):
    data = bytearray(seed)
    for place, value in changes:
        data[place % len(data)] = value
    if cut < len(data):
        del data[cut:]

    try:
        name, program = taken(bytes(data), tmp_path, total=2**22)
    except Fault:
        return
    assert name
    assert program[:4] == b"\x7fELF"
