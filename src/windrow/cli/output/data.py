"""Output for programs: `-o json|yaml`, objects in the form of `kubectl get -o`."""

from __future__ import annotations

from typing import Any


def render_data(value: Any, output: str) -> str:
    """`value` as JSON or YAML text without a last newline."""
    if output == "json":
        from windrow.core.json import pretty

        return pretty(value)
    from windrow.core.yaml import dump

    return dump(value).rstrip("\n")
