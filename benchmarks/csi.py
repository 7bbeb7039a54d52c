"""The CSI driver: ten volumes attached at once, one beside KubeVirt's own delay, calls, memory, start; ten of 100 nodes lost.

Harvester is ours, behind TLS on loopback, in this process. For ten at once each request takes 45 ms and a hot-plug 0.5 s, as
when the Go driver was measured; for one attachment the delays are those of docs/reference/delays.md. Calls are counted where
they arrive; watches, and the lists that they begin with, are left out. What `_csi_storm` measures of a thousand volumes takes
some minutes, on a driven clock.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from tests.stories.csi_rig import create, publish, unpublish
from tests.stories.harvester_rig import NAMESPACE, a_vm, blank, vm_ref, vmi_ref
from tests.stories.test_hotplug import volume

from benchmarks import Figure, _csi_storm
from windrow.app.clock import SystemClock
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.delays import Delays
from windrow.emulator.faults import Fault, Slow
from windrow.emulator.harvester import Harvester
from windrow.emulator.preload import Image, VmNetwork
from windrow.emulator.proxy import serve
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.requests import Request, json_patch
from windrow.protocols.csi import csi_pb2 as csi
from windrow.protocols.csi.services import CONTROLLER, IDENTITY, ServiceClient

AT_ONCE = 10
RUNS = 3
TIMEOUT_S = 120.0
NODE = "node-1"
# VMs boot at once; what is measured keeps its delays.
_BOOTED = {"image_import": 0.1, "volume_bind": 0, "pod_create": 0, "pod_start": 0, "domain_define": 0}
AS_GO = Delays(**_BOOTED, hotplug_attach=0.3, hotplug_mount=0.1, hotplug_ready=0.1)
AS_STATED = Delays(**_BOOTED)
LATENCY_S = 0.045


def measure() -> Iterator[Figure]:
    if not Path("/proc/self/status").exists():
        print("  (memory is read from /proc, which this system lacks)")
        return
    yield from asyncio.run(_ten_at_once())
    yield from asyncio.run(_one())
    yield from _csi_storm.measure()


async def _ten_at_once() -> list[Figure]:
    async with a_bench(AS_GO, LATENCY_S) as bench:
        names = [f"data-{place}" for place in range(AT_ONCE)]
        for name in names:
            await bench.create(name)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(bench.attach(name))
        took = time.perf_counter() - began
        patches = [
            one for one in bench.calls if one.startswith("PATCH") and one.endswith(f"/virtualmachines/{NODE}")
        ]
        return [
            Figure(f"{AT_ONCE} volumes attached to one VM at once", took, "s", 31.5, "Go: reference 03, D6"),
            Figure("patches of the VM for them", len(patches), "calls", AT_ONCE, "Go: one each, and repeats"),
            Figure("calls for them", len(bench.calls), "calls", 3 * AT_ONCE, "issue 13: 3 each"),
        ]


async def _one() -> list[Figure]:
    async with a_bench(AS_STATED) as bench:
        await asyncio.sleep(2)
        idle_mib = bench.rss_mib()
        await bench.create("data")
        await bench.cycle("data")  # connections, and what is asked once
        own = [await bench.kubevirt_alone("data") for _ in range(RUNS)]
        ours, calls = [], []
        for _ in range(RUNS):
            bench.calls.clear()
            ours.append(await bench.cycle("data"))
            calls.append(bench.attach_calls)
        beyond = statistics.median(ours) - statistics.median(own)
        return [
            Figure("one attachment", statistics.median(ours), "s", 3.2, "Go: 3.2 to 3.4 s with 0.5 s"),
            Figure("of it beyond KubeVirt's own delay", max(beyond, 0.0), "s", 0.2, "issue 13"),
            Figure("calls of one attachment", max(calls), "calls", 3, "issue 13"),
            Figure("memory, idle", idle_mib, "MiB", 75, "issue 13; Go: 57"),
            Figure("start to the socket", bench.start_s, "s", 0.4, "issue 13; Go: 0.2 to 0.4"),
        ]


@dataclass
class Bench:
    """A Harvester with one VM, and the driver as a process."""

    harvester: Harvester
    pid: int
    start_s: float
    controller: ServiceClient
    calls: list[str]
    attach_calls: int = field(default=0)

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    async def create(self, name: str) -> None:
        await self.controller.call(create(name), csi.CreateVolumeResponse, timeout_s=TIMEOUT_S)
        self.calls.clear()

    async def attach(self, name: str) -> None:
        await self.controller.call(
            publish(name, NODE), csi.ControllerPublishVolumeResponse, timeout_s=TIMEOUT_S
        )

    async def detach(self, name: str) -> None:
        await self.controller.call(
            unpublish(name, NODE), csi.ControllerUnpublishVolumeResponse, timeout_s=TIMEOUT_S
        )

    async def cycle(self, name: str) -> float:
        """Seconds to attach; it is detached again."""
        began = time.perf_counter()
        await self.attach(name)
        took = time.perf_counter() - began
        self.attach_calls = len(self.calls)
        await self.detach(name)
        return took

    async def kubevirt_alone(self, name: str) -> float:
        """Seconds from a patch of the VM to Ready, with nothing of the driver in between."""
        path = "/spec/template/spec"
        source = {"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": True}}
        disk = {"name": name, "disk": {"bus": "scsi"}}
        changes: list[Raw] = [
            {"op": "add", "path": f"{path}/volumes/-", "value": source},
            {"op": "add", "path": f"{path}/domain/devices/disks/-", "value": disk},
        ]
        client = self.harvester.api.local()
        began = time.perf_counter()
        reply = await client.send(json_patch(vm_ref(NODE), changes))
        assert reply.status == 200, reply.body
        while True:
            await asyncio.sleep(0.005)
            if volume(await client.find(vmi_ref(NODE)), name).get("phase") == "Ready":
                break
        took = time.perf_counter() - began
        await self.detach(name)
        return took


@asynccontextmanager
async def a_bench(delays: Delays, latency_s: float = 0.0) -> AsyncIterator[Bench]:
    harvester = Harvester(SystemClock(), Rng(7), machine_factory=blank, delays=delays)
    calls: list[str] = []

    def note(request: Request) -> bool:
        is_list = request.path.endswith(
            ("virtualmachines", "virtualmachineinstances", "persistentvolumeclaims")
        )
        if request.query_parameter("watch") is None and not (request.method == "GET" and is_list):
            calls.append(f"{request.method} {request.path}")
        return bool(latency_s)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harvester.run())
        await harvester.preload(
            images=[Image("default/jammy")],
            networks=[VmNetwork("default/vlan50", vlan=50, cidr="192.168.50.0/24")],
        )
        await _boot(harvester)
        with tempfile.TemporaryDirectory() as folder:
            async with (
                serve(harvester) as served,
                _driver(Path(folder), served.kubeconfig) as (pid, start_s, channel),
            ):
                harvester.faults.add(Fault(Slow(latency_s), where=note))
                await _wait_until_ready(ServiceClient(channel, IDENTITY))
                calls.clear()
                yield Bench(harvester, pid, start_s, ServiceClient(channel, CONTROLLER), calls)
        running.cancel()


async def _boot(harvester: Harvester) -> None:
    client = harvester.api.local()
    image = await client.get(kinds.IMAGE.ref("jammy", NAMESPACE))
    storage_class = image["status"]["storageClassName"]
    await client.create(kinds.VM, a_vm(NODE, image="default/jammy", storage_class=storage_class))
    while True:
        await asyncio.sleep(0.05)
        if nested(await client.find(vmi_ref(NODE)), "status", "phase") == "Running":
            return


@asynccontextmanager
async def _driver(folder: Path, kubeconfig: str) -> AsyncIterator[tuple[int, float, grpc.aio.Channel]]:
    """The process: its id, the seconds until its socket was there, and a channel to it."""
    (folder / "kubeconfig").write_text(kubeconfig)
    socket = folder / "csi.sock"
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("harvester-csi-driver"),
        "--endpoint",
        f"unix://{socket}",
        "--kubeconfig",
        str(folder / "kubeconfig"),
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "KUBERNETES_SERVICE_HOST": ""},
    )
    try:
        while not socket.exists():
            assert process.returncode is None, "the driver ended"
            await asyncio.sleep(0.002)
        start_s = time.perf_counter() - began
        async with grpc.aio.insecure_channel(f"unix://{socket}") as channel:
            yield process.pid, start_s, channel
    finally:
        process.terminate()
        await process.wait()


async def _wait_until_ready(identity: ServiceClient) -> None:
    while True:
        await asyncio.sleep(0.05)
        if (await identity.call(csi.ProbeRequest(), csi.ProbeResponse, timeout_s=TIMEOUT_S)).ready.value:
            return
