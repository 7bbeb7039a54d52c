"""Backup and restore of a manager's state, with the manager running and stopped."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
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


async def test_a_restore_that_was_interrupted_is_repeated_and_nothing_starts_before(tmp_path: Path):
    state, file = tmp_path / "state", tmp_path / "a.backup"
    async with served(state):
        await create_secret(access_to(state), "kept")
        write_backup(file, await backup_running(access_to(state), SystemClock(), {}))
    (state / "before-restore-20260701T120000Z").mkdir()  # so it ends where the former files are to be moved
    with pytest.raises(DirectoryUnusable, match="exists already"):
        restore(state, file, CLOCK)
    before = {path.name for path in state.iterdir()}
    with pytest.raises(RestoreInterrupted, match="was interrupted") as refused:
        async with served(state):
            pass
    assert f"windrow restore --state-dir {state} FILE" in refused.value.hint
    with pytest.raises(RestoreInterrupted):
        backup_stopped(state)
    assert {path.name for path in state.iterdir()} == before

    later: Any = SimpleNamespace(now=lambda: CLOCK.now() + timedelta(minutes=1))
    restore(state, file, later)

    async with served(state):
        assert await secrets(access_to(state)) == {"kept"}


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

        assert steps > 5
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
