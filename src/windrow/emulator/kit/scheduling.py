"""What the simulated schedulers share of kube-scheduler: its filters by taints and required node affinity. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.kubernetes.objects import nested
from windrow.kubernetes.selectors import LabelSelector, Requirement

NO_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
HARD_EFFECTS = ("NoSchedule", "NoExecute")


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
    """Whether a node with these labels matches the pod's nodeSelector and required node affinity. `matchFields` is
    ignored."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = nested(spec, "affinity", "nodeAffinity", required, "nodeSelectorTerms")
    return (spec.get("nodeSelector") or {}).items() <= labels.items() and (
        not terms or any(_matches_term(term.get("matchExpressions") or (), labels) for term in terms)
    )


def _matches_term(expressions: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> bool:
    """Whether all expressions hold; a term without any matches no node."""
    return bool(expressions) and all(_holds(one, labels) for one in expressions)


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
