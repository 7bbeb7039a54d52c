"""What the store in a file promises beyond the store's contract: it remembers."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from windrow.apiserver.storage import SqliteStore, StoreDamaged, StoreInUse, StoreUnusable
from windrow.apiserver.storage.high_water import mark_path
from windrow.apiserver.storage.port import Compacted
from windrow.apiserver.storage.sqlite import SCHEMA
from windrow.core.formats.fastjson import dumps
from windrow.kubernetes.errors import ServerError

KEY = "group/things/ns/a"
SECRET = "/secrets/ns/a"


def thing(**rest: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}, **rest}


async def test_objects_counter_and_history_survive_a_restart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    made = await store.commit(KEY, thing(x="1"), None)
    await store.commit(KEY, thing(x="2"), made.rev)
    gone = await store.commit("group/things/ns/b", thing(), None)
    await store.commit("group/things/ns/b", None, gone.rev)
    store.close()

    again = SqliteStore(tmp_path / "db")

    assert again.rev == 4
    assert [entry.raw["x"] for entry in (await again.range("group/things/")).entries] == ["2"]
    feed = again.changes("group/things/", 1)
    seen = [await feed.next() for _ in range(3)]
    assert [(change.rev, change.after is None) for change in seen if change] == [
        (2, False),
        (3, False),
        (4, True),
    ]
    again.close()


async def test_a_removal_of_before_a_restart_is_told_with_its_own_revision_and_the_last_state(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "db")
    made = await store.commit(KEY, thing(x="1"), None)
    await store.commit(KEY, None, made.rev)
    store.close()

    again = SqliteStore(tmp_path / "db")
    change = await again.changes("group/things/", made.rev).next()
    again.close()

    assert change is not None
    assert change.before is not None
    assert change.before.raw["metadata"]["resourceVersion"] == str(made.rev)
    assert change.last.raw == thing(x="1") | {"metadata": {"name": "a", "resourceVersion": str(change.rev)}}
    assert (change.rev, change.last.rev, change.after) == (made.rev + 1, made.rev + 1, None)


async def test_a_file_that_another_store_holds_is_refused(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    await store.commit(KEY, thing(), None)

    with pytest.raises(StoreInUse, match="in use by another process"):
        SqliteStore(tmp_path / "db")
    store.close()


async def test_pruned_history_loses_no_object_and_no_revision(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db", history=2)
    quiet = await store.commit("group/things/ns/quiet", thing(), None)
    rev = None
    for number in range(20):
        rev = (await store.commit(KEY, thing(x=str(number)), rev)).rev
    await store.commit(KEY, None, rev)
    store.compact(store.rev)
    store.close()

    again = SqliteStore(tmp_path / "db", history=2)

    assert again.rev == 22
    assert [entry.rev for entry in (await again.range("group/things/")).entries] == [quiet.rev]
    with pytest.raises(Compacted):
        again.changes("group/things/", 5)
    again.close()


def rows(db: Path) -> list[tuple[int, str, bool]]:
    """Of each row its revision, its object, and whether it says that the object is deleted."""
    with closing(sqlite3.connect(db)) as file:
        return file.execute("SELECT rev, key, value IS NULL FROM changes ORDER BY rev").fetchall()


OTHER = "group/things/ns/b"


@pytest.mark.parametrize(
    ("compacted", "kept"),
    [
        # Of each object the newest row, that it may be read; all since the compaction, that they may be watched.
        (1, [(1, KEY, 0), (2, OTHER, 0), (3, KEY, 0), (4, KEY, 0), (5, OTHER, 1), (6, KEY, 0)]),
        (3, [(2, OTHER, 0), (3, KEY, 0), (4, KEY, 0), (5, OTHER, 1), (6, KEY, 0)]),
        (5, [(4, KEY, 0), (6, KEY, 0)]),
        (6, [(6, KEY, 0)]),
    ],
)
async def test_a_compaction_leaves_what_reads_and_watches_need(
    tmp_path: Path, compacted: int, kept: list[tuple[int, str, bool]]
) -> None:
    store = SqliteStore(tmp_path / "db")
    first = await store.commit(KEY, thing(x="1"), None)
    other = await store.commit(OTHER, thing(), None)
    third = await store.commit(KEY, thing(x="3"), first.rev)
    fourth = await store.commit(KEY, thing(x="4"), third.rev)
    await store.commit(OTHER, None, other.rev)
    await store.commit(KEY, thing(x="6"), fourth.rev)

    store.compact(compacted)
    store.close()

    assert rows(tmp_path / "db") == kept
    again = SqliteStore(tmp_path / "db")
    assert [entry.raw["x"] for entry in (await again.range("group/things/")).entries] == ["6"]
    assert again.rev == 6
    again.close()


async def test_the_row_of_the_last_deletion_stays_for_it_holds_the_counter(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    made = await store.commit(KEY, thing(), None)
    await store.commit(KEY, None, made.rev)
    store.compact(2)
    store.close()

    assert rows(tmp_path / "db") == [(2, KEY, 1)]


async def test_each_thousand_changes_the_file_forgets_what_the_history_does_not_keep(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db", history=10)
    store._file.execute("PRAGMA synchronous = OFF")

    def count() -> int:
        return int(store._file.execute("SELECT count(*) FROM changes").fetchone()[0])

    rev = None
    for number in range(1, 2001):
        rev = (await store.commit(KEY, thing(), rev)).rev
        if number in (999, 1000, 1005, 1999, 2000):
            # With the newest row before the history, from which a restart knows the object.
            assert count() == {999: 999, 1000: 11, 1005: 16, 1999: 1010, 2000: 11}[number]
    store.close()


# --- Secrets ------------------------------------------------------------------------------------------------------------


def files_with(text: bytes, directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*") if path.is_file() and text in path.read_bytes()]


def modes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}


def copy_store(db: Path, directory: Path) -> Path:
    directory.mkdir()
    for path in db.parent.glob(f"{db.name}*"):
        shutil.copy(path, directory)
    return directory / db.name


async def test_a_deleted_secret_is_in_no_file_at_once_and_after_a_restart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    value = "hold-" * 4_000  # several pages
    first = await store.commit(SECRET, thing(x=f"first-{value}"), None)
    second = await store.commit(SECRET, thing(x=f"second-{value}"), first.rev)
    assert files_with(b"first-hold-", tmp_path) == []
    await store.commit(SECRET, None, second.rev)

    assert files_with(b"hold-hold-", tmp_path) == []
    store.close()
    SqliteStore(tmp_path / "db").close()
    assert files_with(b"hold-hold-", tmp_path) == []


async def test_after_a_restart_no_watch_misses_the_end_of_a_secret(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    made = await store.commit(SECRET, thing(), None)
    await store.commit(SECRET, None, made.rev)
    kept = await store.commit("/secrets/ns/b", thing(), None)
    feed = store.changes("/secrets/", made.rev)
    change = await feed.next()
    assert change is not None  # this process still has the whole history
    assert change.after is None
    store.close()

    again = SqliteStore(tmp_path / "db")

    with pytest.raises(Compacted):
        again.changes("/secrets/", made.rev)
    assert [entry.rev for entry in (await again.range("/secrets/")).entries] == [kept.rev]
    again.close()


async def test_former_secrets_leave_the_file_of_an_earlier_version_when_it_is_opened(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "db") as old:
        old.execute("PRAGMA secure_delete = OFF")
        old.executescript(SCHEMA)
        raw = {"metadata": {"name": "a", "resourceVersion": "1"}}
        rows = [(1, SECRET, dumps({**raw, "x": "hold-" * 2000})), (2, SECRET, None), (3, KEY, dumps(raw))]
        old.executemany("INSERT INTO changes VALUES (?, ?, ?)", rows)
        old.execute("INSERT INTO changes VALUES (0, 'group/things/ns/b', ?)", (b"gone-" * 2000,))
        old.execute("DELETE FROM changes WHERE rev = 0")
    old.close()
    assert files_with(b"hold-hold-", tmp_path) == files_with(b"gone-gone-", tmp_path) == ["db"]

    store = SqliteStore(tmp_path / "db")

    assert files_with(b"hold-hold-", tmp_path) == files_with(b"gone-gone-", tmp_path) == []
    assert [entry.key for entry in (await store.range("group/things/")).entries] == [KEY]
    store.close()


async def test_the_files_are_their_owner_s_alone(tmp_path: Path) -> None:
    (tmp_path / "db").touch(mode=0o644)
    store = SqliteStore(tmp_path / "db")
    await store.commit(KEY, thing(), None)

    assert modes(tmp_path) == {
        "db": 0o600,
        "db-wal": 0o600,
        "db.revision": 0o600,
    }
    store.close()


# --- damage -------------------------------------------------------------------------------------------------------------


async def crashed(tmp_path: Path, *, objects: int = 300) -> Path:
    """The files of a store as a power failure leaves them: the last changes are in the WAL."""
    store = SqliteStore(tmp_path / "db")
    for number in range(objects):
        await store.commit(f"group/things/ns/{number}", thing(x="x" * 2000), None)
    db = copy_store(tmp_path / "db", tmp_path / "copy")
    store.close()
    return db


async def test_a_commit_is_on_the_disk_before_it_is_answered(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")

    assert store._file.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    store.close()


async def test_all_objects_are_there_after_a_crash(tmp_path: Path) -> None:
    store = SqliteStore(await crashed(tmp_path))

    assert len((await store.range("group/things/")).entries) == 300
    store.close()


async def test_a_store_whose_wal_is_lost_is_refused_with_the_way_to_restore_it(tmp_path: Path) -> None:
    db = await crashed(tmp_path)
    db.with_name("db-wal").unlink()

    with pytest.raises(StoreDamaged, match=r"ends at revision .*, and revision 300 was written") as refused:
        SqliteStore(db)

    assert "windrow restore FILE --state-dir" in refused.value.hint
    assert f"delete {mark_path(db)}" in refused.value.hint
    mark_path(db).unlink()
    SqliteStore(db).close()


async def test_a_store_whose_wal_is_cut_is_refused(tmp_path: Path) -> None:
    db = await crashed(tmp_path)
    wal = db.with_name("db-wal")
    with wal.open("r+b") as file:  # the newest frames are in front where the WAL began again
        file.truncate(3 * 4096)

    with pytest.raises(StoreDamaged, match="lacks changes that it had acknowledged"):
        SqliteStore(db)


async def test_a_store_with_a_changed_byte_in_its_wal_is_refused(tmp_path: Path) -> None:
    db = await crashed(tmp_path)
    wal = db.with_name("db-wal")
    data = bytearray(wal.read_bytes())
    data[3 * 4096] ^= 0xFF
    wal.write_bytes(data)

    with pytest.raises(StoreDamaged, match="lacks changes"):
        SqliteStore(db)


async def test_a_store_that_is_lost_as_a_whole_is_refused(tmp_path: Path) -> None:
    db = await crashed(tmp_path, objects=3)
    for name in ("db", "db-wal"):
        db.with_name(name).unlink()

    with pytest.raises(StoreDamaged, match="ends at revision 0, and revision 3 was written"):
        SqliteStore(db)


async def test_an_older_copy_in_its_place_is_refused(tmp_path: Path) -> None:
    db = tmp_path / "db"
    store = SqliteStore(db)
    await store.commit(KEY, thing(), None)
    store.close()
    shutil.copy(db, tmp_path / "older")
    store = SqliteStore(db)
    await store.commit("group/things/ns/b", thing(), None)
    store.close()
    shutil.copy(tmp_path / "older", db)

    with pytest.raises(StoreDamaged, match="an older copy"):
        SqliteStore(db)


@pytest.mark.parametrize("place", [0, 4096, 8192])
async def test_a_corrupt_page_is_refused_with_the_way_to_restore_it(tmp_path: Path, place: int) -> None:
    db = tmp_path / "db"
    store = SqliteStore(db)
    for number in range(300):
        await store.commit(f"group/things/ns/{number}", thing(x="x" * 2000), None)
    store.close()
    with db.open("r+b") as file:
        file.seek(place)
        file.write(b"\x5a" * 2000)

    with pytest.raises(StoreDamaged, match="is corrupt") as refused:
        SqliteStore(db)

    assert "windrow restore FILE" in refused.value.hint


async def test_a_row_that_no_change_can_have_made_is_refused(tmp_path: Path) -> None:
    db = tmp_path / "db"
    SqliteStore(db).close()
    loosen = "UPDATE sqlite_schema SET sql = replace(sql, {!r}, {!r}) WHERE name = 'changes'"
    for before, after in (("key   TEXT NOT NULL", "key   TEXT"), ("key   TEXT", "key   TEXT NOT NULL")):
        with closing(sqlite3.connect(db, isolation_level=None)) as file:
            file.execute("PRAGMA writable_schema = ON")
            if before == "key   TEXT":
                file.execute("INSERT INTO changes VALUES (1, NULL, NULL)")
            file.execute(loosen.format(before, after))

    with pytest.raises(StoreDamaged, match=r"is corrupt: NULL value in changes.key"):
        SqliteStore(db)


async def test_an_object_that_is_not_json_any_more_is_refused(tmp_path: Path) -> None:
    db = tmp_path / "db"
    store = SqliteStore(db)
    await store.commit(KEY, thing(x="quite-unmistakable"), None)
    store.close()
    db.write_bytes(db.read_bytes().replace(b"unmistakable", b'un"istakable'))

    with pytest.raises(StoreDamaged, match="is corrupt"):
        SqliteStore(db)


async def test_a_store_of_a_later_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "db").close()
    with sqlite3.connect(tmp_path / "db") as later:
        later.execute("PRAGMA user_version = 99")
    later.close()

    with pytest.raises(StoreDamaged, match="schema 99"):
        SqliteStore(tmp_path / "db")


async def test_a_full_disk_refuses_the_write_and_nothing_else(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    made = await store.commit(KEY, thing(), None)
    store._file.execute("PRAGMA max_page_count = 6")

    with pytest.raises(ServerError, match="the store cannot be written: database or disk is full"):
        await store.commit("group/things/ns/b", thing(x="x" * 100_000), None)

    assert store.rev == made.rev
    store._file.execute("PRAGMA max_page_count = 1000000")
    assert (await store.commit("group/things/ns/b", thing(x="x" * 100_000), None)).rev == made.rev + 1
    store.close()


def test_a_place_that_cannot_hold_a_store_is_told_as_that(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="cannot be opened: No such file or directory"):
        SqliteStore(tmp_path / "absent" / "db")


def test_a_file_that_takes_no_write_is_noticed_before_an_object_is_written(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    store.check_writable()
    store._file.execute(
        "PRAGMA query_only = ON"
    )  # as a read-only file system; a full disk is an OperationalError, too

    with pytest.raises(OSError, match="readonly"):
        store.check_writable()
    store.close()
