import os
import stat
from pathlib import Path

import pytest

from windrow.core.rng import Rng
from windrow.nodedriver.ssh.access import WriteFile
from windrow.plugin import environment as module
from windrow.plugin.environment import LocalFiles


@pytest.fixture
def files() -> LocalFiles:
    return LocalFiles(Rng(1))


def test_a_file_is_written_for_its_owner_alone_with_its_folders(files: LocalFiles, tmp_path: Path):
    path = tmp_path / "machines" / "m" / "id_rsa"
    before = os.umask(0)
    try:
        files.write(WriteFile(str(path), b"key", 0o600, "a key"))
    finally:
        os.umask(before)

    assert path.read_bytes() == b"key"
    assert [path.name for path in path.parent.iterdir()] == ["id_rsa"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert files.read_with_mode(str(path)) == (b"key", 0o600)


def test_the_mode_is_as_asked_whatever_the_umask(files: LocalFiles, tmp_path: Path):
    before = os.umask(0o077)
    try:
        files.write(WriteFile(str(tmp_path / "id_rsa.pub"), b"key", 0o644, "a key"))
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "id_rsa.pub").stat().st_mode) == 0o644


def test_a_file_that_cannot_be_put_there_leaves_nothing_beside(files: LocalFiles, tmp_path: Path):
    (tmp_path / "id_rsa").mkdir()

    with pytest.raises(OSError):
        files.write(WriteFile(str(tmp_path / "id_rsa"), b"key", 0o600, "a key"))

    assert [path.name for path in tmp_path.iterdir()] == ["id_rsa"]


def test_what_is_not_there_is_none(files: LocalFiles, tmp_path: Path):
    (tmp_path / "file").write_bytes(b"x")

    assert files.read(str(tmp_path / "file")) == b"x"
    assert files.read(str(tmp_path / "other")) is None
    assert files.read(str(tmp_path / "file" / "below")) is None


def test_a_file_without_end_is_not_read(files: LocalFiles, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_FILE_SIZE", 1000)
    with pytest.raises(OSError, match="larger than 1000 bytes"):
        files.read("/dev/zero")
