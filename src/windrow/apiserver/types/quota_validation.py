"""Validation of ResourceQuotas: names of resources, their amounts, scopes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from windrow.apiserver.apierrors import Cause, invalid_value
from windrow.apiserver.types.registry import key_errors
from windrow.core.formats.quantity import NotQuantity, Quantity
from windrow.kubernetes.objects import nested

Raw = dict[str, Any]

COUNTS = frozenset(
    (
        *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"),
        *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
    )
)
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
QUOTA_RESOURCES = COUNTS | {
    *(f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in _COMPUTE),
    "requests.storage",
}
STANDARD_RESOURCES = QUOTA_RESOURCES | {"storage"}

_OF_PODS = frozenset(
    ("pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory")
)
# The resources that each scope may limit.
SCOPES: Mapping[str, frozenset[str]] = {
    "Terminating": _OF_PODS,
    "NotTerminating": _OF_PODS,
    "NotBestEffort": _OF_PODS,
    "PriorityClass": _OF_PODS,
    "CrossNamespacePodAffinity": _OF_PODS,
    "BestEffort": frozenset(("pods",)),
    "VolumeAttributesClass": frozenset(("persistentvolumeclaims", "requests.storage")),
}
EXCLUSIVE = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))


def validate_quota(raw: Raw, old: Raw | None) -> list[Cause]:
    hard = nested(raw, "spec", "hard") or {}
    scopes = [str(one) for one in nested(raw, "spec", "scopes") or ()]
    causes = [cause for name, value in sorted(hard.items()) for cause in _resource_causes(name, value)]
    causes += _scope_causes(scopes, sorted(hard))
    if old is not None and set(scopes) != set(nested(old, "spec", "scopes") or ()):
        causes.append(_scope_cause(scopes, "field is immutable"))
    return causes


def _resource_causes(name: str, value: Any) -> list[Cause]:
    field = f"spec.hard[{name}]"

    def invalid(why: str) -> Cause:
        return Cause(field, "FieldValueInvalid", f"Invalid value: {name}: {why}")

    causes = [invalid(why) for why in key_errors(name)]
    is_plain = "/" not in name
    if not causes and is_plain and not _is_standard(name, STANDARD_RESOURCES):
        causes.append(invalid("must be a standard resource type or fully qualified"))
    if is_plain and not _is_standard(name, QUOTA_RESOURCES):
        causes.append(invalid("must be a standard resource for quota"))
    return causes + _amount_causes(name, value, field)


def _is_standard(name: str, known: frozenset[str]) -> bool:
    return name in known or name.startswith(("hugepages-", "requests.hugepages-"))


def _amount_causes(name: str, value: Any, field: str) -> list[Cause]:
    try:
        amount = Quantity.parse(str(value))
    except NotQuantity:
        return []  # the decoder refuses it
    causes = []
    if amount.nanos < 0:
        causes.append(invalid_value(field, str(amount), "must be greater than or equal to 0"))
    if _is_counted(name) and amount.milli % 1000:
        causes.append(
            Cause(field, "FieldValueInvalid", f"Invalid value: {_print_go(str(value))}: must be an integer")
        )
    return causes


def _is_counted(name: str) -> bool:
    is_extended = "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")
    return name in COUNTS or is_extended


def _print_go(text: str) -> str:
    """A quantity below one unit as Go prints the struct."""
    match = re.fullmatch(r"([+-]?\d*)\.?(\d*)(m?)", text)
    whole, fraction, milli = match.groups() if match else ("0", "", "")
    scale = -len(fraction) - (3 if milli else 0)
    amount = f"resource.int64Amount{{value:{int(whole + fraction or '0')}, scale:{scale}}}"
    decimal = "resource.infDecAmount{Dec:(*inf.Dec)(nil)}"
    return f'resource.Quantity{{i:{amount}, d:{decimal}, s:"", Format:"DecimalSI"}}'


def _scope_causes(scopes: Sequence[str], limited: Sequence[str]) -> list[Cause]:
    causes = []
    for scope in scopes:
        if scope not in SCOPES:
            causes.append(_scope_cause(scopes, "unsupported scope"))
            continue
        outside = [name for name in limited if name in QUOTA_RESOURCES and name not in SCOPES[scope]]
        causes += [_scope_cause(scopes, "unsupported scope applied to resource") for _ in outside]
    causes += [_scope_cause(scopes, "conflicting scopes") for pair in EXCLUSIVE if set(pair) <= set(scopes)]
    return causes


def _scope_cause(scopes: Sequence[str], why: str) -> Cause:
    listed = ", ".join(f'"{one}"' for one in scopes)
    value = f"[]core.ResourceQuotaScope{{{listed}}}"
    return Cause("spec.scopes", "FieldValueInvalid", f"Invalid value: {value}: {why}")
