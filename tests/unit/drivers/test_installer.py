"""Drivers from files: what a file may be, and how large."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from windrow.drivers.api import Fault
from windrow.drivers.installer import copy_file


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def taken(path: Path, most: int = 100) -> bytes:
    pieces: list[bytes] = []
    copy_file(f"file://{path}", pieces.append, most)
    return b"".join(pieces)


def test_a_file_is_copied_up_to_the_size_limit(tmp_path: Path):
    path = tmp_path / "driver"
    path.write_bytes(b"x" * 100)
    (tmp_path / "link").symlink_to(path)

    assert taken(path) == taken(tmp_path / "link") == b"x" * 100
    with pytest.raises(Fault, match="is larger than 0 MiB; use the path"):
        taken(path, 99)


def test_a_pipe_is_refused_at_once(tmp_path: Path):
    os.mkfifo(tmp_path / "driver")

    with pytest.raises(Fault, match="driver is no regular file") as caught:
        taken(tmp_path / "driver")
    assert caught.value.reason == "DownloadFailed"


def test_an_endless_device_is_refused():
    with pytest.raises(Fault, match="/dev/zero is no regular file"):
        taken(Path("/dev/zero"))


@pytest.mark.parametrize("make", [a_socket, os.mkdir])
def test_what_cannot_be_opened_is_an_error_of_the_system(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "driver")

    with pytest.raises(OSError):
        taken(tmp_path / "driver")
