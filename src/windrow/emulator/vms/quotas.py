"""Resource quotas of a namespace: Rancher's quota as Harvester's calculator reads it (05 §2.5 K)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from windrow.emulator import names
from windrow.emulator.kit.listers import Listers
from windrow.emulator.kit.vm_readings import FINAL, phase_of
from windrow.emulator.quantities import quantity_or_zero
from windrow.emulator.vms.scheduler import LAUNCHER_OVERHEAD
from windrow.kubernetes.objects import Raw, labels_of, namespace_of, nested

MESSAGE = "{} insufficient resources due to resource quota"


def _limits(spec: Mapping[str, Any]) -> tuple[Fraction, Fraction]:
    limits = nested(spec, "domain", "resources", "limits", default={})
    memory = quantity_or_zero(limits.get("memory"))
    return quantity_or_zero(limits.get("cpu")), memory + LAUNCHER_OVERHEAD if memory else memory


def _quota(namespace: str, listers: Listers) -> Raw | None:
    return next(
        (raw for raw in listers.quotas_of(namespace) if labels_of(raw).get(names.DEFAULT_QUOTA) == "true"),
        None,
    )


def used_limits(namespace: str, listers: Listers) -> tuple[Fraction, Fraction]:
    """The CPU and memory limits of the namespace's instances."""
    cpu = memory = Fraction(0)
    for one in listers.instances.values():
        if namespace_of(one) == namespace and phase_of(one) not in FINAL:
            more_cpu, more_memory = _limits(one.get("spec") or {})
            cpu, memory = cpu + more_cpu, memory + more_memory
    return cpu, memory


def find_exceeded_quota(vm: Raw, vmi: Raw | None, listers: Listers) -> str:
    """The message of the resource that the VM would exceed; "" when it may run or runs already."""
    namespace = namespace_of(vm)
    quota = _quota(namespace, listers)
    if quota is None or vmi is not None:
        return ""
    hard = nested(quota, "spec", "hard", default={})
    cpu, memory = _limits(nested(vm, "spec", "template", "spec", default={}))
    used_cpu, used_memory = used_limits(namespace, listers)
    cpu, memory = cpu + used_cpu, memory + used_memory
    for word, used in (("cpu", cpu), ("memory", memory)):
        limit = hard.get(f"limits.{word}")
        if limit is not None and used > quantity_or_zero(limit):
            return MESSAGE.format(word)
    return ""


def find_exceeded_storage_quota(claims: list[Raw], namespace: str, listers: Listers) -> str:
    """The same for the storage requests of new PVCs."""
    quota = _quota(namespace, listers)
    limit = nested(quota, "spec", "hard", "requests.storage") if quota else None
    if limit is None:
        return ""
    present = {name for (where, name) in listers.claims if where == namespace}
    used = sum(
        (_storage(raw) for (where, _), raw in listers.claims.items() if where == namespace), Fraction(0)
    )
    used += sum(
        (_storage(one) for one in claims if nested(one, "metadata", "name") not in present), Fraction(0)
    )
    return MESSAGE.format("storage") if used > quantity_or_zero(limit) else ""


def _storage(claim: Raw) -> Fraction:
    return quantity_or_zero(nested(claim, "spec", "resources", "requests", "storage"))
