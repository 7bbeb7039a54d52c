"""Secrets of a run, as byte strings to look for, and the files of its programs to look into."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# In a decoded value: the body of a private key, and what stands behind these words.
_KEY = re.compile(rb"PRIVATE KEY-----\n[^\n]+\n([^\n]{40,})\n")
_WORD = re.compile(rb"(?:token|password|client-key-data|secretAccessKey)\"?: *\"?([^\s\"]{16,})")
# Where a long base64 text begins is the same in all of them.
_SLICE = slice(300, 360)


def find_secrets(raws: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """Parts of the values of Secrets that no log may have, by name."""
    found: dict[str, bytes] = {}
    for raw in raws:
        head = raw["metadata"]
        for key, encoded in (raw.get("data") or {}).items():
            value = b64decode(encoded)
            name = f"a part of {key} of Secret {head.get('namespace', '')}/{head['name']}"
            parts = [*_KEY.findall(value), *_WORD.findall(value)]
            if re.fullmatch(rb"[!-~]{16,}", value) and not value.startswith(b"https://"):
                parts.append(value)
            for number, part in enumerate(parts):
                found[f"{name} ({number})"] = part[_SLICE] if len(part) > 400 else part
    return found


def read_logs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.log")}


def read_modes(folders: Iterable[Path]) -> dict[str, int]:
    """Modes of these directories and of everything in them."""
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    return {str(path): path.lstat().st_mode for path in paths if path.exists() and not path.is_symlink()}
