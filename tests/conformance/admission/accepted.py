"""The differences that are meant, read from `accepted-differences.txt`: 20 lines at most, each with its reason.

`KEY | reason` is a case that stays as it is. `words: PATTERN => TEXT | reason` says which words of two denials count as the
same, in any case: what the pattern finds is replaced on both sides before they are compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ACCEPTED = Path(__file__).with_name("accepted-differences.txt")
WORDS = "words: "


@dataclass(frozen=True, slots=True)
class Wording:
    pattern: re.Pattern[str]
    text: str
    reason: str


@cache
def read_lines() -> tuple[tuple[str, str], ...]:
    """Each line's left side and reason."""
    found = []
    for line in ACCEPTED.read_text().splitlines():
        if line and not line.startswith("#"):
            left, _, reason = line.partition(" | ")
            found.append((left.strip(), reason.strip()))
    return tuple(found)


def read_accepted() -> dict[str, str]:
    """The reason by the key of the case."""
    return {left: reason for left, reason in read_lines() if not left.startswith(WORDS)}


@cache
def read_wordings() -> tuple[Wording, ...]:
    found = []
    for left, reason in read_lines():
        if left.startswith(WORDS):
            pattern, _, text = left.removeprefix(WORDS).partition(" => ")
            found.append(Wording(re.compile(pattern), text, reason))
    return tuple(found)


def reworded(text: str) -> str:
    for wording in read_wordings():
        text = wording.pattern.sub(wording.text, text)
    return text
