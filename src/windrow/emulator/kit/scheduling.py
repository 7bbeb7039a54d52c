"""What the simulated schedulers share of kube-scheduler: its filters by taints and required node affinity. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.kubernetes.objects import nested
from windrow.kubernetes.selectors import LabelSelector, Requirement

NO_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
HARD_EFFECTS = ("NoSchedule", "NoExecute")
HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Placement:
    """The node for a pod, or the scheduler's message without one."""

    node: str = ""
    message: str = ""


def find_obstacle(
    spec: Mapping[str, Any],
    labels: Mapping[str, str],
    taints: Iterable[Mapping[str, Any]],
    *,
    cordoned: bool = False,
) -> str:
    """The filter's reason against a node for a pod of this spec, "" where it fits."""
    if cordoned:
        return "node(s) were unschedulable"
    if taint := find_untolerated(spec.get("tolerations") or (), taints):
        return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    return "" if matches_node(spec, labels) else NO_AFFINITY


def find_untolerated(
    tolerations: Sequence[Mapping[str, Any]],
    taints: Iterable[Mapping[str, Any]],
    effects: Sequence[str] = HARD_EFFECTS,
) -> Mapping[str, Any] | None:
    """The first taint of these effects that no toleration covers."""
    for taint in taints:
        if taint.get("effect") in effects and not any(tolerates(one, taint) for one in tolerations):
            return taint
    return None


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint.get("key"):
        return False
    return toleration.get("operator") == "Exists" or _value(toleration) == _value(taint)


def _value(raw: Mapping[str, Any]) -> str:
    return str(raw.get("value") or "")


def matches_node(spec: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels matches the pod's nodeSelector and required node affinity."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = nested(spec, "affinity", "nodeAffinity", required, "nodeSelectorTerms")
    return (spec.get("nodeSelector") or {}).items() <= labels.items() and (
        not terms or matches_terms(terms, labels)
    )


def matches_terms(terms: Iterable[Mapping[str, Any]], labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels matches any of the node selector's terms."""
    return any(_matches_term(term, labels) for term in terms)


def node_preference(spec: Mapping[str, Any], labels: Mapping[str, str]) -> int:
    """The sum of the weights of the pod's preferred node affinity terms that a node with these labels matches."""
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    terms = nested(spec, "affinity", "nodeAffinity", preferred, default=[])
    return sum(
        int(term.get("weight") or 0) for term in terms if _matches_term(term.get("preference") or {}, labels)
    )


def _matches_term(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether all of a term holds; one without any expression matches no node. Its only field is metadata.name, which
    is the host name here."""
    fields = term.get("matchFields") or ()
    expressions = term.get("matchExpressions") or ()
    here = {"metadata.name": labels.get(HOSTNAME, "")}
    return bool(fields or expressions) and (
        all(_holds(one, here) for one in fields) and all(_holds(one, labels) for one in expressions)
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key: str = expression["key"]
    values: list[str] = expression.get("values") or []
    number = labels.get(key, "")
    match expression.get("operator"):
        case "In" | "NotIn" | "Exists" | "DoesNotExist" as operator:
            return LabelSelector((Requirement(key, operator, frozenset(values)),)).matches(labels)
        case "Gt":
            return number.isdigit() and int(number) > int(values[0])
        case "Lt":
            return number.isdigit() and int(number) < int(values[0])
        case _:
            return False
