"""What create, update, patch and apply share: pruning, defaults, admission, validation, commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Literal, TypeVar

from windrow.apiserver import apierrors
from windrow.apiserver.admission import AdmissionRequest, admit
from windrow.apiserver.apierrors import Cause
from windrow.apiserver.context import ServerContext, get_entry, to_storage_version
from windrow.apiserver.fieldmanager.managed_fields import Manager, record_update
from windrow.apiserver.request.decoding import work_on
from windrow.apiserver.request.info import ApiCall, RequestInfo
from windrow.apiserver.storage.port import Entry, Raw, RevisionMismatch
from windrow.apiserver.types import schema
from windrow.apiserver.types.builtins import fold_string_data
from windrow.apiserver.types.field_types import drop_unknown, write_quantities
from windrow.apiserver.types.registry import ResourceType, Validate
from windrow.apiserver.types.validation import find_bad_base64
from windrow.apiserver.verbs import metadata
from windrow.kubernetes.resources import POD, SECRET

T = TypeVar("T")

_MODES = ("Ignore", "Strict", "Warn")
_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions"}
MAX_ATTEMPTS = 16  # how often an unconditional write meets a newer version before it gives up


def prune_and_default(type: ResourceType, raw: Raw, call: ApiCall, *, defaults: bool = True) -> Raw:
    """`raw` pruned and defaulted by its schema; unknown fields are treated by `fieldValidation`."""
    unknown = metadata.unknown_metadata(raw) if isinstance(raw, dict) else []
    raw = metadata.with_type_meta(raw, type)
    if type.kind == SECRET:
        fold_string_data(raw)
        bad = find_bad_base64(raw)
        if bad:
            raise apierrors.bad_request(f'Secret in version "v1" cannot be handled as a Secret: {bad}')
    if type.custom:
        schema.drop_unset(type.schema, raw)
    else:
        unknown += drop_unknown(type.kind, raw)
    unknown += schema.prune(type.schema, raw)
    mode = call.options.get("fieldValidation") or "Warn"
    if mode not in _MODES:
        cause = apierrors.not_supported("fieldValidation", mode, ("", *_MODES))
        raise apierrors.invalid_options(_OPTIONS.get(call.verb, "PatchOptions"), cause)
    unknown.sort()
    if unknown and mode == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise apierrors.bad_request(
            f'{type.kind.kind} in version "{type.kind.version}" cannot be handled as a {type.kind.kind}: '
            f"strict decoding error: {listed}"
        )
    if unknown and mode == "Warn":
        call.warnings += [f'unknown field "{path}"' for path in unknown]
    if defaults:
        schema.apply_defaults(type.schema, raw)
    return raw


def validate_object(type: ResourceType, raw: Raw, old: Raw | None) -> None:
    """Raises 422 with every validation error of `raw`. The quantities of a valid one get their canonical form."""
    causes = metadata.validate_owner_count(raw, old)
    if old is not None:
        causes += metadata.validate_new_finalizers(raw, old)
    if type.custom and old is not None:
        broken = schema.validate_update(type.schema, raw, old)
        broken += schema.validate_immutable(type.schema, raw, old)
    else:
        broken = schema.validate(type.schema, raw)
    if not type.custom:  # duplicates in built-in lists are found by each type's own validation
        broken = [cause for cause in broken if cause.reason != "FieldValueDuplicate"]
    causes += broken
    mistyped = [cause for cause in causes if cause.reason == "FieldValueTypeInvalid"]
    rules = type.validate if not mistyped else None  # which may rely on the types
    causes = _add_metadata_causes(type, raw, old, causes, rules)
    if mistyped and not type.custom:
        raise metadata.decode_error(type, mistyped[0])
    if causes:
        raise apierrors.invalid(type.kind, raw["metadata"].get("name", ""), causes)
    if not type.custom:
        write_quantities(type.kind, raw)


def _add_metadata_causes(
    type: ResourceType, raw: Raw, old: Raw | None, causes: list[Cause], rules: Validate | None
) -> list[Cause]:
    """`causes` and those of metadata and `rules`, in order and as often as kube-apiserver tells them.

    Metadata is validated by what all kinds share, by the rules of creation, and by those of change.
    """
    of_change = metadata.validate_maps_and_owners(raw)
    common = of_change + metadata.validate_finalizer_names(raw)
    found = rules(raw, old) if rules else []
    if type.custom:
        head = (
            common + of_change + of_change if old is not None else metadata.validate_name(raw, type) + common
        )
        return head + causes + found
    domains = metadata.validate_finalizer_domains(raw)
    if old is None:
        return metadata.validate_name(raw, type) + common + domains + causes + found
    if not (common or domains):
        return causes + found
    own = rules(raw, None) if rules else []
    changed = found[len(own) :] if found[: len(own)] == own else found
    again = common + domains if type.validates_again else []
    return [*common, *of_change, *common, *domains, *causes, *own, *of_change, *domains, *again, *changed]


async def retry_on_conflict(
    context: ServerContext, type: ResourceType, info: RequestInfo, write: Callable[[Entry], Awaitable[T]]
) -> T:
    """`write` with the stored entry, again with the latest one after a RevisionMismatch. Raises 404 and 409."""
    for _ in range(MAX_ATTEMPTS):
        entry = await get_entry(context, type, info)
        with suppress(RevisionMismatch):
            return await write(entry)
    raise apierrors.modified(type.kind, info.name)


async def run_admission(
    context: ServerContext,
    type: ResourceType,
    call: ApiCall,
    verb: Literal["create", "update", "delete"],
    raw: Raw | None,
    old: Entry | None,
) -> Raw | None:
    """Run the admission hooks; the object as they leave it. The validators of a removal, which no schema follows, run too."""
    hooks = [*context.admission_hooks, *context.validating_hooks]
    if verb == "delete":
        hooks += context.object_validators
    return await admit(hooks, _operation(type, call, verb, raw, old)) if hooks else raw


async def run_validators(
    context: ServerContext,
    type: ResourceType,
    call: ApiCall,
    verb: Literal["create", "update"],
    raw: Raw,
    old: Entry | None,
) -> None:
    """Run the validating webhooks on the object as it would be stored."""
    if context.object_validators:
        await admit(context.object_validators, _operation(type, call, verb, raw, old))


def _operation(
    type: ResourceType,
    call: ApiCall,
    verb: Literal["create", "update", "delete"],
    raw: Raw | None,
    old: Entry | None,
) -> AdmissionRequest:
    seen = raw if raw is not None else (old.raw if old else {})
    return AdmissionRequest(
        verb=verb,
        kind=type.kind,
        namespace=seen.get("metadata", {}).get("namespace", "") or call.info.namespace,
        name=seen.get("metadata", {}).get("name", "") or call.info.name,
        subresource=call.info.subresource,
        object=raw,
        old_object=old.copy() if old else None,
        user=call.user,
        dry_run=call.dry_run,
    )


def _split_status(type: ResourceType, new: Raw, old: Raw, subresource: str) -> Raw:
    """`new` with the status of `old`, or for subresource status the reverse."""
    if subresource == "status":
        made = {**old, "metadata": dict(old["metadata"])}
        if not type.custom:
            for name in ("labels", "annotations", "finalizers"):
                made["metadata"].pop(name, None)
                if name in new["metadata"]:
                    made["metadata"][name] = new["metadata"][name]
        made.pop("status", None)
    else:
        made = {name: value for name, value in new.items() if name != "status"}
    source = new if subresource == "status" else old
    if "status" in source:
        made["status"] = source["status"]
    return made


_NOT_SPEC = frozenset({"apiVersion", "kind", "metadata"})


def _bump_generation(type: ResourceType, new: Raw, old: Raw) -> None:
    """Increment metadata.generation when the spec has changed."""
    if "generation" not in old["metadata"]:
        return
    ignored = _NOT_SPEC | {"status"} if type.has_status else _NOT_SPEC
    wanted = {name: value for name, value in new.items() if name not in ignored}
    before = {name: value for name, value in old.items() if name not in ignored}
    if wanted != before:
        new["metadata"]["generation"] = old["metadata"]["generation"] + 1


def _without_version(raw: Raw) -> Raw:
    return {
        **raw,
        "metadata": {name: value for name, value in raw["metadata"].items() if name != "resourceVersion"},
    }


async def update_entry(
    context: ServerContext,
    type: ResourceType,
    call: ApiCall,
    old: Entry,
    was: Entry,
    new: Raw,
    *,
    managed: list[Raw] | None = None,
) -> Entry:
    """Write the change of `old` (as stored in `was`) into `new`, the caller's own dict. Raises RevisionMismatch.

    `old` is in the form of `type`, `was` in stored form; they differ only where versions do.
    `managed` are the field managers after an apply; other writes keep the record on their own.
    """
    size = max(call.size, len(old.data))
    new = await work_on(size, partial(prune_and_default, type, new, call))
    metadata.set_namespace(new, type, old.raw["metadata"].get("namespace", ""))
    metadata.copy_server_fields(new, old.raw, type)
    if type.has_status:
        # A copy: hooks and defaults change the new object in place, and must not reach the stored one.
        new = _split_status(type, new, old.copy(), call.info.subresource)
    if type.prepare_for_update is not None and not call.info.subresource:
        type.prepare_for_update(new, old.raw)
    call.warnings += metadata.dedupe_owner_references(new)
    asked = await run_admission(context, type, call, "update", new, old)
    assert asked is not None
    new = asked
    schema.apply_defaults(type.schema, new)
    # After the mutating hooks: a field that they restored has not changed.
    _bump_generation(type, new, old.raw)
    await work_on(size, partial(validate_object, type, new, old.raw))
    await run_validators(context, type, call, "update", new, old)
    _record_managers(context, type, call, old.raw, new, managed)
    stored = to_storage_version(type, new)
    if _without_version(stored) == _without_version(was.raw):
        return was
    if call.dry_run:
        return Entry(was.key, was.rev, stored)
    leaving = new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers")
    if leaving and not _blocks_removal(type, new):
        gone = await context.store.commit(was.key, None, was.rev)
        return Entry(
            was.key,
            gone.rev,
            {**stored, "metadata": {**stored["metadata"], "resourceVersion": str(gone.rev)}},
        )
    return await context.store.commit(was.key, stored, was.rev)


def _record_managers(
    context: ServerContext, type: ResourceType, call: ApiCall, old: Raw, new: Raw, managed: list[Raw] | None
) -> None:
    """Update managedFields of an object that has them."""
    if managed is not None:
        new["metadata"]["managedFields"] = managed
    elif "managedFields" in old["metadata"]:
        writer = Manager(
            call.field_manager, "Update", type.kind.api_version, call.info.subresource, context.timestamp()
        )
        record_update(type.schema, old, new, writer)


def _blocks_removal(type: ResourceType, raw: Raw) -> bool:
    """Whether spec.finalizers of a namespace, or the grace period of a pod, keep the object."""
    if type.kind == POD and raw["metadata"].get("deletionGracePeriodSeconds"):
        return True
    return type.kind.plural == "namespaces" and bool((raw.get("spec") or {}).get("finalizers"))
