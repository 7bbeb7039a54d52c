"""Merging one cluster into a kubeconfig that others write, too, and removing it again.

The entries of others stay as they are written, comments included, as far as the text is written in lines: a text in braces
is written anew. Entries of ours bear an extension that names the Cluster; only such are ever replaced or removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.core.formats.yaml import NotYaml, dump, find_values, load_unique
from windrow.core.text import printable
from windrow.kubernetes.kubeconfig import BadKubeconfig, parse_kubeconfig
from windrow.kubernetes.objects import mappings_at, nested

Raw = dict[str, Any]

EXTENSION = "windrow.io"
_LISTS = {"clusters": "cluster", "users": "user", "contexts": "context"}
_HEAD: Raw = {"apiVersion": "v1", "kind": "Config"}


class NameTaken(BadKubeconfig):
    """An entry of that name is not of this Cluster."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The Cluster that entries are of: `NAMESPACE/NAME`, and the uid that tells it from others of this name."""

    cluster: str
    uid: str


@dataclass(frozen=True, slots=True)
class Merged:
    """The text to write, and what it says: the names of the contexts that were added or removed."""

    text: str
    contexts: tuple[str, ...]


def check_guest_kubeconfig(guest: str) -> None:
    """That kubectl opens no file and starts no program by it, whichever context is chosen. Raises BadKubeconfig.

    Who may write the Secret that it comes from is not who runs kubectl with it.
    """
    for entry in mappings_at(_read(guest), "contexts"):
        parse_kubeconfig(guest, str(entry.get("name") or ""))


def merge_kubeconfig(
    text: str, guest: str, name: str, origin: Origin, *, set_current: bool = False
) -> Merged:
    """`text` with the current context of the kubeconfig `guest`, called `name`. An empty text becomes a kubeconfig. Raises
    BadKubeconfig, and NameTaken where `name` is another's."""
    document = _read(text)
    added = _entries_of(guest, name, origin)
    for key in _LISTS:
        _require_own(document, key, name, origin)
    edit = _Edit(text, document)
    for key in _LISTS:
        edit.set_item(key, name, added[key])
    if set_current or not document.get("current-context"):
        edit.set_text("current-context", name)
    for key, value in _HEAD.items():
        if not document.get(key):
            edit.set_text(key, value)
    return Merged(edit.result(), (name,))


def remove_from_kubeconfig(text: str, cluster: str, name: str = "") -> Merged:
    """`text` without the entries of the Cluster `NAMESPACE/NAME`, or of that name in any namespace; with `name`, only without
    those that are called so. No context is removed where there is none. Raises BadKubeconfig."""
    document = _read(text)
    edit = _Edit(text, document)
    gone = []
    for key in _LISTS:
        for entry in mappings_at(document, key):
            found = origin_of(entry)
            called = str(entry.get("name") or "")
            if (
                found is None
                or name not in ("", called)
                or cluster not in (found.cluster, found.cluster.partition("/")[2])
            ):
                continue
            edit.set_item(key, called, None)
            if key == "contexts":
                gone.append(called)
    if document.get("current-context") in gone:
        edit.set_text("current-context", "")
    return Merged(edit.result(), tuple(gone))


def list_origins(text: str) -> dict[str, Origin]:
    """The contexts of ours by name, with their Clusters. Raises BadKubeconfig."""
    found = {str(entry.get("name") or ""): origin_of(entry) for entry in mappings_at(_read(text), "contexts")}
    return {name: origin for name, origin in found.items() if origin is not None}


def origin_of(entry: Mapping[str, Any]) -> Origin | None:
    """The Cluster of an entry of ours, None for another's."""
    for key in _LISTS.values():
        for extension in mappings_at(entry, key, "extensions"):
            if extension.get("name") == EXTENSION:
                fields = extension.get("extension")
                return Origin(
                    str(nested(fields, "cluster", default="")), str(nested(fields, "uid", default=""))
                )
    return None


def _read(text: str) -> Raw:
    """The document as a mapping whose lists are lists, or absent."""
    try:
        documents = load_unique(text)
    except NotYaml as error:
        raise BadKubeconfig(
            f"it is not YAML{error.position and f' at {error.position}'}", "correct it, or name another file"
        ) from None  # the cause quotes the file
    if not documents:
        return {}
    if len(documents) > 1 or not isinstance(documents[0], dict):
        raise BadKubeconfig("it is not one kubeconfig", "name a file with clusters, users and contexts")
    document: Raw = documents[0]
    for key in _LISTS:
        found = document.get(key)
        if found is not None and not (
            isinstance(found, list) and all(isinstance(one, dict) for one in found)
        ):
            raise BadKubeconfig(
                f"its {key} are no list of entries", "name a file with clusters, users and contexts"
            )
    if document.get("kind", "Config") != "Config":
        raise BadKubeconfig("its kind is not Config", "name a kubeconfig")
    return document


def _entries_of(guest: str, name: str, origin: Origin) -> dict[str, Raw]:
    document = _read(guest)
    current = document.get("current-context")
    context = _find(document, "contexts", str(current or ""))
    cluster = _find(document, "clusters", str(nested(context, "context", "cluster", default="")))
    user = _find(document, "users", str(nested(context, "context", "user", default="")))
    if context is None or cluster is None or user is None:
        raise BadKubeconfig("the cluster's kubeconfig has no current context", "see its Secret")
    place = {key: value for key, value in context["context"].items() if key == "namespace"}
    fields = {
        "clusters": dict(cluster["cluster"]),
        "users": dict(user["user"]),
        "contexts": {"cluster": name, "user": name, **place},
    }
    mark = [{"name": EXTENSION, "extension": {"cluster": origin.cluster, "uid": origin.uid}}]
    return {key: {"name": name, _LISTS[key]: {**value, "extensions": mark}} for key, value in fields.items()}


def _find(document: Raw, key: str, name: str) -> Raw | None:
    return next((one for one in mappings_at(document, key) if one.get("name") == name), None)  # type: ignore[return-value]


def _require_own(document: Raw, key: str, name: str, origin: Origin) -> None:
    entry = _find(document, key, name)
    if entry is None:
        return
    found = origin_of(entry)
    if found == origin:
        return
    of = (
        f"of Cluster {printable(found.cluster)} with another uid"
        if found is not None
        else "that Windrow did not write"
    )
    raise NameTaken(
        f"it has a {_LISTS[key]} {name!r} {of}",
        "choose another name with --context, or remove that entry first",
    )


class _Edit:
    """Changes of a text beside the document that it shall say. Where the changed text does not say it, it is written anew."""

    def __init__(self, text: str, document: Raw) -> None:
        self._text, self._is_exact = text, True
        self._wanted = {
            key: list(value) if isinstance(value, list) else value for key, value in document.items()
        }

    def set_item(self, key: str, name: str, item: Raw | None) -> None:
        """Put `item` in place of the entry of the list `key` that is called `name`, or before all; None removes it."""
        entries = self._wanted.get(key) or []
        places = [place for place, one in enumerate(entries) if one.get("name") == name]
        if item is None and not places:
            return
        self._change(lambda text: _with_item(text, key, places[0] if places else None, item))
        if not places:
            self._wanted[key] = [item, *entries]
        elif item is None:
            self._wanted[key] = [one for place, one in enumerate(entries) if place != places[0]]
        else:
            self._wanted[key] = [item if place == places[0] else one for place, one in enumerate(entries)]

    def set_text(self, key: str, value: str) -> None:
        self._change(lambda text: _with_text(text, key, value))
        self._wanted[key] = value

    def _change(self, change: Any) -> None:
        if self._is_exact:
            try:
                self._text = change(self._text)
            except (_NotInLines, NotYaml):
                self._is_exact = False

    def result(self) -> str:
        if self._is_exact and self._says_it():
            return self._text
        return dump(self._wanted)

    def _says_it(self) -> bool:
        try:
            return load_unique(self._text) == [self._wanted]
        except NotYaml:
            return False


class _NotInLines(Exception):
    """The list is written in braces."""


def _with_text(text: str, key: str, value: str) -> str:
    written = dump({key: value})
    found = find_values(text).get(key)
    if found is None:
        return _append(text, written)
    return f"{text[: found.start].rstrip(' ')} {written.partition(':')[2].strip()}{text[found.end :]}"


def _with_item(text: str, key: str, place: int | None, item: Raw | None) -> str:
    found = find_values(text).get(key)
    if found is None:
        return _append(text, dump({key: [item]}))
    if not found.items:
        if not found.is_empty or item is None:
            raise _NotInLines
        rest = text[found.end :].removeprefix("\n")
        return f"{text[: found.start].rstrip(' ')}\n{dump([item])}{rest}"
    indent = "\n" + " " * found.column
    shown = indent.join(dump([item]).splitlines()) if item is not None else ""
    if place is None:
        at = found.items[0]
        return f"{text[:at]}{shown}{indent}{text[at:]}"
    at = found.items[place]
    if place + 1 < len(found.items):
        after = found.items[place + 1]
        return f"{text[:at]}{shown}{indent if shown else ''}{text[after:]}"
    end = _end_of_item(text, at, found.end)
    if shown:
        return f"{text[:at]}{shown}\n{text[end:]}"
    line = text.rfind("\n", 0, at) + 1
    kept = text[:line] if len(found.items) > 1 else f"{text[:line].rstrip()} []\n"
    return kept + text[end:]


def _end_of_item(text: str, start: int, end: int) -> int:
    """Where the last item of a list ends: comments and empty lines behind it are of what follows."""
    lines = text[start:end].splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return start + sum(map(len, lines))


def _append(text: str, more: str) -> str:
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{more}"
