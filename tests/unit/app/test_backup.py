"""Backup and restore of a manager's state, with the manager running and stopped."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.app.test_state_directory import open_to_others, served

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import SqliteStore, StoreDamaged
from windrow.apiserver.storage.backup import REVISION_GAP, NotBackup, read_backup
from windrow.app.clock import SystemClock
from windrow.app.embedded import management_api
from windrow.app.state.backup import (
    BACKUP_PATH,
    SQLITE,
    NoOwnStore,
    RestoreInterrupted,
    backup_running,
    backup_stopped,
    open_store,
    restore,
    serve_backups,
    write_backup,
)
from windrow.app.state.directory import DirectoryInUse, DirectoryUnusable
from windrow.app.state.pki import load_or_create_ca
from windrow.client.client import Client
from windrow.client.http_transport import MAX_REPLY_BYTES, HttpTransport
from windrow.core.formats.fastjson import dumps
from windrow.core.rng import Rng
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.kubeconfig import ClientConfig, parse_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.requests import FileReply, Request, watch
from windrow.kubernetes.resources import SECRET, SERVICE_ACCOUNT

TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
CLOCK: Any = SimpleNamespace(now=lambda: datetime(2026, 7, 1, 12, 0, tzinfo=UTC))


def access_to(state_dir: Path) -> ClientConfig:
    return parse_kubeconfig((state_dir / "manager.yaml").read_text())


def remove_database(state_dir: Path) -> None:
    for path in state_dir.glob("manager.db*"):
        if not path.name.endswith(".revision"):
            path.unlink()


async def secrets(access: ClientConfig) -> set[str]:
    async with HttpTransport(access, SystemClock()) as transport:
        return {raw["metadata"]["name"] for raw in await Client(transport).list(SECRET, "default")}


async def create_secret(access: ClientConfig, name: str) -> None:
    async with HttpTransport(access, SystemClock()) as transport:
        await Client(transport).create(SECRET, new_object(SECRET, name, "default"))


async def test_a_backup_of_a_running_manager_brings_everything_back(tmp_path: Path):
    state, file = tmp_path / "state", tmp_path / "a.backup"
    async with served(state):
        access = access_to(state)
        await create_secret(access, "before")
        made = write_backup(file, await backup_running(access, SystemClock(), {}))
        await create_secret(access, "after")
    assert open_to_others(file) == []

    done = restore(state, file, CLOCK)

    assert (done.objects, done.rev) == (made.objects, revision_of(state))
    assert done.former == state / "before-restore-20260701T120000Z"
    async with served(state):
        # The kubeconfig of before the restore works: the CA is the same.
        assert await secrets(parse_kubeconfig((state / "manager.yaml").read_text())) == {"before"}
        assert open_to_others(state) == []


def revision_of(state: Path) -> int:
    store = SqliteStore(state / "manager.db")
    try:
        return store.rev
    finally:
        store.close()


async def test_a_lost_state_directory_is_restored_with_its_ca(tmp_path: Path):
    state, file = tmp_path / "state", tmp_path / "a.backup"
    async with served(state):
        await create_secret(access_to(state), "kept")
        authority = access_to(state).ca
    write_backup(file, backup_stopped(state))
    shutil.rmtree(state)

    done = restore(state, file, CLOCK)

    assert done.former is None
    async with served(state):
        assert access_to(state).ca == authority
        assert await secrets(access_to(state)) == {"kept"}


async def test_a_damaged_store_is_refused_until_it_is_restored(tmp_path: Path):
    state, file = tmp_path / "state", tmp_path / "a.backup"
    async with served(state):
        await create_secret(access_to(state), "kept")
        write_backup(file, await backup_running(access_to(state), SystemClock(), {}))
    remove_database(state)
    with pytest.raises(StoreDamaged, match="lacks changes"):
        async with served(state):
            pass

    restore(state, file, CLOCK)

    async with served(state):
        assert await secrets(access_to(state)) == {"kept"}


async def test_clients_of_the_former_store_list_again_after_a_restore(tmp_path: Path):
    state, file = tmp_path / "state", tmp_path / "a.backup"
    async with served(state):
        write_backup(file, await backup_running(access_to(state), SystemClock(), {}))
        await create_secret(access_to(state), "lost")
        async with HttpTransport(access_to(state), SystemClock()) as transport:
            page = await Client(transport).list_with_version(SECRET, "default")
    seen = int(page.resource_version)
    done = restore(state, file, CLOCK)
    assert done.rev >= seen + REVISION_GAP - 1

    async with served(state), HttpTransport(access_to(state), SystemClock()) as transport:
        async with transport.stream(watch(SECRET, "default", version=str(seen))) as events:
            first = await anext(aiter(events))
        assert (first.type, first.object["code"]) == ("ERROR", 410)


async def test_a_restore_while_a_manager_runs_is_refused_and_changes_nothing(tmp_path: Path):
    state, file = tmp_path / "state", tmp_path / "a.backup"
    async with served(state):
        write_backup(file, await backup_running(access_to(state), SystemClock(), {}))
        with pytest.raises(DirectoryInUse, match="in use by another manager"):
            restore(state, file, CLOCK)
        with pytest.raises(DirectoryInUse):
            backup_stopped(state)
        await create_secret(access_to(state), "still")
    assert not list(state.glob("before-restore-*"))


class Killed(BaseException):
    """The process ends here."""


def fail_at(monkeypatch: pytest.MonkeyPatch, steps: Container[int], error: BaseException) -> None:
    """The renames whose numbers are in `steps`, from 1, fail: whatever of a restore lasts is done by one."""
    count, replace = 0, os.replace

    def failing(source: Path, target: Path) -> None:
        nonlocal count
        count += 1
        if count in steps:
            raise error
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)


# What is to be restored, the CA of before, its WAL and database, the CA of the backup, the restored database.
STEPS = range(1, 7)


async def a_state_to_restore(tmp_path: Path) -> tuple[Path, Path]:
    """A state directory that a crash left, with objects and a WAL, and a backup without the last object."""
    origin, state, file = tmp_path / "origin", tmp_path / "state", tmp_path / "a.backup"
    origin.mkdir(mode=0o700)
    async with answering(origin) as (api, _):
        client = Client(api.local())
        await client.create(SECRET, new_object(SECRET, "before", "default"))
        reply = await api.local().send(Request("GET", BACKUP_PATH))
        assert reply.file is not None
        with reply.file as backup:
            write_backup(file, backup.read())
        await client.create(SECRET, new_object(SECRET, "after", "default"))
        shutil.copytree(origin, state)
    assert (state / "manager.db-wal").stat().st_size
    (state / "manager-ca.json").write_text("of before")
    return state, file


def contents(state: Path) -> dict[str, bytes]:
    """Of each file but the lock, which has the number of a process."""
    files = {path.relative_to(state): path for path in state.rglob("*") if path.is_file()}
    return {str(name): path.read_bytes() for name, path in files.items() if path.name != "manager.lock"}


def moved_files(hint: str) -> list[Path]:
    moved = re.search("move the files in (.*) back to", hint)
    return list(Path(moved[1]).iterdir()) if moved else []


def names_in(state: Path) -> set[str]:
    with closing(open_store(state)) as store:
        return {entry.key.rpartition("/")[2] for entry in store.snapshot()[1] if "/secrets/" in entry.key}


async def test_a_restore_that_fails_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    state, file = await a_state_to_restore(tmp_path)
    before = contents(state)
    full = OSError(errno.ENOSPC, "No space left on device")

    for step in STEPS:
        with monkeypatch.context() as patch:
            fail_at(patch, {step}, full)
            with pytest.raises(DirectoryUnusable, match="No space left on device"):
                restore(state, file, CLOCK)
        assert contents(state) == before
        assert not list(state.glob("before-restore-*"))

    assert names_in(state) == {"before", "after"}
    restore(state, file, CLOCK)
    assert names_in(state) == {"before"}


async def test_a_restore_that_cannot_even_be_undone_says_what_it_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    state, file = await a_state_to_restore(tmp_path)
    with monkeypatch.context() as patch:
        fail_at(patch, range(5, 100), OSError(errno.EROFS, "Read-only file system"))
        with pytest.raises(RestoreInterrupted) as failed:
            restore(state, file, CLOCK)

    former = state / "before-restore-20260701T120000Z"
    assert str(failed.value) == (
        f"a restore into {state} was interrupted (Read-only file system): manager.db.restored, a copy of the backup with its "
        f"Secrets, was not put in the place of manager.db; Repeat it: windrow restore --state-dir {state} FILE. To go on with "
        f"the state of before instead, move the files in {former} back to {state}, then delete {state}/manager.db.restored."
    )
    assert former.is_dir()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("cure", ["repeated", "repeated after a failure", "taken back"])
async def test_a_restore_that_was_killed_is_repeated_or_taken_back_and_nothing_starts_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, cure: str
):
    state, file = await a_state_to_restore(tmp_path)
    before = contents(state)
    # As of a restore long ago, which is not to be taken for that of now.
    (state / "before-restore-20250101T000000Z").mkdir()
    (state / "before-restore-20250101T000000Z" / "manager.db").write_bytes(b"old")
    with monkeypatch.context() as patch:
        fail_at(patch, {step}, Killed())
        with pytest.raises(Killed):
            restore(state, file, CLOCK)
    if step == 1:
        assert names_in(state) == {"before", "after"}
        return

    with pytest.raises(RestoreInterrupted, match="was interrupted") as refused:
        open_store(state)
    with pytest.raises(RestoreInterrupted):
        backup_stopped(state)
    later: Any = SimpleNamespace(now=lambda: CLOCK.now() + timedelta(minutes=1))
    if cure == "taken back":
        for path in moved_files(refused.value.hint):
            path.replace(state / path.name)
        (state / "manager.db.restored").unlink()
        assert {name: data for name, data in contents(state).items() if name in before} == before
        assert names_in(state) == {"before", "after"}
        return
    if cure == "repeated after a failure":
        with monkeypatch.context() as patch:
            fail_at(patch, {2}, OSError(errno.ENOSPC, "No space left on device"))
            with pytest.raises(DirectoryUnusable):
                restore(state, file, later)
        with pytest.raises(RestoreInterrupted):
            open_store(state)

    done = restore(state, file, later)

    assert names_in(state) == {"before"}
    assert done.former is not None
    kept = {path.name: path.read_bytes() for path in done.former.iterdir()}
    assert kept == {name: before[name] for name in ("manager.db", "manager.db-wal", "manager-ca.json")}


async def test_a_backup_may_be_larger_than_other_answers(tmp_path: Path):
    """Tenants decide how large the store is; the administrator can back it up all the same."""
    size = MAX_REPLY_BYTES + 2**20

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {SQLITE}\r\nContent-Length: {size}\r\n\r\n".encode())
        for _ in range(size // 2**20):
            writer.write(bytes(2**20))
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        made = await backup_running(ClientConfig(f"http://127.0.0.1:{port}"), SystemClock(), {})

    assert len(made) == size


async def test_only_administrators_may_take_a_backup(tmp_path: Path):
    async with served(tmp_path):
        access = access_to(tmp_path)
        async with HttpTransport(access, SystemClock()) as transport:
            api = Client(transport)
            await api.create(SERVICE_ACCOUNT, new_object(SERVICE_ACCOUNT, "reader", "default"))
            made = await api.call(
                Request("POST", "/api/v1/namespaces/default/serviceaccounts/reader/token", body=dumps(TOKEN))
            )
            token = made["status"]["token"]
        limited = ClientConfig(access.server, ca=access.ca, token=token)

        with pytest.raises(Forbidden, match="/windrow/backup"):
            await backup_running(limited, SystemClock(), {})


def test_a_directory_without_a_database_has_nothing_to_back_up(tmp_path: Path):
    with pytest.raises(NoOwnStore, match="no database of a manager"):
        backup_stopped(tmp_path)


def an_sqlite_file(path: Path) -> Path:
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE changes (rev, key, value)")
    made.close()
    return path


async def test_what_is_no_sound_backup_is_refused_before_anything_is_touched(tmp_path: Path):
    state, file = tmp_path / "state", tmp_path / "a.backup"
    async with served(state):
        pass
    good = backup_stopped(state)
    other = an_sqlite_file(tmp_path / "other.db").read_bytes()
    for data in (b"", b"apiVersion: v1\n", other, good[:-5000], good[:60]):
        file.write_bytes(data)
        with pytest.raises(NotBackup, match="not a sound backup"):
            restore(state, file, CLOCK)
    assert not list(state.glob("before-restore-*"))
    async with served(state):
        pass


def test_a_backup_replaces_no_file(tmp_path: Path):
    SqliteStore(tmp_path / "manager.db").close()
    (tmp_path / "manager-ca.json").write_text("{}")
    data = backup_stopped(tmp_path)

    with pytest.raises(FileExistsError):
        write_backup(tmp_path / "manager.db", data)


@asynccontextmanager
async def answering(state: Path, **options: Any) -> AsyncIterator[tuple[ApiServer, SqliteStore]]:
    """A management API that answers backups of its store, without sockets."""
    load_or_create_ca(state / "manager-ca.json", "windrow", SystemClock())
    with closing(SqliteStore(state / "manager.db")) as store:
        api = management_api(store, SystemClock(), Rng(1))
        serve_backups(api, store, state, **options)
        await api.prepare()
        yield api, store


async def test_other_work_goes_on_while_a_backup_is_written(tmp_path: Path):
    async with answering(tmp_path) as (api, store):
        for number in range(40):
            raw = {**new_object(SECRET, f"s-{number}", "default"), "data": {"x": "QUFB" * 10_000}}
            await Client(api.local()).create(SECRET, raw)
        answer = asyncio.create_task(api.local().send(Request("GET", BACKUP_PATH)))
        steps = 0
        while not answer.done():
            await asyncio.sleep(0)
            steps += 1
        reply = answer.result()
        assert isinstance(reply, FileReply)
        assert reply.file is not None
        with reply.file as file:
            backup = read_backup(file.read())

        assert steps > 1  # one is what an answer takes that holds the loop until it is there
        assert backup.rev == store.rev
        assert sum("/secrets/" in key for key in backup.objects) == 40


async def test_a_backup_leaves_no_file_behind_and_the_next_start_removes_what_a_crash_left(tmp_path: Path):
    left = tmp_path / "manager.db.backup"
    left.write_bytes(b"a part of a backup")
    async with answering(tmp_path) as (api, _):
        assert not left.exists()
        reply = await api.local().send(Request("GET", BACKUP_PATH))
        assert isinstance(reply, FileReply)
        assert reply.file is not None
        reply.file.close()

        assert not left.exists()


async def test_a_disk_without_space_for_a_backup_is_told_and_kept_for_the_store(tmp_path: Path):
    async with answering(tmp_path, reserve=2**62) as (api, _):
        reply = await api.local().send(Request("GET", BACKUP_PATH))

    assert reply.status == 507
    assert b"the backup cannot be written to" in reply.body
    assert b"MiB are free; free space there" in reply.body
    assert not (tmp_path / "manager.db.backup").exists()
