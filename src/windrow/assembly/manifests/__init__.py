"""Manifests that come with Windrow, and reading manifests from files."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from windrow.formats.yaml import load_all

THREE_AND_TWO = "three-and-two.yaml"


def shipped(name: str = THREE_AND_TWO) -> str:
    """The text of a manifest of ours."""
    return files(__package__).joinpath(name).read_text()


def read_documents(text: str) -> list[dict[str, Any]]:
    """The objects in a manifest; a `List` is opened. Raises formats.yaml.NotYaml; documents that are no objects
    are left out (the API server would refuse them by name anyway)."""
    documents: list[dict[str, Any]] = []
    for document in load_all(text):
        if not isinstance(document, dict):
            continue
        if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
            documents += [item for item in document["items"] if isinstance(item, dict)]
        else:
            documents.append(document)
    return documents
