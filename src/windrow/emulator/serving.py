"""Serves a simulated Harvester to other processes: its API on loopback, its network behind a proxy, a kubeconfig."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from windrow.apiserver.http import Listener
from windrow.emulator.harvester import Harvester
from windrow.emulator.proxy import Proxy


@dataclass(frozen=True, slots=True)
class ServedHarvester:
    """URLs of API and proxy. `kubeconfig` is the administrator's, with server and proxy."""

    url: str
    proxy_url: str
    kubeconfig: str = field(repr=False)
    proxy: Proxy = field(repr=False)


@asynccontextmanager
async def serve(harvester: Harvester, port: int = 0, proxy_port: int = 0) -> AsyncIterator[ServedHarvester]:
    """Serve `harvester`, which the caller runs, until the block ends; with port 0 the system chooses."""
    await harvester.ready.wait()
    async with (
        Listener(harvester.handler, port=port) as listener,
        Proxy(harvester.network, port=proxy_port) as proxy,
    ):
        proxy.allow(listener.port)
        url = f"https://127.0.0.1:{listener.port}"
        yield ServedHarvester(url, proxy.url, harvester.admin_kubeconfig(url, proxy.url), proxy)
