"""POST: a new object."""

from __future__ import annotations

from windrow.apiserver import apierrors
from windrow.apiserver.context import (
    ObjectResult,
    ServerContext,
    require_namespace,
    to_served_version,
    to_storage_version,
)
from windrow.apiserver.request.decoding import work_on
from windrow.apiserver.request.info import ApiCall
from windrow.apiserver.storage.port import Entry, Raw, RevisionMismatch
from windrow.apiserver.types import schema
from windrow.apiserver.types.registry import ResourceType
from windrow.apiserver.verbs import metadata
from windrow.apiserver.verbs.rest_storage import (
    prune_and_default,
    run_admission,
    run_validators,
    validate_object,
)

ATTEMPTS = 8  # how often a generated name may collide


async def create(
    context: ServerContext, type: ResourceType, call: ApiCall, *, managed: list[Raw] | None = None
) -> ObjectResult:
    """Create the object in `call.body`, which is not copied. `managed` are its field managers, if recorded."""
    raw = await work_on(call.size, lambda: prune_and_default(type, call.body, call))
    if type.kind.namespaced and not call.info.namespace:
        raise apierrors.method_not_allowed()
    metadata.set_namespace(raw, type, call.info.namespace)
    for name in metadata.SERVER_OWNED:
        raw["metadata"].pop(name, None)
    sent_name = raw["metadata"].get("name", "")
    await require_namespace(context, type, call.info.namespace, sent_name)
    call.warnings += metadata.dedupe_owner_references(raw)
    if managed:
        raw["metadata"]["managedFields"] = managed
    if type.has_status and not type.keeps_status_on_create:
        raw.pop("status", None)
    attempts = 1 if sent_name else ATTEMPTS
    for attempt in range(attempts):
        try:
            return await _attempt(context, type, call, raw)
        except RevisionMismatch as stale:
            name = stale.key_name
            deleting = bool(stale.current and stale.current.raw["metadata"].get("deletionTimestamp"))
            if sent_name or "generateName" not in raw["metadata"]:
                raise apierrors.already_exists(type.kind, name, deleting=deleting) from None
            if attempt == attempts - 1:
                error = apierrors.already_exists(type.kind, name)
                message = f"{error.message}, the server was not able to generate a unique name for the object"
                raise apierrors.status_error(
                    409, message, reason="AlreadyExists", details=error.details
                ) from None
    raise AssertionError("unreachable")


async def _attempt(context: ServerContext, type: ResourceType, call: ApiCall, template: Raw) -> ObjectResult:
    raw = {**template, "metadata": dict(template["metadata"])}
    head = raw["metadata"]
    if not head.get("name") and head.get("generateName"):
        head["name"] = head["generateName"][: metadata.MAX_NAME_BASE_LENGTH] + context.rng.name_suffix()
    head["uid"] = context.rng.uid()
    head["creationTimestamp"] = context.timestamp()
    if type.has_generation or type.custom:
        head["generation"] = 1
    if type.prepare_for_create is not None and head.get("name"):
        type.prepare_for_create(raw)
    asked = await run_admission(context, type, call, "create", raw, None)
    assert asked is not None
    schema.apply_defaults(type.schema, asked)  # a hook may have made objects that have some
    await work_on(call.size, lambda: validate_object(type, asked, None))
    await run_validators(context, type, call, "create", asked, None)
    stored = to_storage_version(type, asked)
    key = type.key(call.info.namespace, asked["metadata"]["name"])
    if call.dry_run:
        found = await context.store.find(key)
        if found is not None:
            raise RevisionMismatch(key, found)
        return ObjectResult(type, Entry(key, 0, asked), 201)
    return ObjectResult(type, to_served_version(type, await context.store.commit(key, stored, None)), 201)
