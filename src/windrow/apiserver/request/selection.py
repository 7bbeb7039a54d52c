"""Label and field selectors of a list, watch or deletecollection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.apiserver import apierrors
from windrow.apiserver.types.registry import ResourceType
from windrow.kubernetes.objects import nested
from windrow.kubernetes.selectors import (
    BadSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)

Raw = dict[str, Any]
EVERYTHING = LabelSelector()
Term = tuple[tuple[str, ...], bool, str]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a label selector and a field selector choose; terms of one field are merged once, to be matched often."""

    labels: LabelSelector = EVERYTHING
    fields: tuple[Term, ...] = ()
    _by_path: dict[tuple[str, ...], tuple[set[str], set[str]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Of each path the values that it must have, and those that it must not.
        by_path: dict[tuple[str, ...], tuple[set[str], set[str]]] = {}
        for path, equal, value in self.fields:
            by_path.setdefault(path, (set(), set()))[0 if equal else 1].add(value)
        object.__setattr__(self, "_by_path", by_path)

    @property
    def is_all(self) -> bool:
        return not self.labels.requirements and not self.fields

    @property
    def name(self) -> str:
        """The name that field selector `metadata.name` requires; "" without one."""
        for path, equal, value in self.fields:
            if equal and path == ("metadata", "name"):
                return value
        return ""

    def matches(self, raw: Raw) -> bool:
        if self.labels.requirements and not self.labels.matches(raw["metadata"].get("labels") or {}):
            return False
        for path, (wanted, unwanted) in self._by_path.items():
            text = _text(nested(raw, *path))
            if (wanted and wanted != {text}) or text in unwanted:
                return False
        return True

    def matcher(self) -> Callable[[Raw], bool] | None:
        return None if self.is_all else self.matches


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def read_selection(type: ResourceType, options: Mapping[str, str]) -> Selection:
    """The selection of the query options. Raises 400 for an invalid selector."""
    try:
        labels = parse_label_selector(options.get("labelSelector", ""))
        terms = parse_field_selector(options.get("fieldSelector", ""))
    except BadSelector as error:
        raise apierrors.bad_request(str(error)) from error
    return Selection(labels, tuple((_path(type, label), equal, value) for label, equal, value in terms))


def _path(type: ResourceType, label: str) -> tuple[str, ...]:
    if label == "metadata.name" or (label == "metadata.namespace" and type.kind.namespaced):
        return tuple(label.split("."))
    if label not in type.selectable_fields and not type.custom and len(type.selectable_fields) == 2:
        why = f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        raise apierrors.bad_request(why)
    if label not in type.selectable_fields:
        raise apierrors.bad_request(f"field label not supported: {label}")
    return type.selectable_fields[label]
