"""Files that URLs may deliver: programs, archives of them, and worse."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile

from windrow.drivers.archive import Platform

HERE = Platform("linux", "x86_64")
DRIVER = "docker-machine-driver-noop"
URL = "https://drivers.example/docker-machine-driver-noop.tar.gz"


def an_elf(content: bytes = b"", *, machine: int = 62, order: int = 1) -> bytes:
    """The head of an ELF program, and `content` behind it."""
    pack = "<HHI" if order == 1 else ">HHI"
    head = b"\x7fELF" + bytes([2, order, 1, 0]) + bytes(8) + struct.pack(pack, 2, machine, 1)
    return head.ljust(64, b"\0") + content


def a_mach_o(content: bytes = b"") -> bytes:
    return (b"\xcf\xfa\xed\xfe" + struct.pack("<I", 0x0100_000C)).ljust(64, b"\0") + content


def a_tar(*members: tuple[str, bytes] | tarfile.TarInfo, mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()


def a_tar_gz(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    return gzip.compress(a_tar(*members), mtime=0)


def a_zip(*members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def a_link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def a_driver(content: bytes = b"1", name: str = DRIVER) -> bytes:
    """What a good URL delivers: a tar.gz with one program."""
    return a_tar_gz((name, an_elf(content)))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
