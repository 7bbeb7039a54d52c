"""Waiting for the world to look as it should: a list, then a watch, and a question asked after each event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from windrow.client.transport import Transport
from windrow.core.clock import Clock, sleep
from windrow.core.fastjson import loads
from windrow.kubernetes import requests
from windrow.kubernetes.errors import Expired, OutcomeUnknown, Unreachable, error_for, error_from_status
from windrow.kubernetes.resources import ApiResource

T = TypeVar("T")
Raw = dict[str, Any]
Objects = Mapping[tuple[str, str], Raw]  # (namespace, name) -> object


class WaitTimedOut(Exception):
    """What was waited for did not come in time; `last` is what the judge saw last."""

    def __init__(self, what: str, within: timedelta, last: Objects) -> None:
        super().__init__(f"waited {within.total_seconds():.0f} s for {what}")
        self.what, self.last = what, last


def _key(raw: Raw) -> tuple[str, str]:
    return raw["metadata"].get("namespace", ""), raw["metadata"]["name"]


async def _until(
    transport: Transport,
    kind: ApiResource,
    namespace: str,
    predicate: Callable[[Objects], T | None],
    objects: dict[tuple[str, str], Raw],
) -> T:
    reply = await transport.send(requests.list_(kind, namespace))
    if error := error_for(reply):
        raise error
    page = loads(reply.body)
    objects.clear()
    objects.update({_key(raw): raw for raw in page["items"]})
    if (found := predicate(objects)) is not None:
        return found
    async with transport.stream(
        requests.watch(kind, namespace, version=page["metadata"]["resourceVersion"])
    ) as events:
        async for event in events:
            match event.type:
                case "ADDED" | "MODIFIED":
                    objects[_key(event.object)] = event.object
                case "DELETED":
                    objects.pop(_key(event.object), None)
                case "ERROR":
                    raise error_from_status(event.object)
                case "BOOKMARK":
                    continue
            if (found := predicate(objects)) is not None:
                return found
    raise OutcomeUnknown("the watch ended")


async def wait_for(
    transport: Transport,
    kind: ApiResource,
    predicate: Callable[[Objects], T | None],
    *,
    what: str,
    clock: Clock,
    namespace: str = "",
    within: timedelta = timedelta(minutes=5),
) -> T:
    """The first answer of `judge` that is not None, asked on every change of `kind`. Raises NotSeen.

    Survives watch ends, 410 and a server that is away for a while.
    """
    objects: dict[tuple[str, str], Raw] = {}

    async def watch() -> T:
        while True:
            try:
                return await _until(transport, kind, namespace, predicate, objects)
            except (Expired, OutcomeUnknown, Unreachable):
                await sleep(clock, timedelta(seconds=0.5))

    try:
        async with asyncio.timeout(within.total_seconds()):
            return await watch()
    except TimeoutError:
        raise WaitTimedOut(what, within, dict(objects)) from None
