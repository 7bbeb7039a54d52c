"""List the pages of the documentation, or print one.

PAGE is a name of the list, with or without its folder, or the path that a message names. Pages are Markdown, those of
this version, and need no network.

Examples:
  windrow docs
  windrow docs first-cluster
  windrow docs docs/how-to/install.md | less
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping
from pathlib import Path

import windrow
from windrow.cli import exit_codes, options
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.cli.output.data import render_data

# In the order of docs/README.md.
FOLDERS = ("tutorial", "how-to", "reference", "explanation")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("page", metavar="PAGE", nargs="?", help="the page to print (default: list all)")
    options.add_output(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    pages = list_pages(find_folder(Path(windrow.__file__).parent))
    if args.page is not None:
        name = find_name(pages, args.page)
        text = pages[name].read_text(encoding="utf-8")
        said = {"name": name, "title": title(pages[name]), "text": text}
        context.print(render_data(said, args.output) if args.output else text.rstrip("\n"))
    elif args.output:
        listed = [{"name": name, "title": title(path)} for name, path in pages.items()]
        context.print(render_data(listed, args.output))
    else:
        width = max(map(len, pages))
        for name, path in pages.items():
            context.print(f"{name:<{width}}  {title(path)}")
    return exit_codes.OK


def find_folder(package: Path) -> Path:
    """Where the pages lie: in the installed package, else in the checkout. Raises CliError."""
    for folder in (package / "docs", package.parents[1] / "docs"):
        if (folder / "README.md").is_file():
            return folder
    raise CliError(
        f"No documentation was found: neither in {package / 'docs'} nor in a checkout.",
        "Install Windrow from its wheel, which holds it.",
    )


def list_pages(folder: Path) -> Mapping[str, Path]:
    """The pages by their names, `how-to/install`."""
    return {f"{kind}/{path.stem}": path for kind in FOLDERS for path in sorted((folder / kind).glob("*.md"))}


def find_name(pages: Mapping[str, Path], wanted: str) -> str:
    """The name of the page that `wanted` means. Raises CliError where there is none, or are several."""
    name = wanted.removeprefix("./").removeprefix("docs/").removesuffix(".md")
    found = [full for full in pages if name in (full, full.partition("/")[2])]
    if len(found) == 1:
        return found[0]
    if found:
        hint = f"Name its folder: windrow docs {found[0]}"
        raise CliError(f"{wanted}: {len(found)} pages have that name.", hint, exit_codes.USAGE)
    stems = {full.partition("/")[2]: full for full in pages}
    near = difflib.get_close_matches(name.rpartition("/")[2], stems, 1)
    hint = f"Did you mean: windrow docs {stems[near[0]]}" if near else "See all pages: windrow docs"
    raise CliError(f"There is no page {wanted!r}.", hint, exit_codes.USAGE)


def title(page: Path) -> str:
    """The page's first heading."""
    with page.open(encoding="utf-8") as lines:
        return next((line[2:].strip() for line in lines if line.startswith("# ")), page.stem)
