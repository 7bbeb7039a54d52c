"""The store of drivers on disk, by the SHA-256 of the downloaded file. A file under its final name is complete and
verified.

    downloads/<sha256>                         a verified download, until it is installed
    downloads/<sha256>.<owner>.partial         a download in progress
    sha256/<sha256>/docker-machine-driver-…    the binary, mode 0755
    sha256/<sha256>/record.json                its name, its own digest, and its URLs
    sha256/.<sha256>.<owner>.partial/          an installation in progress

Everything is written beside its place, flushed to disk, and renamed. So a crash leaves the old state, the new state,
or a `.partial`, which the next start removes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from windrow.core.files import make_private_directory, sync_directory, write_private
from windrow.core.formats.json import NotJson, dumps, loads
from windrow.drivers.api import Fault
from windrow.drivers.archive import LIMITS, PREFIX, Limits, Platform, extract

RECORD_FILE = "record.json"
PARTIAL_SUFFIX = ".partial"
READ_SIZE = 1024 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class InstalledDriver:
    """An installed driver. `digest` is that of the downloaded file, `binary_digest` that of the binary."""

    digest: str
    name: str
    path: Path
    binary_digest: str
    size: int
    urls: tuple[str, ...]


class PartialDownload:
    """A download in progress: write it, then commit it. Always discard it at the end."""

    def __init__(self, partial: Path, file: IO[bytes], digest: str) -> None:
        self._partial, self._file, self._digest = partial, file, digest
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Raises Fault on a disk error."""
        self._hash.update(data)
        with _disk_faults():
            self._file.write(data)

    def commit(self) -> None:
        """Move it to its place, durably. Raises Fault on a checksum mismatch; then nothing is kept."""
        found = self._hash.hexdigest()
        if found != self._digest:
            raise checksum_mismatch(found, self._digest)
        with _disk_faults():
            _flush(self._file)
            self._partial.replace(self._partial.with_name(self._digest))
            sync_directory(self._partial.parent)

    def discard(self) -> None:
        """Remove what was not committed."""
        with suppress(OSError):
            self._file.close()
            self._partial.unlink(missing_ok=True)


class DriverStore:
    """The drivers below `root`. One process at a time; `owner` is the name of the NodeDriver that a file is for."""

    def __init__(self, root: Path, platform: Platform, limits: Limits = LIMITS) -> None:
        self._downloads = root / "downloads"
        self._installed = root / "sha256"
        self._root, self._platform, self._limits = root, platform, limits
        self._verified: dict[Path, tuple[int, ...]] = {}

    def open(self) -> None:
        """Make the directories, and remove what a crash left incomplete. Raises Fault."""
        with _disk_faults():
            for place in (self._downloads, self._installed):
                make_private_directory(place)
                for leftover in place.glob(f"*{PARTIAL_SUFFIX}"):
                    _remove(leftover)
            for download in self._downloads.iterdir():
                # The crash came between the last two steps of an installation.
                if self.find(download.name) is not None:
                    _remove(download)

    # -- downloads ---------------------------------------------------------------------------------------------------

    def start_download(self, digest: str, owner: str) -> PartialDownload:
        """Begin a download that must have that digest. Raises Fault."""
        partial = self._downloads / f"{digest}.{_owner_id(owner)}{PARTIAL_SUFFIX}"
        with _disk_faults():
            return PartialDownload(partial, partial.open("wb"), digest)

    def has_download(self, digest: str) -> bool:
        return bool(_DIGEST.fullmatch(digest)) and (self._downloads / digest).is_file()

    # -- programs ----------------------------------------------------------------------------------------------------

    def install(self, digest: str, owner: str, url: str) -> InstalledDriver:
        """Unpack the download into its place. May be repeated. Raises Fault; a download that changed on disk is
        removed.

        A binary that is not in an archive gets its name from the URL. It keeps the name of its first installation:
        under another one it is refused.
        """
        source = self._downloads / digest
        partial = self._installed / f".{digest}.{_owner_id(owner)}{PARTIAL_SUFFIX}"
        with _disk_faults():
            if (found := _digest_of(source)) != digest:
                source.unlink(missing_ok=True)
                raise checksum_mismatch(found, digest)
            before = self.find(digest)
            urls = dict.fromkeys((*(before.urls if before is not None else ()), url))
            _remove(partial)
            partial.mkdir(mode=0o700)
            try:
                name = self._unpack(partial, source, digest, list(urls))
                if (recorded := self._read_record(digest).get("name", name)) != name:
                    source.unlink()
                    raise _name_conflict(recorded, name)
                self._replace(partial, self._installed / digest)
            finally:
                _remove(partial)
            source.unlink()
        installed = self.find(digest)
        if installed is None:
            message = "the driver disappeared from the disk during its installation"
            raise Fault(message, "check the disk", "StorageFailed")
        return installed

    def _unpack(self, directory: Path, source: Path, digest: str, urls: list[str]) -> str:
        """Fill a driver's directory; returns the driver's name."""
        unpacked = directory / "program"
        with unpacked.open("w+b") as file:
            name = extract(source, urls[-1], file, self._platform, self._limits)
            _flush(file)
        unpacked.chmod(0o755)
        program = unpacked.rename(directory / f"{PREFIX}{name}")
        record = {"name": name, "sha256": _digest_of(program), "size": program.stat().st_size, "urls": urls}
        write_private(directory / RECORD_FILE, dumps(record))
        return name

    def _replace(self, new: Path, target: Path) -> None:
        # A directory cannot replace one that is not empty. Between the two steps the driver is absent and its download
        # still there, so a crash leads to another installation.
        old = new.with_name(f".{target.name}.old{PARTIAL_SUFFIX}")
        _remove(old)
        with suppress(FileNotFoundError):
            target.rename(old)
        new.rename(target)
        _remove(old)
        sync_directory(target.parent)

    def find(self, digest: str) -> InstalledDriver | None:
        """The driver installed from that digest, as recorded; the binary itself is not read."""
        if not _DIGEST.fullmatch(digest):
            return None
        record = self._read_record(digest)
        try:
            installed = InstalledDriver(
                digest,
                str(record["name"]),
                self._installed / digest / f"{PREFIX}{record['name']}",
                str(record["sha256"]),
                int(record["size"]),
                tuple(str(url) for url in record["urls"]),
            )
            same = installed.path.stat().st_size == installed.size
        except (OSError, LookupError, TypeError, ValueError):
            return None
        return installed if same else None

    def _read_record(self, digest: str) -> Mapping[str, Any]:
        """The record of an installation, even if the binary is gone; empty where there is none."""
        try:
            record = loads((self._installed / digest / RECORD_FILE).read_bytes())
        except (OSError, NotJson):
            return {}
        return record if isinstance(record, dict) else {}

    def verified_path(self, digest: str) -> Path | None:
        """The path of the binary, if its digest is still the recorded one. It is read again only after it was touched."""
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
        """Remove every driver and download whose digest is not in `keep`; returns the removed digests."""
        removed = []
        with _disk_faults():
            for place in (self._downloads, self._installed):
                for found in sorted(place.iterdir()):
                    if _DIGEST.fullmatch(found.name) and found.name not in keep:
                        _remove(found)
                        removed.append(found.name)
        return sorted(set(removed))


def _name_conflict(recorded: str, name: str) -> Fault:
    return Fault(
        f"the same file is installed as driver {recorded}, but its URL has the name {name}",
        f"serve it under a name that starts with {PREFIX}{recorded}",
        "NameConflict",
    )


def checksum_mismatch(found: str, wanted: str) -> Fault:
    return Fault(
        f"hash does not match, got {found}, expected {wanted}",
        "correct spec.checksum, or find out why the file changed",
        "ChecksumMismatch",
    )


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _owner_id(owner: str) -> str:
    """The owner's name as part of a file name, without collisions."""
    return hashlib.sha256(owner.encode()).hexdigest()[:16]


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _disk_faults() -> Iterator[None]:
    """Disk errors as Faults."""
    try:
        yield
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        hint = (
            "free some space there" if error.errno == errno.ENOSPC else "check the disk and its permissions"
        )
        where = error.filename or "the state directory"
        raise Fault(f"{where}: {said}", hint, "StorageFailed") from error
