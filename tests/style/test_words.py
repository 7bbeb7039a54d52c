"""No home-made word where the field has one: the rows of words.txt, looked for in code, documents and golden files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests", "scripts", "benchmarks", "docs", "deploy")
PAGES = ("README.md", "CONTRIBUTING.md", "Makefile", ".importlinter", ".ci/run")
# Lines that may have a word: the Unix user of that name.
ALLOWED = re.compile(r'"daemon", "nobody"')
SUFFIXES = {".py", ".md", ".yaml", ".txt", ".go", ".tpl", ".c", ".toml"}


class Row(NamedTuple):
    kind: str
    word: str
    instead: str


def rows(*kinds: str) -> list[Row]:
    lines = (Path(__file__).parent / "words.txt").read_text().splitlines()
    split = (re.split(r"\s{2,}", line.strip()) for line in lines if line.strip() and line[0] != "#")
    return [row for row in (Row(*cells) for cells in split) if row.kind in kinds]


@cache
def files() -> dict[Path, str]:
    """What we write, by path relative to the checkout; the list itself is left out."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    found += [ROOT / page for page in PAGES]
    ours = [path for path in found if path.is_file() and path.parent != Path(__file__).parent]
    return {path.relative_to(ROOT): path.read_text() for path in ours}


def defined(path: Path, text: str) -> Iterator[str]:
    """The names that a module defines: itself, classes, functions, parameters and annotated fields."""
    yield path.stem
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


@cache
def names() -> dict[str, set[Path]]:
    found: dict[str, set[Path]] = {}
    for path, text in files().items():
        for name in defined(path, text) if path.suffix == ".py" else ():
            # A test's name is a sentence: its words are judged as text.
            if not name.startswith("test_"):
                found.setdefault(name, set()).add(path)
    return found


def parts(name: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", name)}


@pytest.mark.parametrize("row", rows("name", "part"), ids=lambda row: row.word)
def test_no_name_is_a_word_of_our_own(row: Row):
    def has(name: str) -> bool:
        return row.word in parts(name) if row.kind == "part" else name.lstrip("_") == row.word

    found = {f"{name} in {path}" for name, paths in names().items() if has(name) for path in paths}
    assert not found, f"write {row.instead}"


@pytest.mark.parametrize("row", rows("text"), ids=lambda row: row.word)
def test_no_text_has_a_word_of_our_own(row: Row):
    word = re.compile(rf"(?<![a-z]){row.word}(?![a-z])", re.IGNORECASE)
    found = [
        f"{path}:{number}: {line.strip()[:120]}"
        for path, text in files().items()
        for number, line in enumerate(text.splitlines(), 1)
        if word.search(line) and not ALLOWED.search(line)
    ]
    assert not found, f"write {row.instead}"
