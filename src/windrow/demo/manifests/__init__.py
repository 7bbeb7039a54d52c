"""Manifests that come with Windrow, and reading manifests from files."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from windrow.core.yaml import load_all
from windrow.kubernetes.objects import flatten_list

THREE_AND_TWO = "three-and-two.yaml"


def shipped(name: str = THREE_AND_TWO) -> str:
    """The text of a manifest of ours."""
    return files(__package__).joinpath(name).read_text()


def read_documents(text: str) -> list[dict[str, Any]]:
    """The objects in a manifest; a `List` is opened. Raises formats.yaml.NotYaml; documents that are no objects
    are left out (the API server would refuse them by name anyway)."""
    items = (item for document in load_all(text) for item in flatten_list(document))
    return [item for item in items if isinstance(item, dict)]
