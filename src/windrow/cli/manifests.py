"""Reading manifests: files, or `-` for standard input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windrow.cli import exit_codes
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError, combine, not_utf8, to_cli_error
from windrow.cli.paths import MAX_TEXT_FILE, limit_text, read_text_file
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, machine_config
from windrow.core.formats.bounds import abbreviate
from windrow.core.text import collapse_whitespace
from windrow.drivers.api import NODE_DRIVER, find_meant_kind
from windrow.kubernetes.objects import Raw, flatten_list, nested
from windrow.kubernetes.resources import CONFIG_MAP, NAMESPACE, SECRET, ApiResource

# The kinds of the management API, in the order in which objects refer to each other. HarvesterConfig stands for the
# machine config kinds of all node drivers.
KINDS: tuple[ApiResource, ...] = (NAMESPACE, SECRET, CONFIG_MAP, NODE_DRIVER, HARVESTER_CONFIG, CLUSTER)


def read_documents(names: Sequence[str], context: CliContext) -> list[Raw]:
    """Every object in the files, in order; Lists as their items. Raises one CliError for all unreadable files and
    documents that are no objects."""
    documents: list[Raw] = []
    errors: list[CliError] = []
    for name in names:
        try:
            documents += _read_file(name, context)
        except (CliError, OSError) as error:
            errors.append(to_cli_error(error))
    if errors:
        raise combine(errors)
    return documents


def find_kind(raw: Mapping[str, Any]) -> ApiResource | None:
    """The kind of the object, or None where the management API does not have it."""
    wanted = (raw["apiVersion"], raw["kind"])
    if wanted[0] == HARVESTER_CONFIG.api_version and str(wanted[1]).endswith("Config"):
        return machine_config(wanted[1])
    return next((kind for kind in KINDS if (kind.api_version, kind.kind) == wanted), None)


def apply_order(kind: ApiResource) -> int:
    """The position of the kind in KINDS."""
    return KINDS.index(HARVESTER_CONFIG if kind.group == HARVESTER_CONFIG.group else kind)


def place_in_namespace(documents: Sequence[Raw], namespace: str | None, default: str) -> None:
    """Put each namespaced object without a namespace into `namespace`; where that is not given, into `default`.

    Raises one CliError for all objects that name another than `namespace`, as kubectl refuses them.
    """
    namespaced = [raw for raw in documents if (kind := find_kind(raw)) is not None and kind.namespaced]
    if errors := [
        CliError(
            f"{raw['kind']} {raw['metadata']['name']} is of namespace {own}, and -n is {namespace}.",
            f"Leave out -n, or correct metadata.namespace of {raw['kind']} {raw['metadata']['name']}.",
            exit_codes.REFUSED,
        )
        for raw in namespaced
        if namespace and (own := raw["metadata"].get("namespace")) not in (None, "", namespace)
    ]:
        raise combine(errors)
    for raw in namespaced:
        raw["metadata"]["namespace"] = raw["metadata"].get("namespace") or namespace or default


def unknown_kind_errors(documents: Sequence[Raw]) -> list[CliError]:
    """One error for each object of a kind that the management API does not have, with the kind that was meant, where one is
    near."""
    return [
        CliError(
            f"{raw['metadata']['name']!r} is of kind {raw['kind']} ({raw['apiVersion']}), which the management API does not have.",
            _hint_for_kind(raw),
            exit_codes.REFUSED,
        )
        for raw in documents
        if find_kind(raw) is None
    ]


def _hint_for_kind(raw: Raw) -> str:
    by_name = {kind.kind: kind for kind in KINDS}
    meant = by_name.get(find_meant_kind(raw["kind"], by_name) or raw["kind"])
    if meant is None:
        known = ", ".join(f"{kind.kind} ({kind.api_version})" for kind in KINDS)
        return f"Remove it, or apply it with kubectl where it belongs. The kinds are: {known}."
    wrong = {
        key: value
        for key, value in (("apiVersion", meant.api_version), ("kind", meant.kind))
        if raw[key] != value
    }
    return f"Write {' and '.join(f'{key}: {value}' for key, value in wrong.items())}."


def _read_file(name: str, context: CliContext) -> list[Raw]:
    from windrow.core.formats.yaml import NotYaml, load_unique

    shown = "standard input" if name == "-" else name
    try:
        if name == "-":
            text = limit_text(context.stdin.read(MAX_TEXT_FILE + 1), shown)
        else:
            text = read_text_file(context.cwd / name, name)
        found = load_unique(text)
    except UnicodeDecodeError as error:
        raise not_utf8(shown) from error
    except NotYaml as error:
        raise CliError(
            f"{shown} is not YAML: {collapse_whitespace(error)}", "Correct the file.", exit_codes.REFUSED
        ) from error
    objects = [item for document in found for item in flatten_list(document)]
    if not objects:
        raise CliError(f"{shown} contains no object.", "Name a file with manifests.", exit_codes.REFUSED)
    faults = [(place, fault) for place, document in enumerate(objects, 1) if (fault := _find_fault(document))]
    if faults:
        raise combine(
            [
                CliError(
                    f"Document {place} of {shown} is not a Kubernetes object: {fault}.",
                    "Correct that, or remove the document.",
                    exit_codes.REFUSED,
                )
                for place, fault in faults
            ]
        )
    found = [document for document in objects if isinstance(document, dict)]
    if errors := [error for document in found for error in _metadata_faults(document, shown)]:
        raise combine(errors)
    return found


# What is read of metadata before any schema is asked: each key with the type of its value and of the items of a list.
_METADATA: Mapping[str, tuple[type, type, str]] = {
    "namespace": (str, object, "text"),
    "labels": (dict, object, "a mapping"),
    "annotations": (dict, object, "a mapping"),
    "finalizers": (list, str, "a list of text"),
    "ownerReferences": (list, dict, "a list of mappings"),
}


def _metadata_faults(document: Raw, shown: str) -> list[CliError]:
    return [
        CliError(
            f"metadata.{key} of {document['kind']} {document['metadata']['name']} in {shown} is not {words}.",
            f"Write {words} there, or remove it.",
            exit_codes.REFUSED,
        )
        for key, (wanted, items, words) in _METADATA.items()
        if not _is_of_type(document["metadata"].get(key), wanted, items)
    ]


def _is_of_type(value: Any, wanted: type, items: type) -> bool:
    if value is None:
        return True
    is_wanted = isinstance(value, wanted)
    return is_wanted and (wanted is not list or all(isinstance(item, items) for item in value))


def _find_fault(document: object) -> str:
    """What every object has and this one has not; "" where it is one."""
    if not isinstance(document, dict):
        return f"it is {abbreviate(str(document))}, and a mapping is wanted"
    missing = [key for key in ("apiVersion", "kind") if not document.get(key)]
    name = nested(document, "metadata", "name")
    if name in (None, ""):
        missing.append("metadata.name")
    if missing:
        return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    return "" if isinstance(name, str) else f"metadata.name is {name}, and a text is wanted: quote it"


def print_notes(notes: Sequence[str], context: CliContext) -> None:
    """Notes on standard error."""
    for note in notes:
        context.print_note(note)
