"""The paths that the caller gives: resolved as the kernel does, without following what an ordinary user could have planted."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from windrow.csi.mounts.port import UnsafePath

# As the kernel's own limit.
_MAX_LINKS = 40
# Far more than kubelet's, and few enough for programs that go down level by level.
_MAX_LEVELS = 256
_DIRECTORY_MODE = 0o750
_FILE_MODE = 0o600
# There is nothing at the path, and in the last two cases nothing can be.
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


def resolve(path: str) -> str:
    """The path without links in its directories, so that it is written as in mountinfo; the last component stays as it is.

    A directory may be a link of root's, as where /var/lib/kubelet is on another disk. Raises UnsafePath for one of any other
    user. What does not exist is left as it is.
    """
    parent, name = os.path.split(path)
    if parent.count("/") > _MAX_LEVELS:
        raise UnsafePath(f"{path[:100]}… has more than {_MAX_LEVELS} levels", "give a path of fewer levels")
    return os.path.join(_resolve_directory(parent), name)


def _resolve_directory(path: str) -> str:
    resolved, left, links = "/", _components(path), 0
    while left:
        name = left.pop(0)
        if name == "..":
            resolved = os.path.dirname(resolved)
            continue
        step = os.path.join(resolved, name)
        try:
            found = os.lstat(step)
        except OSError:
            resolved = step
            continue
        if not stat.S_ISLNK(found.st_mode):
            resolved = step
            continue
        links += 1
        if found.st_uid not in (0, os.geteuid()) or links > _MAX_LINKS:
            raise UnsafePath(f"{step} on the way to {path} is a symbolic link", "remove it: it is not root's")
        target = os.readlink(step)
        resolved, left = ("/" if target.startswith("/") else resolved), _components(target) + left
    return resolved


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def ensure_directory(path: str) -> None:
    """A directory at `path`, made with those above it where there is none. Raises UnsafePath where something else is there."""
    with _usable(path):
        _ensure_parents(path)
        try:
            os.mkdir(path, _DIRECTORY_MODE)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise UnsafePath(f"{path} exists and is no directory", "remove it") from None


def refuse_link(path: str) -> None:
    """Raises UnsafePath for a symbolic link: a program that is given the path would follow it."""
    if os.path.islink(path):
        raise UnsafePath(f"{path} is a symbolic link", "remove it")


def ensure_file(path: str) -> None:
    """An empty file at `path`. Raises UnsafePath where something else is there."""
    with _usable(path):
        _ensure_parents(path)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, _FILE_MODE))
        except FileExistsError:
            if not _is_empty_file(path):
                raise UnsafePath(f"{path} exists and is no empty file", "remove it") from None


@contextmanager
def _usable(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnsafePath(
            f"{path} cannot be made: {error.strerror}", "see what is on the way there on the node"
        ) from error


def _ensure_parents(path: str) -> None:
    missing, parent = [], os.path.dirname(path)
    while not os.path.isdir(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    for one in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(one, _DIRECTORY_MODE)


def remove_empty(path: str) -> None:
    """Remove what `ensure_directory` or `ensure_file` made. Raises UnsafePath for anything else, and for content."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.rmdir(path)
        elif _is_empty_file(path):
            os.unlink(path)
        else:
            raise UnsafePath(f"{path} is neither a directory nor an empty file", "remove it")
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return
        raise UnsafePath(
            f"{path} cannot be removed, nothing is mounted there: {error.strerror}",
            "look at what was written into it while no volume was mounted, and remove it",
        ) from error


def _is_empty_file(path: str) -> bool:
    found = os.lstat(path)
    return stat.S_ISREG(found.st_mode) and found.st_size == 0


@contextmanager
def opened(path: str) -> Iterator[str]:
    """A name for what is at `path` now, valid in this process while the context lasts, whatever is renamed meanwhile.

    Raises UnsafePath for a symbolic link.
    """
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise UnsafePath(f"{path} is a symbolic link", "remove it")
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
