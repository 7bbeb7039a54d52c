"""The service controller: an address from Harvester for each service of type LoadBalancer.

Three watches (guest services, Harvester's load balancers in one namespace, the guest's map of networks) wake the
services that they are news for; each is looked at as a whole, and gets the plan that `planning` makes. No worker ever
waits for anything but the answer to its own call; what takes time is waited for by the watches.

Nodes are not looked at: who is behind an address is decided in the guest, so a change of nodes is no news.

In the guest this needs, beside what `carrying` lists: services list, watch; configmap
kube-system/harvester-nad-mapping get, list, watch. On Harvester: loadbalancers list, watch, in one namespace.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from windrow.client.client import Client
from windrow.client.events import EventRecorder
from windrow.client.informer import Informer
from windrow.client.transport import Transport
from windrow.cloudprovider import names
from windrow.cloudprovider.logs import ObjectLog
from windrow.cloudprovider.metrics import Metrics
from windrow.cloudprovider.options import Options
from windrow.cloudprovider.services.actions import ENSURED, ENSURING, HARVESTER, EmitEvent, Plan
from windrow.cloudprovider.services.describe import describe_action, explain_error
from windrow.cloudprovider.services.event_queue import EventQueue
from windrow.cloudprovider.services.execute import FAILED, Executor, HostFailed, Stale
from windrow.cloudprovider.services.index import ServiceIndex
from windrow.cloudprovider.services.own_address import ORPHANS
from windrow.cloudprovider.services.planning import apply_namespace_gate, needs_removal, plan_service
from windrow.cloudprovider.services.readings import (
    Interfaces,
    LoadBalancer,
    Service,
    load_balancer_reader,
    read_interfaces,
    read_service,
)
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState, Unavailable, WaitState
from windrow.controller.controller import Backoff, Controller
from windrow.controller.outcomes import SETTLED, Failed, Outcome, Waiting
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import CONFIG_MAP, SERVICE, ObjectRef

# Soon after somebody else's write: by then the watch has brought it.
STALE_RETRY = timedelta(milliseconds=200)
# As the cloud framework has it.
BACK_OFF = Backoff(timedelta(seconds=5), timedelta(seconds=300))
# Servers keep events for an hour; a problem that lasts is told again before its event is gone.
EVENT_PERIOD = timedelta(minutes=50)
MAX_PROBLEMS = 20
QUEUE = "service"


class ServiceController:
    """Keeps the load balancers of one guest cluster in step with its services, while it runs.

    `services`, `balancers` and `interfaces` (the map of networks) are its caches; others may read them, and say by
    `find_doubt` that nothing is to be done yet for services without a load balancer here.
    """

    def __init__(
        self,
        guest: Transport,
        host: Transport,
        namespace: str,
        options: Options,
        clock: Clock,
        rng: Rng,
        log: logging.Logger,
        metrics: Metrics,
    ) -> None:
        settings = ClusterSettings(options.cluster_name, namespace, options.management_network)
        # Why `namespace` may be none of ours; None when it is.
        self.find_namespace_problem: Callable[[], Unavailable | None] = lambda: None
        self.services: Informer[Service] = Informer(
            guest, SERVICE, "", read_service, clock, rng, on_error=self._watch_error_handler("services")
        )
        self.load_balancers: Informer[LoadBalancer] = Informer(
            host,
            LOAD_BALANCER,
            namespace,
            load_balancer_reader(settings.cluster),
            clock,
            rng,
            on_error=self._watch_error_handler("load balancers"),
        )
        self.interfaces: Informer[Interfaces] = Informer(
            guest,
            CONFIG_MAP,
            names.NETWORK_MAP_NAMESPACE,
            read_interfaces,
            clock,
            rng,
            fields=f"metadata.name={names.NETWORK_MAP_NAME}",
            on_error=self._watch_error_handler("networks"),
        )
        self._index = ServiceIndex(
            self.services, self.load_balancers, self.interfaces, settings, options.has_cluster_name, clock
        )
        self._event_queue = EventQueue(EventRecorder(Client(guest), names.SERVICE_EVENTS, clock, rng))
        self._executor = Executor(
            Client(guest),
            Client(host),
            self._event_queue,
            settings,
            self._index.service_answers,
            self._index.balancer_answers,
            lambda: self._index.guest_uid,
        )
        self._metrics = metrics
        self._controller: Controller[ObjectRef] = Controller(
            "services",
            self._reconcile,
            clock,
            rng,
            workers=options.service_workers,
            backoff=BACK_OFF,
            on_outcome=self._on_outcome,
            on_added=lambda ref: self._metrics.queue_adds.labels(QUEUE).inc(),
        )
        queue = self._controller.queue
        self._metrics.register_queue(QUEUE, lambda: len(queue))
        self.settings = settings
        self._clock = clock
        self._log = log
        self._waits: dict[ObjectRef, WaitState] = {}
        # Problems told of a service (by UID), with the instant.
        self._reported: dict[ObjectRef, dict[tuple[str, str], datetime]] = {}
        self._states: dict[ObjectRef, str] = {}
        self._stale: dict[ObjectRef, int] = {}  # plans in a row that came too late

    async def run(self) -> None:
        """Work until cancelled. Harvester may be out of reach: then services that need it are told so."""
        caches = (self.services, self.load_balancers, self.interfaces)
        async with asyncio.TaskGroup() as group:
            for cache in caches:
                group.create_task(cache.run())
            await self.services.wait_for_sync()
            group.create_task(self._follow_load_balancers())
            group.create_task(self._follow_services())
            group.create_task(self._follow_interfaces())
            for cache in (self.load_balancers, self.interfaces):
                group.create_task(self._enqueue_all_when_listed(cache))
            group.create_task(self._event_queue.run())
            group.create_task(self._controller.run())

    # --- who is looked at, and when -----------------------------------------------------------------------------------

    def _watch_error_handler(self, what: str) -> Callable[[KubeError | None], None]:
        def on_error(problem: KubeError | None) -> None:
            if problem is None:
                self._log.info("watching %s again", what)
                self.enqueue_all()
                return
            self._log.warning("cannot watch %s: %s", what, problem)
            for ref in [ref for ref, pause in self._waits.items() if pause.what == HARVESTER]:
                self._enqueue(ref)

        return on_error

    def _enqueue(self, ref: ObjectRef) -> None:
        self._controller.queue.add(ref)

    def _on_outcome(self, ref: ObjectRef, outcome: Outcome) -> None:
        if isinstance(outcome, Failed):
            self._metrics.queue_retries.labels(QUEUE).inc()

    def enqueue_all(self) -> None:
        for ref in self._index.relevant_services():
            self._enqueue(ref)

    async def _enqueue_all_when_listed(self, cache: Informer[LoadBalancer] | Informer[Interfaces]) -> None:
        if not cache.is_watching:
            await cache.wait_for_sync()
            self.enqueue_all()

    async def _follow_services(self) -> None:
        async for before, after in self.services.changes():
            for ref in unique(self._index.on_service_change(before, after)):
                self._enqueue(ref)

    async def _follow_load_balancers(self) -> None:
        async for before, after in self.load_balancers.changes():
            for ref in unique(self._index.on_load_balancer_change(before, after)):
                self._enqueue(ref)

    async def _follow_interfaces(self) -> None:
        async for _ in self.interfaces.changes():
            for ref, service in self.services.items():
                if service.network:
                    self._enqueue(ref)

    def _log_of(self, service: Service) -> ObjectLog:
        return ObjectLog(self._log, "Service", service.title)

    # --- one service ----------------------------------------------------------------------------------------------------

    async def _reconcile(self, ref: ObjectRef) -> Outcome:
        state = self._index.observe(ref, self._waits.get(ref, WaitState()))
        if state is None:
            self._forget(ref)
            return SETTLED
        plan = apply_namespace_gate(state, plan_service(state, self.settings), self.find_namespace_problem)
        if plan.actions:
            self._metrics.service_syncs.inc()
        try:
            await self._executor.execute(state, plan.actions)
        except Stale:
            return self._retry_stale(ref)
        except HostFailed as failed:
            verb = "delete" if needs_removal(state, self.settings) else "ensure"
            words = explain_error(failed.error, self.settings.namespace)
            if failed.orphan:
                words = (
                    f"{failed.orphan}, which an earlier service of this name left, cannot be deleted: {words}"
                )
                self._index.mark_executed(state)  # it goes last: all else of the plan is done
            self._report_problem(state, f"failed to {verb} load balancer: {words}")
            if plan.waits_for == ORPHANS:
                self._update_wait(ref, state, plan)  # it is not waited for without end
            return Failed(failed.error)
        except KubeError as error:
            self._log_of(state.service).warning("%s", error)
            self._metrics.service_failures.labels(type(error).__name__).inc()
            return Failed(error)
        self._stale.pop(ref, None)
        self._index.mark_executed(state)
        self._log_actions(state, plan)
        return self._conclude(ref, state, plan)

    def _retry_stale(self, ref: ObjectRef) -> Outcome:
        """The watch brings the newer object; where it does not, look later and later."""
        now, count = self._clock.now(), self._stale.get(ref, 0)
        self._stale[ref] = count + 1
        wait = min(STALE_RETRY * 2 ** min(count, 16), BACK_OFF.maximum)
        return Waiting("the newer object", now, "look again", now + wait)

    def _log_actions(self, state: ServiceState, plan: Plan) -> None:
        for action in plan.actions:
            if told := describe_action(action):
                self._log_of(state.service).info("%s", told)

    def _conclude(self, ref: ObjectRef, state: ServiceState, plan: Plan) -> Outcome:
        pause = self._update_wait(ref, state, plan)
        until = [plan.until, self._index.service_answers.until(ref)]
        if state.load_balancer is not None:
            until.append(self._index.balancer_answers.until(state.load_balancer.ref))
        if plan.problem:
            until.append(self._report_problem(state, plan.problem))
        elif not plan.waits_for and all(isinstance(action, EmitEvent) for action in plan.actions):
            self._reported.pop(ref, None)
            self._emit_recovered(state)
            if state.is_gone and state.host is None:
                self._forget(ref)
        self._count_states(ref, state, plan)
        soonest = min((one for one in until if one is not None), default=None)
        if not plan.waits_for and soonest is None:
            return SETTLED
        return Waiting(plan.waits_for or "the watch", pause.since or state.now, "look again", soonest)

    def _emit_recovered(self, state: ServiceState) -> None:
        """A problem that was told is over: without a word the last one read would be that it fails."""
        service = state.service
        lives = service.wants_load_balancer and not service.is_deleting and not state.is_gone
        if lives and self._executor.last_event.get(service.ref) in (
            (service.uid, FAILED),
            (service.uid, ENSURING.reason),
        ):
            self._executor.emit_event(service, ENSURED)

    def _update_wait(self, ref: ObjectRef, state: ServiceState, plan: Plan) -> WaitState:
        if not plan.waits_for:
            self._waits.pop(ref, None)
            return WaitState()
        pause = state.wait if state.wait.what == plan.waits_for else WaitState(plan.waits_for, state.now)
        self._waits[ref] = pause
        return pause

    def _report_problem(self, state: ServiceState, problem: str) -> datetime:
        """Tell the problem on the service, unless that was done not long ago; when to tell it again."""
        now = self._clock.now()
        told = self._reported.setdefault(state.service.ref, {})
        key = (state.service.uid, problem)
        last = told.get(key)
        if last is not None and now - last < EVENT_PERIOD:
            return last + EVENT_PERIOD
        told[key] = now
        while len(told) > MAX_PROBLEMS:
            del told[next(iter(told))]
        self._log_of(state.service).warning("%s", problem)
        self._metrics.service_failures.labels(FAILED).inc()
        tell = EmitEvent(FAILED, f"Error syncing load balancer: {problem}", "Warning")
        self._executor.emit_event(state.service, tell)
        return now + EVENT_PERIOD

    def _count_states(self, ref: ObjectRef, state: ServiceState, plan: Plan) -> None:
        if not state.service.wants_load_balancer and not state.service.has_finalizer:
            self._states.pop(ref, None)
        elif plan.problem:
            self._states[ref] = "refused"
        else:
            self._states[ref] = "waiting" if plan.waits_for or plan.actions else "ready"
        self._metrics.set_service_states(Counter(self._states.values()))

    def _forget(self, ref: ObjectRef) -> None:
        if self.services.get(ref) is not None:
            return
        self._index.forget(ref)
        for memory in (self._waits, self._reported, self._states, self._stale, self._executor.last_event):
            memory.pop(ref, None)
        self._metrics.set_service_states(Counter(self._states.values()))


def unique(refs: Iterable[ObjectRef]) -> dict[ObjectRef, None]:
    """Each once, in their order."""
    return dict.fromkeys(refs)
