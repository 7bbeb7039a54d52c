"""ServerContext: what every verb needs; and the results of verbs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from windrow.apiserver import apierrors
from windrow.apiserver.admission import AdmissionHook
from windrow.apiserver.request.info import RequestInfo, UserInfo
from windrow.apiserver.storage.port import Entry, Raw, Rev, Store
from windrow.apiserver.types.registry import Registry, ResourceType
from windrow.core.clock import Clock, format_time
from windrow.core.rng import Rng
from windrow.kubernetes.resources import NAMESPACE, ApiResource

Authorize = Callable[[UserInfo, str, RequestInfo], Awaitable[bool]]
"""Whether a user may use a verb on a resource."""


@dataclass(slots=True)
class ServerContext:
    store: Store
    clock: Clock
    rng: Rng
    registry: Registry
    admission_hooks: list[AdmissionHook] = field(default_factory=list)
    validating_hooks: list[AdmissionHook] = field(default_factory=list)  # run after all admission hooks
    # After the schema; they change nothing.
    object_validators: list[AdmissionHook] = field(default_factory=list)
    bookmark_every_s: float = 60.0
    graceful_pod_deletion: bool = False  # a deleted pod on a node is kept for its grace period

    def timestamp(self) -> str:
        return format_time(self.clock.now())

    async def find(self, kind: ApiResource, name: str, namespace: str = "") -> Entry | None:
        """The object in stored form; None where there is none, or its kind is not served."""
        type = self.registry.find_kind(kind)
        return await self.store.find(type.key(namespace, name)) if type else None

    async def entries(self, kind: ApiResource, namespace: str = "") -> list[Entry]:
        """All objects of a kind; none when it is not served."""
        type = self.registry.find_kind(kind)
        return (await self.store.range(type.prefix(namespace))).entries if type else []


@dataclass(frozen=True, slots=True)
class ObjectResult:
    """One object."""

    type: ResourceType
    entry: Entry
    status: int = 200


@dataclass(frozen=True, slots=True)
class ListResult:
    """A list; entries are in the served version."""

    type: ResourceType
    entries: list[Entry]
    rev: Rev
    token: str = ""
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class JsonResult:
    """Any other JSON body: a Status, a review."""

    raw: Raw
    status: int = 200


Result = ObjectResult | ListResult | JsonResult


def to_served_version(type: ResourceType, entry: Entry) -> Entry:
    """`entry` in the served version of `type`."""
    if type.kind == type.storage_kind and type.from_storage is None:
        return entry
    raw = entry.raw if type.from_storage is None else type.from_storage(entry.copy())
    return Entry(entry.key, entry.rev, {**raw, "apiVersion": type.kind.api_version, "kind": type.kind.kind})


def to_storage_version(type: ResourceType, raw: Raw) -> Raw:
    """`raw`, an object of `type`, in its storage version."""
    if type.kind == type.storage_kind and type.to_storage is None:
        return raw
    raw = raw if type.to_storage is None else type.to_storage(raw)
    return {**raw, "apiVersion": type.storage_kind.api_version, "kind": type.storage_kind.kind}


async def find_entry(context: ServerContext, type: ResourceType, info: RequestInfo) -> Entry | None:
    """The object at `target`, in stored form."""
    return await context.store.find(type.key(info.namespace, info.name))


async def get_entry(context: ServerContext, type: ResourceType, info: RequestInfo) -> Entry:
    """The object at `target`, in stored form. Raises 404."""
    entry = await find_entry(context, type, info)
    if entry is None:
        raise apierrors.not_found(type.kind, info.name)
    return entry


async def require_namespace(context: ServerContext, type: ResourceType, namespace: str, name: str) -> None:
    """Raises 404 for a namespace that does not exist, 403 for one that is terminating."""
    if not type.kind.namespaced or context.registry.find_kind(NAMESPACE) is None:
        return
    entry = await context.find(NAMESPACE, namespace)
    if entry is None:
        raise apierrors.not_found(NAMESPACE, namespace)
    if entry.raw["metadata"].get("deletionTimestamp"):
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise apierrors.forbidden(type.kind, name, why, [cause])
