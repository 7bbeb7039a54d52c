"""PATCH, in its four forms. Without a version in the patch it is tried again on the latest object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windrow.apiserver import core as kernel
from windrow.apiserver import statuses
from windrow.apiserver.calls import Call
from windrow.apiserver.core import Core, Single, check_dry_run, served
from windrow.apiserver.store import Raw, Stale
from windrow.apiserver.strategic import apply_strategic_patch
from windrow.apiserver.types import Type
from windrow.apiserver.verbs.apply import apply
from windrow.apiserver.writing import ATTEMPTS, rewrite
from windrow.core.fastjson import dumps, loads
from windrow.kubernetes.patches import PatchFailed, apply_json_patch, apply_merge_patch
from windrow.kubernetes.requests import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

MOST_STEPS = 10_000
NOT_AN_OBJECT = (
    "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
)

Patch = Callable[[Type, Raw, Any], Any]


def _json(type: Type, before: Raw, patch: Any) -> Any:
    if not isinstance(patch, list):
        raise statuses.bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    if len(patch) > MOST_STEPS:
        text = f"The allowed maximum operations in a JSON patch is {MOST_STEPS}, got {len(patch)}"
        raise statuses.fail(413, text)
    try:
        return apply_json_patch(before, patch)
    except PatchFailed:
        raise statuses.rejected_patch() from None


def _merge(type: Type, before: Raw, patch: Any) -> Any:
    if not isinstance(patch, dict):
        raise statuses.bad_request(NOT_AN_OBJECT)
    return apply_merge_patch(before, patch)


def _strategic(type: Type, before: Raw, patch: Any) -> Any:
    if not isinstance(patch, dict):
        raise statuses.bad_request(NOT_AN_OBJECT)
    return apply_strategic_patch(type.schema, before, patch)


PATCHES: dict[str, Patch] = {JSON_PATCH: _json, MERGE_PATCH: _merge, STRATEGIC_PATCH: _strategic}


async def patch(core: Core, type: Type, call: Call) -> Single:
    """Change the object as the patch says, with the rules of an update."""
    check_dry_run(call)
    if call.media == APPLY_PATCH:
        return await apply(core, type, call)
    change = PATCHES.get(call.media)
    if change is None:
        raise statuses.unsupported_media(tuple(PATCHES))
    for _ in range(ATTEMPTS):
        was = await kernel.get(core, type, call.target)
        old = served(type, was)
        new = change(type, old.copy(), loads(dumps(call.body)))
        _check_identity(type, call, new, str(was.rev))
        try:
            changed = await rewrite(core, type, call, old, was, new)
        except Stale:
            continue
        return Single(type, served(type, changed))
    raise statuses.modified(type.kind, call.target.name)


def _check_identity(type: Type, call: Call, new: Any, version: str) -> None:
    head = new.get("metadata") if isinstance(new, dict) else None
    if not isinstance(head, dict):
        raise statuses.bad_request("the patched object has no metadata")
    if head.get("name") != call.target.name:
        raise statuses.bad_request(
            f"the name of the object ({head.get('name')}) does not match the name on the URL ({call.target.name})"
        )
    if str(head.get("resourceVersion") or version) != version:
        raise statuses.modified(type.kind, call.target.name)
