"""YAML 1.1, as Kubernetes tools and cloud-init read it, by PyYAML. The only module that imports it.

The plugin process has PyYAML's pure files only; elsewhere its C loader is used.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class NotYaml(ValueError):
    """The text is not YAML. The message may quote a word of it; `position` quotes nothing."""

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.position = where


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a literal block, so that scripts and certificates stay readable."""


# YAML reads these as line breaks and returns them as "\n", unless they are escaped between double quotes.
_UNUSUAL_LINE_BREAKS = frozenset("\x85\u2028\u2029")


def _represent_str(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = '"' if _UNUSUAL_LINE_BREAKS & set(value) else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _represent_str)


def load(text: str | bytes) -> Any:
    """The one document in `text` (None when empty), which does not contain itself. Raises NotYaml."""
    try:
        return _check_aliases(yaml.load(text, Loader=_Loader), text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _not_yaml(error) from error


def load_all(text: str | bytes) -> list[Any]:
    """Every document in `text` that is not empty. Raises NotYaml."""
    try:
        documents = [_check_aliases(document, text) for document in yaml.load_all(text, Loader=_Loader)]
        return [document for document in documents if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _not_yaml(error) from error


# Larger than any manifest; a few lines of aliases to aliases exceed all memory.
MAX_VALUES = 1_000_000


def _check_aliases(document: Any, text: str | bytes) -> Any:
    """The document, whose aliases expand to a finite and bounded one. Raises NotYaml.

    A walk through a document that contains itself, or grows with every level, would not end.
    """
    if (b"*" in text) if isinstance(text, bytes) else ("*" in text):
        _count_values(document, {}, set())
    return document


def _count_values(value: Any, sizes: dict[int, int], parents: set[int]) -> int:
    """How many values there are, each alias counted as what it stands for."""
    if not isinstance(value, dict | list | tuple):
        return 1
    if id(value) in parents:
        raise NotYaml("an alias is inside the value that it is an alias of")
    if id(value) not in sizes:
        parents.add(id(value))
        inner = value.values() if isinstance(value, dict) else value
        sizes[id(value)] = 1 + sum(_count_values(entry, sizes, parents) for entry in inner)
        parents.remove(id(value))
        if sizes[id(value)] > MAX_VALUES:
            raise NotYaml(f"its aliases make it larger than {MAX_VALUES} values")
    return sizes[id(value)]


def _not_yaml(error: Exception) -> NotYaml:
    """The error without PyYAML's placeholder for the file's name, and without the quoted line, which may hold a token."""
    for mark in (getattr(error, "context_mark", None), getattr(error, "problem_mark", None)):
        if isinstance(mark, yaml.Mark):
            mark.buffer = None
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    return NotYaml(re.sub(r'\bin "<(?:unicode|byte) string>",', "at", str(error)), where)


def dump(value: Any, *, sort: bool = False) -> str:
    """`value` as block-style YAML, keys in the order given unless `sort`."""
    return str(
        yaml.dump(
            value, Dumper=_Dumper, sort_keys=sort, allow_unicode=True, default_flow_style=False, width=4096
        )
    )


def dump_all(values: list[Any]) -> str:
    """The documents in `values`, separated by `---`."""
    return "---\n".join(dump(value) for value in values)
