"""Server-side apply: PATCH with an apply configuration."""

from __future__ import annotations

from functools import partial

from windrow.apiserver import apierrors
from windrow.apiserver.context import ObjectResult, ServerContext, find_entry, to_served_version
from windrow.apiserver.fieldmanager.managed_fields import (
    ApplyConflict,
    Manager,
    paths_of,
    plan_apply,
    write_managers,
)
from windrow.apiserver.request.decoding import work_on
from windrow.apiserver.request.info import ApiCall, is_truthy
from windrow.apiserver.storage.port import Raw, RevisionMismatch
from windrow.apiserver.types.registry import ResourceType
from windrow.apiserver.verbs import metadata
from windrow.apiserver.verbs.create import create
from windrow.apiserver.verbs.rest_storage import MAX_ATTEMPTS, prune_and_default, update_entry
from windrow.core.formats.fastjson import dumps, loads
from windrow.kubernetes.errors import AlreadyExists, KubeError


def _writer(context: ServerContext, type: ResourceType, call: ApiCall) -> Manager:
    return Manager(
        call.field_manager, "Apply", type.kind.api_version, call.info.subresource, context.timestamp()
    )


async def apply(context: ServerContext, type: ResourceType, call: ApiCall) -> ObjectResult:
    """Apply the configuration in the body as its field manager. Creates the object (201) when it does not exist."""
    if not call.options.get("fieldManager"):
        cause = apierrors.required("fieldManager", "is required for apply patch")
        raise apierrors.invalid_options("PatchOptions", cause)
    body = call.body
    if not isinstance(body, dict):
        raise apierrors.bad_request("error decoding YAML: the apply configuration is not an object")
    head = body["metadata"] = body.get("metadata") or {}
    if not isinstance(head, dict):
        raise apierrors.bad_request(f"metadata of the {type.kind.kind} must be an object")
    if head.get("managedFields"):
        raise apierrors.bad_request("metadata.managedFields must be nil")
    if type.custom and not head.get("name"):
        why = f"the name of the object ({call.info.name} based on URL) was undeterminable: name must be provided"
        raise apierrors.bad_request(why)
    if head.setdefault("name", call.info.name) != call.info.name:
        raise apierrors.bad_request(
            f"the name of the object ({head['name']}) does not match the name on the URL ({call.info.name})"
        )
    sent = str(head.pop("resourceVersion", "") or "")
    encoded = dumps(body)
    for _ in range(MAX_ATTEMPTS):
        was = await find_entry(context, type, call.info)
        try:
            if was is None:
                return await _create(context, type, call, loads(encoded), sent)
            if sent and sent != str(was.rev):
                raise apierrors.modified(type.kind, call.info.name)
            old = to_served_version(type, was)
            merge = partial(_merge_applied, context, type, call, old.copy(), loads(encoded))
            new, managers = await work_on(max(call.size, len(old.data)), merge)
            changed = await update_entry(context, type, call, old, was, new, managed=managers)
        except (RevisionMismatch, AlreadyExists):
            continue
        return ObjectResult(type, to_served_version(type, changed))
    raise apierrors.modified(type.kind, call.info.name)


async def _create(
    context: ServerContext, type: ResourceType, call: ApiCall, raw: Raw, sent: str
) -> ObjectResult:
    if call.info.subresource or sent:
        raise apierrors.not_found(type.kind, call.info.name)
    call.body = raw
    writer = _writer(context, type, call)
    writer.paths = set(paths_of(type.schema, metadata.with_type_meta(loads(dumps(raw)), type)))
    holder: Raw = {"metadata": {}}
    write_managers(holder, [writer])
    return await create(context, type, call, managed=holder["metadata"].get("managedFields"))


def _merge_applied(
    context: ServerContext, type: ResourceType, call: ApiCall, live: Raw, raw: Raw
) -> tuple[Raw, list[Raw]]:
    """The object after the apply and its managers. 409 lists every conflicting field."""
    applied = prune_and_default(type, raw, call, defaults=False)
    metadata.set_namespace(applied, type, live["metadata"].get("namespace", ""))
    if type.has_status and call.info.subresource != "status":
        applied.pop("status", None)
    if call.info.subresource == "status":
        applied = {name: value for name, value in applied.items() if name in ("apiVersion", "kind", "status")}
    writer = _writer(context, type, call)
    new, conflicts = plan_apply(type.schema, live, applied, writer, force=is_truthy(call.options, "force"))
    if conflicts:
        raise _conflict(conflicts)
    return new, new["metadata"].get("managedFields") or []


def _conflict(conflicts: list[ApplyConflict]) -> KubeError:
    by_manager: dict[str, list[str]] = {}
    causes = []
    for found in conflicts:
        owner = found.manager
        using = f' with subresource "{owner.subresource}"' if owner.subresource else ""
        using += f" using {owner.api_version}" if owner.operation == "Update" else ""
        text = f'"{owner.name}"{using}'
        by_manager.setdefault(text, []).append(found.field_path)
        message = f"conflict with {text}"
        causes.append({"reason": "FieldManagerConflict", "message": message, "field": found.field_path})
    parts = []
    for manager, fields in by_manager.items():
        if len(fields) == 1:
            parts.append(f"conflict with {manager}: {fields[0]}")
        else:
            parts.append(f"conflicts with {manager}:\n" + "\n".join(f"- {one}" for one in fields))
    count = f"{len(conflicts)} conflict{'' if len(conflicts) == 1 else 's'}"
    return apierrors.status_error(
        409, f"Apply failed with {count}: " + "\n".join(parts), details={"causes": causes}
    )
