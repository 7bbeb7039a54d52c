"""A thousand volumes on a hundred nodes, of which ten are lost at once: their VMs are deleted, then those of a host that fails.

The controller runs in this process, on a driven clock: each request takes 45 ms, and the delays of Harvester are those of
docs/reference/delays.md. What calls it is an external-attacher as it is by default: ten workers, and a back-off from 1 s to
5 min after a call that failed. It detaches each volume of a lost node at once, and then attaches it to another node.

No driver is faster than Harvester: an instance has to be gone before its volumes may be attached elsewhere, and ten workers
plug in a hundred volumes in ten rounds. When the last instance is gone is measured in the same run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from google.protobuf.message import Message
from tests.stories.csi_rig import METHODS, CsiRig, create, publish, unpublish
from tests.stories.harvester_rig import NAMESPACE, a_harvester, eventually, has_address, post, vm_ref, vmi_ref
from tests.support.clock import run_driven

from benchmarks import Figure
from windrow.core.clock import sleep
from windrow.emulator import kinds
from windrow.emulator.delays import Delays
from windrow.emulator.faults import Fault, Slow
from windrow.emulator.harvester import Harvester
from windrow.emulator.host.nodes import default_hosts
from windrow.kubernetes.objects import Raw, name_of, nested
from windrow.kubernetes.requests import Request
from windrow.protocols.csi import csi_pb2 as csi

NODES, VOLUMES, LOST = 100, 1000, 10
WORKERS = 10
FIRST_PAUSE_S, LAST_PAUSE_S = 1.0, 300.0
LATENCY_S = 0.045
PATIENCE = timedelta(hours=2)
# What a detachment and an attachment may cost: issue 13 gives an attachment three calls.
CALLS_OF_A_MOVE = 6

Lose = Callable[[Harvester, str, Sequence[str]], Awaitable[None]]


async def delete_vms(harvester: Harvester, host: str, lost: Sequence[str]) -> None:
    """As when the machines of a pool are replaced."""
    for name in lost:
        await harvester.api.local().delete(vm_ref(name))


async def fail_host(harvester: Harvester, host: str, lost: Sequence[str]) -> None:
    """Harvester finds out, and starts the VMs on other hosts."""
    harvester.fail_host(host)


def measure() -> Iterator[Figure]:
    logging.getLogger("csi-stories").setLevel(logging.CRITICAL)
    yield from run_driven(_measure())


async def _measure() -> list[Figure]:
    async with a_harvester(hosts=default_hosts(NODES // LOST)) as harvester, asyncio.TaskGroup() as tasks:
        names = [f"node-{place}" for place in range(NODES)]
        for name in names:
            await post(harvester, name=name)
        for name in names:
            await eventually(harvester, vmi_ref(name), has_address)
        harvester.faults.add(Fault(Slow(LATENCY_S), where=_is_driver))
        storm = Storm(CsiRig(harvester, tasks))
        await storm.fill(names)
        # Of a VM that is gone nothing has to be removed.
        figures = [
            *await storm.lose(delete_vms, f"{LOST} VMs deleted", patches_of_a_move=1),
            *await storm.lose(fail_host, f"host of {LOST} VMs failed", patches_of_a_move=2),
        ]
        figures.append(await storm.list_volumes())
        storm.rig.kill()
        return figures


def _plugging_s(volumes: int) -> float:
    """How long KubeVirt takes where each worker plugs in one after the other."""
    delays = Delays()
    rounds = -(-volumes // WORKERS)
    return rounds * (delays.hotplug_attach + delays.hotplug_mount + delays.hotplug_ready)


def _is_driver(request: Request) -> bool:
    return request.query_parameter("watch") is None


@dataclass
class Storm:
    """Where each volume is, and the side-car that moves them."""

    rig: CsiRig
    node_of: dict[str, str] = field(default_factory=dict)
    workers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(WORKERS))

    async def fill(self, nodes: list[str]) -> None:
        """Volumes on all nodes, as many on each."""
        self.workers = asyncio.Semaphore(VOLUMES)
        wanted = {f"data-{place}": nodes[place % len(nodes)] for place in range(VOLUMES)}
        await asyncio.gather(*(self._do(create(one)) for one in wanted))
        await asyncio.gather(*(self._attach(one, node) for one, node in wanted.items()))
        self.workers = asyncio.Semaphore(WORKERS)

    async def lose(self, how: Lose, what: str, *, patches_of_a_move: int) -> list[Figure]:
        """Lose the nodes of one host, and move their volumes."""
        rig = self.rig
        instances = await rig.client.list(kinds.VMI, NAMESPACE)
        hosts = {name_of(one): nested(one, "status", "nodeName", default="") for one in instances}
        host = sorted(set(hosts.values()))[0]
        lost = sorted(name for name, found in hosts.items() if found == host)
        left = sorted(set(hosts) - set(lost))
        moved = [volume for volume, node in self.node_of.items() if node in lost]
        rig.requests.clear()
        began = rig.now_s
        going = [asyncio.create_task(self._gone_at(one, host)) for one in lost]
        await how(rig.harvester, host, lost)
        moves = [
            asyncio.create_task(self._move(one, left[place % len(left)])) for place, one in enumerate(moved)
        ]
        done, stuck = await asyncio.wait(moves, timeout=PATIENCE.total_seconds())
        for one in done:
            one.result()
        took, calls = rig.now_s - began, [one for one in rig.requests if _is_driver(one)]
        gone = max(await asyncio.gather(*going)) - began
        for task in stuck:
            task.cancel()
        amount = len(moved)
        patches = sum(one.method == "PATCH" and "/virtualmachines/" in one.path for one in calls)
        least, source = gone + _plugging_s(amount), f"instances gone after {gone:.0f} s, then KubeVirt's own"
        go = patches_of_a_move * amount
        return [
            Figure(
                f"{what}, {amount} volumes: stuck", len(stuck) + await self._misplaced(), "", 0, "issue 13"
            ),
            Figure("  all on other nodes after", took, "s", least, source),
            Figure("  patches of VMs", patches, "calls", go, "Go: one for each change, and repeats"),
            Figure("  calls", len(calls), "calls", CALLS_OF_A_MOVE * amount, "issue 13: 3 an attachment"),
        ]

    async def _move(self, volume: str, node: str) -> None:
        await self._do(unpublish(volume, self.node_of[volume]))
        await self._attach(volume, node)

    async def _attach(self, volume: str, node: str) -> None:
        await self._do(publish(volume, node))
        self.node_of[volume] = node

    async def _do(self, request: Message) -> None:
        """The call, by a worker, until it is done; no worker is kept while it waits to be repeated."""
        pause = FIRST_PAUSE_S
        while True:
            async with self.workers:
                answer = await self.rig.call(METHODS[type(request)], request)
            if answer.is_ok:
                return
            await sleep(self.rig.clock, timedelta(seconds=pause))
            pause = min(2 * pause, LAST_PAUSE_S)

    async def _gone_at(self, vm: str, host: str) -> float:
        def is_gone(instance: Raw | None) -> bool:
            return bool(nested(instance, "status", "nodeName", default="") != host)

        await eventually(self.rig.harvester, vmi_ref(vm), is_gone, PATIENCE.total_seconds())
        return self.rig.now_s

    async def _misplaced(self) -> int:
        """How many volumes are not on their node alone, or are not listed there."""
        claims = await self.rig.vm_claims()
        found: dict[str, list[str]] = {}
        for vm, volumes in claims.items():
            for one in volumes:
                found.setdefault(one, []).append(vm)
        answer = await self.rig.call("ListVolumes", csi.ListVolumesRequest())
        listed = {
            one.volume.volume_id: list(one.status.published_node_ids) for one in answer.response.entries
        }
        wanted = {volume: [node] for volume, node in self.node_of.items()}
        return sum(found.get(one) != nodes or listed.get(one) != nodes for one, nodes in wanted.items())

    async def list_volumes(self) -> Figure:
        began = time.process_time()
        await self.rig.call("ListVolumes", csi.ListVolumesRequest())
        took = time.process_time() - began
        return Figure(
            f"ListVolumes of {VOLUMES}, CPU time", took, "s", 0.1, "our choice; it is asked each minute"
        )
