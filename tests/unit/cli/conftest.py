from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from windrow.cli import main
from windrow.cli.edge import Edge


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


Windrow = Callable[..., Answer]


@pytest.fixture
def windrow(tmp_path: Path) -> Windrow:
    """Runs one command line in an empty directory, with nothing of this process's surroundings."""

    def run(*argv: str, stdin: str = "", env: dict[str, str] | None = None) -> Answer:
        out, err = io.StringIO(), io.StringIO()
        now = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
        edge = Edge(env or {}, tmp_path, io.StringIO(stdin), out, err, lambda: now)
        words: Sequence[str] = argv
        return Answer(main.run(words, edge), out.getvalue(), err.getvalue())

    return run
