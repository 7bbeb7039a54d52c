"""PATCH with an apply configuration: the fields that its manager wants, and no others (server-side apply)."""

from __future__ import annotations

from windrow.apiserver import core as kernel
from windrow.apiserver import metadata, statuses
from windrow.apiserver.calls import Call, is_truthy
from windrow.apiserver.core import Core, Single, served
from windrow.apiserver.ownership import Clash, Manager, paths_of, plan_apply, write_managers
from windrow.apiserver.store import Raw, Stale
from windrow.apiserver.types import Type
from windrow.apiserver.verbs.create import create
from windrow.apiserver.writing import ATTEMPTS, clean, rewrite
from windrow.core.fastjson import dumps, loads
from windrow.kubernetes.errors import AlreadyExists, KubeError


def _writer(core: Core, type: Type, call: Call) -> Manager:
    return Manager(call.manager, "Apply", type.kind.api_version, call.target.subresource, core.stamp())


def _check_options(type: Type, call: Call) -> None:
    if not call.options.get("fieldManager"):
        cause = statuses.required("fieldManager", "is required for apply patch")
        raise statuses.invalid_options("PatchOptions", cause)


async def apply(core: Core, type: Type, call: Call) -> Single:
    """Make the object so that it holds what the body says. Creates it (201) when it is not there."""
    _check_options(type, call)
    body = call.body
    if not isinstance(body, dict):
        raise statuses.bad_request("error decoding YAML: the apply configuration is not an object")
    head = body.setdefault("metadata", {})
    if head.get("managedFields"):
        raise statuses.bad_request("metadata.managedFields must be nil")
    if type.custom and not head.get("name"):
        why = f"the name of the object ({call.target.name} based on URL) was undeterminable: name must be provided"
        raise statuses.bad_request(why)
    if head.setdefault("name", call.target.name) != call.target.name:
        raise statuses.bad_request(
            f"the name of the object ({head['name']}) does not match the name on the URL ({call.target.name})"
        )
    sent = str(head.pop("resourceVersion", "") or "")
    encoded = dumps(body)
    for _ in range(ATTEMPTS):
        was = await kernel.find(core, type, call.target)
        try:
            if was is None:
                return await _create(core, type, call, loads(encoded), sent)
            if sent and sent != str(was.rev):
                raise statuses.modified(type.kind, call.target.name)
            old = served(type, was)
            new, managers = _planned(core, type, call, old.copy(), loads(encoded))
            changed = await rewrite(core, type, call, old, was, new, managed=managers)
        except (Stale, AlreadyExists):
            continue
        return Single(type, served(type, changed))
    raise statuses.modified(type.kind, call.target.name)


async def _create(core: Core, type: Type, call: Call, raw: Raw, sent: str) -> Single:
    if call.target.subresource or sent:
        raise statuses.not_found(type.kind, call.target.name)
    call.body = raw
    writer = _writer(core, type, call)
    writer.paths = set(paths_of(type.schema, metadata.shaped(loads(dumps(raw)), type)))
    holder: Raw = {"metadata": {}}
    write_managers(holder, [writer])
    return await create(core, type, call, managed=holder["metadata"].get("managedFields"))


def _planned(core: Core, type: Type, call: Call, live: Raw, raw: Raw) -> tuple[Raw, list[Raw]]:
    """The object after the apply and its managers. 409 names every field that others own."""
    applied = clean(type, raw, call, defaults=False)
    metadata.place(applied, type, live["metadata"].get("namespace", ""))
    if type.has_status and call.target.subresource != "status":
        applied.pop("status", None)
    if call.target.subresource == "status":
        applied = {name: value for name, value in applied.items() if name in ("apiVersion", "kind", "status")}
    writer = _writer(core, type, call)
    new, clashes = plan_apply(type.schema, live, applied, writer, force=is_truthy(call.options, "force"))
    if clashes:
        raise _conflict(clashes)
    return new, new["metadata"].get("managedFields") or []


def _conflict(clashes: list[Clash]) -> KubeError:
    causes = []
    by_manager: dict[str, list[str]] = {}
    for clash in clashes:
        using = f' with subresource "{clash.manager.subresource}"' if clash.manager.subresource else ""
        whose = f'"{clash.manager.name}"{using}'
        if clash.manager.operation == "Update":
            whose += f" using {clash.manager.api_version}"
        by_manager.setdefault(whose, []).append(clash.dotted)
        causes.append(
            {"reason": "FieldManagerConflict", "message": f"conflict with {whose}", "field": clash.dotted}
        )
    parts = []
    for whose, fields in by_manager.items():
        if len(fields) == 1:
            parts.append(f"conflict with {whose}: {fields[0]}")
        else:
            parts.append(f"conflicts with {whose}:\n" + "\n".join(f"- {one}" for one in fields))
    count = f"{len(clashes)} conflict{'' if len(clashes) == 1 else 's'}"
    return statuses.fail(409, f"Apply failed with {count}: " + "\n".join(parts), details={"causes": causes})
