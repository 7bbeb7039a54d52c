"""Extracts the driver binary from a download, by Rancher's rules (reference/01 §5.7).

An ELF or Mach-O file is the binary itself, and its URL must end in `docker-machine-driver-…`. Anything else is a tar,
a tar.gz or a zip, with one regular file of that name which is such a binary. Scripts are refused.

No name in the archive becomes a path, and nothing but the one binary is written. Sizes are counted while reading, so
that no header is trusted.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import unquote, urlsplit

from windrow.core.text import one_line
from windrow.drivers.api import Fault

ELF = b"\x7fELF"
MACH_O = b"\xcf\xfa\xed\xfe"  # 64 bits, little-endian: the only form that Rancher accepts, too

# e_machine and cputype of the platforms that drivers are built for, by the names of uname.
_ELF_MACHINES = {
    3: "i386",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    21: "ppc64le",
    22: "s390x",
    243: "riscv64",
    258: "loongarch64",
}
_MACH_MACHINES = {0x0100_0007: "x86_64", 0x0100_000C: "aarch64"}
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}
_SYSTEMS = {"linux": "Linux", "darwin": "macOS"}
# The program header that holds the path of the loader, and the layout of a 64-bit little-endian ELF file (elf(5)).
PT_INTERP = 3
_ELF_HEADER, _PROGRAM_HEADER = struct.Struct("<4sBB10xHHIQQQIHHH"), struct.Struct("<IIQQQQQQ")
_MAX_PROGRAM_HEADERS, _MAX_PATH = 64, 200


@dataclass(frozen=True, slots=True)
class Platform:
    """`system` as `sys.platform` and `machine` as `platform.machine()` name them."""

    system: str = "linux"
    machine: str = "x86_64"

    def __str__(self) -> str:
        return f"{_SYSTEMS.get(self.system, self.system)} on {_canonical(self.machine)}"


def find_loader(path: Path) -> str:
    """The loader that a 64-bit ELF program names, as `/lib/ld-musl-x86_64.so.1`: it tells which C library the program
    was built for. Empty where it names none, or is no such program."""
    with suppress(OSError, struct.error), path.open("rb") as file:
        magic, bits, order, *_, table, _, _, _, size, count = _ELF_HEADER.unpack(file.read(_ELF_HEADER.size))
        if (magic, bits, order) != (ELF, 2, 1):
            return ""
        for number in range(min(count, _MAX_PROGRAM_HEADERS)):
            file.seek(table + number * size)
            kind, _, offset, _, _, length, *_ = _PROGRAM_HEADER.unpack(file.read(_PROGRAM_HEADER.size))
            if kind == PT_INTERP:
                file.seek(offset)
                return one_line(
                    file.read(min(length, _MAX_PATH)).rstrip(b"\0").decode("ascii", "replace"), _MAX_PATH
                )
    return ""


def is_program(head: bytes) -> bool:
    return head.startswith((ELF, MACH_O))


def find_platform_fault(head: bytes, host: Platform, name: str) -> Fault | None:
    """Why the program with this head cannot run here, None where it can."""
    theirs = _platform_of(head)
    if theirs is None:
        return Fault(f"{name} is truncated", "build it again, and take its new SHA-256", "InvalidArchive")
    if (theirs.system, _canonical(theirs.machine)) == (host.system, _canonical(host.machine)):
        return None
    return Fault(
        f"{name} is for {theirs}, not {host}",
        f"name the URL and the SHA-256 of the one for {host}",
        "WrongPlatform",
    )


def _platform_of(head: bytes) -> Platform | None:
    if len(head) < 20:
        return None
    if head.startswith(MACH_O):
        (number,) = struct.unpack_from("<I", head, 4)
        return Platform("darwin", _MACH_MACHINES.get(number, f"machine {number:#x}"))
    order = {1: "<", 2: ">"}.get(head[5])
    if order is None:
        return None
    (number,) = struct.unpack_from(f"{order}H", head, 18)
    machine = _ELF_MACHINES.get(number, f"machine {number}")
    if number == 21 and order == ">":
        machine = "ppc64"
    return Platform("linux", machine)


def _canonical(machine: str) -> str:
    return _ALIASES.get(machine.lower(), machine.lower())


PREFIX = "docker-machine-driver-"
NOT_FOUND_MESSAGE = "failed to find driver in archive. There must be a file of form docker-machine-driver-*"

MIB = 2**20
READ_SIZE = 256 * 1024
# A header of long names or pax records, which is read into memory.
MAX_HEADER = MIB
# A global header, which stays in memory.
MAX_GLOBAL_HEADER = 4096
MAX_ZIP_DIRECTORY = 4 * MIB

_DRIVER_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_PACK_HINT = "pack that file alone, as tar.gz or zip"
_PACK_PROGRAM = f"pack the program itself, called {PREFIX}NAME, as tar.gz or zip"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is read before the archive is refused."""

    program: int = 512 * MIB
    total: int = 1024 * MIB
    members: int = 10_000


LIMITS = Limits()


def extract(source: Path, url: str, target: IO[bytes], platform: Platform, limits: Limits = LIMITS) -> str:
    """Write the binary in `source`, which came from `url`, to `target`; returns the driver's name. Raises Fault; then
    the content of `target` is undefined."""
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
                case _ if head[257:262] == b"ustar":
                    name = _from_tar(file, target, limits)
                case _:
                    raise _unknown_format(head)
    _check_program(target, name, platform)
    return name


# -- names -------------------------------------------------------------------------------------------------------


def driver_name_of_url(url: str) -> str:
    """The driver's name in the URL of a bare binary: the text after the prefix, up to `-`, `_` or `.`."""
    last = PurePosixPath(unquote(urlsplit(url).path)).name
    if not last.startswith(PREFIX):
        raise _invalid_archive(
            f"the file is a binary, and the last part of its URL is {last!r}",
            f"serve it under a name that starts with {PREFIX}",
        )
    return _valid_name(re.split(r"[-_.]", last.removeprefix(PREFIX), maxsplit=1)[0], last)


def driver_name_of_member(member: str) -> str:
    """The driver's name in an archive: all that follows the prefix."""
    last = PurePosixPath(member).name
    return _valid_name(last.removeprefix(PREFIX), last)


def _valid_name(name: str, file: str) -> str:
    # The name becomes that of a kind, `<Name>Config`, whose plural must be a DNS label.
    if len(name) <= 50 and _DRIVER_NAME.fullmatch(name):
        return name
    raise _invalid_archive(
        f"the file name {file!r} has no valid driver name",
        f"rename it to {PREFIX}NAME, with lower-case letters and digits in NAME",
    )


# -- tar ---------------------------------------------------------------------------------------------------------


class _BoundedHeader(tarfile.TarInfo):
    """Refuses headers that tarfile would read into memory entirely."""

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
            raise _invalid_archive(f"the archive has a header of {made.size} bytes", _PACK_HINT)
        if made.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse_fault()
        return made

    # tarfile reads the map of a sparse file into memory, of any length. These are its steps for the three forms in pax
    # headers; a test notices when they get other names.

    def _refuse_sparse(self, *_: object) -> None:
        raise _sparse_fault()

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse


def _sparse_fault() -> Fault:
    return _invalid_archive("the archive contains a sparse file", "pack it without tar's --sparse")


class _BoundedReader(io.RawIOBase):
    """A reader that fails after `limit` bytes."""

    def __init__(self, inner: IO[bytes] | gzip.GzipFile, limit: int) -> None:
        self._inner, self._left, self._limit = inner, limit, limit

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._inner.read(READ_SIZE if size < 0 else min(size, READ_SIZE))
        self._left -= len(data)
        if self._left < 0:
            raise _invalid_archive(f"the archive has more than {self._limit // MIB} MiB", _PACK_HINT)
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
                raise _invalid_archive(
                    f"the archive contains a device, {_printable(member.name)}", _PACK_HINT
                )
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
                    f"{_printable(member.filename)} has an unsupported compression",
                    "pack it with zip's defaults",
                )
            with archive.open(member) as content:
                found = _extract_member(found, member.filename, content, target, limits, hints)
    return _require_one(found, hints)


def _check_zip_directory(file: IO[bytes]) -> None:
    """zipfile reads the central directory into memory, so its size is checked first.

    zipfile prefers a zip64 record to the end record that is checked here, and no driver needs one.
    """
    end = file.seek(0, io.SEEK_END)
    start = max(end - 22 - 0xFFFF, 0)
    file.seek(start)
    tail = file.read()
    place = tail.rfind(b"PK\x05\x06")
    if place < 0 or len(tail) - place < 22:
        raise _invalid_archive("the zip has no end record", "build it again")
    file.seek(max(start + place - 20, 0))
    if file.read(4) == b"PK\x06\x07":
        raise _invalid_archive(
            "the file is a zip64", "pack the program alone, as tar.gz or as a zip of less than 4 GiB"
        )
    (size,) = struct.unpack_from("<I", tail, place + 12)
    if size > MAX_ZIP_DIRECTORY:
        raise _invalid_archive(f"the zip's central directory has {size} bytes", _PACK_HINT)
    file.seek(0)


# -- both --------------------------------------------------------------------------------------------------------


def _has_driver_name(member: str) -> bool:
    return PurePosixPath(member).name.startswith(PREFIX)


def _extract_member(
    found: str, member: str, content: IO[bytes], target: IO[bytes], limits: Limits, hints: list[str]
) -> str:
    """Write the member if it is a binary; returns the name of the one found so far."""
    head = content.read(512)
    if not is_program(head):
        what = "a script" if head.startswith(b"#!") else "not a program (ELF or Mach-O)"
        hints.append(f"{_printable(member)} is {what}")
        return found
    if found:
        raise _invalid_archive(
            f"the archive contains several drivers, {_printable(found)} and {_printable(member)}", _PACK_HINT
        )
    driver_name_of_member(member)
    target.write(head)
    _copy(content, target, limits.program - len(head), member)
    return member


def _require_one(found: str, hints: list[str]) -> str:
    if not found:
        said = f" ({', '.join(hints[:3])})" if hints else ""
        raise _invalid_archive(NOT_FOUND_MESSAGE + said, _PACK_PROGRAM)
    return driver_name_of_member(found)


def _copy(source: IO[bytes], target: IO[bytes], limit: int, name: str) -> None:
    left = limit
    while chunk := source.read(READ_SIZE):
        left -= len(chunk)
        if left < 0:
            raise _invalid_archive(
                f"{_printable(name)} exceeds the size limit of drivers", "use a smaller one"
            )
        target.write(chunk)


def _check_count(number: int, limits: Limits) -> None:
    if number > limits.members:
        raise _invalid_archive(f"the archive has more than {limits.members} members", _PACK_HINT)


def _check_member_path(member: str) -> None:
    if member.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", member):
        raise _invalid_archive(f"the archive has a path outside of it, {_printable(member)}", _PACK_HINT)


def _printable(member: str) -> str:
    """A member's name for messages: it is untrusted."""
    return one_line(member, 80)


def _check_program(target: IO[bytes], name: str, platform: Platform) -> None:
    target.flush()
    target.seek(0)
    fault = find_platform_fault(target.read(64), platform, f"{PREFIX}{name}")
    target.seek(0, io.SEEK_END)
    if fault is not None:
        raise fault


_PACK_AS_GZIP = "pack it as tar.gz: Rancher's machine image unpacks only that and zip"
_KNOWN_FORMATS = {
    b"#!": ("a script", "drivers are programs (ELF or Mach-O); scripts are never run"),
    b"\xfd7zXZ": ("an xz archive", _PACK_AS_GZIP),
    b"BZh": ("a bzip2 archive", _PACK_AS_GZIP),
    b"\x28\xb5\x2f\xfd": ("a zstd archive", _PACK_AS_GZIP),
    b"MZ": ("a program for Windows", "use the one for this system"),
    b"<": ("a web page", "use the URL of the file itself"),
}


def _unknown_format(head: bytes) -> Fault:
    for magic, (what, hint) in _KNOWN_FORMATS.items():
        if head.lstrip().startswith(magic):
            return _invalid_archive(f"{NOT_FOUND_MESSAGE} (the file is {what})", hint)
    return _invalid_archive(NOT_FOUND_MESSAGE, _PACK_PROGRAM)


def _invalid_archive(message: str, hint: str) -> Fault:
    return Fault(message, hint, "InvalidArchive")


@contextmanager
def _archive_faults() -> Iterator[None]:
    """Every error of the archive readers, which raise nearly anything, as a Fault: the file is broken."""
    try:
        yield
    except Fault:
        raise
    except Exception as error:
        # Errors of the disk come through; EINVAL is a seek before the beginning of a file.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        said = one_line(str(error), 200) or type(error).__name__
        hint = "build it again, and take its new SHA-256"
        raise _invalid_archive(f"the archive is broken ({said})", hint) from error
