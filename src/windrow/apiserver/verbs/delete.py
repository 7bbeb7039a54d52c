"""DELETE of one object or of a collection: finalizers, propagation, preconditions (reference/05 §7.11)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from windrow.apiserver import apierrors
from windrow.apiserver.context import (
    JsonResult,
    ListResult,
    ObjectResult,
    ServerContext,
    to_served_version,
)
from windrow.apiserver.request.info import ApiCall, RequestInfo, is_truthy
from windrow.apiserver.request.options import check_dry_run, read_int
from windrow.apiserver.request.selection import read_selection
from windrow.apiserver.storage.port import Entry, Raw
from windrow.apiserver.types.field_types import DELETE_OPTIONS, find_mistyped
from windrow.apiserver.types.registry import ResourceType
from windrow.apiserver.verbs.rest_storage import retry_on_conflict, run_admission
from windrow.core.clock import format_time
from windrow.core.wait import yield_turn
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import POD

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_POLICIES = ("Foreground", "Background", "Orphan")
MAX_GRACE_S = 10 * 365 * 86400  # a longer one has no end that a clock can name
IMMORTAL_NAMESPACES = ("default", "kube-system", "kube-public")


def read_delete_options(call: ApiCall) -> dict[str, Any]:
    """DeleteOptions from the body or, as Python clients send them, from the query. Raises 400 and 422.

    A field of a wrong type is a 400 with the text of kube-apiserver, which answers 500 there: only as DeleteOptions.
    """
    options = call.delete_options
    if mistyped := find_mistyped(DELETE_OPTIONS, options):
        raise apierrors.bad_request(mistyped)
    if options.get("kind", "DeleteOptions") not in ("", "DeleteOptions"):
        kind, version = options["kind"], options.get("apiVersion") or "meta.k8s.io/v1"
        raise apierrors.bad_request(f'no kind "{kind}" is registered for version "{version}"')
    check_dry_run(call)
    found = {name: value for name, value in options.items() if value is not None}
    if "propagationPolicy" in call.options:
        found.setdefault("propagationPolicy", call.options["propagationPolicy"])
    if (seconds := read_int(call.options, "gracePeriodSeconds")) is not None:
        found.setdefault("gracePeriodSeconds", seconds)
    if "orphanDependents" in call.options:
        found.setdefault("orphanDependents", is_truthy(call.options, "orphanDependents"))
    policy, legacy = found.get("propagationPolicy"), found.get("orphanDependents")
    if policy is not None and legacy is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        raise apierrors.invalid_options(
            "DeleteOptions", apierrors.invalid_value("propagationPolicy", policy, text)
        )
    if policy is not None and policy not in _POLICIES:
        cause = apierrors.not_supported("propagationPolicy", policy, (*_POLICIES, "nil"))
        raise apierrors.invalid_options("DeleteOptions", cause)
    if legacy is not None:
        found["propagationPolicy"] = "Orphan" if legacy else "Background"
    return found


def _check_preconditions(type: ResourceType, raw: Raw, options: Mapping[str, Any]) -> None:
    wanted = options.get("preconditions") or {}
    head = raw["metadata"]
    if wanted.get("uid") and wanted["uid"] != head["uid"]:
        why = (
            f"the UID in the precondition ({wanted['uid']}) does not match the UID in record ({head['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise apierrors.conflict(replace(type.kind, plural=type.kind.kind), head["name"], why)
    if wanted.get("resourceVersion") and wanted["resourceVersion"] != head["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({wanted['resourceVersion']}) does not match the "
            f"ResourceVersion in record ({head['resourceVersion']}). The object might have been modified"
        )
        raise apierrors.conflict(replace(type.kind, plural=type.kind.kind), head["name"], why)


def finalizers_for(type: ResourceType, raw: Raw, policy: str | None) -> list[str]:
    """The finalizers after a delete with `policy`; without a policy those of the garbage collector are kept."""
    present = list(raw["metadata"].get("finalizers") or [])
    if policy is None:
        return present
    rest = [one for one in present if one not in (FOREGROUND, ORPHAN)]
    return rest + {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(policy, [])


async def delete(context: ServerContext, type: ResourceType, call: ApiCall) -> ObjectResult | JsonResult:
    """Delete the object, or set its deletionTimestamp while it has finalizers."""
    options = read_delete_options(call)
    return await retry_on_conflict(
        context, type, call.info, lambda was: _attempt(context, type, call, was, options)
    )


async def _attempt(
    context: ServerContext, type: ResourceType, call: ApiCall, was: Entry, options: Mapping[str, Any]
) -> ObjectResult | JsonResult:
    _check_preconditions(type, was.raw, options)
    old = to_served_version(type, was)
    head = was.raw["metadata"]
    is_namespace = type.kind.plural == "namespaces" and not type.kind.group
    if is_namespace and head["name"] in IMMORTAL_NAMESPACES:
        raise apierrors.forbidden(type.kind, head["name"], "this namespace may not be deleted")
    await run_admission(context, type, call, "delete", None, old)
    finalizers = finalizers_for(type, was.raw, options.get("propagationPolicy"))
    held = is_namespace and bool((was.raw.get("spec") or {}).get("finalizers"))
    grace = _grace_period(context, type, was.raw, options)
    if not finalizers and not held and not grace:
        if call.dry_run:
            deleted = was
        else:
            deleted = await context.store.commit(was.key, None, was.rev)
        if type.returns_deleted_object:
            return ObjectResult(type, to_served_version(type, deleted))
        return JsonResult(apierrors.deleted_status(type.kind, head["name"], head["uid"]))
    marked = _mark_deleted(context, type, was.raw, finalizers, grace)
    if is_namespace:
        marked["status"] = {**(marked.get("status") or {}), "phase": "Terminating"}
    if marked == was.raw or call.dry_run:
        return ObjectResult(type, old)
    return ObjectResult(type, to_served_version(type, await context.store.commit(was.key, marked, was.rev)))


def _grace_period(context: ServerContext, type: ResourceType, raw: Raw, options: Mapping[str, Any]) -> int:
    """The grace period of a pod that runs on a node, in seconds; 0 for every other object."""
    if not context.graceful_pod_deletion or type.kind != POD or not nested(raw, "spec", "nodeName"):
        return 0
    if nested(raw, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.get("gracePeriodSeconds")
    seconds = nested(raw, "spec", "terminationGracePeriodSeconds", default=30) if asked is None else asked
    wanted = min(seconds, MAX_GRACE_S) if seconds >= 0 else 1  # kube-apiserver: a negative one is a second
    before = raw["metadata"].get("deletionGracePeriodSeconds")
    return wanted if before is None else min(wanted, before)


def _mark_deleted(
    context: ServerContext, type: ResourceType, raw: Raw, finalizers: list[str], grace: int
) -> Raw:
    head = {name: value for name, value in raw["metadata"].items() if name != "finalizers"}
    if finalizers:
        head["finalizers"] = finalizers
    if grace < head.get("deletionGracePeriodSeconds", 0):  # a shorter period than before
        head["deletionTimestamp"] = format_time(context.clock.now() + timedelta(seconds=grace))
        head["deletionGracePeriodSeconds"] = grace
    if not head.get("deletionTimestamp"):
        head["deletionTimestamp"] = format_time(context.clock.now() + timedelta(seconds=grace))
        if type.kind.plural != "namespaces":
            head["deletionGracePeriodSeconds"] = grace
        if "generation" in head:
            head["generation"] += 1
    return {**raw, "metadata": head}


async def delete_collection(context: ServerContext, type: ResourceType, call: ApiCall) -> ListResult:
    """Delete every selected object; the result lists them as they were. Other requests go on between two of them."""
    options = read_delete_options(call)
    selection = read_selection(type, call.options)
    page = await context.store.range(type.prefix(call.info.namespace))
    chosen = [
        entry
        for entry in (to_served_version(type, one) for one in page.entries)
        if selection.matches(entry.raw)
    ]
    with context.store.batch():
        for entry in chosen:
            await _delete_chosen(context, type, call, entry, options)
            await yield_turn()
    return ListResult(type, chosen, context.store.rev)


async def _delete_chosen(
    context: ServerContext, type: ResourceType, call: ApiCall, chosen: Entry, options: Mapping[str, Any]
) -> None:
    """Delete the object that was chosen, which may be gone by now, with a namesake in its place."""
    head = chosen.raw["metadata"]
    info = RequestInfo.of(type.kind, head.get("namespace", ""), head["name"])
    one = replace(call, verb="delete", info=info, warnings=[])

    async def attempt(was: Entry) -> None:
        if was.raw["metadata"].get("uid") == head.get("uid"):
            await _attempt(context, type, one, was, options)

    with suppress(NotFound):
        await retry_on_conflict(context, type, info, attempt)
