"""The `scale` subresource."""

from __future__ import annotations

from typing import Any

from windrow.apiserver import apierrors
from windrow.apiserver.context import JsonResult, ServerContext, to_served_version
from windrow.apiserver.request.info import ApiCall
from windrow.apiserver.storage.port import Entry, Raw
from windrow.apiserver.types import schema
from windrow.apiserver.types.registry import ResourceType, ScalePaths
from windrow.apiserver.verbs.patch import PATCHES
from windrow.apiserver.verbs.rest_storage import retry_on_conflict, update_entry
from windrow.core.formats.fastjson import dumps, loads
from windrow.kubernetes.objects import nested

# Scale is not in the table of `types.field_types`: no client sends it as protobuf to a kind that has one here.
_OBJECT: schema.Schema = {"type": "object", "nullable": True}
SCALE_SCHEMA: schema.Schema = {
    "type": "object",
    "properties": {
        "metadata": {
            **_OBJECT,
            "properties": {
                name: {"type": "string", "nullable": True}
                for name in ("name", "namespace", "resourceVersion", "uid")
            },
        },
        "spec": {
            **_OBJECT,
            "properties": {"replicas": {"type": "integer", "nullable": True, "maximum": 2**31 - 1}},
        },
    },
}


def scale_of(scaling: ScalePaths, raw: Raw) -> Raw:
    """The Scale of the object."""
    head = raw["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Raw = {"replicas": nested(raw, *scaling.status_replicas, default=0)}
    selector = nested(raw, *scaling.selector) if scaling.selector else None
    if isinstance(selector, dict):
        labels = selector.get("matchLabels") or {}
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: head[name] for name in names if name in head},
        "spec": {"replicas": nested(raw, *scaling.spec_replicas, default=0)},
        "status": status,
    }


def _set(raw: Raw, path: tuple[str, ...], value: Any) -> None:
    for step in path[:-1]:
        raw = raw.setdefault(step, {})
    raw[path[-1]] = value


async def scale(context: ServerContext, type: ResourceType, call: ApiCall) -> JsonResult:
    """GET, PUT and PATCH of the Scale; a change is an update of the object."""
    scaling = type.scale
    if scaling is None or call.verb not in ("get", "update", "patch"):
        raise apierrors.method_not_allowed()

    async def write(was: Entry) -> JsonResult:
        old = to_served_version(type, was)
        changed = old
        if call.verb != "get":
            changed = to_served_version(type, await _change(context, type, call, scaling, old, was))
        return JsonResult(scale_of(scaling, changed.raw))

    return await retry_on_conflict(context, type, call.info, write)


async def _change(
    context: ServerContext, type: ResourceType, call: ApiCall, scaling: ScalePaths, old: Entry, was: Entry
) -> Entry:
    before = scale_of(scaling, old.raw)
    wanted = loads(dumps(call.body))
    if call.verb == "patch":
        if call.media_type not in PATCHES:
            raise apierrors.unsupported_media(tuple(PATCHES))
        wanted = PATCHES[call.media_type](type, before, wanted)
    if mistyped := schema.validate(SCALE_SCHEMA, wanted):
        raise apierrors.bad_request(f"the body of the request is not a Scale: {mistyped[0]}")
    schema.drop_nulls(wanted)
    version = str(nested(wanted, "metadata", "resourceVersion", default=""))
    if version and version != str(was.rev):
        raise apierrors.modified(type.kind, call.info.name)
    replicas = nested(wanted, "spec", "replicas", default=0)
    if not isinstance(replicas, int) or replicas < 0:
        cause = apierrors.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise apierrors.invalid(type.kind, call.info.name, [cause])
    new = old.copy()
    _set(new, scaling.spec_replicas, replicas)
    return await update_entry(context, type, call, old, was, new)
