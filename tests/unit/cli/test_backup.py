"""`windrow backup` and `windrow restore` on a stopped manager's directory."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Windrow

from windrow.apiserver.storage import SqliteStore
from windrow.cli import exit_codes


@pytest.fixture
def state(tmp_path: Path) -> Path:
    place = tmp_path / "state"
    place.mkdir(mode=0o700)
    SqliteStore(place / "manager.db").close()
    (place / "manager-ca.json").write_text('{"certificate": "", "key": ""}')
    return place


def test_a_backup_is_written_for_its_owner_alone_and_can_be_restored(
    windrow: Windrow, state: Path, tmp_path: Path
):
    written = windrow("backup", "a.backup", "--state-dir", "state")
    assert (written.code, written.out) == (exit_codes.OK, "Wrote a.backup: 0 objects as of revision 0.\n")
    assert stat.S_IMODE((tmp_path / "a.backup").stat().st_mode) == 0o600

    restored = windrow("restore", "a.backup", "--state-dir", "state")

    assert restored.code == exit_codes.OK
    assert "Restored 0 objects" in restored.out
    assert "What it replaced is in" in restored.err
    assert "windrow serve --state-dir state" in restored.err


def test_a_file_that_exists_is_not_replaced_by_a_backup(windrow: Windrow, state: Path):
    answer = windrow("backup", "state/manager.db", "--state-dir", "state")

    assert answer.code == exit_codes.USAGE
    assert "manager.db exists" in answer.err


def test_a_file_that_is_no_backup_is_refused(windrow: Windrow, state: Path, tmp_path: Path):
    (tmp_path / "cluster.yaml").write_text("kind: Cluster\n")

    answer = windrow("restore", "cluster.yaml", "--state-dir", "state")

    assert answer.code == exit_codes.REFUSED
    assert len(answer.err.splitlines()) == 2
    assert "not a sound backup of Windrow: it is no SQLite database" in answer.err


def test_a_file_that_does_not_exist_is_told_by_its_name(windrow: Windrow, state: Path):
    answer = windrow("restore", "absent", "--state-dir", "state")

    assert answer.code == exit_codes.REFUSED
    assert "absent: No such file or directory" in answer.err


@pytest.mark.parametrize("content", [b"", b"\x00garbage" * 1000])
def test_a_database_that_is_none_ends_in_two_lines_not_in_a_traceback(
    windrow: Windrow, state: Path, content: bytes
):
    (state / "manager.db").write_bytes(content)
    (state / "manager.db.revision").write_text(f"{7:020d}\n")

    answer = windrow("serve", "--state-dir", "state")

    assert answer.code == exit_codes.FAILED
    assert len(answer.err.splitlines()) == 2
    assert "windrow restore FILE" in answer.err


def test_a_ca_that_cannot_be_read_is_told_with_the_way_on(windrow: Windrow, state: Path):
    (state / "manager-ca.json").write_text('{"certif')

    answer = windrow("serve", "--state-dir", "state")

    assert answer.code == exit_codes.FAILED
    assert "manager-ca.json is not a CA" in answer.err
    assert "windrow restore FILE" in answer.err
