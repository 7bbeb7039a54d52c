"""GET of one object."""

from __future__ import annotations

from windrow.apiserver import apierrors
from windrow.apiserver.context import ObjectResult, ServerContext, get_entry, to_served_version
from windrow.apiserver.request.info import ApiCall
from windrow.apiserver.types.registry import ResourceType


async def get(context: ServerContext, type: ResourceType, call: ApiCall) -> ObjectResult:
    asked = call.options.get("resourceVersion", "")
    if asked.isdigit() and int(asked) > context.store.rev:
        raise apierrors.resource_version_too_large(int(asked), context.store.rev)
    return ObjectResult(type, to_served_version(type, await get_entry(context, type, call.info)))
