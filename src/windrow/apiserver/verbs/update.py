"""PUT: the whole object anew, or its status."""

from __future__ import annotations

from dataclasses import replace

from windrow.apiserver import core as kernel
from windrow.apiserver import metadata, statuses
from windrow.apiserver.calls import Call
from windrow.apiserver.core import Core, Single, check_dry_run, served
from windrow.apiserver.statuses import Cause
from windrow.apiserver.store import Stale
from windrow.apiserver.types import Type
from windrow.apiserver.writing import ATTEMPTS, rewrite
from windrow.core.fastjson import dumps, loads


async def update(core: Core, type: Type, call: Call) -> Single:
    """Replace the object. 409 when the body names a version that is not the latest."""
    check_dry_run(call)
    body = call.body
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        metadata.shaped(body, type)
        raise statuses.bad_request("the object has no metadata")
    name = body["metadata"].get("name") or call.target.name
    if name != call.target.name:
        raise statuses.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.target.name})"
        )
    body["metadata"]["name"] = name
    if type.kind.namespaced and body["metadata"].get("namespace") not in (None, "", call.target.namespace):
        metadata.place(body, type, call.target.namespace)
    sent = str(body["metadata"].get("resourceVersion") or "")
    encoded = dumps(body)
    for _ in range(ATTEMPTS):
        was = await kernel.get(core, type, call.target)
        if sent:
            if sent != str(was.rev):
                raise statuses.modified(type.kind, name)
        elif type.custom:
            cause = Cause(
                "metadata.resourceVersion",
                "FieldValueInvalid",
                "Invalid value: 0: must be specified for an update",
            )
            # Here, and only here, the real server names the resource where it means the kind.
            raise statuses.invalid(replace(type.kind, kind=type.kind.plural), name, [cause])
        try:
            changed = await rewrite(core, type, call, served(type, was), was, loads(encoded))
        except Stale:
            continue  # with a version sent, the next round says so
        return Single(type, served(type, changed))
    raise statuses.modified(type.kind, name)
