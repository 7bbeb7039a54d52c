"""The dashboard over 1,000 clusters of 10 machines each: its pages, an event on its way to a browser, and pages at rest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp

from benchmarks import Figure
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.access.management import ApiUser, ManagementAccess
from windrow.app.clock import SystemClock
from windrow.app.embedded import install_crds, management_api
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.names import CLUSTER_NAME
from windrow.core.rng import Rng
from windrow.dashboard.changes import ChangeFeed
from windrow.dashboard.guard import SESSION_COOKIE
from windrow.dashboard.http import DashboardListener
from windrow.dashboard.sessions import Sessions, SignInCodes, WrongTries
from windrow.dashboard.site import DashboardSite, Doors
from windrow.kubernetes.objects import Raw

CLUSTERS, MACHINES_EACH, PAGES, QUIET_S = 1000, 10, 50, 10
NAMESPACE = "fleet-default"
SOURCE = "issue 15"


def measure() -> Iterator[Figure]:
    yield from asyncio.run(_measure())


async def _measure() -> list[Figure]:
    async with _served() as (api, browser, url):
        first_ms, size = await _get(browser, f"{url}/clusters")
        cluster_ms, _ = await _get(browser, f"{url}/clusters/{NAMESPACE}/c-0500")
        return [
            Figure("overview of 1,000 clusters, first byte", first_ms, "ms", 200, SOURCE),
            Figure("overview of 1,000 clusters, compressed", size / 1024, "KiB", 150, SOURCE),
            Figure("one of 1,000 clusters, first byte", cluster_ms, "ms", 200, "as the overview"),
            Figure("an event, until its page has it", await _event_ms(api, browser, url), "ms", 500, SOURCE),
            Figure(
                f"{PAGES} pages at rest, share of a core", await _idle_share(browser, url), "%", 5, SOURCE
            ),
        ]


async def _get(browser: aiohttp.ClientSession, url: str) -> tuple[float, int]:
    """Milliseconds to the first byte, the best of three, and the bytes that were sent."""
    times, size = [], 0
    for _ in range(3):
        began = time.perf_counter()
        async with browser.get(url) as answer:
            times.append((time.perf_counter() - began) * 1000)
            assert answer.status == 200, await answer.text()
            size = int(answer.headers["Content-Length"])
    return min(times), size


async def _event_ms(api: ApiServer, browser: aiohttp.ClientSession, url: str) -> float:
    async with browser.get(f"{url}/live/overview?namespace=") as stream:
        await stream.content.readuntil(b"\n\n")
        await asyncio.sleep(1)
        began = time.perf_counter()
        await api.local().patch(CLUSTER.ref("c-0000", NAMESPACE), {"status": {"phase": "Failed"}}, "status")
        assert b"changed" in await stream.content.readuntil(b"\n\n")
        async with browser.get(f"{url}/clusters", headers={"HX-Request": "true"}) as answer:
            assert b"failed" in await answer.read()
        return (time.perf_counter() - began) * 1000


async def _idle_share(browser: aiohttp.ClientSession, url: str) -> float:
    streams = [await browser.get(f"{url}/live/overview?namespace=") for _ in range(PAGES)]
    await asyncio.sleep(2)
    began = time.process_time()
    await asyncio.sleep(QUIET_S)
    share = (time.process_time() - began) / QUIET_S * 100
    for stream in streams:
        stream.close()
    return share


@asynccontextmanager
async def _served() -> AsyncIterator[tuple[ApiServer, aiohttp.ClientSession, str]]:
    clock, rng = SystemClock(), Rng(1)
    api = management_api(MemoryStore(), clock, rng)
    await install_crds(Client(api.local()))
    await _fill(api)
    sessions = Sessions(clock, rng)
    doors = Doors(ManagementAccess(api), SignInCodes(clock, rng), sessions, WrongTries(clock))
    cookie = sessions.open(ApiUser("admin", ("system:masters",), api.local()), "")
    jar = aiohttp.CookieJar(unsafe=True)
    async with ChangeFeed(clock, rng) as feed:
        site = DashboardSite(doors, feed, clock, ("127.0.0.1",))
        async with (
            DashboardListener(site, "127.0.0.1", 0) as listener,
            aiohttp.ClientSession(cookie_jar=jar, cookies={SESSION_COOKIE: cookie}) as browser,
        ):
            yield api, browser, f"http://127.0.0.1:{listener.port}"


async def _fill(api: ApiServer) -> None:
    """The clusters and machines, with statuses of the usual size."""
    local = api.local()
    for number in range(CLUSTERS):
        name = f"c-{number:04}"
        await local.create(CLUSTER, _cluster(name))
        await local.patch(CLUSTER.ref(name, NAMESPACE), {"status": _status(name)}, "status")
        for place in range(MACHINES_EACH):
            await local.create(MACHINE, _machine(name, place))


def _cluster(name: str) -> Raw:
    pools = [
        {"name": "servers", "quantity": 3, "etcdRole": True, "controlPlaneRole": True},
        {"name": "workers", "quantity": 7, "workerRole": True},
    ]
    spec = {"kubernetesVersion": "v1.34.7+rke2r1", "rkeConfig": {"machinePools": pools}}
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def _status(name: str) -> Raw:
    types = (
        "Ready",
        "Accepted",
        "PreflightPassed",
        "CredentialValid",
        "Initialized",
        "Provisioned",
        "UpToDate",
    )
    stamp = "2026-01-01T12:00:00Z"
    waiting = {
        "for": f"VirtualMachine default/{name}-workers-x7k2p to report an IP address (guest agent not connected)",
        "since": stamp,
        "next": "the node joins",
    }
    conditions = [
        {
            "type": one,
            "status": "True",
            "reason": "Valid",
            "message": "as it should be",
            "lastTransitionTime": stamp,
        }
        for one in types
    ]
    return {
        "phase": "Provisioning",
        "observedGeneration": 1,
        "version": "v1.34.7+rke2r1",
        "waiting": waiting,
        "conditions": conditions[1:],
    }


def _machine(cluster: str, place: int) -> Raw:
    spec = {
        "clusterName": cluster,
        "clusterUID": "u",
        "pool": "servers" if place < 3 else "workers",
        "roles": ["etcd", "control-plane"] if place < 3 else ["worker"],
        "options": {"cpuCount": "4", "memorySize": "8", "vmNamespace": "default"},
        "credential": "cattle-global-data:cc",
        "version": "v1.34.7+rke2r1",
    }
    metadata = {"name": f"{cluster}-{place}", "namespace": NAMESPACE, "labels": {CLUSTER_NAME: cluster}}
    return {"metadata": metadata, "spec": spec}
