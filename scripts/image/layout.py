"""Images as the Open Container Initiative describes them: layers, a configuration and a manifest, each named by its hash.

An archive is a tar file of an image layout, with the `manifest.json` that older programs look for. The same layers and the same
settings give the same bytes.

Facts: image-spec v1.1 (image-layout.md, manifest.md, config.md, annotations.md).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CONFIG = "application/vnd.oci.image.config.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
# 9 takes three times as long, for one part in a hundred.
LEVEL = 6
CHUNK = 1 << 20


@dataclass(frozen=True)
class Layer:
    """A compressed tar file. `diff_id` is the digest of what is compressed."""

    path: Path
    digest: str
    diff_id: str
    size: int


@dataclass(frozen=True)
class Entry:
    """A file of a layer, or a directory where `content` is None. `path` is absolute."""

    path: str
    content: bytes | None
    mode: int = 0o644
    owner: int = 0


@dataclass(frozen=True)
class Settings:
    """How an image's program is started. `user` is a number, because Kubernetes cannot tell whether a name is root."""

    name: str  # of the repository
    tag: str
    entrypoint: tuple[str, ...]
    arguments: tuple[str, ...]
    user: str
    env: Mapping[str, str]
    folder: str
    labels: Mapping[str, str]
    architecture: str
    epoch: int


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def compress(tape: Path, out: Path) -> Layer:
    """The layer of an uncompressed tar file."""
    inner = hashlib.sha256()
    with (
        tape.open("rb") as source,
        out.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=LEVEL, mtime=0) as packed,
    ):
        while chunk := source.read(CHUNK):
            inner.update(chunk)
            packed.write(chunk)
    with out.open("rb") as packed_file:
        outer = hashlib.file_digest(packed_file, "sha256")
    return Layer(out, f"sha256:{outer.hexdigest()}", f"sha256:{inner.hexdigest()}", out.stat().st_size)


def write_tape(entries: Iterable[Entry], epoch: int, out: Path) -> None:
    """A tar file of the entries, and of the directories that lead to them, sorted and all of one date."""
    found = {entry.path: entry for entry in entries}
    for path in list(found):
        for parent in map(str, Path(path).parents):
            found.setdefault(parent, Entry(parent, None, 0o755))
    found.pop("/", None)
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tape:
        for path in sorted(found):
            entry = found[path]
            info = tarfile.TarInfo(path.lstrip("/"))
            info.mode, info.mtime, info.uid, info.gid = entry.mode, epoch, entry.owner, entry.owner
            if entry.content is None:
                info.type = tarfile.DIRTYPE
                tape.addfile(info)
            else:
                info.size = len(entry.content)
                tape.addfile(info, io.BytesIO(entry.content))


def render_config(settings: Settings, layers: Sequence[Layer]) -> bytes:
    moment = datetime.fromtimestamp(settings.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return _json(
        {
            "created": moment,
            "architecture": settings.architecture,
            "os": "linux",
            "config": {
                "User": settings.user,
                "Env": [f"{name}={value}" for name, value in settings.env.items()],
                "Entrypoint": list(settings.entrypoint),
                "Cmd": list(settings.arguments),
                "WorkingDir": settings.folder,
                "Labels": dict(settings.labels),
            },
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [{"created": moment, "created_by": "make image"} for _ in layers],
        }
    )


def write_archive(settings: Settings, layers: Sequence[Layer], out: Path) -> str:
    """Write the image to `out`, and return the digest of its manifest, by which a registry names it."""
    config = render_config(settings, layers)
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _descriptor(CONFIG, config),
            "layers": [{"mediaType": LAYER, "digest": layer.digest, "size": layer.size} for layer in layers],
            "annotations": dict(settings.labels),
        }
    )
    reference = f"{settings.name}:{settings.tag}"
    named = {
        **_descriptor(MANIFEST, manifest),
        "platform": {"architecture": settings.architecture, "os": "linux"},
        # The first is that of the specification; containerd takes the second, which has to be complete.
        "annotations": {
            "org.opencontainers.image.ref.name": reference,
            "io.containerd.image.name": f"docker.io/{reference}",
        },
    }
    index = _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]})
    older = [
        {
            "Config": _blob(digest_of(config)),
            "RepoTags": [reference],
            "Layers": [_blob(layer.digest) for layer in layers],
        }
    ]
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": index,
        "manifest.json": _json(older),
        _blob(digest_of(config)): config,
        _blob(digest_of(manifest)): manifest,
    }
    blobs: dict[str, bytes | Path] = {**files, **{_blob(layer.digest): layer.path for layer in layers}}
    partial = out.with_name(f"{out.name}.partial")
    with tarfile.open(partial, "w", format=tarfile.USTAR_FORMAT) as tape:
        for name, content in sorted(blobs.items()):
            info = tarfile.TarInfo(name)
            info.mode, info.mtime = 0o644, settings.epoch
            if isinstance(content, Path):
                info.size = content.stat().st_size
                with content.open("rb") as file:
                    tape.addfile(info, file)
            else:
                info.size = len(content)
                tape.addfile(info, io.BytesIO(content))
    shutil.move(partial, out)
    return digest_of(manifest)


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _descriptor(media: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media, "digest": digest_of(content), "size": len(content)}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
