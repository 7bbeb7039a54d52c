"""`windrow docs`: the pages of this version, without a network."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from windrow.cli import exit_codes
from windrow.cli.commands.docs import find_folder, find_name, list_pages
from windrow.cli.errors import CliError

Windrow = Callable[..., Any]
ROOT = Path(__file__).parents[3]
PAGES = list_pages(ROOT / "docs")
LONGEST = max(map(len, PAGES))


def test_every_page_is_listed_with_its_heading(windrow: Windrow):
    answer = windrow("docs")

    listed = {line.split()[0] for line in answer.out.splitlines()}
    assert listed == {str(path.relative_to(ROOT / "docs"))[:-3] for path in (ROOT / "docs").glob("*/*.md")}
    assert re.search(r"^tutorial/first-cluster +Your first cluster$", answer.out, re.M)
    assert all(line[LONGEST : LONGEST + 2] == "  " != line[LONGEST + 2] for line in answer.out.splitlines())


@pytest.mark.parametrize(
    "named",
    [
        "first-cluster",
        "tutorial/first-cluster",
        "docs/tutorial/first-cluster.md",
        "./docs/tutorial/first-cluster.md",
    ],
)
def test_a_page_is_printed_by_its_name_and_by_its_path(windrow: Windrow, named: str):
    answer = windrow("docs", named)

    assert answer.code == exit_codes.OK
    assert answer.out == (ROOT / "docs" / "tutorial" / "first-cluster.md").read_text()


def test_programs_read_names_titles_and_text(windrow: Windrow):
    listed = json.loads(windrow("docs", "-o", "json").out)
    page = json.loads(windrow("docs", "first-cluster", "-o", "json").out)

    assert {"name": "tutorial/first-cluster", "title": "Your first cluster"} in listed
    text = (ROOT / "docs" / "tutorial" / "first-cluster.md").read_text()
    assert page == {"name": "tutorial/first-cluster", "title": "Your first cluster", "text": text}


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ("first-clustr", "Did you mean: windrow docs tutorial/first-cluster"),
        ("../README", "See all pages: windrow docs"),
        ("/etc/passwd", "See all pages: windrow docs"),
        ("", "See all pages: windrow docs"),
        ("tutorial/", "See all pages: windrow docs"),
    ],
)
def test_what_is_no_page_is_refused_whatever_lies_there(windrow: Windrow, named: str, hint: str):
    answer = windrow("docs", named)

    assert answer.code == exit_codes.USAGE
    assert answer.out == ""
    assert answer.err == f"There is no page {named!r}.\n→ {hint}\n"


def test_a_name_of_two_pages_wants_its_folder():
    pages = {"how-to/volumes": Path("a"), "explanation/volumes": Path("b")}

    with pytest.raises(CliError, match="2 pages have that name") as refused:
        find_name(pages, "volumes")

    assert refused.value.hint == "Name its folder: windrow docs how-to/volumes"
    assert find_name(pages, "explanation/volumes") == "explanation/volumes"


def test_the_installed_pages_go_before_those_of_a_checkout(tmp_path: Path):
    package = tmp_path / "src" / "windrow"
    for folder in (tmp_path / "docs", package / "docs"):
        folder.mkdir(parents=True)

    with pytest.raises(CliError, match="No documentation was found"):
        find_folder(package)
    (tmp_path / "docs" / "README.md").touch()
    assert find_folder(package) == tmp_path / "docs"
    (package / "docs" / "README.md").touch()
    assert find_folder(package) == package / "docs"


def named_pages() -> Iterator[tuple[str, str]]:
    """The pages that the program's texts name, and where: texts are strings that are no docstring, and the help of commands."""
    for path in (ROOT / "src" / "windrow").rglob("*.py"):
        source = path.read_text()
        if "docs" not in source:
            continue
        tree = ast.parse(source)
        documentation = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        is_help = "commands" in path.parts
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if id(node) in documentation and not is_help:
                    continue
                for name in re.findall(r"\b(docs/[\w/-]+\.md)|windrow docs ([a-z][\w/.-]+)", node.value):
                    yield next(filter(None, name)), str(path.relative_to(ROOT))


def test_every_page_that_the_program_names_exists():
    named = list(named_pages())

    assert ("first-cluster", "src/windrow/cli/main.py") in named
    assert ("demo", "src/windrow/cli/commands/demo.py") in named
    for name, _ in named:
        assert find_name(PAGES, name) in PAGES
