"""Watches of the Jobs that change machines in place, and of their pods: open only while a machine has its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from windrow.bootstrap.install.update_job import MACHINE_LABEL, NAMESPACE
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.sources.servers.snapshots import EndpointTransport
from windrow.clusters.updates.observed import (
    ObservedJob,
    UpdateJobObject,
    UpdatePod,
    list_former_jobs,
    observe_job,
    read_update_job,
    read_update_pod,
)
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import JOB, POD

V = TypeVar("V")


class UpdateJobs:
    """The Jobs of one guest. `changed` is called at each change; `run` is its owner's task."""

    def __init__(
        self, transport: EndpointTransport, clock: Clock, rng: Rng, changed: Callable[[], None]
    ) -> None:
        self._transport, self._changed = transport, changed
        self._followed = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._jobs: Informer[UpdateJobObject] = Informer(
            transport, JOB, NAMESPACE, read_update_job, clock, rng, MACHINE_LABEL, on_state=changed
        )
        self._pods: Informer[UpdatePod] = Informer(
            transport, POD, NAMESPACE, read_update_pod, clock, rng, MACHINE_LABEL, on_state=changed
        )
        self._known: MutationCache[UpdateJobObject] = MutationCache(
            self._jobs, lambda job: job.resource_version, clock
        )

    def set_endpoints(self, urls: tuple[str, ...]) -> None:
        self._transport.set_endpoints(urls)

    def follow(self, wanted: bool) -> None:
        """Open the watches, or close them."""
        if wanted:
            self._ended.clear()
            self._followed.set()
        else:
            self._followed.clear()
            self._ended.set()

    def observe(self, name: str) -> ObservedJob | None:
        """The Job `name` as it is known; None while it is not."""
        if not (self._followed.is_set() and self._jobs.is_watching and self._pods.is_watching):
            return None
        job = self._known.get(JOB.ref(name, NAMESPACE))
        return observe_job(name, job, self._pods.values())

    def find_former(self, machine_uid: str, present: str) -> tuple[ObservedJob, ...] | None:
        """What is there of Jobs of the machine besides `present`; None while it is not known."""
        if self.observe(present) is None:
            return None
        return list_former_jobs(machine_uid, present, self._jobs.values(), tuple(self._pods.values()))

    def created(self, raw: Raw) -> None:
        """A Job that has just been created, or found to be there."""
        self._known.mutated(raw)

    def deleted(self, raw: Raw) -> None:
        """The answer to the deletion of a Job."""
        self._known.mutated(raw)

    async def run(self) -> None:
        """Watch while that is wanted, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forward(self._jobs.changes()))
            group.create_task(self._forward(self._pods.changes()))
            while True:
                await self._followed.wait()
                watches = [asyncio.ensure_future(one.run()) for one in (self._jobs, self._pods)]
                ended = asyncio.ensure_future(self._ended.wait())
                try:
                    await asyncio.wait({*watches, ended}, return_when=asyncio.FIRST_COMPLETED)
                    for watch in watches:
                        if watch.done():
                            watch.result()  # it only ends by a defect, which is raised here
                finally:
                    for task in (*watches, ended):
                        task.cancel()
                    await asyncio.gather(*watches, ended, return_exceptions=True)

    async def _forward(self, changes: AsyncIterator[tuple[V | None, V | None]]) -> None:
        async for _ in changes:
            self._changed()
