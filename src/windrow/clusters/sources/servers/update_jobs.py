"""Watches of the Jobs that change machines in place, and of their pods: open only while a machine has its turn."""

from __future__ import annotations

from collections.abc import Callable

from windrow.bootstrap.install.update_job import MACHINE_LABEL, NAMESPACE
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.sources.servers.on_demand import OnDemandInformers
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


class UpdateJobs(OnDemandInformers):
    """The Jobs of one guest."""

    def __init__(
        self, transport: EndpointTransport, clock: Clock, rng: Rng, changed: Callable[[], None]
    ) -> None:
        self._jobs: Informer[UpdateJobObject] = Informer(
            transport, JOB, NAMESPACE, read_update_job, clock, rng, MACHINE_LABEL, on_state=changed
        )
        self._pods: Informer[UpdatePod] = Informer(
            transport, POD, NAMESPACE, read_update_pod, clock, rng, MACHINE_LABEL, on_state=changed
        )
        self._known: MutationCache[UpdateJobObject] = MutationCache(
            self._jobs, lambda job: job.resource_version, clock
        )
        super().__init__(transport, (self._jobs, self._pods), changed)

    def observe(self, name: str) -> ObservedJob | None:
        """The Job `name` as it is known; None while it is not."""
        if not self.is_watching:
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
