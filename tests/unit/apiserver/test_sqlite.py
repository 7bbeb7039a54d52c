"""What the store in a file promises beyond the store's contract: it remembers."""

from __future__ import annotations

from pathlib import Path

import pytest

from windrow.apiserver.storage import SqliteStore, StoreInUse
from windrow.apiserver.storage.port import Compacted

KEY = "group/things/ns/a"


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
