"""Import of objects as `kubectl get -o yaml` prints them: without what another server and its controllers wrote.

An owner reference to a uid that does not exist here has the object garbage-collected; a finalizer of a controller that
does not run here is never removed; with a resource version the server refuses to create the object.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from windrow.clusters.api.references import (
    ALL_NAMESPACES,
    allow_command,
    list_grants,
    read_allowed_namespaces,
    render_allowed_namespaces,
)
from windrow.kubernetes.objects import Raw, flatten_list, name_of, namespace_of
from windrow.kubernetes.resources import SECRET

# Written by the server or by controllers there, not by the user.
_SERVER_FIELDS = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
_FOREIGN_FINALIZERS = (
    "wrangler.cattle.io/",
    "controller.cattle.io/",
    "management.cattle.io/",
    "rke.cattle.io/",
)
_FOREIGN_ANNOTATIONS = ("field.cattle.io/", "objectset.rio.cattle.io/", "lifecycle.cattle.io/")
_FOREIGN_KEYS = frozenset({"ownerBindingsCreated", "kubectl.kubernetes.io/last-applied-configuration"})


def strip_server_fields(documents: Iterable[Raw]) -> tuple[list[Raw], list[str]]:
    """The objects without what belongs to another server, and one line for each thing that was left out.

    A List is taken apart. Owner references among the given objects are dropped too: the uids will be new.
    """
    cleaned: list[Raw] = []
    notes: list[str] = []
    for document in documents:
        for raw in flatten_list(document):
            kept, dropped = _strip_one(raw)
            cleaned.append(kept)
            if dropped:
                notes.append(f"{_describe(raw)}: left out {', '.join(dropped)}")
    return cleaned, notes


def grant_references(documents: list[Raw]) -> list[str]:
    """Let the Secrets among `documents` be used by the Clusters there that name them from another namespace.

    Changes the annotations of the Secrets in place. One line for each grant, and for each that its owner has to give.
    """
    notes: list[str] = []
    secrets = {(namespace_of(raw), name_of(raw)): raw for raw in documents if raw.get("kind") == SECRET.kind}
    for ref, namespaces in sorted(list_grants(documents).items(), key=str):
        raw = secrets.get((ref.namespace, ref.name))
        if raw is None:
            notes += [
                f"{ref} must allow its use from namespace {one}: {allow_command(ref, one)}"
                for one in sorted(namespaces)
            ]
            continue
        allowed = read_allowed_namespaces(raw)
        if ALL_NAMESPACES in allowed or namespaces <= allowed:
            continue
        metadata = raw["metadata"]
        grant = render_allowed_namespaces(allowed | namespaces)
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **grant}
        notes.append(f"{ref}: allowed its use from namespace {', '.join(sorted(namespaces - allowed))}")
    return notes


def _describe(raw: Raw) -> str:
    metadata = raw.get("metadata") or {}
    where = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{raw.get('kind', 'object')} {where}{metadata.get('name', '')}"


def _strip_one(raw: Raw) -> tuple[Raw, list[str]]:
    kept = copy.deepcopy(raw)
    dropped: list[str] = []
    metadata: dict[str, Any] = kept.setdefault("metadata", {})
    dropped += [key for key in _SERVER_FIELDS if metadata.pop(key, None) is not None]
    if metadata.get("name") and metadata.pop("generateName", None):
        dropped.append("generateName")
    if owners := metadata.pop("ownerReferences", None):
        dropped += [
            f"the owner {owner.get('kind')} {owner.get('name')}, whose uid is not here" for owner in owners
        ]
    dropped += _drop_finalizers(metadata)
    dropped += _drop_annotations(metadata)
    if kept.pop("status", None) is not None:
        dropped.append("status")
    return kept, dropped


def _drop_finalizers(metadata: dict[str, Any]) -> list[str]:
    finalizers = metadata.get("finalizers") or []
    foreign = [name for name in finalizers if name.startswith(_FOREIGN_FINALIZERS)]
    own = [name for name in finalizers if name not in foreign and not name.startswith("windrow.io/")]
    # Ours go too: they would be set again, and until then they would only be in the way of a deletion.
    gone = [name for name in finalizers if name not in own]
    if own:
        metadata["finalizers"] = own
    else:
        metadata.pop("finalizers", None)
    return [f"finalizer {name}" for name in gone]


def _drop_annotations(metadata: dict[str, Any]) -> list[str]:
    annotations = metadata.get("annotations") or {}
    gone = [name for name in annotations if name.startswith(_FOREIGN_ANNOTATIONS) or name in _FOREIGN_KEYS]
    kept = {name: value for name, value in annotations.items() if name not in gone}
    if kept:
        metadata["annotations"] = kept
    else:
        metadata.pop("annotations", None)
    return [f"annotation {name}" for name in gone]
