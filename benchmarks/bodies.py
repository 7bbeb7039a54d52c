"""Request bodies of 3 MB: how long each takes to be answered or refused, and other requests meanwhile.

Before bounds: 2.9 MB of flat YAML blocked the event loop for 22 s, 25 kB of `[` ended the process, `^(a+)+$` of a CRD
took 48 s. What must hold: each is answered in less than a second while other requests go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import time
from collections.abc import Iterator

import aiohttp

from benchmarks import Figure
from windrow.apiserver.http import Listener
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.clock import SystemClock
from windrow.core.rng import Rng

SIZE = 3 * 1024 * 1024 - 1000
MAPS = "/api/v1/namespaces/default/configmaps"
JSON, YAML = "application/json", "application/yaml"
HEAD = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{'

BODIES = {
    "JSON, one text": (JSON, HEAD + b'"a":"' + b"x" * (SIZE - 100) + b'"}}'),
    "JSON, many keys": (JSON, HEAD + b",".join(b'"%07d":"x"' % n for n in range(SIZE // 14)) + b"}}"),
    "JSON, 90,000 keys": (JSON, HEAD + b",".join(b'"%07d":"x"' % n for n in range(90_000)) + b"}}"),
    "JSON, many lists": (JSON, b"[" + b"[]," * (SIZE // 3) + b"[]]"),
    "JSON, deep": (JSON, b"[" * SIZE),
    "YAML, one text": (YAML, b"metadata: {name: m}\ndata:\n  a: " + b"x" * SIZE),
    "YAML, flat list": (YAML, b"- a\n" * (SIZE // 4)),
    "YAML, 24,000 keys": (YAML, b"data:\n" + b"".join(b" k%d: v\n" % n for n in range(24_000))),
    "YAML, deep": (YAML, b"[" * SIZE),
    "YAML, deep blocks": (YAML, b"- " * (SIZE // 2)),
    "YAML, one number": (YAML, b"1" + b":1" * (SIZE // 2)),
    "YAML, comments": (YAML, b"#\n" * (SIZE // 2)),
    "gzip of 3 GB": (JSON, b""),
}


async def _pings(session: aiohttp.ClientSession, worst: list[float]) -> None:
    last = time.perf_counter()
    while True:
        async with session.get("/version") as response:
            await response.read()
        await asyncio.sleep(0.01)
        now = time.perf_counter()  # from one to the next, since client and server share a loop
        worst[0], last = max(worst[0], now - last), now


async def _measure(media: str, body: bytes) -> tuple[int, float, float]:
    """Status, seconds until the response, and the longest of the requests beside it."""
    api = ApiServer(MemoryStore(), SystemClock(), Rng(1), anonymous=True)
    headers = {"Content-Type": media}
    if not body:
        body = gzip.compress(b" " * (256 * 1024 * 1024))
        headers["Content-Encoding"] = "gzip"
    async with (
        Listener(api) as listener,
        aiohttp.ClientSession(f"http://127.0.0.1:{listener.port}") as session,
    ):
        worst = [0.0]
        pings = asyncio.create_task(_pings(session, worst))
        await asyncio.sleep(0.1)
        worst[0] = 0.0
        began = time.perf_counter()
        async with session.post(MAPS, data=body, headers=headers) as response:
            await response.read()
        took = time.perf_counter() - began
        await asyncio.sleep(0.02)
        pings.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await pings
        return response.status, took, worst[0]


def measure() -> Iterator[Figure]:
    for name, (media, body) in BODIES.items():
        status, took, worst = asyncio.run(_measure(media, body))
        yield Figure(f"{name} ({status})", took, "s", 1, "issue 10")
        yield Figure("  other requests, at most", worst, "s", 1, "issue 10")
