import os
from pathlib import Path

import pytest

from windrow.core.files import write_private


def test_a_private_file_replaces_the_old_one_and_only_its_owner_may_read_it(tmp_path: Path):
    path = tmp_path / "ca.json"
    path.write_text("old")
    path.chmod(0o644)

    write_private(path, "new")

    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_and_its_directory_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}")))

    write_private(tmp_path / "state", b"1")

    assert synced == [f"{tmp_path}/state.new", str(tmp_path)]
