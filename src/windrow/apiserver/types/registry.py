"""ResourceType: names, schema, subresources and printer columns of one served version; and the registry of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from windrow.apiserver.types.schema import OPEN_SCHEMA, Schema
from windrow.kubernetes.resources import ApiResource

Raw = dict[str, Any]

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
Validate = Callable[[Raw, Raw | None], list[Any]]
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
class ScalePaths:
    """The JSON paths of the `scale` subresource: spec replicas, status replicas, label selector."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ResourceType:
    """One served version of one resource."""

    kind: ApiResource
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    list_kind: str = ""
    subresources: frozenset[str] = frozenset()
    schema: Schema = field(default_factory=lambda: OPEN_SCHEMA, repr=False)
    columns: tuple[Column, ...] = field(default=(), repr=False)
    custom: bool = False
    has_generation: bool = False  # has metadata.generation
    verbs: tuple[str, ...] = VERBS
    name_rule: NameRule = "subdomain"
    stored_as: ApiResource | None = None  # the storage version, where it is another one
    selectable_fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prepare_for_create: Callable[[Raw], None] | None = field(
        default=None, repr=False
    )  # sets what is the server's
    # Keeps in a changed object what the server has set in the old one.
    prepare_for_update: Callable[[Raw, Raw], None] | None = field(default=None, repr=False)
    scale: ScalePaths | None = None
    allows_create_on_update: bool = False  # AllowCreateOnUpdate
    keeps_status_on_create: bool = False  # as Node does
    validate: Validate | None = field(default=None, repr=False)
    validates_again: bool = False  # a change, by the rules of creation, once more
    returns_deleted_object: bool = False  # else with a Status
    from_storage: Callable[[Raw], Raw] | None = field(default=None, repr=False)  # stored form to this version
    to_storage: Callable[[Raw], Raw] | None = field(default=None, repr=False)  # this version to stored form

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
    def storage_kind(self) -> ApiResource:
        return self.stored_as or self.kind

    def prefix(self, namespace: str = "") -> str:
        """The store prefix of the collection, in one namespace or all."""
        base = f"{self.storage_kind.group}/{self.storage_kind.plural}/"
        return f"{base}{namespace}/" if namespace else base

    def key(self, namespace: str, name: str) -> str:
        return f"{self.prefix(namespace if self.kind.namespaced else '')}{name}"


class Registry:
    """The types a server offers, by their place in the URL."""

    def __init__(self, types: Iterable[ResourceType] = ()) -> None:
        self._types: dict[tuple[str, str], dict[str, ResourceType]] = {}  # by group and plural, then version
        self._by_gvk: dict[tuple[str, str], ResourceType] = {}
        self.revision = 0  # rises with each change; discovery documents are made per revision
        for one in types:
            self.add(one)

    def add(self, one: ResourceType) -> None:
        versions = self._types.setdefault((one.kind.group, one.kind.plural), {})
        if replaced := versions.get(one.kind.version):
            self._by_gvk.pop((replaced.kind.api_version, replaced.kind.kind), None)
        versions[one.kind.version] = one
        self._by_gvk[one.kind.api_version, one.kind.kind] = one
        self.revision += 1

    def remove(self, one: ResourceType) -> None:
        if self._types.get((one.kind.group, one.kind.plural), {}).pop(one.kind.version, None):
            self._by_gvk.pop((one.kind.api_version, one.kind.kind), None)
            self.revision += 1

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        return self._types.get((group, plural), {}).get(version)

    def find_kind(self, kind: ApiResource) -> ResourceType | None:
        return self.find(kind.group, kind.version, kind.plural)

    def find_by_gvk(self, api_version: str, kind: str) -> ResourceType | None:
        """The type of an apiVersion and kind, as owner references carry them."""
        return self._by_gvk.get((api_version, kind))

    def find_resource(self, group: str, plural: str) -> ResourceType | None:
        """Any served version of a resource."""
        return next(iter(self._types.get((group, plural), {}).values()), None)

    def storage_types(self) -> list[ResourceType]:
        """One type per stored resource: what controllers iterate over."""
        found: dict[str, ResourceType] = {}
        for one in self:
            if "list" in one.verbs and (one.prefix() not in found or one.kind == one.storage_kind):
                found[one.prefix()] = one
        return list(found.values())

    def __iter__(self) -> Iterator[ResourceType]:
        return iter([one for versions in self._types.values() for one in versions.values()])


# --- names ----------------------------------------------------------------------------------------------------------

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_IS_LABEL = re.compile(rf"{_LABEL}\Z")
_IS_SUBDOMAIN = re.compile(rf"{_SUBDOMAIN}\Z")
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_IS_QUALIFIED = re.compile(rf"{_QUALIFIED}\Z")
_IS_LABEL_VALUE = re.compile(rf"(({_QUALIFIED})?)\Z")

_SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN}')"
)
_LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_QUALIFIED_FORM = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_QUALIFIED}')"
)
_QUALIFIED_MESSAGE = f"name part {_QUALIFIED_FORM}"
_TWO_SLASHES_MESSAGE = f"a qualified name {_QUALIFIED_FORM} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
_LABEL_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    f"is '({_QUALIFIED})?')"
)


def name_errors(rule: NameRule, name: str) -> list[str]:
    """Why `name` is invalid, in the texts of apimachinery's validation."""
    if rule == "path":
        if name in (".", ".."):
            return [f"may not be '{name}'"]
        return [f"may not contain '{sign}'" for sign in "/%" if sign in name]
    pattern, limit, message = {
        "label": (_IS_LABEL, 63, _LABEL_MESSAGE),
        "subdomain": (_IS_SUBDOMAIN, 253, _SUBDOMAIN_MESSAGE),
    }[rule]
    faults = [f"must be no more than {limit} bytes"] if len(name) > limit else []
    if pattern.match(name):
        return faults
    has_dots = rule == "label" and _IS_SUBDOMAIN.match(name)
    return [*faults, "must not contain dots" if has_dots else message]


def key_errors(key: str) -> list[str]:
    """Why a label or annotation key is invalid."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [_TWO_SLASHES_MESSAGE]
    faults = []
    if slash and not _IS_SUBDOMAIN.match(prefix):
        faults.append(f"prefix part {_SUBDOMAIN_MESSAGE}")
    if not name:
        return [*faults, "name part must be non-empty", _QUALIFIED_MESSAGE]
    if len(name) > 63:
        faults.append("name part must be no more than 63 bytes")
    return faults if _IS_QUALIFIED.match(name) else [*faults, _QUALIFIED_MESSAGE]


def label_value_errors(value: str) -> list[str]:
    faults = ["must be no more than 63 bytes"] if len(value) > 63 else []
    return faults if _IS_LABEL_VALUE.match(value) else [*faults, _LABEL_VALUE_MESSAGE]
