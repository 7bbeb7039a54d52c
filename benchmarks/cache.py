"""What a cache of 10,000 VMs and instances costs: seconds to fill, memory to hold. As dicts they are 240 MB each.

The API server answers from bytes made beforehand, so that the client's share is measured alone.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from benchmarks import Figure
from windrow.app.clock import SystemClock
from windrow.client.informer import Informer
from windrow.core.formats.fastjson import dumps
from windrow.core.rng import Rng
from windrow.harvester.resources import VM, VMI
from windrow.harvester.vmis import read_vmi
from windrow.harvester.vms import read_vm
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import ApiResource

OBJECTS = 10_000
PAGE = 500


def _a_vm(number: int) -> dict[str, Any]:
    """About as large as a real one (5 KB)."""
    name = f"cluster-{number // 10}-pool-{number % 10}"
    interface = {
        "name": "nic-1",
        "interfaceName": "enp1s0",
        "ipAddress": f"10.0.{number // 250}.{number % 250}",
    }
    return {
        "apiVersion": VM.api_version,
        "kind": VM.kind,
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{number}",
            "resourceVersion": str(number + 1),
            "labels": {f"example.org/label-{one}": f"value {one} of {name}" for one in range(8)},
            "annotations": {"example.org/history": "x" * 3000},
        },
        "spec": {
            "runStrategy": "RerunOnFailure",
            "template": {
                "spec": {"domain": {"devices": {"interfaces": [{"name": "nic-1", "bridge": {}}] * 4}}}
            },
        },
        "status": {
            "phase": "Running",
            "printableStatus": "Running",
            "created": True,
            "ready": True,
            "interfaces": [interface],
            "conditions": [
                {"type": f"Condition{one}", "status": "True", "reason": "Fine"} for one in range(6)
            ],
        },
    }


class _Pages:
    """Serves the same list again and again, and a watch that is silent."""

    def __init__(self) -> None:
        self._pages = []
        for start in range(0, OBJECTS, PAGE):
            following = str(start + PAGE) if start + PAGE < OBJECTS else ""
            items = [_a_vm(number) for number in range(start, start + PAGE)]
            metadata = {"resourceVersion": "99999", "continue": following}
            self._pages.append(dumps({"metadata": metadata, "items": items}))

    async def send(self, request: Request) -> Reply:
        return Reply(200, self._pages[int(request.query_parameter("continue") or 0) // PAGE])

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        @asynccontextmanager
        async def silence() -> AsyncIterator[AsyncIterator[WatchEvent]]:
            await asyncio.Event().wait()
            yield  # type: ignore[misc]

        return silence()

    async def aclose(self) -> None:
        pass


def measure() -> Iterator[Figure]:
    pages = _Pages()
    for kind, read in ((VM, read_vm), (VMI, read_vmi)):
        seconds, megabytes = asyncio.run(_fill(pages, kind, read))
        yield Figure(
            f"{OBJECTS} {kind.plural}: fill", seconds, "s", 1.5, "reference 07 §5: dicts decoded alone"
        )
        yield Figure(f"{OBJECTS} {kind.plural}: hold", megabytes, "MB", 76, "reference 07 §5.2: typed views")


async def _fill(pages: _Pages, kind: ApiResource, read: Callable[[Any], object]) -> tuple[float, float]:
    seconds = await _time(pages, kind, read)
    gc.collect()
    tracemalloc.start()
    cache = Informer(pages, kind, "default", read, SystemClock(), Rng(1))
    running = asyncio.create_task(cache.run())
    await cache.wait_for_sync()
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    running.cancel()
    assert len(cache.values()) == OBJECTS
    return seconds, held / 1e6


async def _time(pages: _Pages, kind: ApiResource, read: Callable[[Any], object]) -> float:
    cache = Informer(pages, kind, "default", read, SystemClock(), Rng(1))
    begun = time.perf_counter()
    running = asyncio.create_task(cache.run())
    await cache.wait_for_sync()
    running.cancel()
    return time.perf_counter() - begun
