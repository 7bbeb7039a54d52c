"""PUT: replaces the object, or its status."""

from __future__ import annotations

from dataclasses import replace

from windrow.apiserver import apierrors
from windrow.apiserver.apierrors import Cause
from windrow.apiserver.context import ObjectResult, ServerContext, to_served_version
from windrow.apiserver.request.info import ApiCall
from windrow.apiserver.storage.port import Entry
from windrow.apiserver.types.registry import ResourceType
from windrow.apiserver.verbs import metadata
from windrow.apiserver.verbs.rest_storage import retry_on_conflict, update_entry
from windrow.core.formats.fastjson import dumps, loads


async def update(context: ServerContext, type: ResourceType, call: ApiCall) -> ObjectResult:
    """Replace the object. 409 when the resourceVersion in the body is not the latest."""
    body = call.body
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        metadata.with_type_meta(body, type)
        raise apierrors.bad_request("the object has no metadata")
    name = body["metadata"].get("name") or call.info.name
    if name != call.info.name:
        raise apierrors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.info.name})"
        )
    body["metadata"]["name"] = name
    if type.kind.namespaced and body["metadata"].get("namespace") not in (None, "", call.info.namespace):
        metadata.set_namespace(body, type, call.info.namespace)
    sent = str(body["metadata"].get("resourceVersion") or "")
    encoded = dumps(body)

    async def write(was: Entry) -> ObjectResult:
        if sent and sent != str(was.rev):
            raise apierrors.modified(type.kind, name)
        if not sent and type.custom:
            cause = Cause(
                "metadata.resourceVersion",
                "FieldValueInvalid",
                "Invalid value: 0: must be specified for an update",
            )
            # Here, and only here, kube-apiserver's message has the resource instead of the kind.
            raise apierrors.invalid(replace(type.kind, kind=type.kind.plural), name, [cause])
        old = to_served_version(type, was)
        changed = await update_entry(context, type, call, old, was, loads(encoded))
        return ObjectResult(type, to_served_version(type, changed))

    return await retry_on_conflict(context, type, call.info, write)
