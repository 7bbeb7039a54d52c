"""What is in a snapshot of a simulated etcd: the objects of the guest's API at that moment, and the bootstrap data.

A line of JSON about the snapshot, one line for each object, filling up to a multiple of 512 bytes, and the SHA-256 of all
that: etcd's own files are checked in the same way, so that a file that was cut fails with etcd's texts. The bootstrap data
(certificate authorities, the agents' password, encryption keys) open with the server token only, of which the hash is kept.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.core.formats import fastjson
from windrow.core.formats.json import NotJson, dumps, loads

COMPRESSED = ".zip"
MAX_BYTES = 256 << 20  # of a snapshot that is read
_MAX_OBJECTS = 200_000
_BLOCK = 512
_FORMAT = "simulated etcd snapshot"


class BadSnapshot(Exception):
    """The file cannot be restored; the message is etcd's."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot. `cluster` is the uid of the cluster whose state this is; `objects` are by their key in the store."""

    cluster: str
    version: str
    token_hash: str
    bootstrap: Mapping[str, Any] = field(repr=False)
    objects: Mapping[str, dict[str, Any]] = field(repr=False)


def hash_token(password: str) -> str:
    """The hash of the key of the bootstrap data; servers publish its first 12 digits."""
    return hashlib.sha256(password.encode()).hexdigest()


def encode_snapshot(
    cluster: str,
    version: str,
    token_hash: str,
    bootstrap: Mapping[str, Any],
    objects: Iterable[tuple[str, bytes]],
) -> bytes:
    """The file's content; `objects` are encoded already, each with its key."""
    head = {"format": _FORMAT, "cluster": cluster, "version": version, "token": token_hash}
    lines = [dumps({**head, "bootstrap": bootstrap})]
    lines += [b"[%s,%s]" % (dumps(key), data) for key, data in objects]
    body = b"\n".join(lines) + b"\n"
    body += b" " * (-len(body) % _BLOCK)
    return body + hashlib.sha256(body).digest()


def decode_snapshot(content: bytes) -> Snapshot:
    """What is in the file. Raises BadSnapshot."""
    body, digest = content[:-32], content[-32:]
    if len(content) % _BLOCK != hashlib.sha256().digest_size:
        raise BadSnapshot("snapshot missing hash but --skip-hash-check=false")
    if (found := hashlib.sha256(body).digest()) != digest:
        raise BadSnapshot(f"expected sha256 {list(digest)}, got {list(found)}")
    try:
        return _decode_lines(body.decode().split("\n"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadSnapshot(f"invalid database: {error}") from error


def _decode_lines(lines: list[str]) -> Snapshot:
    head = loads(lines[0])
    if head["format"] != _FORMAT:
        raise NotJson("it is no simulated etcd snapshot")
    rest = [line for line in lines[1:] if line.strip()]
    if len(rest) > _MAX_OBJECTS:
        raise NotJson(f"it has more than {_MAX_OBJECTS} objects")
    objects = {}
    for line in rest:
        key, raw = fastjson.loads(line)
        if not isinstance(key, str) or not isinstance(raw["metadata"], dict):
            raise NotJson("it has an object without metadata")
        objects[key] = raw
    return Snapshot(head["cluster"], head["version"], head["token"], dict(head["bootstrap"]), objects)


def compress(name: str, content: bytes) -> bytes:
    """The zip archive with one file, as of `etcd-snapshot-compress`."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(zipfile.ZipInfo(name), content)
    return packed.getvalue()


def decompress(content: bytes) -> bytes:
    """The first file of a zip archive. Raises BadSnapshot."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.infolist():
                if entry.file_size > MAX_BYTES:
                    raise BadSnapshot(f"{entry.filename} has {entry.file_size} bytes")
                with archive.open(entry) as opened:
                    return opened.read(MAX_BYTES)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error) as error:
        raise BadSnapshot(f"zip: not a valid zip file ({error})") from error
    raise BadSnapshot("zip: the archive is empty")
