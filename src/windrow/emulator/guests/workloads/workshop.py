"""The controllers of workloads in a guest cluster, on the server that leads: Deployments, ReplicaSets, the scheduler,
what kubelets do with pods, eviction, EndpointSlices (just enough of each: design §10).

One object after the other is looked at, planned, carried out. Without workloads nothing is followed but four quiet
kinds, so that a cluster of hundreds of nodes costs no more than before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from windrow.emulator.guests.box import Box
from windrow.emulator.guests.cluster import GuestCluster
from windrow.emulator.guests.workloads.bench import Bench
from windrow.emulator.guests.workloads.deployments import Deployments
from windrow.emulator.guests.workloads.endpoint_slices import EndpointSlices
from windrow.emulator.guests.workloads.endpoints import has_selector
from windrow.emulator.guests.workloads.pods import Pods
from windrow.emulator.guests.workloads.replica_sets import ReplicaSets
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.emulator.world import Key, key_of
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import DEPLOYMENT, NODE, POD, REPLICA_SET, SERVICE, ApiResource

_IDLE = (DEPLOYMENT, REPLICA_SET, POD, SERVICE)  # served, and followed even where there is nothing to do
_BUSY = (NODE, ENDPOINT_SLICE)


class Workloads:
    """Controllers of one leadership. `run` ends by cancellation only."""

    def __init__(self, box: Box, cluster: GuestCluster) -> None:
        self.box = box
        self.cluster = cluster

    async def run(self) -> None:
        while True:
            await self.cluster.usable()
            try:
                await Workshop(self.box, self.cluster).run()
            except* KubeError as errors:
                self.box.say("kube-controller-manager", f"panic: {errors.exceptions[0]}")
                await self.box.pause(self.box.delays.crash_backoff)


class Workshop:
    """What is followed, and who looks at what."""

    def __init__(self, box: Box, cluster: GuestCluster) -> None:
        self._cluster = cluster
        self._bench = Bench(box, cluster, (*_IDLE, *_BUSY))
        self._needed = asyncio.Event()  # there is something that nodes and slices matter to
        # An object stands in the line before those that it makes others look at.
        for kind in _IDLE:
            self._bench.sights[kind].listen(partial(self._changed, kind))
        self._pods = Pods(self._bench)
        self._serve: dict[ApiResource, Callable[[Key], Awaitable[None]]] = {
            DEPLOYMENT: Deployments(self._bench).serve,
            REPLICA_SET: ReplicaSets(self._bench).serve,
            POD: self._pods.serve,
            SERVICE: EndpointSlices(self._bench).serve,
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            await self._follow(group, _IDLE)
            await self._needed.wait()
            await self._follow(group, _BUSY)
            group.create_task(self._pods.follow_beats())
            while True:
                kind, key = await self._bench.line.next()
                await self._cluster.usable()
                await self._serve[kind](key)

    async def _follow(self, group: asyncio.TaskGroup, kinds: tuple[ApiResource, ...]) -> None:
        """Follow them, and know them all."""
        sights = [self._bench.sights[kind] for kind in kinds]
        for sight in sights:
            group.create_task(sight.run())
        for sight in sights:
            await sight.synced.wait()

    def _changed(self, kind: ApiResource, raw: Raw) -> None:
        key = key_of(raw)
        self._bench.line.add(kind, key)
        if kind != SERVICE or self._is_served(key):
            self._needed.set()

    def _is_served(self, key: Key) -> bool:
        service = self._bench.sights[SERVICE].get(key)
        return service is not None and has_selector(service)
