"""Kubernetes' rules of affinity and spreading, as KubeVirt applies them to a VM's template."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from windrow.apiserver.types.registry import key_errors, label_value_errors, name_errors
from windrow.core.formats.json import dumps
from windrow.emulator.admission.kubevirt.causes import Cause, objects, text, texts, whole
from windrow.emulator.admission.kubevirt.storage import as_of_go_client
from windrow.kubernetes.objects import Raw, nested

REQUIRED_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED_TERMS = "preferredDuringSchedulingIgnoredDuringExecution"
ACTIONS = ("DoNotSchedule", "ScheduleAnyway")


def _invalid(field: str, value: object, why: str) -> Cause:
    shown = dumps(value).decode() if isinstance(value, str) else str(value)
    return Cause(f"{field}: Invalid value: {shown}: {as_of_go_client(why)}", field)


def _missing(field: str, why: str) -> Cause:
    return Cause(f"{field}: Required value: {why}", field)


def affinity(spec: Raw, at: str) -> Iterator[Cause]:
    """The path has no step "affinity"; KubeVirt leaves it out."""
    asked = nested(spec, "affinity")
    if not isinstance(asked, dict):
        return
    yield from _node_affinity(asked, f"{at}.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        for place, term in enumerate(objects(asked, kind, REQUIRED_TERMS)):
            yield from _pod_term(term, f"{at}.{kind}.{REQUIRED_TERMS}[{place}]")
        for place, term in enumerate(objects(asked, kind, PREFERRED_TERMS)):
            field = f"{at}.{kind}.{PREFERRED_TERMS}[{place}]"
            yield from _weight(term, field)
            yield from _pod_term(nested(term, "podAffinityTerm", default={}), f"{field}.podAffinityTerm")


def _node_affinity(asked: Raw, at: str) -> Iterator[Cause]:
    required = nested(asked, "nodeAffinity", REQUIRED_TERMS)
    if required is not None:
        field = f"{at}.{REQUIRED_TERMS}.nodeSelectorTerms"
        terms = objects(required, "nodeSelectorTerms")
        if not terms:
            yield _missing(field, "must have at least one node selector term")
        for place, term in enumerate(terms):
            yield from _node_term(term, f"{field}[{place}]")
    for place, term in enumerate(objects(asked, "nodeAffinity", PREFERRED_TERMS)):
        field = f"{at}.{PREFERRED_TERMS}[{place}]"
        yield from _weight(term, field)
        yield from _node_term(nested(term, "preference", default={}), f"{field}.preference")


def _weight(term: Raw, at: str) -> Iterator[Cause]:
    if not 0 < whole(term, "weight") <= 100:
        yield _invalid(f"{at}.weight", whole(term, "weight"), "must be in the range 1-100")


def _node_term(term: Raw, at: str) -> Iterator[Cause]:
    for place, one in enumerate(objects(term, "matchExpressions")):
        yield from _expression(one, f"{at}.matchExpressions[{place}]", has_comparisons=True)
    for place, one in enumerate(objects(term, "matchFields")):
        field, operator, values = (
            f"{at}.matchFields[{place}]",
            text(one, "operator"),
            texts(one, "values"),
        )
        if operator not in ("In", "NotIn"):
            yield _invalid(f"{field}.operator", operator, "not a valid selector operator")
        elif len(values) != 1:
            why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            yield _missing(f"{field}.values", why)
        if text(one, "key") != "metadata.name":
            yield _invalid(f"{field}.key", text(one, "key"), "not a valid field selector key")
            continue
        for index, value in enumerate(values):
            for why in name_errors("subdomain", value):
                yield _invalid(f"{field}.values[{index}]", value, why)


def _expression(one: Raw, at: str, *, has_comparisons: bool) -> Iterator[Cause]:
    operator, values, key = text(one, "operator"), texts(one, "values"), text(one, "key")
    if operator in ("In", "NotIn"):
        if not values:
            yield _missing(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield Cause(f"{at}.values: Forbidden: {why}", f"{at}.values")
    elif has_comparisons and operator in ("Gt", "Lt"):
        if len(values) != 1:
            why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield _missing(f"{at}.values", why)
    else:
        yield _invalid(f"{at}.operator", operator, "not a valid selector operator")
    for why in key_errors(key):
        yield _invalid(f"{at}.key", key, why)
    if not has_comparisons:
        for index, value in enumerate(values):
            for why in label_value_errors(value):
                yield _invalid(f"{at}.values[{index}]", value, why)


def _selector(selector: object, at: str) -> Iterator[Cause]:
    for key, value in sorted(nested(selector, "matchLabels", default={}).items()):
        for why in key_errors(key):
            yield _invalid(f"{at}.matchLabels", key, why)
        for why in label_value_errors(str(value)):
            yield _invalid(f"{at}.matchLabels", value, why)
    for place, one in enumerate(objects(selector, "matchExpressions")):
        yield from _expression(one, f"{at}.matchExpressions[{place}]", has_comparisons=False)


def _pod_term(term: Raw, at: str) -> Iterator[Cause]:
    for key in ("labelSelector", "namespaceSelector"):
        yield from _selector(nested(term, key), f"{at}.{key}")
    for name in texts(term, "namespaces"):
        for why in name_errors("label", name):
            yield _invalid(f"{at}.namespace", name, why)
    topology = text(term, "topologyKey")
    if not topology:
        yield _missing(f"{at}.topologyKey", "can not be empty")
    for why in key_errors(topology):
        yield _invalid(f"{at}.topologyKey", topology, why)


def spreading(spec: Raw, at: str) -> Iterator[Cause]:
    asked = objects(spec, "topologySpreadConstraints")
    pairs = [(text(one, "topologyKey"), text(one, "whenUnsatisfiable")) for one in asked]
    for place, one in enumerate(asked):
        field = f"{at}.topologySpreadConstraints[{place}]"
        key, action = pairs[place]
        if whole(one, "maxSkew") <= 0:
            yield _invalid(f"{field}.maxSkew", whole(one, "maxSkew"), "must be greater than zero")
        if not key:
            yield _missing(f"{field}.topologyKey", "can not be empty")
        else:
            for why in key_errors(key):
                yield _invalid(f"{field}.topologyKey", key, why)
        if action not in ACTIONS:
            supported = ", ".join(f'"{one}"' for one in ACTIONS)
            why = f'{field}.whenUnsatisfiable: Unsupported value: "{action}": supported values: {supported}'
            yield Cause(why, f"{field}.whenUnsatisfiable")
        yield from _selector(nested(one, "labelSelector"), f"{at}.topologySpreadConstraints.labelSelector")
        if pairs[place] in pairs[place + 1 :]:
            twice = f"{field}.{{topologyKey, whenUnsatisfiable}}"
            yield Cause(f'{twice}: Duplicate value: "{{{key}, {action}}}"', twice)


AFFINITY_RULES: tuple[Callable[[Raw, str], Iterator[Cause]], ...] = (affinity, spreading)
