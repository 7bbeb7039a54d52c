"""PATCH with an apply configuration: the fields that its manager wants, and no others (server-side apply)."""

from __future__ import annotations

from windrow.apiserver import apierrors
from windrow.apiserver.context import ObjectResult, ServerContext, find_entry, to_served_version
from windrow.apiserver.fieldmanager.managed_fields import (
    ApplyConflict,
    Manager,
    paths_of,
    plan_apply,
    write_managers,
)
from windrow.apiserver.request.info import ApiCall, is_truthy
from windrow.apiserver.storage.port import Raw, RevisionMismatch
from windrow.apiserver.types.registry import ResourceType
from windrow.apiserver.verbs import metadata
from windrow.apiserver.verbs.create import create
from windrow.apiserver.verbs.rest_storage import MAX_ATTEMPTS, prune_and_default, update_entry
from windrow.core.fastjson import dumps, loads
from windrow.kubernetes.errors import AlreadyExists, KubeError


def _writer(context: ServerContext, type: ResourceType, call: ApiCall) -> Manager:
    return Manager(
        call.field_manager, "Apply", type.kind.api_version, call.info.subresource, context.timestamp()
    )


def _check_options(type: ResourceType, call: ApiCall) -> None:
    if not call.options.get("fieldManager"):
        cause = apierrors.required("fieldManager", "is required for apply patch")
        raise apierrors.invalid_options("PatchOptions", cause)


async def apply(context: ServerContext, type: ResourceType, call: ApiCall) -> ObjectResult:
    """Make the object so that it holds what the body says. Creates it (201) when it is not there."""
    _check_options(type, call)
    body = call.body
    if not isinstance(body, dict):
        raise apierrors.bad_request("error decoding YAML: the apply configuration is not an object")
    head = body.setdefault("metadata", {})
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
            new, managers = _merge_applied(context, type, call, old.copy(), loads(encoded))
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
    """The object after the apply and its managers. 409 names every field that others own."""
    applied = prune_and_default(type, raw, call, defaults=False)
    metadata.set_namespace(applied, type, live["metadata"].get("namespace", ""))
    if type.has_status and call.info.subresource != "status":
        applied.pop("status", None)
    if call.info.subresource == "status":
        applied = {name: value for name, value in applied.items() if name in ("apiVersion", "kind", "status")}
    writer = _writer(context, type, call)
    new, clashes = plan_apply(type.schema, live, applied, writer, force=is_truthy(call.options, "force"))
    if clashes:
        raise _conflict(clashes)
    return new, new["metadata"].get("managedFields") or []


def _conflict(clashes: list[ApplyConflict]) -> KubeError:
    causes = []
    by_manager: dict[str, list[str]] = {}
    for clash in clashes:
        using = f' with subresource "{clash.manager.subresource}"' if clash.manager.subresource else ""
        whose = f'"{clash.manager.name}"{using}'
        if clash.manager.operation == "Update":
            whose += f" using {clash.manager.api_version}"
        by_manager.setdefault(whose, []).append(clash.field_path)
        causes.append(
            {"reason": "FieldManagerConflict", "message": f"conflict with {whose}", "field": clash.field_path}
        )
    parts = []
    for whose, fields in by_manager.items():
        if len(fields) == 1:
            parts.append(f"conflict with {whose}: {fields[0]}")
        else:
            parts.append(f"conflicts with {whose}:\n" + "\n".join(f"- {one}" for one in fields))
    count = f"{len(clashes)} conflict{'' if len(clashes) == 1 else 's'}"
    return apierrors.status_error(
        409, f"Apply failed with {count}: " + "\n".join(parts), details={"causes": causes}
    )
