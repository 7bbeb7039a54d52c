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

from windrow.catalogue.archives import LIMITS, PREFIX, Limits, extract
from windrow.catalogue.faults import Fault
from windrow.catalogue.platforms import Platform
from windrow.formats.json import NotJson, dumps, loads

RECORD = "record.json"
PARTIAL = ".partial"
CHUNK = 1024 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Stored:
    """An installed driver. `digest` is what it came in under, `binary_digest` its program's own."""

    digest: str
    name: str
    path: Path
    binary_digest: str
    size: int
    urls: tuple[str, ...]


class Receipt:
    """A download on its way: write it, then keep it. Whatever happens, drop it at the end."""

    def __init__(self, partial: Path, file: IO[bytes], digest: str) -> None:
        self._partial, self._file, self._digest = partial, file, digest
        self._counted = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Raises Fault where the disk does not take it."""
        self._counted.update(data)
        with _told():
            self._file.write(data)

    def keep(self) -> None:
        """Put it in its place, durably. Raises Fault where its digest is another, and then nothing is kept."""
        found = self._counted.hexdigest()
        if found != self._digest:
            raise mismatch(found, self._digest)
        with _told():
            _write_through(self._file)
            self._partial.replace(self._partial.with_name(self._digest))
            _sync(self._partial.parent)

    def drop(self) -> None:
        """Forget what was not kept."""
        with suppress(OSError):
            self._file.close()
            self._partial.unlink(missing_ok=True)


class Store:
    """The drivers below `root`. One process at a time; `owner` is whoever a file is made for, by name."""

    def __init__(self, root: Path, platform: Platform, limits: Limits = LIMITS) -> None:
        self._downloads = root / "downloads"
        self._installed = root / "sha256"
        self._root, self._platform, self._limits = root, platform, limits
        self._proven: dict[Path, tuple[int, ...]] = {}

    def open(self) -> None:
        """Make the directories, and clear away what a crash left half made. Raises Fault."""
        with _told():
            for place in (self._downloads, self._installed):
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                for left in place.glob(f"*{PARTIAL}"):
                    _remove(left)
            for download in self._downloads.iterdir():
                if self.find(download.name) is not None:  # the crash came between the last two steps
                    _remove(download)

    # -- downloads ---------------------------------------------------------------------------------------------------

    def receive(self, digest: str, owner: str) -> Receipt:
        """A place for what a URL delivers, which has to have that digest. Raises Fault."""
        partial = self._downloads / f"{digest}.{_safe(owner)}{PARTIAL}"
        with _told():
            return Receipt(partial, partial.open("wb"), digest)

    def has_download(self, digest: str) -> bool:
        return bool(_DIGEST.fullmatch(digest)) and (self._downloads / digest).is_file()

    # -- programs ----------------------------------------------------------------------------------------------------

    def install(self, digest: str, owner: str, url: str) -> Stored:
        """Unpack the download into its place. May be repeated. Raises Fault; a download that changed is removed.

        A program that is not packed has its name from the URL. Whoever installed it first has it under that name, and
        keeps it so: under another one it is refused.
        """
        source = self._downloads / digest
        partial = self._installed / f".{digest}.{_safe(owner)}{PARTIAL}"
        with _told():
            if (found := _digest_of(source)) != digest:
                source.unlink(missing_ok=True)
                raise mismatch(found, digest)
            urls = dict.fromkeys((*self._urls(digest), url))
            _remove(partial)
            partial.mkdir(mode=0o700)
            try:
                name = self._fill(partial, source, digest, list(urls))
                if (before := self._name(digest)) not in ("", name):
                    source.unlink()
                    raise _named_already(before, name)
                self._swap(partial, self._installed / digest)
            finally:
                _remove(partial)
            source.unlink()
        stored = self.find(digest)
        if stored is None:
            raise Fault(
                "the driver vanished from the disk while it was installed", "look at the disk", "StoreFailed"
            )
        return stored

    def _fill(self, place: Path, source: Path, digest: str, urls: list[str]) -> str:
        """Make a driver's directory; returns the driver's name."""
        fresh = place / "program"
        with fresh.open("w+b") as file:
            name = extract(source, urls[-1], file, self._platform, self._limits)
            _write_through(file)
        fresh.chmod(0o755)
        program = fresh.rename(place / f"{PREFIX}{name}")
        record = {"name": name, "sha256": _digest_of(program), "size": program.stat().st_size, "urls": urls}
        with (place / RECORD).open("wb") as file:
            file.write(dumps(record))
            _write_through(file)
        _sync(place)
        return name

    def _swap(self, fresh: Path, place: Path) -> None:
        # A directory cannot replace one that is not empty. Between the two steps the driver is absent, and the
        # download still there: whoever looks then installs it once more.
        old = fresh.with_name(f".{place.name}.old{PARTIAL}")
        _remove(old)
        with suppress(FileNotFoundError):
            place.rename(old)
        fresh.rename(place)
        _remove(old)
        _sync(place.parent)

    def find(self, digest: str) -> Stored | None:
        """The driver installed from that digest, as recorded; the program itself is not read."""
        if not _DIGEST.fullmatch(digest):
            return None
        try:
            record = loads((self._installed / digest / RECORD).read_bytes())
            stored = Stored(
                digest,
                str(record["name"]),
                self._installed / digest / f"{PREFIX}{record['name']}",
                str(record["sha256"]),
                int(record["size"]),
                tuple(str(url) for url in record["urls"]),
            )
            same = stored.path.stat().st_size == stored.size
        except (OSError, NotJson, LookupError, TypeError, ValueError):
            return None
        return stored if same else None

    def proven(self, digest: str) -> Path | None:
        """The program, if it is still, byte by byte, what was installed. Read again only after it was touched."""
        stored = self.find(digest)
        if stored is None:
            return None
        try:
            state = stored.path.stat()
            marks = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_mode)
            if self._proven.get(stored.path) != marks:
                if _digest_of(stored.path) != stored.binary_digest or not os.access(stored.path, os.X_OK):
                    return None
                self._proven[stored.path] = marks
        except OSError:
            return None
        return stored.path

    def sweep(self, keep: Collection[str]) -> list[str]:
        """Remove every driver and download whose digest is not named in `keep`; returns the digests of those."""
        gone = []
        with _told():
            for place in (self._downloads, self._installed):
                for found in sorted(place.iterdir()):
                    if _DIGEST.fullmatch(found.name) and found.name not in keep:
                        _remove(found)
                        gone.append(found.name)
        return sorted(set(gone))

    def _urls(self, digest: str) -> tuple[str, ...]:
        stored = self.find(digest)
        return stored.urls if stored is not None else ()

    def _name(self, digest: str) -> str:
        """Under which name it was installed, whatever became of the program since; "" where no record tells."""
        try:
            return str(loads((self._installed / digest / RECORD).read_bytes())["name"])
        except (OSError, NotJson, LookupError, TypeError):
            return ""


def _named_already(before: str, name: str) -> Fault:
    return Fault(
        f"the same file is installed as driver {before}, and its URL calls it {name}",
        f"serve it under a name that starts with {PREFIX}{before}",
        "NameTaken",
    )


def mismatch(found: str, wanted: str) -> Fault:
    return Fault(
        f"hash does not match, got {found}, expected {wanted}",
        "correct spec.checksum, or find out who changed the file",
        "ChecksumMismatch",
    )


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _safe(owner: str) -> str:
    """The owner's name as part of a file name; two owners never get the same."""
    return hashlib.sha256(owner.encode()).hexdigest()[:16]


def _write_through(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync(place: Path) -> None:
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
def _told() -> Iterator[None]:
    """Errors of the disk as Faults."""
    try:
        yield
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        cure = "free some space there" if error.errno == errno.ENOSPC else "look at the disk and its rights"
        where = error.filename or "the state directory"
        raise Fault(f"{where}: {said}", cure, "StoreFailed") from error
