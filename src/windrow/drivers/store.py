"""Drivers on disk, each under the SHA-256 of what it came in. A file that is there under its name is whole and proven.

    downloads/<sha256>                         what a URL delivered, after its digest matched; until it is installed
    downloads/<sha256>.<owner>.partial         on its way
    sha256/<sha256>/docker-machine-driver-…    the program, mode 0755
    sha256/<sha256>/record.json                its name, its own digest, and the URLs that delivered it
    sha256/.<sha256>.<owner>.partial/          being unpacked

Everything is made beside its place, written through to the disk, and renamed. So a crash leaves what was there
before, what is there now, or a `.partial`, which the next start removes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from windrow.core.json import NotJson, dumps, loads
from windrow.drivers.archive import LIMITS, PREFIX, Limits, extract
from windrow.drivers.faults import Fault
from windrow.drivers.platforms import Platform

RECORD_FILE = "record.json"
PARTIAL_SUFFIX = ".partial"
READ_SIZE = 1024 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class InstalledDriver:
    """An installed driver. `digest` is what it came in under, `binary_digest` its program's own."""

    digest: str
    name: str
    path: Path
    binary_digest: str
    size: int
    urls: tuple[str, ...]


class PartialDownload:
    """A download on its way: write it, then keep it. Whatever happens, drop it at the end."""

    def __init__(self, partial: Path, file: IO[bytes], digest: str) -> None:
        self._partial, self._file, self._digest = partial, file, digest
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Raises Fault where the disk does not take it."""
        self._hash.update(data)
        with _disk_faults():
            self._file.write(data)

    def commit(self) -> None:
        """Put it in its place, durably. Raises Fault where its digest is another, and then nothing is kept."""
        found = self._hash.hexdigest()
        if found != self._digest:
            raise checksum_mismatch(found, self._digest)
        with _disk_faults():
            _flush(self._file)
            self._partial.replace(self._partial.with_name(self._digest))
            _sync_directory(self._partial.parent)

    def discard(self) -> None:
        """Forget what was not kept."""
        with suppress(OSError):
            self._file.close()
            self._partial.unlink(missing_ok=True)


class DriverStore:
    """The drivers below `root`. One process at a time; `owner` is whoever a file is made for, by name."""

    def __init__(self, root: Path, platform: Platform, limits: Limits = LIMITS) -> None:
        self._downloads = root / "downloads"
        self._installed = root / "sha256"
        self._root, self._platform, self._limits = root, platform, limits
        self._verified: dict[Path, tuple[int, ...]] = {}

    def open(self) -> None:
        """Make the directories, and clear away what a crash left half made. Raises Fault."""
        with _disk_faults():
            for place in (self._downloads, self._installed):
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                for leftover in place.glob(f"*{PARTIAL_SUFFIX}"):
                    _remove(leftover)
            for download in self._downloads.iterdir():
                if self.find(download.name) is not None:  # the crash came between the last two steps
                    _remove(download)

    # -- downloads ---------------------------------------------------------------------------------------------------

    def start_download(self, digest: str, owner: str) -> PartialDownload:
        """A place for what a URL delivers, which has to have that digest. Raises Fault."""
        partial = self._downloads / f"{digest}.{_owner_id(owner)}{PARTIAL_SUFFIX}"
        with _disk_faults():
            return PartialDownload(partial, partial.open("wb"), digest)

    def has_download(self, digest: str) -> bool:
        return bool(_DIGEST.fullmatch(digest)) and (self._downloads / digest).is_file()

    # -- programs ----------------------------------------------------------------------------------------------------

    def install(self, digest: str, owner: str, url: str) -> InstalledDriver:
        """Unpack the download into its place. May be repeated. Raises Fault; a download that changed is removed.

        A program that is not packed has its name from the URL. Whoever installed it first has it under that name, and
        keeps it so: under another one it is refused.
        """
        source = self._downloads / digest
        partial = self._installed / f".{digest}.{_owner_id(owner)}{PARTIAL_SUFFIX}"
        with _disk_faults():
            if (found := _digest_of(source)) != digest:
                source.unlink(missing_ok=True)
                raise checksum_mismatch(found, digest)
            urls = dict.fromkeys((*self._recorded_urls(digest), url))
            _remove(partial)
            partial.mkdir(mode=0o700)
            try:
                name = self._unpack(partial, source, digest, list(urls))
                if (previous_name := self._recorded_name(digest)) not in ("", name):
                    source.unlink()
                    raise _name_conflict(previous_name, name)
                self._replace(partial, self._installed / digest)
            finally:
                _remove(partial)
            source.unlink()
        installed = self.find(digest)
        if installed is None:
            raise Fault(
                "the driver vanished from the disk while it was installed", "look at the disk", "StoreFailed"
            )
        return installed

    def _unpack(self, directory: Path, source: Path, digest: str, urls: list[str]) -> str:
        """Make a driver's directory; returns the driver's name."""
        unpacked = directory / "program"
        with unpacked.open("w+b") as file:
            name = extract(source, urls[-1], file, self._platform, self._limits)
            _flush(file)
        unpacked.chmod(0o755)
        program = unpacked.rename(directory / f"{PREFIX}{name}")
        record = {"name": name, "sha256": _digest_of(program), "size": program.stat().st_size, "urls": urls}
        with (directory / RECORD_FILE).open("wb") as file:
            file.write(dumps(record))
            _flush(file)
        _sync_directory(directory)
        return name

    def _replace(self, new: Path, target: Path) -> None:
        # A directory cannot replace one that is not empty. Between the two steps the driver is absent, and the
        # download still there: whoever looks then installs it once more.
        old = new.with_name(f".{target.name}.old{PARTIAL_SUFFIX}")
        _remove(old)
        with suppress(FileNotFoundError):
            target.rename(old)
        new.rename(target)
        _remove(old)
        _sync_directory(target.parent)

    def find(self, digest: str) -> InstalledDriver | None:
        """The driver installed from that digest, as recorded; the program itself is not read."""
        if not _DIGEST.fullmatch(digest):
            return None
        try:
            record = loads((self._installed / digest / RECORD_FILE).read_bytes())
            installed = InstalledDriver(
                digest,
                str(record["name"]),
                self._installed / digest / f"{PREFIX}{record['name']}",
                str(record["sha256"]),
                int(record["size"]),
                tuple(str(url) for url in record["urls"]),
            )
            same = installed.path.stat().st_size == installed.size
        except (OSError, NotJson, LookupError, TypeError, ValueError):
            return None
        return installed if same else None

    def verified_path(self, digest: str) -> Path | None:
        """The program, if it is still, byte by byte, what was installed. Read again only after it was touched."""
        installed = self.find(digest)
        if installed is None:
            return None
        try:
            state = installed.path.stat()
            fingerprint = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_mode)
            if self._verified.get(installed.path) != fingerprint:
                if _digest_of(installed.path) != installed.binary_digest or not os.access(
                    installed.path, os.X_OK
                ):
                    return None
                self._verified[installed.path] = fingerprint
        except OSError:
            return None
        return installed.path

    def sweep(self, keep: Collection[str]) -> list[str]:
        """Remove every driver and download whose digest is not named in `keep`; returns the digests of those."""
        removed = []
        with _disk_faults():
            for place in (self._downloads, self._installed):
                for found in sorted(place.iterdir()):
                    if _DIGEST.fullmatch(found.name) and found.name not in keep:
                        _remove(found)
                        removed.append(found.name)
        return sorted(set(removed))

    def _recorded_urls(self, digest: str) -> tuple[str, ...]:
        installed = self.find(digest)
        return installed.urls if installed is not None else ()

    def _recorded_name(self, digest: str) -> str:
        """Under which name it was installed, whatever became of the program since; "" where no record tells."""
        try:
            return str(loads((self._installed / digest / RECORD_FILE).read_bytes())["name"])
        except (OSError, NotJson, LookupError, TypeError):
            return ""


def _name_conflict(recorded: str, name: str) -> Fault:
    return Fault(
        f"the same file is installed as driver {recorded}, and its URL calls it {name}",
        f"serve it under a name that starts with {PREFIX}{recorded}",
        "NameTaken",
    )


def checksum_mismatch(found: str, wanted: str) -> Fault:
    return Fault(
        f"hash does not match, got {found}, expected {wanted}",
        "correct spec.checksum, or find out who changed the file",
        "ChecksumMismatch",
    )


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _owner_id(owner: str) -> str:
    """The owner's name as part of a file name; two owners never get the same."""
    return hashlib.sha256(owner.encode()).hexdigest()[:16]


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(place: Path) -> None:
    opened = os.open(place, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _disk_faults() -> Iterator[None]:
    """Errors of the disk as Faults."""
    try:
        yield
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        hint = "free some space there" if error.errno == errno.ENOSPC else "look at the disk and its rights"
        where = error.filename or "the state directory"
        raise Fault(f"{where}: {said}", hint, "StoreFailed") from error
