"""The state directory: whose it is, who may read it, and which process works in it.

It holds a CA's key, kubeconfigs of administrators, and every Secret. So the directory is 0700 and each file in it 0600,
from creation on and whatever the umask is; what an earlier version left open is repaired at the next start, and said.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from windrow.core.errors import UserError
from windrow.core.files import PRIVATE_DIRECTORY, PRIVATE_FILE, open_private

try:
    import fcntl
except ImportError:  # Windows has none; there is no lock there
    fcntl = None  # type: ignore[assignment]

HARVESTER_FILE = "harvester.yaml"
CREDENTIALS_FILE = "credentials.yaml"
MANAGER_FILE = "manager.yaml"
CA_FILE = "manager-ca.json"
STORE_FILE = "manager.db"
IDENTITY_FILE = "manager-identity.json"
DASHBOARD_FILE = "dashboard.url"
MACHINES_DIRECTORY = "machines"
DRIVERS_DIRECTORY = "drivers"

# What is ours by its name. A directory that a user named may hold other files; those are left alone.
_OURS = (
    f"{STORE_FILE}*",
    *(
        f"{name}*"
        for name in (CA_FILE, IDENTITY_FILE, MANAGER_FILE, HARVESTER_FILE, CREDENTIALS_FILE, DASHBOARD_FILE)
    ),
    "*.lock",
    MACHINES_DIRECTORY,
    DRIVERS_DIRECTORY,
)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class DirectoryUnusable(UserError):
    """The state cannot be kept in this directory."""


class DirectoryInUse(UserError):
    """Another process uses the state directory."""


def open_state_directory(path: Path, uid: int | None = None) -> list[str]:
    """Make the directory, or make it private again; a sentence for each repair. Raises DirectoryUnusable.

    `uid` is the user that it must belong to (default: the one of this process). May be repeated.
    """
    uid = os.geteuid() if uid is None else uid
    if path.is_symlink() and not path.exists():
        raise DirectoryUnusable(
            f"the directory {path} {_describe_special(path)}",
            "Create the directory that it leads to, or name another one with --state-dir.",
        )
    try:
        path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        _require_own(path, uid)
        return [*_make_private(path), *_repair_files(path, uid)]
    except OSError as error:
        raise cannot_keep_state(path, error) from error


def cannot_keep_state(path: Path, error: OSError) -> DirectoryUnusable:
    """The error for a directory in which a file could not be made, locked or written."""
    return DirectoryUnusable(
        f"the state cannot be kept in {path}: {error.strerror or error}"
        + (f" ({error.filename})" if error.filename not in (None, str(path)) else ""),
        "Free space there, or name a directory on a local file system with --state-dir.",
    )


def _require_own(path: Path, uid: int) -> None:
    """Refuse a directory in which other users put or own files, before anything in it is changed."""
    found = path.stat()
    if found.st_uid != uid:
        raise DirectoryUnusable(
            f"the directory {path} belongs to another user (uid {found.st_uid}; this process is uid {uid})",
            f"Name a directory of your own with --state-dir, for example {path / 'windrow'}.",
        )
    if found.st_mode & stat.S_ISVTX:
        raise DirectoryUnusable(
            f"the directory {path} is shared by all users (mode {stat.S_IMODE(found.st_mode):04o})",
            f"Name a directory of your own with --state-dir, for example {path / 'windrow'}.",
        )


def _make_private(path: Path) -> list[str]:
    before = stat.S_IMODE(path.stat().st_mode)
    if not before & _OTHERS:
        return []
    path.chmod(PRIVATE_DIRECTORY)
    if path.stat().st_mode & _OTHERS:
        raise DirectoryUnusable(
            f"the file system of {path} keeps no permissions, so other users could read the Secrets there",
            "Name a directory on a local file system with --state-dir.",
        )
    return [
        f"Repaired: {path} was open to other users (mode {before:04o}), now 0700. Other users of this "
        "computer could read its credentials: renew these if such users exist."
    ]


def _repair_files(path: Path, uid: int) -> Iterator[str]:
    # Not `glob`, which does not list a link that leads nowhere.
    for file in sorted(one for one in path.iterdir() if any(fnmatch(one.name, ours) for ours in _OURS)):
        found = file.lstat()
        is_ours = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
        if found.st_uid != uid or not is_ours:
            what = f"belongs to another user (uid {found.st_uid})" if is_ours else _describe_special(file)
            raise DirectoryUnusable(
                f"{file} {what}",
                "Find out who put it there; remove it, or name another directory with --state-dir.",
            )
        if found.st_mode & _OTHERS:
            wanted = PRIVATE_DIRECTORY if stat.S_ISDIR(found.st_mode) else PRIVATE_FILE
            file.chmod(wanted)
            yield f"Repaired: {file} had mode {stat.S_IMODE(found.st_mode):04o}, now {wanted:04o}."


def _describe_special(file: Path) -> str:
    if not file.is_symlink():
        return "is neither a file nor a directory"
    return f"is a link to {os.readlink(file)}{'' if file.exists() else ', which does not exist'}"


@contextmanager
def lock_state_dir(state_dir: Path, role: str, program: str) -> Iterator[None]:
    """Hold `state_dir` in this role while the block runs; `program` is the name of such a process.

    Raises DirectoryInUse, and DirectoryUnusable where the file system has no locks. The file stays: removing it would
    allow two processes to lock two files of one name.
    """
    if fcntl is None:
        yield
        return
    path = state_dir / f"{role}.lock"
    try:
        file = os.fdopen(open_private(path, os.O_RDWR), "r+")
    except OSError as error:
        raise cannot_keep_state(state_dir, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read().strip()
            raise DirectoryInUse(
                f"{state_dir} is in use by another {program}{f' (process {holder})' if holder else ''}",
                "Stop that process, or name another directory with --state-dir.",
            ) from None
        except OSError as error:
            raise cannot_keep_state(state_dir, error) from error
        try:
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        except OSError as error:
            raise cannot_keep_state(state_dir, error) from error
        yield
