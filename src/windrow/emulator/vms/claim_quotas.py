"""ResourceQuotas: what the API server's plugin admits of claims and of other objects, and the status that the controller keeps.

The plugin counts an object by the quota's status, which it raises before the object is stored, so that of two at once
one is refused. What it raised for one that was not stored after all is counted anew with the next change of a claim, a Secret
or a machine, or after five minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from windrow.apiserver import apierrors
from windrow.apiserver.admission import AdmissionRequest
from windrow.core.formats.quantity import Form, NotQuantity, Quantity
from windrow.emulator import kinds, names
from windrow.emulator.delays import ScaledClock
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Key, Listers
from windrow.emulator.vms.object_counts import count, count_all, names_of
from windrow.emulator.vms.quotas import used_limits
from windrow.kubernetes.objects import Raw, annotations_of, name_of, namespace_of, nested
from windrow.kubernetes.resources import PVC, ApiResource

COUNTS, STORAGE = ("persistentvolumeclaims", "count/persistentvolumeclaims"), "requests.storage"
BY_CLASS = ".storageclass.storage.k8s.io/"
RESYNC_S = 300
Amounts = Mapping[str, Quantity]


def usage_of(claim: Raw) -> dict[str, Quantity]:
    """What a claim counts for, in all and in its class."""
    count = Quantity.parse("1")
    used = dict.fromkeys(COUNTS, count)
    name = annotations_of(claim).get(names.BETA_CLASS) or str(nested(claim, "spec", "storageClassName") or "")
    if name:
        used[f"{name}{BY_CLASS}persistentvolumeclaims"] = count
    written = nested(claim, "spec", "resources", "requests", "storage")
    if written is not None:
        size = _amount(written)
        used[STORAGE] = size
        if name:
            used[f"{name}{BY_CLASS}{STORAGE}"] = size
    return used


def _amount(written: object) -> Quantity:
    try:
        return Quantity.parse(str(written))
    except NotQuantity:
        return Quantity(0)


def _amounts(quota: Raw, field: str) -> dict[str, Quantity]:
    return {name: _amount(value) for name, value in (nested(quota, "status", field) or {}).items()}


def is_of_claims(name: str) -> bool:
    return name in COUNTS or name == STORAGE or BY_CLASS in name


def added_by(operation: AdmissionRequest) -> dict[str, Quantity]:
    """What a write takes beyond what the object took before. Objects other than claims count when they are created."""
    new, old = operation.object, operation.old_object
    if operation.subresource or operation.verb == "delete" or new is None:
        return {}
    if operation.kind == PVC:
        return added_usage(new, old)
    return count(operation.kind, new) if old is None else {}


def added_usage(claim: Raw, old: Raw | None) -> dict[str, Quantity]:
    """What a claim takes beyond what it took before."""
    before = usage_of(old) if old is not None else {}
    grown = {name: size - before.get(name, Quantity(0)) for name, size in usage_of(claim).items()}
    return {name: size for name, size in grown.items() if size > Quantity(0)}


def find_quota_fault(quota: Raw, added: Amounts, kind: ApiResource = PVC) -> str:
    """Why the quota does not admit an object; "" where it does."""
    is_of_kind = is_of_claims if kind == PVC else names_of(kind).__contains__
    hard = {name: size for name, size in _amounts(quota, "hard").items() if is_of_kind(name)}
    used = _amounts(quota, "used")
    if any(name not in used for name in hard):
        return f"status unknown for quota: {name_of(quota)}, resources: {','.join(sorted(hard))}"
    exceeded = sorted(name for name in added if name in hard and used[name] + added[name] > hard[name])
    if not exceeded:
        return ""
    told = (
        f"{word}: {','.join(f'{name}={amounts[name]}' for name in exceeded)}"
        for word, amounts in (("requested", added), ("used", used), ("limited", hard))
    )
    return f"exceeded quota: {name_of(quota)}, {', '.join(told)}"


class QuotaPlugin:
    """The API server's admission plugin, the last validator."""

    def __init__(self, client: AdminClient, listers: Listers) -> None:
        self._client = client
        self._listers = listers

    async def admit(self, operation: AdmissionRequest) -> None:
        """Denies an object that exceeds a quota of its namespace with 403."""
        added = added_by(operation) if operation.namespace else {}
        if not added or not (operation.kind == PVC or self._listers.quotas_of(operation.namespace)):
            return
        quotas = [
            one
            for one in await self._client.list(kinds.QUOTA, operation.namespace)
            if not nested(one, "spec", "scopes") and added.keys() & _amounts(one, "hard").keys()
        ]
        for quota in quotas:
            if why := find_quota_fault(quota, added, operation.kind):
                raise apierrors.forbidden(operation.kind, operation.name, why)
        if not operation.dry_run:
            for quota in quotas:
                await self._raise_usage(quota, added)

    async def _raise_usage(self, quota: Raw, added: Amounts) -> None:
        def edit(raw: Raw) -> None:
            used = nested(raw, "status", "used") or {}
            for name, size in added.items():
                if name in used:
                    used[name] = str(size + _amount(used[name]))

        await self._client.mutate(kinds.QUOTA.ref(name_of(quota), namespace_of(quota)), edit, "status")


class QuotaController:
    """Keeps the status of a ResourceQuota: what it limits, and what claims, machines and other objects take of it."""

    def __init__(self, client: AdminClient, listers: Listers, clock: ScaledClock) -> None:
        self._client = client
        self._listers = listers
        self._clock = clock

    async def reconcile(self, key: Key) -> timedelta | None:
        ref = kinds.QUOTA.ref(key[1], key[0])
        quota = await self._client.find(ref)
        if quota is None:
            return None
        hard = nested(quota, "spec", "hard") or {}
        total: dict[str, Quantity] = {name: Quantity(0) for name in hard if is_of_claims(name)}
        for claim in await self._client.list(PVC, key[0]):
            for name, size in usage_of(claim).items():
                if name in total:
                    total[name] = size + total[name]
        counted = await count_all(self._client, key[0], frozenset(hard) - total.keys(), self._listers)
        used = {name: str(size) for name, size in total.items()} | counted
        cpu, memory = used_limits(key[0], self._listers)
        for name, number, form in (("limits.cpu", cpu, Form.DECIMAL), ("limits.memory", memory, Form.BINARY)):
            if name in hard:
                used[name] = str(Quantity(int(number * 10**9), form))
        status = {"hard": dict(hard), "used": used}
        await self._client.mutate(ref, lambda raw: raw.update(status=status), "status")
        return self._clock.after(RESYNC_S) if counted else None
