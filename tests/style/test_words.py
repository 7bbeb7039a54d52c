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
# What may be a name that a module defines, and much more; to look here first is faster than to parse every module.
POSSIBLE_NAME = re.compile(
    r"(?:\b(?:class|def|lambda)\s+|[(,*]\s*(?:#.*\s*)*)([A-Za-z_]\w*)|([A-Za-z_]\w*)(?=\s*[:,])"
)
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
def parts(name: str) -> frozenset[str]:
    return frozenset(part.lower() for part in re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", name))


def has_word(name: str, row: Row) -> bool:
    return row.word in parts(name) if row.kind == "part" else name.lstrip("_") == row.word


def possible_names(path: Path, text: str) -> set[str]:
    return {path.stem, *("".join(pair) for pair in POSSIBLE_NAME.findall(text))}


@cache
def named() -> dict[Row, set[str]]:
    """The names that have a word of the list, with their modules; a test's name is a sentence, so it is text."""
    whole = {row.word for row in rows("name")}
    part = {row.word for row in rows("part")}
    found: dict[Row, set[str]] = {}
    for path, text in files().items():
        if path.suffix != ".py":
            continue
        suspects = {
            name
            for name in possible_names(path, text)
            if not name.startswith("test_") and (name.lstrip("_") in whole or parts(name) & part)
        }
        for name in suspects.intersection(defined(path, text)) if suspects else ():
            for row in rows("name", "part"):
                if has_word(name, row):
                    found.setdefault(row, set()).add(f"{name} in {path}")
    return found


def test_every_form_of_a_definition_is_a_possible_name():
    text = """
class A(B): x: int = 1; y : str
async def c(d, *e, f=1, g: int = 2, /, h, **i): pass
async def j(
    # a comment
    k, # and one more
    l, m = 3
): n = lambda o, *p, q=1: 0
def r[S](t): u = lambda: 0
"""
    assert {*"Axycdefghijklmopqrt"} <= possible_names(Path("v.py"), text)


@pytest.mark.parametrize("row", rows("name", "part"), ids=lambda row: row.word)
def test_no_name_is_a_word_of_our_own(row: Row):
    assert not named().get(row), f"write {row.instead}"


@pytest.mark.parametrize("row", rows("text"), ids=lambda row: row.word)
def test_no_text_has_a_word_of_our_own(row: Row):
    word = re.compile(rf"(?<![a-z]){row.word}(?![a-z])", re.IGNORECASE)
    found = [
        f"{path}:{number}: {line.strip()[:120]}"
        for path, text in files().items()
        if word.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if word.search(line) and not ALLOWED.search(line)
    ]
    assert not found, f"write {row.instead}"
