"""Waiting on the management API: a condition checked again after each change of a kind, and at an interval."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from windrow.cli.connect import Connection
from windrow.client.informer import Informer
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.core.clock import sleep
from windrow.core.rng import Rng
from windrow.kubernetes.errors import OutcomeUnknown, Unreachable
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import ApiResource

# Changes come in bursts; the condition is checked once for all changes within this time.
SETTLE = timedelta(seconds=0.2)

Condition = Callable[[], Awaitable[bool]]


async def _signal_changes(informer: Informer[str], changed: asyncio.Event) -> None:
    async for _ in informer.changes():
        changed.set()


def _resource_version(raw: Raw) -> str:
    return str(raw["metadata"]["resourceVersion"])


async def _check_until_done(
    is_done: Condition, manager: Connection, interval_s: float | None, changed: asyncio.Event
) -> None:
    while True:
        changed.clear()
        try:
            if await is_done():
                return
        except (OutcomeUnknown, Unreachable):  # the server restarts; the informers notice when it is back
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
    """Check `is_done` now and after each change (with `interval_s`, at least that often) until it returns True."""
    if await is_done():  # a server that cannot be reached at all is an error, not a wait
        return
    changed = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for kind in kinds:
            informer = Informer(
                manager.client.transport, kind, namespace, _resource_version, manager.clock, Rng()
            )
            tasks += [
                group.create_task(informer.run()),
                group.create_task(_signal_changes(informer, changed)),
            ]
        await _check_until_done(is_done, manager, interval_s, changed)
        for task in tasks:
            task.cancel()
