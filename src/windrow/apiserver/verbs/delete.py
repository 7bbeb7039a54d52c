"""DELETE of one object or of a collection: finalizers, propagation, preconditions (reference/05 §7.11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from windrow.apiserver import core as kernel
from windrow.apiserver import statuses
from windrow.apiserver.calls import Call, Target, is_truthy
from windrow.apiserver.core import Core, Listing, Plain, Single, check_dry_run, kept, served
from windrow.apiserver.selection import read_selection
from windrow.apiserver.store import Entry, Raw, Stale
from windrow.apiserver.types import Type
from windrow.apiserver.writing import ATTEMPTS, ask
from windrow.core.clock import format_time
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import POD

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_POLICIES = ("Foreground", "Background", "Orphan")
LASTING = ("default", "kube-system", "kube-public")


def read_delete_options(call: Call) -> dict[str, Any]:
    """DeleteOptions from the body or, as Python clients send them, from the query."""
    found = dict(call.body_options)
    for name in ("propagationPolicy", "gracePeriodSeconds"):
        if name in call.options:
            found.setdefault(name, call.options[name])
    if "orphanDependents" in call.options:
        found.setdefault("orphanDependents", is_truthy(call.options, "orphanDependents"))
    policy, legacy = found.get("propagationPolicy"), found.get("orphanDependents")
    if policy is not None and legacy is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        raise statuses.invalid_options(
            "DeleteOptions", statuses.invalid_value("propagationPolicy", policy, text)
        )
    if policy is not None and policy not in _POLICIES:
        cause = statuses.not_supported("propagationPolicy", policy, (*_POLICIES, "nil"))
        raise statuses.invalid_options("DeleteOptions", cause)
    if legacy is not None:
        found["propagationPolicy"] = "Orphan" if legacy else "Background"
    return found


def _check_preconditions(type: Type, raw: Raw, options: Mapping[str, Any]) -> None:
    wanted = options.get("preconditions") or {}
    head = raw["metadata"]
    if wanted.get("uid") and wanted["uid"] != head["uid"]:
        why = (
            f"the UID in the precondition ({wanted['uid']}) does not match the UID in record ({head['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise statuses.conflict(replace(type.kind, plural=type.kind.kind), head["name"], why)
    if wanted.get("resourceVersion") and wanted["resourceVersion"] != head["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({wanted['resourceVersion']}) does not match the "
            f"ResourceVersion in record ({head['resourceVersion']}). The object might have been modified"
        )
        raise statuses.conflict(replace(type.kind, plural=type.kind.kind), head["name"], why)


def finalizers_for(type: Type, raw: Raw, policy: str | None) -> list[str]:
    """The finalizers after a delete with `policy`; no policy keeps those of the garbage collector."""
    present = list(raw["metadata"].get("finalizers") or [])
    if policy is None:
        return present
    rest = [one for one in present if one not in (FOREGROUND, ORPHAN)]
    return rest + {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(policy, [])


async def delete(core: Core, type: Type, call: Call) -> Single | Plain:
    """Remove the object, or mark it for those who hold finalizers on it."""
    check_dry_run(call)
    options = read_delete_options(call)
    for _ in range(ATTEMPTS):
        was = await kernel.get(core, type, call.target)
        try:
            return await _attempt(core, type, call, was, options)
        except Stale:
            continue
    raise statuses.modified(type.kind, call.target.name)


async def _attempt(
    core: Core, type: Type, call: Call, was: Entry, options: Mapping[str, Any]
) -> Single | Plain:
    _check_preconditions(type, was.raw, options)
    old = served(type, was)
    head = was.raw["metadata"]
    is_namespace = type.kind.plural == "namespaces" and not type.kind.group
    if is_namespace and head["name"] in LASTING:
        raise statuses.forbidden(type.kind, head["name"], "this namespace may not be deleted")
    await ask(core, type, call, "delete", None, old)
    finalizers = finalizers_for(type, was.raw, options.get("propagationPolicy"))
    held = is_namespace and bool((was.raw.get("spec") or {}).get("finalizers"))
    grace = _grace(core, type, was.raw, options)
    if not finalizers and not held and not grace:
        if call.dry_run:
            gone = was
        else:
            gone = await core.store.commit(was.key, None, was.rev)
        if type.returns_deleted:
            return Single(type, served(type, gone))
        return Plain(statuses.success(type.kind, head["name"], head["uid"]))
    marked = _marked(core, type, was.raw, finalizers, grace)
    if is_namespace:
        marked["status"] = {**(marked.get("status") or {}), "phase": "Terminating"}
    if marked == was.raw or call.dry_run:
        return Single(type, old)
    return Single(type, served(type, await core.store.commit(was.key, marked, was.rev)))


def _grace(core: Core, type: Type, raw: Raw, options: Mapping[str, Any]) -> int:
    """The seconds that a pod has to end in; 0 for one that nothing runs, and for everything else."""
    if not core.pods_end_slowly or type.kind != POD or not nested(raw, "spec", "nodeName"):
        return 0
    if nested(raw, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    asked = str(options.get("gracePeriodSeconds", ""))
    usual = int(nested(raw, "spec", "terminationGracePeriodSeconds", default=30))
    wanted = int(asked) if asked.isdigit() else usual
    before = raw["metadata"].get("deletionGracePeriodSeconds")
    return wanted if before is None else min(wanted, before)


def _marked(core: Core, type: Type, raw: Raw, finalizers: list[str], grace: int = 0) -> Raw:
    head = {name: value for name, value in raw["metadata"].items() if name != "finalizers"}
    if finalizers:
        head["finalizers"] = finalizers
    if grace < head.get("deletionGracePeriodSeconds", 0):  # sooner than said before
        head["deletionTimestamp"] = format_time(core.clock.now() + timedelta(seconds=grace))
        head["deletionGracePeriodSeconds"] = grace
    if not head.get("deletionTimestamp"):
        head["deletionTimestamp"] = format_time(core.clock.now() + timedelta(seconds=grace))
        if type.kind.plural != "namespaces":
            head["deletionGracePeriodSeconds"] = grace
        if "generation" in head:
            head["generation"] += 1
    return {**raw, "metadata": head}


async def delete_collection(core: Core, type: Type, call: Call) -> Listing:
    """Delete everything that is selected; answers with what was there."""
    selection = read_selection(type, call.options)
    page = await core.store.range(type.prefix(call.target.namespace))
    chosen = [entry for entry in (served(type, one) for one in page.entries) if selection.matches(entry.raw)]
    for entry in chosen:
        head = entry.raw["metadata"]
        target = Target(
            call.target.path,
            type.kind.group,
            type.kind.version,
            type.kind.plural,
            head.get("namespace", ""),
            head["name"],
        )
        one = Call(
            "delete", target, call.caller, call.options, body_options=call.body_options, agent=call.agent
        )
        try:
            await delete(core, type, one)
        except KubeError as error:
            if error.status != 404:
                raise
    return Listing(type, chosen, core.store.rev)


__all__ = ["delete", "delete_collection", "finalizers_for", "kept"]
