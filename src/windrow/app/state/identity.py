"""The uid of a store, which no copy of it has: a manager on a copy must not act beside the one on the original.

It is in a file of its own, not in the database, so that no backup holds it. The file names its own inode: a copied one
has another, and gets a new uid. A file that was moved keeps it, and so does a directory into which a backup is restored:
its lock proves that the former manager there has ended. What is not recognized (a snapshot of the whole disk, a
file system that renumbers) costs no safety: clusters.sources.manager_leases tells such managers apart by which started
last, and one with a new uid waits until the former has ended.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from windrow.app.state.directory import IDENTITY_FILE, cannot_keep_state
from windrow.core.files import open_private, sync_directory
from windrow.core.formats.json import dumps, loads
from windrow.core.rng import Rng
from windrow.kubernetes.objects import nested

MAX_BYTES = 4096


def load_or_create_store_uid(state_dir: Path, rng: Rng) -> str:
    """The uid of the store in `state_dir`. Raises DirectoryUnusable. A crash in between leaves no file, or the whole."""
    path = state_dir / IDENTITY_FILE
    try:
        return _find_store_uid(path) or _create(path, rng.uid())
    except OSError as error:
        raise cannot_keep_state(state_dir, error) from error


def _find_store_uid(path: Path) -> str:
    """ "" where there is none, or where the file is a copy, or not one of ours."""
    with suppress(FileNotFoundError, ValueError), path.open("rb") as file:
        read = loads(file.read(MAX_BYTES))
        if nested(read, "inode") == os.fstat(file.fileno()).st_ino:
            return str(nested(read, "store", default=""))
    return ""


def _create(path: Path, uid: str) -> str:
    """The inode has to be known before the file is written; a rename keeps it."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(open_private(temporary, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(dumps({"store": uid, "inode": os.fstat(file.fileno()).st_ino}))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)
    return uid
