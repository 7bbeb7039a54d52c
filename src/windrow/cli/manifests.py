"""Manifests that verbs read: files, or `-` for standard input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windrow.catalogue.kinds import NODE_DRIVER
from windrow.cli import exits
from windrow.cli.complaints import Complaint, complaint_about, not_text, one_line, together
from windrow.cli.edge import Edge
from windrow.cli.screens.lines import wrap
from windrow.clusters.kinds import CLUSTER, HARVESTER_CONFIG, machine_config
from windrow.kube.objects import Raw, unpacked
from windrow.kube.refs import CONFIG_MAP, NAMESPACE, SECRET, Kind

# What the management API takes, in the order in which they need each other. HarvesterConfig stands for the machine
# config kinds of all node drivers.
KINDS: tuple[Kind, ...] = (NAMESPACE, SECRET, CONFIG_MAP, NODE_DRIVER, HARVESTER_CONFIG, CLUSTER)


def read_documents(names: Sequence[str], edge: Edge) -> list[Raw]:
    """Every object in the files, in order; the items of Lists one by one. Complains about what is no object, and
    about every file that cannot be read at once."""
    documents: list[Raw] = []
    complaints: list[Complaint] = []
    for name in names:
        try:
            documents += _documents(name, edge)
        except (Complaint, OSError) as error:
            complaints.append(complaint_about(error))
    if complaints:
        raise together(complaints)
    return documents


def find_kind(raw: Mapping[str, Any]) -> Kind | None:
    """The kind of the object, None where the management API has no use for it."""
    wanted = (raw["apiVersion"], raw["kind"])
    if wanted[0] == HARVESTER_CONFIG.api_version and str(wanted[1]).endswith("Config"):
        return machine_config(wanted[1])
    return next((kind for kind in KINDS if (kind.api_version, kind.kind) == wanted), None)


def place_of(kind: Kind) -> int:
    """Where the kind stands in the order of KINDS."""
    return KINDS.index(HARVESTER_CONFIG if kind.group == HARVESTER_CONFIG.group else kind)


def complaints_about_kinds(documents: Sequence[Raw]) -> list[Complaint]:
    """One for each object of a kind that the manager does not know."""
    known = ", ".join(f"{kind.kind} ({kind.api_version})" for kind in KINDS)
    return [
        Complaint(
            f"{raw['kind']} {raw['metadata']['name']} ({raw['apiVersion']}) is not of a kind that the manager knows.",
            f"Take it out, or apply it with kubectl where it belongs. Known are: {known}.",
            exits.REFUSED,
        )
        for raw in documents
        if find_kind(raw) is None
    ]


def _documents(name: str, edge: Edge) -> list[Raw]:
    from windrow.formats.yaml import NotYaml, load_all

    said = "standard input" if name == "-" else name
    try:
        text = edge.stdin.read() if name == "-" else (edge.cwd / Path(name)).read_text()
        found = load_all(text)
    except UnicodeDecodeError as error:
        raise not_text(said) from error
    except NotYaml as error:
        raise Complaint(
            f"{said} is not YAML: {one_line(error)}", "Correct it there.", exits.REFUSED
        ) from error
    flat = [item for document in found for item in unpacked(document)]
    if not flat:
        raise Complaint(f"{said} holds no object.", "Name a file with manifests.", exits.REFUSED)
    strange = [place for place, document in enumerate(flat, 1) if not _is_object(document)]
    if strange:
        raise together(
            [
                Complaint(
                    f"Document {place} of {said} is no Kubernetes object: it lacks apiVersion, kind or a name that is text.",
                    "Complete it (a number as a name wants quotes), or take it out.",
                    exits.REFUSED,
                )
                for place in strange
            ]
        )
    return [document for document in flat if isinstance(document, dict)]


def _is_object(document: object) -> bool:
    if not isinstance(document, dict):
        return False
    metadata = document.get("metadata")
    named = isinstance(metadata, dict) and isinstance(metadata.get("name"), str) and metadata["name"]
    return bool(document.get("apiVersion") and document.get("kind") and named)


def say_notes(notes: Sequence[str], edge: Edge) -> None:
    """What was left out or is worth knowing, beside the answer."""
    for note in notes:
        for part in wrap(note, edge.width, rest="  "):
            edge.note(part)
