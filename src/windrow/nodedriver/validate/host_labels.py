"""What a machine's affinity requires of the labels and names of hosts, compared with those that there are.

The terms of a required node affinity are alternatives, the expressions of one term hold together, as kube-scheduler reads them.
A term without expressions is given some by Harvester, for the machine's networks; nothing is said of it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from windrow.core.formats.bounds import abbreviate
from windrow.core.text import join_some
from windrow.harvester.problems import Problem
from windrow.kubernetes.objects import mappings_at
from windrow.nodedriver.affinity import REQUIRED

FIELD = "vmAffinity"
NAME = "metadata.name"  # the only field of hosts that a term can name
MAX_SHOWN = 5  # values of a label, in one problem


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement of a term."""

    key: str
    operator: str
    values: tuple[str, ...]
    is_field: bool = False

    def __str__(self) -> str:
        values = _join(self.values)
        match self.operator:
            case "In" | "NotIn":
                return f"{self.key} {'in' if self.operator == 'In' else 'not in'} ({values})"
            case "Gt" | "Lt":
                return f"{self.key} {'above' if self.operator == 'Gt' else 'below'} {values}"
            case "Exists":
                return f"a label {self.key}"
            case _:
                return f"no label {self.key}"


# Whether a host with this value has what is required; None: it has no such label.
_MATCHES: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda found, values: found in values,
    "NotIn": lambda found, values: found not in values,
    "Exists": lambda found, values: found is not None,
    "DoesNotExist": lambda found, values: found is None,
    "Gt": lambda found, values: _compare(found, values, 1),
    "Lt": lambda found, values: _compare(found, values, -1),
}


def _compare(found: str | None, values: Sequence[str], sign: int) -> bool:
    try:
        return found is not None and (int(found) - int(values[0])) * sign > 0
    except (ValueError, IndexError):
        return False


def requires_hosts(affinity: Any) -> bool:
    """Whether it says anything of hosts that must hold."""
    return bool(_read_terms(affinity))


def find_label_problems(affinity: Any, hosts: Mapping[str, Mapping[str, str]]) -> Iterator[Problem]:
    """A warning where no host satisfies any of the terms. `hosts` are the labels of each, by name."""
    terms = _read_terms(affinity)
    if not hosts or not terms or any(_is_met(term, hosts) for term in terms):
        return
    wanted = ", or ".join(_describe(term, hosts) for term in terms[:MAX_SHOWN])
    yield Problem(
        f"vmAffinity requires a host with {wanted}, so the VM is not started",
        f"label a host so, or correct vmAffinity{_suggest(terms, hosts)}",
        FIELD,
        "warning",
    )


def _read_terms(affinity: Any) -> list[list[Expression]]:
    """The terms, [] where one of them is met by every host or cannot be read: that is told by the rules."""
    found = []
    for term in mappings_at(affinity, "nodeAffinity", REQUIRED, "nodeSelectorTerms"):
        expressions = [
            *(_read(one) for one in mappings_at(term, "matchExpressions")),
            *(_read(one, is_field=True) for one in mappings_at(term, "matchFields")),
        ]
        known = [one for one in expressions if one is not None]
        if not known or len(known) < len(expressions):
            return []
        found.append(known)
    return found


def _read(raw: Mapping[str, Any], *, is_field: bool = False) -> Expression | None:
    key, operator, values = raw.get("key"), raw.get("operator"), raw.get("values") or []
    if not isinstance(key, str) or not isinstance(operator, str) or operator not in _MATCHES:
        return None
    if not isinstance(values, list):
        return None
    return Expression(key, operator, tuple(map(str, values)), is_field)


def _is_met(term: Sequence[Expression], hosts: Mapping[str, Mapping[str, str]]) -> bool:
    return any(all(_has(name, labels, one) for one in term) for name, labels in hosts.items())


def _has(name: str, labels: Mapping[str, str], wanted: Expression) -> bool:
    found = (name if wanted.key == NAME else None) if wanted.is_field else labels.get(wanted.key)
    return _MATCHES[wanted.operator](found, wanted.values)


def _describe(term: Sequence[Expression], hosts: Mapping[str, Mapping[str, str]]) -> str:
    """What of the term no host has, and what hosts have; of one whose parts are there on different hosts all parts."""
    lacking = [one for one in term if not _is_met([one], hosts)]
    if not lacking:
        return f"{' and '.join(map(str, term))} (no host has them together)"
    return " and ".join(f"{one} ({_what_is_there(one, hosts)})" for one in lacking)


def _what_is_there(wanted: Expression, hosts: Mapping[str, Mapping[str, str]]) -> str:
    if wanted.is_field:
        return f"the hosts are {_join(hosts)}"
    values = {labels[wanted.key] for labels in hosts.values() if wanted.key in labels}
    return f"hosts have {_join(values)}" if values else "no host has that label"


def _join(texts: Iterable[str]) -> str:
    return join_some([abbreviate(one).strip("'") for one in sorted(texts)], MAX_SHOWN)


def _suggest(terms: Sequence[Sequence[Expression]], hosts: Mapping[str, Mapping[str, str]]) -> str:
    """The label of hosts that is nearest to one that none has."""
    known = sorted({key for labels in hosts.values() for key in labels})
    lacking = [one.key for term in terms for one in term if not one.is_field and one.key not in known]
    near = [found for key in lacking for found in get_close_matches(key, known, n=1, cutoff=0.8)]
    return f": hosts have the label {near[0]}" if near else ""
