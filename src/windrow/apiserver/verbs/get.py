"""GET of one object."""

from __future__ import annotations

from windrow.apiserver import core as kernel
from windrow.apiserver import statuses
from windrow.apiserver.calls import Call
from windrow.apiserver.core import Core, Single
from windrow.apiserver.types import Type


async def get(core: Core, type: Type, call: Call) -> Single:
    asked = call.options.get("resourceVersion", "")
    if asked.isdigit() and int(asked) > core.store.rev:
        raise statuses.too_large_version(int(asked), core.store.rev)
    return Single(type, kernel.served(type, await kernel.get(core, type, call.target)))
