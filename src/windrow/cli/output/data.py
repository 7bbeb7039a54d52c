"""Output for programs: `-o json|yaml`, objects in the form of `kubectl get -o`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def list_of(items: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The objects as `kubectl get -o` prints several: a List."""
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": list(items)}


def render_data(value: Any, output: str) -> str:
    """`value` as JSON or YAML text without a last newline. What a terminal would obey is escaped, and read back as it was."""
    if output == "json":
        from windrow.core.formats.json import pretty

        text = pretty(value)
        return text if _is_printable(text) else "".join(map(_escaped, text))
    from windrow.core.formats.yaml import dump

    text = dump(value)
    return (text if _is_printable(text) else dump(value, ascii_only=True)).rstrip("\n")


def render_documents(values: Iterable[Any]) -> str:
    """The values as YAML documents, without a last newline."""
    return "\n---\n".join(render_data(value, "yaml") for value in values)


def _is_printable(text: str) -> bool:
    return text.replace("\n", "").isprintable()


def _escaped(letter: str) -> str:
    """A character of a JSON text. What is not printable is within a string there."""
    return letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1]
