"""24 hours with churn on a driven clock: the memory of emulator, manager and cloud provider must be flat after the first.

Each product is a process of its own: the emulator alone; the manager with an emulator, whose slope is known from the
first; the cloud provider with the load balancer half of an emulator. Every hour machines are lost, made and removed, pools
scaled, services and volumes made and removed, credentials rotated, and watches broken off.

Memory is read after a garbage collection: resident memory as the system counts it, and the interpreter's allocated
blocks, which do not depend on fragmentation. WINDROW_SOAK_HOURS=2 makes it shorter; WINDROW_SOAK_TRACE=1 prints where the
blocks were allocated that came after the second hour.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.cloud_provider_rig import NETWORK, a_vm
from tests.stories.service_rig import CLOUD_CONFIG, a_cloud_config, a_service_rig
from tests.stories.service_rig import a_service as a_pool_service
from tests.support.clock import LoopClock, run_driven
from tests.support.simulation import VIP, simulation

from benchmarks import Figure
from benchmarks._harvester import a_harvester
from windrow.app.loop import running
from windrow.app.preload import credential_secrets
from windrow.clusters.api.kinds import CLUSTER
from windrow.demo.manifests import shipped
from windrow.emulator import kinds
from windrow.emulator.faults import CutWatch, Fault
from windrow.harvester.resources import VM
from windrow.kubernetes.objects import name_of, namespace_of, nested, new_object
from windrow.kubernetes.resources import CONFIG_MAP, PVC, SECRET, SERVICE, ref_of

HOURS = 24
ROUNDS = 3  # of churn, in each hour
# More than this is a leak: it would be 100 MB in six weeks.
LEAK_KB_PER_HOUR = 100.0

# One round of churn; it takes less than twenty minutes.
Churn = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory at the end of an hour."""

    rss_kb: float
    blocks: int


def measure() -> Iterator[Figure]:
    hours = int(os.environ.get("WINDROW_SOAK_HOURS", HOURS))
    for part in PARTS:
        yield from render(part, soak_in_process(part, hours))


def render(part: str, samples: Sequence[Sample]) -> Iterator[Figure]:
    """The figures of one product."""
    after_first, last = samples[0], samples[-1]
    hours = f"{len(samples)} h"
    rss = [one.rss_kb for one in samples]
    yield Figure(f"{part}: RSS after {hours}", last.rss_kb / 1e3, "MB", after_first.rss_kb / 1e3, "after 1 h")
    yield Figure(f"{part}: slope of the RSS", slope(rss), "kB/h", LEAK_KB_PER_HOUR, "more is a leak")
    yield Figure(f"{part}: allocated blocks after {hours}", last.blocks, "", after_first.blocks, "after 1 h")


def slope(values: Sequence[float]) -> float:
    """How much the values grow from one to the next, as the line shows that fits them best."""
    if len(values) < 2:
        return 0.0
    return statistics.linear_regression(range(len(values)), values).slope


def soak_in_process(part: str, hours: int) -> list[Sample]:
    """A sample for each hour, of a process that does nothing else."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", part, str(hours)], stdout=subprocess.PIPE, check=True
    )
    return [Sample(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith(b"{")]


async def soak(part: str, hours: int) -> AsyncIterator[Sample]:
    """A sample after each hour."""
    async with PARTS[part]() as churn:
        clock = LoopClock()
        for hour in range(hours):
            for number in range(ROUNDS):
                began = clock.monotonic().total_seconds()
                await churn(hour * ROUNDS + number)
                took = clock.monotonic().total_seconds() - began
                assert took < 3600 / ROUNDS, f"{part}: a round of churn took {took:.0f} s"
                await asyncio.sleep(3600 / ROUNDS - took)
            gc.collect()
            pages = int(Path("/proc/self/statm").read_text().split()[1])  # noqa: ASYNC240
            yield Sample(pages * os.sysconf("SC_PAGE_SIZE") / 1e3, sys.getallocatedblocks())


# --- the emulator -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def an_emulator() -> AsyncIterator[Churn]:
    async with a_harvester(LoopClock()) as harvester:
        api = harvester.api.local()
        image = await api.get(kinds.IMAGE.ref("jammy", "default"))
        storage = image["status"]["storageClassName"]

        async def churn(number: int) -> None:
            names = [f"m-{number}-{place}" for place in range(3)]
            for name in names:
                await api.create(kinds.VM, a_vm(name, (NETWORK,), "demo", storage))
            token = harvester.new_token()
            async with asyncio.timeout(300), api.watch(kinds.VMI, "default") as events:
                async for event in events:
                    if name_of(event.object) == names[-1] and nested(event.object, "status", "interfaces"):
                        break
            await make_and_remove_objects(api, number)
            for name in names:
                await api.delete(kinds.VM.ref(name, "default"))
            await asyncio.sleep(300)
            for raw in await api.list(PVC, "default"):
                await api.delete(ref_of(PVC, raw))
            harvester.credentials.revoke(token)

        yield churn


async def make_and_remove_objects(api: object, number: int) -> None:
    """A volume, a Secret and a ConfigMap that is written a few times."""
    client: object = api
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    made = [
        (PVC, new_object(PVC, f"v-{number}", "default", spec=claim)),
        (SECRET, new_object(SECRET, f"s-{number}", "default", data={})),
        (CONFIG_MAP, new_object(CONFIG_MAP, f"c-{number}", "default", data={"a": "0"})),
    ]
    for kind, raw in made:
        await client.create(kind, raw)  # type: ignore[attr-defined]
    for count in range(20):
        change = {"data": {"a": f"{count}"}}
        await client.patch(CONFIG_MAP.ref(f"c-{number}", "default"), change)  # type: ignore[attr-defined]
    for kind, raw in made:
        await client.delete(ref_of(kind, raw))  # type: ignore[attr-defined]


# --- the manager ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_manager() -> AsyncIterator[Churn]:
    documents = shipped()
    (cluster,) = (raw for raw in documents if raw["kind"] == "Cluster")
    pools = cluster["spec"]["rkeConfig"]["machinePools"]
    pools[0]["quantity"], pools[1]["quantity"] = 1, 2
    async with simulation(seed=1) as sim:
        await sim.apply(documents)
        ref = CLUSTER.ref(name_of(cluster), namespace_of(cluster))
        stage = sim.cluster(ref.name)
        await stage.wait_for_ready()
        # Connections come and go all the time: each hundredth event of a watch is its last.
        sim.harvester.faults.add(Fault(CutWatch(100, clean=False), frozenset({"watch"})))
        tokens: list[str] = []

        async def scale(quantity: int) -> None:
            step = {"op": "replace", "path": "/spec/rkeConfig/machinePools/1/quantity", "value": quantity}
            await sim.management_client.json_patch(ref, [step])
            await stage.wait_for_settled()

        async def churn(number: int) -> None:
            workers = await stage.list_machines("workers")
            lost = name_of(workers[number % len(workers)])
            await sim.harvester_client.delete(VM.ref(lost, "default"), "Foreground")
            await sim.advance(seconds=30)
            await stage.wait_for_settled(without=lost)
            await scale(3)
            await scale(2)
            guest = await stage.guest_client()
            spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "web"}}
            await guest.create(SERVICE, new_object(SERVICE, f"web-{number}", "default", spec=spec))
            await sim.advance(seconds=30)
            await guest.delete(SERVICE.ref(f"web-{number}", "default"))
            await make_and_remove_objects(sim.harvester_client, number)
            tokens.append(sim.harvester.new_token())
            (secret,) = credential_secrets(documents, sim.harvester.token_kubeconfig(tokens[-1], VIP))
            await sim.management_client.patch(ref_of(SECRET, secret), {"stringData": secret["stringData"]})
            await sim.advance(seconds=60)
            for old in tokens[:-1]:
                sim.harvester.credentials.revoke(old)
                tokens.remove(old)
            sim.reported.clear()

        yield churn


# --- the cloud provider -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_cloud_provider() -> AsyncIterator[Churn]:
    async with a_service_rig(1) as rig, running(rig.host.api.run, rig.api.run):
        await rig.make_pool("10.1.0.10-200")
        rig.start()
        await rig.serve("stays")
        await rig.served("stays")

        async def churn(number: int) -> None:
            names = [f"web-{number}-{place}" for place in range(10)]
            for name in names:
                await rig.guest.create(SERVICE, a_pool_service(name))
            for name in names:
                await rig.served(name)
            rig.links["host"].cut()
            rig.links["guest"].cut()
            await rig.add_machine(f"n-{number}")
            await rig.pass_time(60)
            token = f"token-{number}"
            rig.host.api.tokens[token] = rig.host.api.tokens["host-token"]
            rig.files[CLOUD_CONFIG] = a_cloud_config(token)
            await rig.lose_machine(f"n-{number}")
            for name in names:
                await rig.delete(name)
            for name in names:
                await rig.gone(name)
            await rig.pass_time(120)
            rig.host.api.tokens.pop(f"token-{number - 1}", None)
            a_cloud_config.cache_clear()
            # What the rig writes down for stories.
            for notes in (rig.said, rig.writes, rig.deaths, rig.posthumous):
                notes.clear()

        yield churn


PARTS = {"emulator": an_emulator, "manager": a_manager, "cloud provider": a_cloud_provider}


async def _main(part: str, hours: int) -> None:
    before = None
    number = 0
    async for sample in soak(part, hours):
        number += 1
        print(json.dumps({"rss_kb": sample.rss_kb, "blocks": sample.blocks}), flush=True)
        if tracemalloc.is_tracing() and number == 2:
            before = tracemalloc.take_snapshot()
    if before is not None:
        for difference in tracemalloc.take_snapshot().compare_to(before, "lineno")[:25]:
            print(difference, file=sys.stderr)


if __name__ == "__main__":
    if os.environ.get("WINDROW_SOAK_TRACE"):
        tracemalloc.start()
    run_driven(_main(sys.argv[1], int(sys.argv[2])))
