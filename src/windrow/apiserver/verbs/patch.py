"""PATCH of the four media types. A patch without resourceVersion is retried on the latest object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windrow.apiserver import apierrors
from windrow.apiserver.context import ObjectResult, ServerContext, to_served_version
from windrow.apiserver.fieldmanager.strategic import apply_strategic_patch
from windrow.apiserver.request.info import ApiCall
from windrow.apiserver.storage.port import Entry, Raw
from windrow.apiserver.types.registry import ResourceType
from windrow.apiserver.verbs.apply import apply
from windrow.apiserver.verbs.rest_storage import retry_on_conflict, update_entry
from windrow.core.formats.fastjson import dumps, loads
from windrow.kubernetes.patches import PatchFailed, apply_json_patch, apply_merge_patch
from windrow.kubernetes.requests import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

MAX_JSON_PATCH_OPERATIONS = 10_000
NOT_AN_OBJECT = (
    "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
)

Patch = Callable[[ResourceType, Raw, Any], Any]


def _json(type: ResourceType, before: Raw, patch: Any) -> Any:
    if not isinstance(patch, list):
        raise apierrors.bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    if len(patch) > MAX_JSON_PATCH_OPERATIONS:
        text = (
            f"The allowed maximum operations in a JSON patch is {MAX_JSON_PATCH_OPERATIONS}, got {len(patch)}"
        )
        raise apierrors.status_error(413, text)
    try:
        return apply_json_patch(before, patch)
    except PatchFailed:
        raise apierrors.rejected_patch() from None


def _merge(type: ResourceType, before: Raw, patch: Any) -> Any:
    if not isinstance(patch, dict):
        raise apierrors.bad_request(NOT_AN_OBJECT)
    return apply_merge_patch(before, patch)


def _strategic(type: ResourceType, before: Raw, patch: Any) -> Any:
    if not isinstance(patch, dict):
        raise apierrors.bad_request(NOT_AN_OBJECT)
    return apply_strategic_patch(type.schema, before, patch)


PATCHES: dict[str, Patch] = {JSON_PATCH: _json, MERGE_PATCH: _merge, STRATEGIC_PATCH: _strategic}


async def patch(context: ServerContext, type: ResourceType, call: ApiCall) -> ObjectResult:
    """Apply the patch, with the rules of an update."""
    if call.media_type == APPLY_PATCH:
        return await apply(context, type, call)
    change = PATCHES.get(call.media_type)
    if change is None:
        raise apierrors.unsupported_media(tuple(PATCHES))

    async def write(was: Entry) -> ObjectResult:
        old = to_served_version(type, was)
        new = change(type, old.copy(), loads(dumps(call.body)))
        _check_identity(type, call, new, str(was.rev))
        changed = await update_entry(context, type, call, old, was, new)
        return ObjectResult(type, to_served_version(type, changed))

    return await retry_on_conflict(context, type, call.info, write)


def _check_identity(type: ResourceType, call: ApiCall, new: Any, version: str) -> None:
    head = new.get("metadata") if isinstance(new, dict) else None
    if not isinstance(head, dict):
        raise apierrors.bad_request("the patched object has no metadata")
    if head.get("name") != call.info.name:
        raise apierrors.bad_request(
            f"the name of the object ({head.get('name')}) does not match the name on the URL ({call.info.name})"
        )
    if str(head.get("resourceVersion") or version) != version:
        raise apierrors.modified(type.kind, call.info.name)
