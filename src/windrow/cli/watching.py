"""Looking again whenever clusters or machines (or other kinds) change: watches on them, and a beat for ages on screen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from windrow.cli.reach import Reached
from windrow.clusters.kinds import CLUSTER, MACHINE
from windrow.kube import requests
from windrow.kube.errors import Expired, Unanswered, Unreachable, error_from_status
from windrow.kube.refs import Kind
from windrow.values.clock import pause

# Changes come in bursts; one look for all of a burst is enough for eyes.
SETTLE = timedelta(seconds=0.2)
AGAIN = timedelta(seconds=1)

Look = Callable[[], Awaitable[bool]]


async def _ring(manager: Reached, kind: Kind, namespace: str, bell: asyncio.Event) -> None:
    """Ring at every change of `kind`; survive the end of watches and a server that is away."""
    while True:
        try:
            version = (await manager.client.listing(kind, namespace)).version
            bell.set()
            request = requests.watch(kind, namespace, version=version)
            async with manager.client.transport.stream(request) as events:
                async for event in events:
                    if event.type == "ERROR":
                        raise error_from_status(event.object)
                    if event.type != "BOOKMARK":
                        bell.set()
        except (Expired, Unanswered, Unreachable):
            await pause(manager.clock, AGAIN)


async def _look_again(look: Look, manager: Reached, beat_s: float | None, bell: asyncio.Event) -> None:
    while True:
        bell.clear()
        try:
            if await look():
                return
        except (Unanswered, Unreachable):  # the server restarts; the bell rings when it is back
            pass
        await pause(manager.clock, SETTLE)
        try:
            async with asyncio.timeout(beat_s):
                await bell.wait()
        except TimeoutError:
            continue


async def look_until(
    look: Look,
    manager: Reached,
    *,
    namespace: str = "",
    beat_s: float | None = None,
    kinds: Sequence[Kind] = (CLUSTER, MACHINE),
) -> None:
    """Call `look` now and after each change (with `beat_s`, at least that often) until it returns True."""
    if await look():  # a server that cannot be reached at all is an error, not a wait
        return
    bell = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        rings = [group.create_task(_ring(manager, kind, namespace, bell)) for kind in kinds]
        await _look_again(look, manager, beat_s, bell)
        for ring in rings:
            ring.cancel()
