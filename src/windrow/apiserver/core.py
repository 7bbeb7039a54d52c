"""What every verb works with: the store, the types, the hooks, the clock; and the shape of an outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from windrow.apiserver import statuses
from windrow.apiserver.admission import Hook
from windrow.apiserver.calls import Call, Caller, Target
from windrow.apiserver.store import Entry, Raw, Rev, Store
from windrow.apiserver.types import Registry, Type
from windrow.core.clock import Clock, format_time
from windrow.core.rng import Rng
from windrow.kubernetes.resources import NAMESPACE

Allows = Callable[[Caller, str, Target], Awaitable[bool]]
"""May this caller use this verb here?"""


@dataclass(slots=True)
class Core:
    store: Store
    clock: Clock
    rng: Rng
    registry: Registry
    hooks: list[Hook] = field(default_factory=list)
    guards: list[Hook] = field(default_factory=list)  # the server's own refusals, after every hook
    bookmark_every_s: float = 60.0
    pods_end_slowly: bool = False  # a deleted pod stays until its kubelet says that it has ended

    def stamp(self) -> str:
        return format_time(self.clock.now())


@dataclass(frozen=True, slots=True)
class Single:
    """One object as the answer."""

    type: Type
    entry: Entry
    status: int = 200


@dataclass(frozen=True, slots=True)
class Listing:
    """A list as the answer. Entries are in the served version's form."""

    type: Type
    entries: list[Entry]
    rev: Rev
    token: str = ""
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class Plain:
    """Any other JSON answer: a Status, a review."""

    raw: Raw
    status: int = 200


Outcome = Single | Listing | Plain


def served(type: Type, entry: Entry) -> Entry:
    """`entry` in the form of `type`, which may be another version than the stored one."""
    if type.kind == type.home and type.read is None:
        return entry
    raw = entry.raw if type.read is None else type.read(entry.copy())
    return Entry(entry.key, entry.rev, {**raw, "apiVersion": type.kind.api_version, "kind": type.kind.kind})


def kept(type: Type, raw: Raw) -> Raw:
    """`raw`, an object of `type`, in the form that is stored."""
    if type.kind == type.home and type.write is None:
        return raw
    raw = raw if type.write is None else type.write(raw)
    return {**raw, "apiVersion": type.home.api_version, "kind": type.home.kind}


async def find(core: Core, type: Type, target: Target) -> Entry | None:
    """The object at `target`, in stored form."""
    return await core.store.find(type.key(target.namespace, target.name))


async def get(core: Core, type: Type, target: Target) -> Entry:
    """The object at `target`, in stored form. Raises the 404 of a real server."""
    entry = await find(core, type, target)
    if entry is None:
        raise statuses.not_found(type.kind, target.name)
    return entry


async def require_namespace(core: Core, type: Type, namespace: str, name: str) -> None:
    """New content needs a namespace that is there and stays. Raises 404 or 403."""
    home = core.registry.find_kind(NAMESPACE)
    if home is None or not type.kind.namespaced:
        return
    entry = await core.store.find(home.key("", namespace))
    if entry is None:
        raise statuses.not_found(NAMESPACE, namespace)
    if entry.raw["metadata"].get("deletionTimestamp"):
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise statuses.forbidden(type.kind, name, why, [cause])


_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


def check_dry_run(call: Call) -> None:
    asked = call.options.get("dryRun") or call.body_options.get("dryRun")
    values = [asked] if isinstance(asked, str) else list(asked or [])
    if any(value and value != "All" for value in values):
        cause = statuses.not_supported("dryRun", values, ("All",))
        raise statuses.invalid_options(_OPTIONS.get(call.verb, "DeleteOptions"), cause)
