"""POST: a new object."""

from __future__ import annotations

from windrow.apiserver import metadata, statuses
from windrow.apiserver.calls import Call
from windrow.apiserver.core import Core, Single, check_dry_run, kept, require_namespace, served
from windrow.apiserver.store import Entry, Raw, Stale
from windrow.apiserver.types import Type
from windrow.apiserver.writing import ask, check, clean

ATTEMPTS = 8  # how often a generated name may collide


async def create(core: Core, type: Type, call: Call, *, managed: list[Raw] | None = None) -> Single:
    """Make the object in `call.body`, which is the server's to keep. `managed` are its field managers, if recorded."""
    check_dry_run(call)
    raw = clean(type, call.body, call)
    if type.kind.namespaced and not call.target.namespace:
        raise statuses.not_allowed()
    metadata.place(raw, type, call.target.namespace)
    for name in metadata.SERVER_OWNED:
        raw["metadata"].pop(name, None)
    sent_name = raw["metadata"].get("name", "")
    await require_namespace(core, type, call.target.namespace, sent_name)
    call.warnings += metadata.tidy_owners(raw)
    if managed:
        raw["metadata"]["managedFields"] = managed
    if type.has_status and not type.keeps_status:
        raw.pop("status", None)
    attempts = 1 if sent_name else ATTEMPTS
    for attempt in range(attempts):
        try:
            return await _attempt(core, type, call, raw)
        except Stale as stale:
            name = stale.key_name
            deleting = bool(stale.found and stale.found.raw["metadata"].get("deletionTimestamp"))
            if sent_name or "generateName" not in raw["metadata"]:
                raise statuses.exists(type.kind, name, deleting=deleting) from None
            if attempt == attempts - 1:
                error = statuses.exists(type.kind, name)
                message = f"{error.message}, the server was not able to generate a unique name for the object"
                raise statuses.fail(409, message, reason="AlreadyExists", details=error.details) from None
    raise AssertionError("unreachable")


async def _attempt(core: Core, type: Type, call: Call, template: Raw) -> Single:
    raw = {**template, "metadata": dict(template["metadata"])}
    head = raw["metadata"]
    if not head.get("name") and head.get("generateName"):
        head["name"] = head["generateName"][: metadata.MOST_BASE] + core.rng.name_suffix()
    head["uid"] = core.rng.uid()
    head["creationTimestamp"] = core.stamp()
    if type.counts or type.custom:
        head["generation"] = 1
    if type.begin is not None and head.get("name"):
        type.begin(raw)
    asked = await ask(core, type, call, "create", raw, None)
    assert asked is not None
    check(type, asked, None)
    stored = kept(type, asked)
    key = type.key(call.target.namespace, asked["metadata"]["name"])
    if call.dry_run:
        found = await core.store.find(key)
        if found is not None:
            raise Stale(key, found)
        return Single(type, Entry(key, 0, asked), 201)
    return Single(type, served(type, await core.store.commit(key, stored, None)), 201)
