"""What the server knows of one resource type: names, schema, subresources, columns. Built-in or custom, one form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from windrow.apiserver.schema import ANYTHING, Schema
from windrow.kubernetes.resources import ApiResource

Raw = dict[str, Any]

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
NameRule = Literal["subdomain", "label", "path"]


@dataclass(frozen=True, slots=True)
class Column:
    """One printer column. `cell` reads it from the object; a `date` cell is an instant, shown as an age."""

    name: str
    cell: Callable[[Raw], Any]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Scaling:
    """Where a kind that counts keeps the number wanted, the number seen, and the selector of what it counts."""

    wanted: tuple[str, ...]
    seen: tuple[str, ...]
    selector: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Type:
    """One served version of one resource."""

    kind: ApiResource
    singular: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    list_kind: str = ""
    subresources: frozenset[str] = frozenset()
    schema: Schema = field(default_factory=lambda: ANYTHING, repr=False)
    columns: tuple[Column, ...] = field(default=(), repr=False)
    custom: bool = False
    counts: bool = False  # has metadata.generation
    verbs: tuple[str, ...] = VERBS
    names: NameRule = "subdomain"
    stored: ApiResource | None = None  # the kind under which objects are kept, where that is another version
    selectable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    begin: Callable[[Raw], None] | None = field(default=None, repr=False)  # server-side touches on create
    scaling: Scaling | None = None
    upserts: bool = False  # a PUT of what is not there creates it
    keeps_status: bool = False  # a created object keeps the status sent along (Node)
    check: Callable[[Raw, Raw | None], list[Any]] | None = field(default=None, repr=False)
    returns_deleted: bool = False  # a completed delete answers with the object, not a Status
    read: Callable[[Raw], Raw] | None = field(default=None, repr=False)  # stored form -> this version's
    write: Callable[[Raw], Raw] | None = field(default=None, repr=False)  # this version's -> stored form

    @property
    def list_name(self) -> str:
        return self.list_kind or f"{self.kind.kind}List"

    @property
    def singular_name(self) -> str:
        return self.singular or self.kind.kind.lower()

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    @property
    def home(self) -> ApiResource:
        return self.stored or self.kind

    def prefix(self, namespace: str = "") -> str:
        """The store prefix of the collection, in one namespace or all."""
        base = f"{self.home.group}/{self.home.plural}/"
        return f"{base}{namespace}/" if namespace else base

    def key(self, namespace: str, name: str) -> str:
        return f"{self.prefix(namespace if self.kind.namespaced else '')}{name}"


class Registry:
    """The types a server offers, by their place in the URL."""

    def __init__(self, types: Iterable[Type] = ()) -> None:
        self._types: dict[tuple[str, str, str], Type] = {}
        self.revision = 0  # rises with each change; discovery documents are made per revision
        for one in types:
            self.add(one)

    def add(self, one: Type) -> None:
        self._types[one.kind.group, one.kind.version, one.kind.plural] = one
        self.revision += 1

    def remove(self, one: Type) -> None:
        if self._types.pop((one.kind.group, one.kind.version, one.kind.plural), None):
            self.revision += 1

    def find(self, group: str, version: str, plural: str) -> Type | None:
        return self._types.get((group, version, plural))

    def find_kind(self, kind: ApiResource) -> Type | None:
        return self._types.get((kind.group, kind.version, kind.plural))

    def find_named(self, api_version: str, kind: str) -> Type | None:
        """The type of an object's own words, as owner references use them."""
        group, _, version = api_version.rpartition("/")
        for one in self._types.values():
            if one.kind.kind == kind and one.kind.group == group and one.kind.version == version:
                return one
        return None

    def find_resource(self, group: str, plural: str) -> Type | None:
        """Any served version of a resource."""
        for one in self._types.values():
            if one.kind.group == group and one.kind.plural == plural:
                return one
        return None

    def kept(self) -> list[Type]:
        """One type per stored resource: what controllers walk over."""
        found: dict[str, Type] = {}
        for one in self._types.values():
            if "list" in one.verbs and (one.prefix() not in found or one.kind == one.home):
                found[one.prefix()] = one
        return list(found.values())

    def __iter__(self) -> Iterator[Type]:
        return iter(tuple(self._types.values()))


# --- names ----------------------------------------------------------------------------------------------------------

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_IS_LABEL = re.compile(rf"{_LABEL}\Z")
_IS_SUBDOMAIN = re.compile(rf"{_SUBDOMAIN}\Z")
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_IS_QUALIFIED = re.compile(rf"{_QUALIFIED}\Z")
_IS_LABEL_VALUE = re.compile(rf"(({_QUALIFIED})?)\Z")

_SAID_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN}')"
)
_SAID_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SAID_QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_QUALIFIED}')"
)
_SAID_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    f"is '({_QUALIFIED})?')"
)


def faults_of_name(rule: NameRule, name: str) -> list[str]:
    """What is wrong with an object's name, in the server's words."""
    if rule == "path":
        if name in (".", ".."):
            return [f"may not be '{name}'"]
        return [f"may not contain '{sign}'" for sign in "/%" if sign in name]
    pattern, most, said = {
        "label": (_IS_LABEL, 63, _SAID_LABEL),
        "subdomain": (_IS_SUBDOMAIN, 253, _SAID_SUBDOMAIN),
    }[rule]
    faults = [f"must be no more than {most} bytes"] if len(name) > most else []
    return faults if pattern.match(name) else [*faults, said]


def faults_of_key(key: str) -> list[str]:
    """What is wrong with a label or annotation key."""
    prefix, slash, name = key.rpartition("/")
    faults = []
    if slash and not _IS_SUBDOMAIN.match(prefix):
        faults.append(f"prefix part {_SAID_SUBDOMAIN}")
    if not name:
        return [*faults, "name part must be non-empty", _SAID_QUALIFIED]
    if len(name) > 63:
        faults.append("name part must be no more than 63 bytes")
    return faults if _IS_QUALIFIED.match(name) else [*faults, _SAID_QUALIFIED]


def faults_of_label_value(value: str) -> list[str]:
    faults = ["must be no more than 63 bytes"] if len(value) > 63 else []
    return faults if _IS_LABEL_VALUE.match(value) else [*faults, _SAID_LABEL_VALUE]
