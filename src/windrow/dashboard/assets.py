"""Styles and scripts: files of this package, each under a path with the digest of its content, so that browsers keep it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_TYPES = {
    "app.css": "text/css; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "vendor/htmx.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
PREFIX = "/static/"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent."""

    body: bytes
    content_type: str


@cache
def _read(name: str) -> Asset:
    return Asset((files("windrow.dashboard") / "static" / name).read_bytes(), _TYPES[name])


@cache
def asset_path(name: str) -> str:
    """Where a browser finds the file."""
    return f"{PREFIX}{hashlib.sha256(_read(name).body).hexdigest()[:12]}/{name}"


def find_asset(path: str) -> Asset | None:
    """The file at a path that `asset_path` gives; None for any other."""
    _, _, name = path.removeprefix(PREFIX).partition("/")
    return _read(name) if name in _TYPES and path == asset_path(name) else None
