"""Harvester's validator of changes of Namespaces (v1.8.1)."""

from __future__ import annotations

from windrow.apiserver.types.go_syntax import syntax_error
from windrow.core.formats.json import NotJson, loads
from windrow.emulator import names
from windrow.emulator.admission.denials import internal
from windrow.emulator.admission.kubevirt.causes import section, text
from windrow.emulator.kit.listers import Listers
from windrow.emulator.quantities import BadQuantity, Quantity
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of

QUOTA = "field.cattle.io/resourceQuota"


def check_namespace_change(namespace: Raw, old: Raw, listers: Listers) -> None:
    """The quota that Rancher writes as an annotation is not below what the namespace's ResourceQuota says is used."""
    name = name_of(namespace)
    written, before = (annotations_of(raw).get(QUOTA, "") for raw in (namespace, old))
    quotas = [one for one in listers.quotas_of(name) if labels_of(one).get(names.DEFAULT_QUOTA) == "true"]
    if not written or written == before or not quotas:
        return
    if why := _fault(written, section(quotas[0], "status", "used")):
        raise internal(f"can't update the resource quota of namespace {name}, error: {why}")


def _fault(written: str, used: Raw) -> str:
    try:
        limits = section(loads(written), "limit")
    except NotJson:
        return f"invalid NamespaceResourceQuota {written}, error: {syntax_error(written)}"
    for word, field, resource in (("CPU", "limitsCpu", "cpu"), ("Memory", "limitsMemory", "memory")):
        asked = text(limits, field)
        if not asked:
            continue
        try:
            wanted = Quantity.parse(asked)
        except BadQuantity as error:
            return f"invalid Limits{word} {asked}, error: {error}"
        current = Quantity.read(used.get(f"limits.{resource}"))
        if current.number > wanted.number:
            return f"new {word} limit {wanted} is lower than the current used {word} limit {current}"
    return ""
