"""What the controllers of one leader share, and what each makes with it: informers, work queues, event recorders."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

from windrow.client.client import PAGE_SIZE, Client
from windrow.client.events import EventRecorder
from windrow.client.informer import Informer
from windrow.client.transport import Transport
from windrow.cloudprovider.metrics import Metrics
from windrow.cloudprovider.options import Options
from windrow.controller.controller import Backoff, Controller
from windrow.controller.outcomes import Failed, Outcome
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.core.work_queue import MaxConcurrent
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import ApiResource

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """The two clusters, the options, and the collaborators. `namespace` is the one on Harvester."""

    guest: Transport
    host: Transport
    namespace: str
    options: Options
    clock: Clock
    rng: Rng
    log: logging.Logger
    metrics: Metrics

    def informer(
        self,
        transport: Transport,
        kind: ApiResource,
        namespace: str,
        read: Callable[[Raw], V],
        *,
        fields: str = "",
        page_size: int = PAGE_SIZE,
        on_error: Callable[[KubeError | None], None] = lambda problem: None,
        on_state: Callable[[], None] = lambda: None,
    ) -> Informer[V]:
        """An informer whose errors are logged, and then passed to `on_error`."""

        def log_error(problem: KubeError | None) -> None:
            if problem is None:
                self.log.info("watching %s again", kind.plural)
            else:
                self.log.warning("cannot watch %s: %s", kind.plural, problem)
            on_error(problem)

        return Informer(
            transport,
            kind,
            namespace,
            read,
            self.clock,
            self.rng,
            fields=fields,
            on_error=log_error,
            page_size=page_size,
            on_state=on_state,
        )

    def controller(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Outcome]],
        queue: str,
        workers: int,
        backoff: Backoff | None = None,
    ) -> Controller[K]:
        """A controller whose work queue is measured as `queue`."""
        metrics = self.metrics

        def on_outcome(key: K, outcome: Outcome) -> None:
            if isinstance(outcome, Failed):
                metrics.queue_retries.labels(queue).inc()

        made = Controller(
            name,
            reconcile,
            self.clock,
            self.rng,
            max_concurrent=MaxConcurrent(workers, workers),
            backoff=backoff,
            on_outcome=on_outcome,
            on_added=lambda key: metrics.queue_adds.labels(queue).inc(),
        )
        metrics.register_queue(queue, made.queue.__len__)
        return made

    def recorder(self, component: str) -> EventRecorder:
        return EventRecorder(Client(self.guest), component, self.clock, self.rng)
