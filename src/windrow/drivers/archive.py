"""From what a URL delivered to the one program in it, by Rancher's rules (reference/01 §5.7), whatever the file holds.

An ELF or Mach-O file is the program itself, and the URL must name it `docker-machine-driver-…`. Anything else is a
tar, a tar.gz or a zip, in which one regular file is called so and is such a program. Scripts are never taken.

Nothing is written under a name that stands in the archive, and nothing but the one program is written at all. Sizes
are counted while reading, so that no header is believed.
"""

from __future__ import annotations

import errno
import gzip
import io
import re
import stat
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import unquote, urlsplit

from windrow.core.text import one_line
from windrow.drivers.faults import Fault
from windrow.drivers.platforms import Platform, find_platform_fault, is_program

PREFIX = "docker-machine-driver-"
NOT_FOUND_MESSAGE = "failed to find driver in archive. There must be a file of form docker-machine-driver-*"

MIB = 2**20
READ_SIZE = 256 * 1024
# A header that continues another one (long names, pax records).
MAX_HEADER = MIB
# One that holds for all members behind it, and is remembered for them.
MAX_GLOBAL_HEADER = 4096
MAX_ZIP_DIRECTORY = 4 * MIB

_DRIVER_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_PACK_HINT = "pack that file alone, as tar.gz or zip"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is read of an archive before it counts as hostile."""

    program: int = 512 * MIB
    total: int = 1024 * MIB
    members: int = 10_000


LIMITS = Limits()


def extract(source: Path, url: str, target: IO[bytes], platform: Platform, limits: Limits = LIMITS) -> str:
    """Write the program in `source`, which came from `url`, to `target`; returns the driver's name. Raises Fault.

    What was written to `target` before a Fault is worth nothing.
    """
    with source.open("rb") as file:
        head = file.read(512)
        file.seek(0)
        with _archive_faults():
            match head:
                case _ if is_program(head):
                    name = driver_name_of_url(url)
                    _copy(file, target, limits.program, f"{PREFIX}{name}")
                case _ if head.startswith(b"\x1f\x8b"):
                    name = _from_tar(gzip.GzipFile(fileobj=file), target, limits)
                case _ if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
                    name = _from_zip(file, target, limits)
                case _ if head[257:262] == b"ustar" or _is_old_tar(head):
                    name = _from_tar(file, target, limits)
                case _:
                    raise _unknown_format(head)
    _check_program(target, name, platform)
    return name


# -- names -------------------------------------------------------------------------------------------------------


def driver_name_of_url(url: str) -> str:
    """The driver's name where the URL leads to the program itself: the text after the prefix, up to `-`, `_` or `.`."""
    last = PurePosixPath(unquote(urlsplit(url).path)).name
    if not last.startswith(PREFIX):
        raise _invalid_archive(
            f"the file is a program, and the last part of its URL is {last!r}",
            f"serve it under a name that starts with {PREFIX}",
        )
    return _valid_name(re.split(r"[-_.]", last.removeprefix(PREFIX), maxsplit=1)[0], last)


def driver_name_of_member(member: str) -> str:
    """The driver's name where the program lies in an archive: all that follows the prefix."""
    last = PurePosixPath(member).name
    return _valid_name(last.removeprefix(PREFIX), last)


def _valid_name(name: str, file: str) -> str:
    # The name becomes that of a kind, in lower case a DNS label: `<Name>Config`.
    if len(name) <= 50 and _DRIVER_NAME.fullmatch(name):
        return name
    raise _invalid_archive(
        f"the file is called {file!r}, from which no kind can get its name",
        f"call it {PREFIX}NAME, with lower-case letters and digits in NAME",
    )


# -- tar ---------------------------------------------------------------------------------------------------------


class _BoundedHeader(tarfile.TarInfo):
    """Refuses headers that would have to be read into memory whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _BoundedHeader:
        made = super().frombuf(buf, encoding, errors)
        continues = made.type in (
            tarfile.GNUTYPE_LONGNAME,
            tarfile.GNUTYPE_LONGLINK,
            tarfile.XHDTYPE,
            tarfile.XGLTYPE,
            tarfile.SOLARIS_XHDTYPE,
        )
        longest = MAX_GLOBAL_HEADER if made.type == tarfile.XGLTYPE else MAX_HEADER
        if continues and not 0 <= made.size <= longest:
            raise _invalid_archive(f"the archive holds a header of {made.size} bytes", _PACK_HINT)
        if made.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse_fault()
        return made

    # The map of such a file is read into memory whole, however long it is. These are tarfile's own steps for its
    # three forms in pax headers; a test notices should they get other names.

    def _proc_gnusparse_00(self, *_: object) -> None:
        raise _sparse_fault()

    def _proc_gnusparse_01(self, *_: object) -> None:
        raise _sparse_fault()

    def _proc_gnusparse_10(self, *_: object) -> None:
        raise _sparse_fault()


def _sparse_fault() -> Fault:
    return _invalid_archive("the archive holds a file with holes (sparse)", "pack it without tar's --sparse")


class _BoundedReader(io.RawIOBase):
    """Passes on what it reads, and stops when it has become too much."""

    def __init__(self, inner: IO[bytes] | gzip.GzipFile, limit: int) -> None:
        self._inner, self._left, self._limit = inner, limit, limit

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._inner.read(READ_SIZE if size < 0 else min(size, READ_SIZE))
        self._left -= len(data)
        if self._left < 0:
            raise _invalid_archive(f"the archive holds more than {self._limit // MIB} MiB", _PACK_HINT)
        return data


def _from_tar(file: IO[bytes] | gzip.GzipFile, target: IO[bytes], limits: Limits) -> str:
    found, hints = "", []
    counted = _BoundedReader(file, limits.total)
    with tarfile.open(fileobj=counted, mode="r|", tarinfo=_BoundedHeader) as archive:
        for number, member in enumerate(iter(archive.next, None), 1):
            archive.members = []  # type: ignore[attr-defined]  # else every header stays in memory
            _check_count(number, limits)
            _check_member_path(member.name)
            if member.isdev():
                raise _invalid_archive(f"the archive holds a device, {_printable(member.name)}", _PACK_HINT)
            if not _has_driver_name(member.name):
                continue
            if member.issym() or member.islnk():
                hints.append(f"{_printable(member.name)} is a link")
                continue
            content = archive.extractfile(member) if member.isreg() else None
            if content is None:
                continue
            found = _extract_member(found, member.name, content, target, limits, hints)
    return _require_one(found, hints)


def _is_old_tar(head: bytes) -> bool:
    """A tar without a magic number, as the first Unix wrote them: its checksum tells."""
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


# -- zip ---------------------------------------------------------------------------------------------------------


def _from_zip(file: IO[bytes], target: IO[bytes], limits: Limits) -> str:
    _check_zip_directory(file)
    found, hints = "", []
    with zipfile.ZipFile(file) as archive:
        for number, member in enumerate(archive.infolist(), 1):
            _check_count(number, limits)
            _check_member_path(member.filename)
            mode = member.external_attr >> 16
            if member.is_dir() or not _has_driver_name(member.filename):
                continue
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                hints.append(f"{_printable(member.filename)} is no regular file")
                continue
            if member.flag_bits & 1:
                raise _invalid_archive(
                    f"{_printable(member.filename)} is encrypted", "pack it without a password"
                )
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise _invalid_archive(
                    f"{_printable(member.filename)} is packed in an unusual way",
                    "pack it with zip's defaults",
                )
            with archive.open(member) as content:
                found = _extract_member(found, member.filename, content, target, limits, hints)
    return _require_one(found, hints)


def _check_zip_directory(file: IO[bytes]) -> None:
    """The list of a zip's members is read into memory whole, so its size is looked at first.

    The reader believes a zip64 record more than the end that is looked at here, and no driver needs one.
    """
    end = file.seek(0, io.SEEK_END)
    start = max(end - 22 - 0xFFFF, 0)
    file.seek(start)
    tail = file.read()
    place = tail.rfind(b"PK\x05\x06")
    if place < 0 or len(tail) - place < 22:
        raise _invalid_archive("the file begins like a zip and has no end", "build it again")
    file.seek(max(start + place - 20, 0))
    if file.read(4) == b"PK\x06\x07":
        raise _invalid_archive(
            "the file is a zip64", "pack the program alone, as tar.gz or as a zip of less than 4 GiB"
        )
    (size,) = struct.unpack_from("<I", tail, place + 12)
    if size > MAX_ZIP_DIRECTORY:
        raise _invalid_archive(f"the zip's list of members has {size} bytes", _PACK_HINT)
    file.seek(0)


# -- both --------------------------------------------------------------------------------------------------------


def _has_driver_name(member: str) -> bool:
    return PurePosixPath(member).name.startswith(PREFIX)


def _extract_member(
    found: str, member: str, content: IO[bytes], target: IO[bytes], limits: Limits, hints: list[str]
) -> str:
    """Write the member where it is a program; returns the name of the one that was found so far."""
    head = content.read(512)
    if not is_program(head):
        what = "a script" if head.startswith(b"#!") else "not a program (ELF or Mach-O)"
        hints.append(f"{_printable(member)} is {what}")
        return found
    if found:
        raise _invalid_archive(
            f"the archive holds several drivers, {_printable(found)} and {_printable(member)}", _PACK_HINT
        )
    driver_name_of_member(member)
    target.write(head)
    _copy(content, target, limits.program - len(head), member)
    return member


def _require_one(found: str, hints: list[str]) -> str:
    if not found:
        said = f" ({', '.join(hints[:3])})" if hints else ""
        raise _invalid_archive(
            NOT_FOUND_MESSAGE + said, f"pack the program itself, called {PREFIX}NAME, as tar.gz or zip"
        )
    return driver_name_of_member(found)


def _copy(source: IO[bytes], target: IO[bytes], limit: int, name: str) -> None:
    left = limit
    while chunk := source.read(READ_SIZE):
        left -= len(chunk)
        if left < 0:
            raise _invalid_archive(f"{_printable(name)} is larger than a driver may be", "name a smaller one")
        target.write(chunk)


def _check_count(number: int, limits: Limits) -> None:
    if number > limits.members:
        raise _invalid_archive(f"the archive holds more than {limits.members} members", _PACK_HINT)


def _check_member_path(member: str) -> None:
    if member.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", member):
        raise _invalid_archive(
            f"the archive wants to write outside of its place, to {_printable(member)}", _PACK_HINT
        )


def _printable(member: str) -> str:
    """A member's name as it may stand in a sentence: archives are written by strangers."""
    return one_line(member, 80)


def _check_program(target: IO[bytes], name: str, platform: Platform) -> None:
    target.flush()
    target.seek(0)
    fault = find_platform_fault(target.read(64), platform, f"{PREFIX}{name}")
    target.seek(0, io.SEEK_END)
    if fault is not None:
        raise fault


_KNOWN_FORMATS = {
    b"#!": ("a script", "drivers are programs (ELF or Mach-O); scripts are never run"),
    b"\xfd7zXZ": ("an xz archive", "pack it as tar.gz: Rancher's machine image unpacks only that and zip"),
    b"BZh": ("a bzip2 archive", "pack it as tar.gz: Rancher's machine image unpacks only that and zip"),
    b"\x28\xb5\x2f\xfd": (
        "a zstd archive",
        "pack it as tar.gz: Rancher's machine image unpacks only that and zip",
    ),
    b"MZ": ("a program for Windows", "name the one for this system"),
    b"<": ("a web page", "name the URL of the file itself"),
}


def _unknown_format(head: bytes) -> Fault:
    for magic, (what, hint) in _KNOWN_FORMATS.items():
        if head.lstrip().startswith(magic):
            return _invalid_archive(f"{NOT_FOUND_MESSAGE} (the file is {what})", hint)
    return _invalid_archive(
        NOT_FOUND_MESSAGE, f"pack the program itself, called {PREFIX}NAME, as tar.gz or zip"
    )


def _invalid_archive(message: str, hint: str) -> Fault:
    return Fault(message, hint, "BadArchive")


@contextmanager
def _archive_faults() -> Iterator[None]:
    """Every error of the archive readers is a Fault: the file is broken. They raise nearly anything."""
    try:
        yield
    except Fault:
        raise
    except Exception as error:
        # What the disk itself says is another matter; EINVAL is a seek to where no file begins.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise _broken_archive(error) from error


def _broken_archive(error: Exception) -> Fault:
    said = one_line(str(error), 200) or type(error).__name__
    return _invalid_archive(f"the archive is broken ({said})", "build it again, and take its new SHA-256")
