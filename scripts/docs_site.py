"""What makes a site of docs/ beside MkDocs, as its hooks (mkdocs.yml): the order of its pages, and links that leave docs/.

docs/README.md names each page under a heading; that is the navigation, too, so that the order stands in one place. A link to
a file outside of docs/ is for readers of a checkout: on the site its words stay, with the path, and no link.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

INDEX = "README.md"
_HEADING = re.compile(r"^## (.+)$")
# One page may have several links in an item of the list: the first names it, and the others have entries of their own.
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#:]+\.md)\)")
_ANY_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])+)\]\((\.\.?/[^)\s]+)\)")
_BLOCK = re.compile(r"(```.*?```)", re.DOTALL)


def read_navigation(index: str) -> list[dict[str, Any]]:
    """The pages under each heading of the index, in its order; a page that is named twice is where it is named first."""
    navigation: list[dict[str, Any]] = [{"Overview": INDEX}]
    seen, pages = {INDEX}, list[dict[str, str]]()
    for line in index.splitlines():
        if heading := _HEADING.match(line):
            pages = []
            navigation.append({heading[1]: pages})
        for title, path in _LINK.findall(line):
            if path not in seen and not path.startswith(".."):
                seen.add(path)
                pages.append({title.replace("`", ""): path})
    return navigation


def without_links_outside(text: str, page: str) -> str:
    """The page with links that leave docs/ as words; blocks of code are left as they are."""

    def replace(link: re.Match[str]) -> str:
        target = posixpath.normpath(
            posixpath.join("docs", posixpath.dirname(page), link[2].partition("#")[0])
        )
        if target == "docs" or target.startswith("docs/"):
            return link[0]
        words = link[1].strip("`")
        return f"`{target}`" if words in target else f"{link[1]} (`{target}`)"

    parts = _BLOCK.split(text)
    return "".join(part if part.startswith("```") else _ANY_LINK.sub(replace, part) for part in parts)


# -- what MkDocs calls --------------------------------------------------------------------------------------------


def on_config(config: Any) -> Any:
    config["nav"] = read_navigation((Path(config["docs_dir"]) / INDEX).read_text())
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return without_links_outside(markdown, page.file.src_uri)
