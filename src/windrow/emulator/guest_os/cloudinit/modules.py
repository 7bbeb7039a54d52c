"""Readings of a cloud-config by cloud-init's modules: files, commands, packages, user accounts, host name.

Each reading also returns the warnings that the real module would log.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.emulator.guest_os.cloudinit.coercion import as_list

# Transfer encodings of write_files, and the decoding steps of each, outermost first.
_ENCODINGS: dict[str, tuple[str, ...]] = {
    "": (),
    "text/plain": (),
    "b64": ("b64",),
    "base64": ("b64",),
    "gz": ("gz",),
    "gzip": ("gz",),
    "gz+b64": ("b64", "gz"),
    "gz+base64": ("b64", "gz"),
    "gzip+b64": ("b64", "gz"),
    "gzip+base64": ("b64", "gz"),
}
_DEFAULT_MODE = 0o644


@dataclass(frozen=True, slots=True)
class WriteFile:
    """One entry of write_files, decoded."""

    path: str
    content: bytes = field(repr=False)
    mode: int = _DEFAULT_MODE
    owner: str = "root:root"
    append: bool = False
    defer: bool = False


@dataclass(frozen=True, slots=True)
class UserAccount:
    """A user account that cloud-init makes, with the keys that may log in."""

    name: str
    keys: tuple[str, ...] = ()


def list_write_files(config: Mapping[str, Any]) -> tuple[list[WriteFile], list[str]]:
    """The files of `write_files` that cloud-init would write, in order, and its warnings.

    A broken encoding ends the module: the files after it are not written either.
    """
    entries = config.get("write_files")
    if entries is None:
        return [], []
    if not isinstance(entries, list):
        return [], [f"write_files: expected a list, found {type(entries).__name__}; no file is written"]
    files: list[WriteFile] = []
    warnings: list[str] = []
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            warnings.append(f"write_files: entry {number} is not a mapping; the module fails here")
            break
        path = entry.get("path")
        if not path:
            warnings.append(
                f"No path provided to write for entry {number} in module write_files; it is skipped"
            )
            continue
        encoding = str(entry.get("encoding") or "").lower().strip()
        if encoding not in _ENCODINGS:
            warnings.append(f"Unknown encoding type {encoding}, assuming text/plain for {path}")
        try:
            content = _decoded(entry.get("content"), _ENCODINGS.get(encoding, ()))
        except (binascii.Error, ValueError, OSError, EOFError, zlib.error) as error:
            warnings.append(
                f"Running module write_files failed at {path}: its content is not {encoding}: {error}; "
                "the files after it are not written"
            )
            break
        mode, complaint = _mode(entry.get("permissions"), str(path))
        warnings += complaint
        files.append(
            WriteFile(
                str(path),
                content,
                mode,
                str(entry.get("owner") or "root:root"),
                bool(entry.get("append", False)),
                bool(entry.get("defer", False)),
            )
        )
    return files, warnings


def _decoded(content: Any, steps: tuple[str, ...]) -> bytes:
    raw = content if isinstance(content, bytes) else str("" if content is None else content).encode()
    for step in steps:
        raw = (
            base64.b64decode(b"".join(raw.split()), validate=True) if step == "b64" else gzip.decompress(raw)
        )
    return raw


def _mode(value: Any, path: str) -> tuple[int, list[str]]:
    if value is None:
        return _DEFAULT_MODE, []
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value), []  # YAML 1.1 already read 0644 as octal; 644 without the zero means decimal 644
    try:
        return int(str(value), 8), []
    except ValueError:
        return _DEFAULT_MODE, [
            f"Undecodable permissions {value!r} for {path}, returning default {_DEFAULT_MODE:o}"
        ]


def read_hostname(config: Mapping[str, Any]) -> str:
    """The host name of the configuration, "" where the hypervisor's meta data names it."""
    if config.get("preserve_hostname") is True:
        return ""
    wanted = str(config.get("hostname") or config.get("fqdn") or "")
    return wanted.split(".", 1)[0]


def list_user_accounts(config: Mapping[str, Any]) -> list[UserAccount]:
    """User accounts with their ssh keys; top-level keys go to the image's default user, which `user` gives another name."""
    accounts: dict[str, list[str]] = {}
    users = config.get("users")
    top = [str(key) for key in as_list(config.get("ssh_authorized_keys")) if isinstance(key, str)]
    listed: list[Any] = users if isinstance(users, list) else ["default"]
    named = config.get("user")
    renamed = str(named.get("name") or "" if isinstance(named, dict) else named or "")
    if renamed:
        listed = [*listed, "default"]  # made also where `users` leaves it out
    for entry in listed:
        if isinstance(entry, str):
            for name in entry.split(","):
                accounts.setdefault(name.strip(), [])
        elif isinstance(entry, dict) and entry.get("name"):
            keys = accounts.setdefault(str(entry["name"]), [])
            keys += [str(key) for key in as_list(entry.get("ssh_authorized_keys"))]
    if top:
        accounts.setdefault("default", []).extend(top)
    return [
        UserAccount(renamed if renamed and name == "default" else name, tuple(keys))
        for name, keys in accounts.items()
    ]


def list_packages(config: Mapping[str, Any]) -> list[str]:
    """Names of the packages to install; `[name, version]` pairs count by name."""
    found: list[str] = []
    packages = config.get("packages")
    for entry in packages if isinstance(packages, list) else ():
        if isinstance(entry, str):
            found.append(entry)
        elif isinstance(entry, list) and entry:
            found.append(str(entry[0]))
        elif isinstance(entry, dict):
            for names in entry.values():
                found += [
                    str(name[0] if isinstance(name, list) and name else name) for name in as_list(names)
                ]
    return found


def list_commands(config: Mapping[str, Any], key: str) -> tuple[list[str | list[str]], list[str]]:
    """The commands under `key` (bootcmd or runcmd): a string for the shell, a list for exec; and warnings."""
    entries = config.get(key)
    if entries is None:
        return [], []
    if not isinstance(entries, list):
        return [], [f"{key}: expected a list of commands, found {type(entries).__name__}; none is run"]
    commands: list[str | list[str]] = []
    for number, entry in enumerate(entries, start=1):
        if isinstance(entry, str):
            commands.append(entry)
        elif isinstance(entry, list):
            commands.append([str(word) for word in entry if word is not None])
        elif entry is not None:
            # cloud-init's shellify refuses the whole module for one bad entry.
            kind = type(entry).__name__
            return [], [
                f"Failed to shellify {key}: entry {number} is a {kind}, not a string or a list; none is run"
            ]
    return commands, []
