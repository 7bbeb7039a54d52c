"""Manifests that verbs read: files, or `-` for standard input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windrow.cli import exits
from windrow.cli.complaints import Complaint, one_line
from windrow.cli.edge import Edge
from windrow.cli.screens.lines import wrap
from windrow.kube.objects import Raw, unpacked


def read_documents(names: Sequence[str], edge: Edge) -> list[Raw]:
    """Every object in the files, in order; the items of Lists one by one. Complains about what is no object."""
    return [document for name in names for document in _documents(name, edge)]


def _documents(name: str, edge: Edge) -> list[Raw]:
    from windrow.formats.yaml import NotYaml, load_all

    text = edge.stdin.read() if name == "-" else (edge.cwd / Path(name)).read_text()
    said = "standard input" if name == "-" else name
    try:
        found = load_all(text)
    except NotYaml as error:
        raise Complaint(
            f"{said} is not YAML: {one_line(error)}", "Correct it there.", exits.REFUSED
        ) from error
    flat = [item for document in found for item in unpacked(document)]
    if not flat:
        raise Complaint(f"{said} holds no object.", "Name a file with manifests.", exits.REFUSED)
    return [_object(document, place, said) for place, document in enumerate(flat, 1)]


def _object(document: object, place: int, said: str) -> Raw:
    if isinstance(document, dict):
        metadata = document.get("metadata")
        named = isinstance(metadata, dict) and metadata.get("name")
        if document.get("apiVersion") and document.get("kind") and named:
            return document
    raise Complaint(
        f"Document {place} of {said} is no Kubernetes object: it lacks apiVersion, kind or metadata.name.",
        "Complete it, or take it out.",
        exits.REFUSED,
    )


def say_notes(notes: Sequence[str], edge: Edge) -> None:
    """What was left out or is worth knowing, beside the answer."""
    for note in notes:
        for part in wrap(note, edge.width, rest="  "):
            edge.note(part)
