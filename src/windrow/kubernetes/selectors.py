"""Label and field selectors: parsed once, matched often. Syntax and semantics of reference/05 §7.8."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from windrow.core.formats.bounds import abbreviate


class BadSelector(ValueError):
    """The text is not a selector."""


class BadLabelSelector(BadSelector):
    """The object is not a LabelSelector: its `field` is not as it has to be."""

    def __init__(self, field: str, fault: str, hint: str) -> None:
        super().__init__(f"{field or 'the label selector'} {fault}; {hint}")
        self.field, self.fault, self.hint = field, fault, hint


Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: Operator
    values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; none at all matches everything.

    They are merged by key once, so that a match takes time by the number of labels, however many requirements there are.
    """

    requirements: tuple[Requirement, ...] = ()
    _required: dict[str, frozenset[str] | None] = field(init=False, repr=False, compare=False)
    _unwanted: dict[str, frozenset[str] | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        required: dict[str, frozenset[str] | None] = {}  # None: any value
        excluded: dict[str, set[str]] = {}
        for one in self.requirements:
            match one.operator:
                case "Exists":
                    required.setdefault(one.key)
                case "In":
                    before = required.get(one.key)
                    required[one.key] = one.values if before is None else before & one.values
                case "NotIn":
                    excluded.setdefault(one.key, set()).update(one.values)
        unwanted: dict[str, frozenset[str] | None] = {
            key: frozenset(values) for key, values in excluded.items()
        }
        unwanted |= dict.fromkeys(one.key for one in self.requirements if one.operator == "DoesNotExist")
        object.__setattr__(self, "_required", required)
        object.__setattr__(self, "_unwanted", unwanted)

    def matches(self, labels: Mapping[str, str]) -> bool:
        if len(self._required) > len(labels):
            return False
        for key, values in self._required.items():
            if key not in labels or (values is not None and labels[key] not in values):
                return False
        for key in min(self._unwanted, labels, key=len):
            if key in self._unwanted and key in labels:
                values = self._unwanted[key]
                if values is None or labels[key] in values:
                    return False
        return True


_KEY = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?(/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_SET = re.compile(rf"^({_KEY})\s+(in|notin)\s*\(([^()]*)\)$")
_EQUALITY = re.compile(rf"^({_KEY})\s*(==|=|!=)\s*([A-Za-z0-9_.-]*)$")
_BARE = re.compile(rf"^(!?)\s*({_KEY})$")


def _split(text: str) -> list[str]:
    parts, depth, part = [], 0, ""
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += character
    return [*parts, part]


def _requirement(text: str) -> Requirement:
    text = text.strip()
    if found := _SET.match(text):
        values = frozenset(value.strip() for value in found.group(6).split(","))
        return Requirement(found.group(1), "In" if found.group(5) == "in" else "NotIn", values)
    if found := _EQUALITY.match(text):
        operator: Operator = "NotIn" if found.group(5) == "!=" else "In"
        return Requirement(found.group(1), operator, frozenset({found.group(6)}))
    if found := _BARE.match(text):
        return Requirement(found.group(2), "DoesNotExist" if found.group(1) else "Exists")
    raise BadSelector(
        f"unable to parse requirement: {text!r} is not of the form key, !key, key=value or key in (a,b)"
    )


def parse_label_selector(text: str) -> LabelSelector:
    """The selector that `text` writes. Raises BadSelector."""
    if not text.strip():
        return LabelSelector()
    return LabelSelector(tuple(_requirement(part) for part in _split(text)))


def read_label_selector(raw: Mapping[str, Any] | None) -> LabelSelector:
    """A `metav1.LabelSelector` object (matchLabels, matchExpressions). None matches everything.

    Raises BadLabelSelector for an object of another shape, as one that was stored without a schema may have.
    """
    _require("", {} if raw is None else raw, dict, "a mapping")
    raw = raw or {}
    labels, terms = raw.get("matchLabels") or {}, raw.get("matchExpressions") or []
    _require("matchLabels", labels, dict, "a mapping of texts")
    _require("matchExpressions", terms, list, "a list")
    for key, value in labels.items():
        _require(f"matchLabels[{abbreviate(key)}]", value, str, "text")
    found = [Requirement(key, "In", frozenset({value})) for key, value in labels.items()]
    found += [_read_term(f"matchExpressions[{place}]", term) for place, term in enumerate(terms)]
    return LabelSelector(tuple(found))


def _read_term(field: str, term: Any) -> Requirement:
    _require(field, term, dict, "a mapping")
    values = term.get("values") or []
    _require(f"{field}.key", term.get("key"), str, "text")
    _require(f"{field}.values", values, list, "a list of texts")
    for place, value in enumerate(values):
        _require(f"{field}.values[{place}]", value, str, "text")
    operator = term.get("operator")
    if operator not in get_args(Operator):
        hint = f"write one of {', '.join(get_args(Operator))}"
        raise BadLabelSelector(f"{field}.operator", f"is {abbreviate(operator)}", hint)
    return Requirement(term["key"], operator, frozenset(values))


def _require(field: str, value: Any, wanted: type, name: str) -> None:
    if not isinstance(value, wanted):
        raise BadLabelSelector(field, f"is {abbreviate(value)}, which is not {name}", f"write {name} there")


def parse_field_selector(text: str) -> tuple[tuple[str, bool, str], ...]:
    """`(path, equal?, value)` for each comma-separated term. Raises BadSelector."""
    terms = []
    for part in filter(None, text.split(",")):
        for sign, equal in (("!=", False), ("==", True), ("=", True)):
            if sign in part:
                path, value = part.split(sign, 1)
                terms.append((path.strip(), equal, value.strip()))
                break
        else:
            raise BadSelector(f"invalid selector: '{text}'; can't understand '{part}'")
    return tuple(terms)
