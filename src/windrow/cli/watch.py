"""Looking again whenever clusters or machines (or other kinds) change: watches on them, and a beat for ages on screen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from windrow.cli.connect import Connection
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.core.clock import sleep
from windrow.kubernetes import requests
from windrow.kubernetes.errors import Expired, OutcomeUnknown, Unreachable, error_from_status
from windrow.kubernetes.resources import ApiResource

# Changes come in bursts; one look for all of a burst is enough for eyes.
SETTLE = timedelta(seconds=0.2)
RETRY_DELAY = timedelta(seconds=1)

Condition = Callable[[], Awaitable[bool]]


async def _signal_changes(
    manager: Connection, kind: ApiResource, namespace: str, changed: asyncio.Event
) -> None:
    """Ring at every change of `kind`; survive the end of watches and a server that is away."""
    while True:
        try:
            version = (await manager.client.list_with_version(kind, namespace)).resource_version
            changed.set()
            request = requests.watch(kind, namespace, version=version)
            async with manager.client.transport.stream(request) as events:
                async for event in events:
                    if event.type == "ERROR":
                        raise error_from_status(event.object)
                    if event.type != "BOOKMARK":
                        changed.set()
        except (Expired, OutcomeUnknown, Unreachable):
            await sleep(manager.clock, RETRY_DELAY)


async def _check_again(
    is_done: Condition, manager: Connection, interval_s: float | None, changed: asyncio.Event
) -> None:
    while True:
        changed.clear()
        try:
            if await is_done():
                return
        except (OutcomeUnknown, Unreachable):  # the server restarts; the bell rings when it is back
            pass
        await sleep(manager.clock, SETTLE)
        try:
            async with asyncio.timeout(interval_s):
                await changed.wait()
        except TimeoutError:
            continue


async def watch_until(
    is_done: Condition,
    manager: Connection,
    *,
    namespace: str = "",
    interval_s: float | None = None,
    kinds: Sequence[ApiResource] = (CLUSTER, MACHINE),
) -> None:
    """Call `look` now and after each change (with `beat_s`, at least that often) until it returns True."""
    if await is_done():  # a server that cannot be reached at all is an error, not a wait
        return
    changed = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        watches = [group.create_task(_signal_changes(manager, kind, namespace, changed)) for kind in kinds]
        await _check_again(is_done, manager, interval_s, changed)
        for ring in watches:
            ring.cancel()
