"""Output for programs: `-o json|yaml`, objects in the form of `kubectl get -o`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def list_of(items: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The objects as `kubectl get -o` prints several: a List."""
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": list(items)}


def render_data(value: Any, output: str) -> str:
    """`value` as JSON or YAML text without a last newline."""
    if output == "json":
        from windrow.core.formats.json import pretty

        return pretty(value)
    from windrow.core.formats.yaml import dump

    return dump(value).rstrip("\n")
