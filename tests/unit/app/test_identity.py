"""The uid of a store: kept by its directory, and by no copy of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.unit.app.test_state_directory import open_to_others

from windrow.app.state.directory import DirectoryUnusable
from windrow.app.state.identity import load_or_create_store_uid
from windrow.core.rng import Rng

FILE = "manager-identity.json"


def test_a_directory_keeps_its_store_uid_also_when_it_is_moved(tmp_path: Path):
    first, moved = tmp_path / "first", tmp_path / "moved"
    first.mkdir(mode=0o700)
    uid = load_or_create_store_uid(first, Rng(1))
    os.rename(first, moved)

    assert load_or_create_store_uid(moved, Rng(2)) == uid
    assert open_to_others(moved) == []


def test_a_copied_directory_is_another_store(tmp_path: Path):
    first, copy = tmp_path / "first", tmp_path / "copy"
    first.mkdir()
    uid = load_or_create_store_uid(first, Rng(1))
    shutil.copytree(first, copy)

    other = load_or_create_store_uid(copy, Rng(2))

    assert other != uid
    assert load_or_create_store_uid(copy, Rng(3)) == other
    assert load_or_create_store_uid(first, Rng(4)) == uid


@pytest.mark.parametrize("content", [b"", b"{", b"[[", b'{"store": 1}', b"\xff" * 10_000, b'{"inode": null}'])
def test_a_damaged_file_is_replaced(tmp_path: Path, content: bytes):
    (tmp_path / FILE).write_bytes(content)

    uid = load_or_create_store_uid(tmp_path, Rng(1))

    assert load_or_create_store_uid(tmp_path, Rng(2)) == uid


def test_what_a_crash_left_of_one_is_replaced(tmp_path: Path):
    (tmp_path / f"{FILE}.new").write_bytes(b'{"store"')

    assert load_or_create_store_uid(tmp_path, Rng(1)) == load_or_create_store_uid(tmp_path, Rng(2))


def test_a_directory_that_takes_no_file_is_told_as_such(tmp_path: Path):
    (tmp_path / f"{FILE}.new").mkdir()

    with pytest.raises(DirectoryUnusable, match="cannot be kept"):
        load_or_create_store_uid(tmp_path, Rng(1))
