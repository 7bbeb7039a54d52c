"""Backup and restore of a manager's own state: its database and its CA, in one file (0600).

A running manager holds its database alone, so it makes the copy itself: `GET /windrow/backup` on the management API,
for users whom RBAC allows that path (`system:masters`, cluster-admin). A stopped one's is read from the state directory.
Restoring is for a stopped manager; the former files are kept aside.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from windrow.apiserver.apierrors import error_reply, method_not_allowed, status_error
from windrow.apiserver.request.info import UserInfo
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.backup import NotBackup, Snapshot, read_backup, render_store, write_snapshot
from windrow.apiserver.storage.high_water import HighWaterMark, mark_path
from windrow.apiserver.storage.sqlite import SqliteStore
from windrow.app.state.directory import (
    CA_FILE,
    STORE_FILE,
    DirectoryUnusable,
    cannot_keep_state,
    lock_state_dir,
    open_state_directory,
)
from windrow.client.http_transport import HttpTransport
from windrow.core.clock import Clock
from windrow.core.errors import UserError
from windrow.core.files import make_private_directory, sync_directory, write_private
from windrow.kubernetes.errors import NotFound, error_for
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import FileReply, Reply, Request

BACKUP_PATH = "/windrow/backup"
SQLITE = "application/vnd.sqlite3"
MIB = 2**20
RESERVE = 64 * MIB
# For `windrow backup` alone: it asks the administrator's own manager, whose tenants decide how large the store is.
MAX_BACKUP_BYTES = 2048 * MIB
BACKUP_TIMEOUT_S = 900.0
_TEMPORARY = f"{STORE_FILE}.backup"
_PREPARED = f"{STORE_FILE}.restored"  # from before the former files are moved until it takes their place
_FORMER = "before-restore-"


class NoOwnStore(UserError):
    """There is nothing to back up."""


class RestoreInterrupted(UserError):
    """The state directory is between its former state and the one that was to be restored."""


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """What a backup holds."""

    rev: int
    objects: int


@dataclass(frozen=True, slots=True)
class Restored:
    """`rev` is the revision that the store continues from; `former` is where the replaced files are, if there were any."""

    rev: int
    objects: int
    former: Path | None


def open_store(state_dir: Path) -> SqliteStore:
    """The manager's database. Raises StoreDamaged, and RestoreInterrupted before a file is touched."""
    if (state_dir / _PREPARED).exists():
        raise _interrupted(state_dir)
    (state_dir / f"{_PREPARED}.new").unlink(missing_ok=True)  # part of one, with Secrets
    return SqliteStore(state_dir / STORE_FILE)


def database_bytes(state_dir: Path) -> int:
    """The size of the manager's database with its log."""
    sizes = (state_dir / name for name in _DATABASE)
    return sum(path.stat().st_size for path in sizes if path.exists())


def _interrupted(state_dir: Path, reason: str = "") -> RestoreInterrupted:
    moved = _find_moved(state_dir)
    back = f"move the files in {moved} back to {state_dir}, then " if moved else ""
    return RestoreInterrupted(
        f"a restore into {state_dir} was interrupted{reason}: {_PREPARED}, a copy of the backup with its Secrets, was not put in "
        f"the place of {STORE_FILE}",
        f"Repeat it: windrow restore --state-dir {state_dir} FILE. To go on with the state of before instead, {back}delete "
        f"{state_dir / _PREPARED}.",
    )


def _find_moved(state_dir: Path) -> Path | None:
    """Where an interrupted restore has moved files of the former database. None where all are in their place."""
    newest = max(state_dir.glob(f"{_FORMER}*"), default=None)
    if newest is None or (state_dir / STORE_FILE).exists() == (newest / STORE_FILE).exists():
        return None
    return newest if any((newest / name).exists() for name in _DATABASE) else None


def serve_backups(api: ApiServer, store: SqliteStore, state_dir: Path, reserve: int = RESERVE) -> None:
    """Answer BACKUP_PATH on the management API, one request at a time. `reserve` stays free for the store itself.

    The backup is written by another thread, to a file that has no name when it is sent. What a crash leaves of one is
    removed by the next start.
    """
    (state_dir / _TEMPORARY).unlink(missing_ok=True)
    lock = asyncio.Lock()

    async def answer(request: Request, caller: UserInfo) -> Reply:
        if request.method != "GET":
            return error_reply(method_not_allowed())
        async with lock:
            snapshot = _snapshot(store, state_dir)
            try:
                file = await asyncio.to_thread(_open_backup, snapshot, state_dir, reserve)
            except OSError as error:
                reason = error.strerror or str(error)
                return error_reply(
                    status_error(
                        507, f"the backup cannot be written to {state_dir}: {reason}; free space there"
                    )
                )
        return FileReply(200, content_type=SQLITE, file=file)

    api.routes[BACKUP_PATH] = answer


def _snapshot(store: SqliteStore, state_dir: Path) -> Snapshot:
    rev, entries = store.snapshot()
    return Snapshot(rev, entries, {CA_FILE: (state_dir / CA_FILE).read_bytes()})


def _open_backup(snapshot: Snapshot, state_dir: Path, reserve: int = 0) -> BinaryIO:
    """A backup as an open file without a name. Raises OSError, also where less than `reserve` would be free."""
    needed, free = snapshot.size() + reserve, shutil.disk_usage(state_dir).free
    if free < needed:
        raise OSError(
            errno.ENOSPC, f"it takes {needed // MIB} MiB with a reserve, and {free // MIB} MiB are free"
        )
    path = state_dir / _TEMPORARY
    path.unlink(missing_ok=True)
    try:
        write_snapshot(snapshot, path)
        return path.open("rb")
    finally:
        path.unlink(missing_ok=True)


async def backup_running(access: ClientConfig, clock: Clock, env: Mapping[str, str]) -> bytes:
    """A backup made by the manager behind `access`. Raises NoOwnStore where it keeps its objects elsewhere."""
    async with HttpTransport(
        access,
        clock,
        env=env,
        user_agent="windrow-cli",
        max_reply_bytes=MAX_BACKUP_BYTES,
        response_timeout_s=BACKUP_TIMEOUT_S,
        large_answer_bytes=MAX_BACKUP_BYTES,  # takes no turns: the answer is all that is read
    ) as transport:
        reply = await transport.send(Request("GET", BACKUP_PATH, accept=SQLITE))
    error = error_for(reply)
    if isinstance(error, NotFound):
        raise NoOwnStore(
            f"the API server {access.server} is not a manager with a database of its own",
            "Objects that are kept in a Kubernetes cluster are in the backups of its etcd.",
        )
    if error is not None:
        raise error
    return reply.body


def backup_stopped(state_dir: Path) -> bytes:
    """A backup of the state directory. Raises DirectoryInUse while a manager runs there, and NoOwnStore."""
    if not any((state_dir / name).exists() for name in (STORE_FILE, _PREPARED)):
        raise NoOwnStore(
            f"there is no database of a manager in {state_dir}",
            "Name the directory of windrow serve with --state-dir.",
        )
    open_state_directory(state_dir)
    with lock_state_dir(state_dir, "manager", "manager"), closing(open_store(state_dir)) as store:
        try:
            with _open_backup(_snapshot(store, state_dir), state_dir) as file:
                return file.read()
        except OSError as error:
            raise cannot_keep_state(state_dir, error) from error


def write_backup(path: Path, data: bytes) -> BackupSummary:
    """Check a backup and write it to a file that does not exist. Raises NotBackup, FileExistsError and OSError."""
    backup = read_backup(data)
    if path.exists():
        raise FileExistsError(17, "the file exists", str(path))
    write_private(path, data)
    return BackupSummary(backup.rev, len(backup.objects))


def restore(state_dir: Path, file: Path, clock: Clock) -> Restored:
    """Put a backup in the place of the state directory's database and CA.

    Raises DirectoryInUse while a manager runs there, NotBackup, and DirectoryUnusable: then everything is as before; where
    it cannot be put back, RestoreInterrupted. The former files are moved to a directory of their own. After a crash in
    between, the manager refuses to start and the command may be repeated.
    """
    backup = read_backup(file.read_bytes())
    if CA_FILE not in backup.files:
        raise NotBackup(f"it has no {CA_FILE}")
    open_state_directory(state_dir)
    path, prepared = state_dir / STORE_FILE, state_dir / _PREPARED
    with lock_state_dir(state_dir, "manager", "manager"):
        was_interrupted = prepared.exists()
        former = _find_moved(state_dir) if was_interrupted else None
        if former is None:
            former = state_dir / f"{_FORMER}{clock.now():%Y%m%dT%H%M%SZ}"
            if former.exists():
                raise DirectoryUnusable(f"{former} exists already", "Try again in a second.")
        undo = ExitStack()
        try:
            mark = HighWaterMark(mark_path(path))
            data, rev = render_store(backup, mark.read())
            write_private(prepared, data)
            is_kept = _move_aside(state_dir, former, undo)
            write_private(state_dir / CA_FILE, backup.files[CA_FILE])
            os.replace(prepared, path)
            undo.pop_all()
            sync_directory(state_dir)
            mark.record(rev)
            mark.close()
        except OSError as error:
            if not _is_undone(undo, None if was_interrupted else prepared):
                raise _interrupted(state_dir, f" ({error.strerror or error})") from error
            raise cannot_keep_state(state_dir, error) from error
    return Restored(rev, len(backup.objects), former if is_kept else None)


def _is_undone(undo: ExitStack, prepared: Path | None) -> bool:
    """Undo what was done. What was prepared is left where that fails: it tells the next start."""
    try:
        undo.close()
        if prepared is not None:
            prepared.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _move_aside(state_dir: Path, former: Path, undo: ExitStack) -> bool:
    """Move the database and copy the CA to `former`, which is made; False where there is nothing of before."""
    files = [path for path in state_dir.glob(f"{STORE_FILE}*") if path.name in _DATABASE]
    ca, kept_ca = state_dir / CA_FILE, former / CA_FILE
    if not former.exists():
        if not files and not ca.exists():
            undo.callback(ca.unlink, missing_ok=True)
            return False
        make_private_directory(former)
        undo.callback(former.rmdir)
    if ca.exists() and not kept_ca.exists():
        write_private(kept_ca, ca.read_bytes())
        undo.callback(os.replace, kept_ca, ca)
    for path in sorted(files, reverse=True):  # the WAL before its database
        os.replace(path, former / path.name)
        undo.callback(os.replace, former / path.name, path)
    sync_directory(former)
    sync_directory(state_dir)
    return True


_DATABASE = frozenset(f"{STORE_FILE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal"))
