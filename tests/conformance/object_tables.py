"""What two programs make of the same inputs, compared field by field, and the tables that document the differences."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

ABSENT = "absent"

T = TypeVar("T")
Difference = tuple[str, str, str]  # field, the Go program's, ours


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """One field that differs, and in which inputs."""

    field: str
    go: str
    ours: str
    inputs: str

    def __str__(self) -> str:
        return f"| `{self.field}` | {_cell(self.go)} | {_cell(self.ours)} | {self.inputs} |"


def _cell(text: str) -> str:
    return text if text == ABSENT else f"`{text}`"


def compare(
    go: Mapping[str, T], ours: Mapping[str, T], differences: Callable[[T, T], Iterator[Difference]]
) -> list[Row]:
    """Every field that differs, with the inputs in which it does."""
    where: dict[Difference, set[str]] = defaultdict(set)
    for name in go:
        for difference in differences(go[name], ours[name]):
            where[difference].add(name)
    return sorted(Row(*difference, _input_names(names, {*go})) for difference, names in where.items())


def _input_names(names: set[str], everything: set[str]) -> str:
    """`all`, `all but …` or the names, whichever is shortest."""
    others = ", ".join(sorted(everything - names))
    return min(f"all but {others}" if others else "all", ", ".join(sorted(names)), key=len)


def field_differences(theirs: Mapping[str, str], mine: Mapping[str, str]) -> Iterator[Difference]:
    for field in {*theirs, *mine}:
        left, right = theirs.get(field, ABSENT), mine.get(field, ABSENT)
        if left != right:
            yield re.sub(r"\[\d+\]", "[*]", field), left, right


def list_differences(field: str, theirs: Sequence[str], mine: Sequence[str]) -> Iterator[Difference]:
    """The elements that one of them has more, and whether the others stand in another order."""
    for item in {*theirs, *mine}:
        if (item in theirs) != (item in mine):
            yield field, *(item if item in items else ABSENT for items in (theirs, mine))
    common = [[item for item in items if item in theirs and item in mine] for items in (theirs, mine)]
    if common[0] != common[1]:
        yield f"{field} (order)", *(", ".join(items) for items in common)


def flat(path: str, value: Any, named: Sequence[str] = (), key: str = "") -> Iterator[tuple[str, str]]:
    """Every leaf by its path, as text. Elements of lists in `named` go by their names instead of their places."""
    if isinstance(value, Mapping) and value:
        for inner_key, inner in value.items():
            dotted = re.fullmatch(r"[\w()-]+", inner_key)
            yield from flat(
                f"{path}.{inner_key}" if dotted else f"{path}[{inner_key}]", inner, named, inner_key
            )
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            yield from flat(f"{path}[{inner['name'] if key in named else place}]", inner, named)
    else:
        yield path, value if isinstance(value, str) and value else json.dumps(value)


def read_documented_rows(document: Path, heading: str, version: str = "") -> dict[Row, str]:
    """The rows of the table under a heading of the documentation, with the reasons.

    With a version, those for it: the table has a column that names the versions of the Go program, or `all`.
    """
    level = heading.partition(" ")[0]
    section = document.read_text().partition(f"\n{heading}\n")[2].partition(f"\n{level} ")[0]
    found = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            field, go, ours, inputs, *reason = (
                cell.strip().strip("`") for cell in line.strip("|").split(" | ")
            )
            if version and not {version, "all"} & set(reason.pop(0).split(", ")):
                continue
            found[Row(field, go, ours, inputs)] = " | ".join(reason)
    return found


def assert_as_documented(found: Sequence[Row], document: Path, heading: str, version: str = "") -> None:
    """Every difference that was found is in the table, and every one in the table was found."""
    told = set(read_documented_rows(document, heading, version))
    undocumented = "\n".join(str(row) for row in sorted(set(found) - told))
    outdated = "\n".join(str(row) for row in sorted(told - set(found)))
    assert set(found) == told, f"not documented:\n{undocumented}\nno longer so:\n{outdated}"
