"""Which file makes the machines, where a plugin does."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest

from windrow.cli import exit_codes
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.cli.paths import DRIVER_PROGRAM, find_driver_program


def an_edge(cwd: Path, **env: str) -> CliContext:
    streams = [io.StringIO() for _ in range(3)]
    return CliContext(env, cwd, streams[0], streams[1], streams[2], lambda: datetime.now(UTC))


def a_program(path: Path, mode: int = 0o755) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_machines_are_made_directly_unless_a_plugin_is_asked_for(tmp_path: Path) -> None:
    assert find_driver_program(None, None, an_edge(tmp_path)) is None
    assert find_driver_program("direct", None, an_edge(tmp_path)) is None


def test_a_named_driver_means_plugin(tmp_path: Path) -> None:
    program = a_program(tmp_path / "mine")

    assert find_driver_program(None, "mine", an_edge(tmp_path)) == program


def test_the_plugin_in_path_is_taken_where_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = a_program(tmp_path / "bin" / DRIVER_PROGRAM)

    assert find_driver_program("plugin", None, an_edge(tmp_path, PATH=str(tmp_path / "bin"))) == program


@pytest.mark.parametrize(
    ("way", "given", "words"),
    [
        ("direct", "mine", "exclude each other"),
        (None, "nowhere", "nowhere is not a file"),
        (None, "plain", "is not executable"),
        (None, "", "names no file"),
        (None, "folder", "is a directory"),
        (None, "packed.tar.gz", "is an archive"),
        (None, "README.md", "is not a program"),
    ],
)
def test_a_driver_that_cannot_be_used_is_told_before_anything_starts(
    tmp_path: Path, way: str | None, given: str, words: str
) -> None:
    a_program(tmp_path / "plain", 0o644)
    (tmp_path / "folder").mkdir()
    (tmp_path / "packed.tar.gz").write_bytes(b"\x1f\x8b\x08\x00")
    (tmp_path / "README.md").write_text("# Read me\n")
    with pytest.raises(CliError) as complaint:
        find_driver_program(way, given, an_edge(tmp_path))

    assert words in str(complaint.value)
    assert complaint.value.code == exit_codes.USAGE
