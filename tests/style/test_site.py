"""The documentation as a site: each page has its place in the navigation, and no link leads out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripts.docs_site import read_navigation, without_links_outside

DOCS = Path(__file__).resolve().parents[2] / "docs"


def list_pages(navigation: list[dict[str, Any]]) -> list[str]:
    pages: list[str] = []
    for entry in navigation:
        for found in entry.values():
            pages += [found] if isinstance(found, str) else list_pages(found)
    return pages


def test_each_page_has_one_place_in_the_navigation() -> None:
    pages = list_pages(read_navigation((DOCS / "README.md").read_text()))

    assert sorted(pages) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def test_the_navigation_has_the_headings_of_the_index_in_its_order() -> None:
    index = "# All\n## One\n* [A](a.md), [B](b/c.md)\n## Two\n* [again](a.md) [`code`](d.md)\n* [x](../README.md) [y](https://e.org/z.md)\n"

    assert read_navigation(index) == [
        {"Overview": "README.md"},
        {"One": [{"A": "a.md"}, {"B": "b/c.md"}]},
        {"Two": [{"code": "d.md"}]},
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see [the stories](../../LICENSE), row by row", "see the stories (`LICENSE`), row by row"),
        ("[`Makefile`](../../Makefile)", "`Makefile`"),
        ("[this](../how-to/x.md#there)", "[this](../how-to/x.md#there)"),
        ("[that](y.md)", "[that](y.md)"),
        ("[far](https://example.org)", "[far](https://example.org)"),
        ("```\n[x](../../LICENSE)\n```", "```\n[x](../../LICENSE)\n```"),
    ],
)
def test_a_link_that_leaves_the_documentation_is_words_with_the_path(text: str, shown: str) -> None:
    assert without_links_outside(text, "explanation/page.md") == shown
