"""Mutants that may live, each with the reason: tests/mutants/accepted.toml.

They are named by the text of the source, not by line. `because` says why no test can, or should, tell the difference.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("accepted.toml")


@dataclass(frozen=True, slots=True)
class Accepted:
    file: str
    statement: str
    old: str
    new: str
    because: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.file, self.statement, self.old, self.new


def read_accepted(file: Path = FILE) -> list[Accepted]:
    return [Accepted(**entry) for entry in tomllib.loads(file.read_text()).get("mutant", [])]
