"""The service controller: an address from Harvester for each service of type LoadBalancer.

Three watches (guest services, Harvester's load balancers in one namespace, the guest's network map) enqueue the services
that a change affects; each is observed as a whole, and gets the plan that `planning` makes. No worker waits for anything
but the response to its own request; a change brings the service back. Changes of Nodes affect no service, because who
is behind an address is decided in the guest.

In the guest this needs, beside what `execute` lists: services list, watch; configmap
kube-system/harvester-nad-mapping get, list, watch. On Harvester: loadbalancers list, watch, in one namespace.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import TypeVar

from windrow.client.informer import Informer
from windrow.cloudprovider import names
from windrow.cloudprovider.context import ControllerContext
from windrow.cloudprovider.services.actions import (
    ENSURED,
    ENSURING,
    HARVESTER,
    ConfirmDeleted,
    EmitEvent,
    Plan,
)
from windrow.cloudprovider.services.execute import FAILED, Executor, HostFailed, Stale
from windrow.cloudprovider.services.families import SECOND
from windrow.cloudprovider.services.index import ServiceIndex, ServiceRecord
from windrow.cloudprovider.services.own_address import ORPHANS
from windrow.cloudprovider.services.planning import apply_namespace_gate, needs_removal, plan_service
from windrow.cloudprovider.services.problems import explain_error
from windrow.cloudprovider.services.readings import (
    Interfaces,
    LoadBalancer,
)
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState, Unavailable
from windrow.controller.controller import Backoff, Controller
from windrow.controller.outcomes import SETTLED, Failed, Outcome, Waiting
from windrow.core.crash import handle_crash
from windrow.core.logs import with_values
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import ObjectRef

# After a write of another client: by then the watch has brought it.
STALE_RETRY = timedelta(milliseconds=200)
# As the cloud framework has it.
BACK_OFF = Backoff(timedelta(seconds=5), timedelta(seconds=300))
# Servers keep events for an hour; the event of a problem that lasts is renewed before.
EVENT_PERIOD = timedelta(minutes=50)
MAX_PROBLEMS = 20
QUEUE = "service"

V = TypeVar("V")


class ServiceController:
    """Keeps the load balancers of one guest cluster in step with its services, while it runs.

    `services`, `load_balancers` and `interfaces` (the network map) are its informers; others may read them.
    `find_namespace_problem` says why services without a load balancer in this namespace are held back.
    """

    def __init__(self, context: ControllerContext) -> None:
        options = context.options
        settings = ClusterSettings(
            options.cluster_name,
            context.namespace,
            options.management_network,
            options.kube_vip_svc_election,
        )
        # Why the namespace may not be that of this cluster; None once it is verified.
        self.find_namespace_problem: Callable[[], Unavailable | None] = lambda: None
        # The nodes that announce services and whose kernel is known to lack macvlan; the owner says so.
        self.list_without_macvlan: Callable[[], tuple[str, ...]] = lambda: ()
        index = self._index = ServiceIndex(
            context, settings, self._on_watch_error, lambda: self.list_without_macvlan()
        )
        self.services, self.load_balancers = index.services.informer, index.load_balancers.informer
        self.interfaces = index.interfaces
        self._recorder = context.recorder(names.SERVICE_EVENTS)
        self._executor = Executor(context, self._recorder, index)
        self._controller: Controller[ObjectRef] = context.controller(
            "services", self._reconcile, QUEUE, options.service_workers, BACK_OFF
        )
        self.settings = settings
        self._states: Counter[str] = Counter()
        self._metrics = context.metrics
        self._clock = context.clock
        self._log = context.log

    async def run(self) -> None:
        """Run until cancelled. While Harvester is unreachable, services that need it get an event."""
        caches = (self.services, self.load_balancers, self.interfaces)
        async with asyncio.TaskGroup() as group:
            for cache in caches:
                group.create_task(cache.run())
            await self.services.wait_for_sync()
            group.create_task(self._follow(self.load_balancers, self._index.on_load_balancer_change))
            group.create_task(self._follow(self.services, self._index.on_service_change))
            group.create_task(self._follow(self.interfaces, self._services_with_network))
            for cache in (self.load_balancers, self.interfaces):
                group.create_task(self._enqueue_all_when_listed(cache))
            group.create_task(self._recorder.run())
            group.create_task(self._controller.run())

    # --- changes -> work queue ------------------------------------------------------------------------------------

    def _on_watch_error(self, problem: KubeError | None) -> None:
        if problem is None:
            self.enqueue_all()
            return
        for ref, record in list(self._index.records.items()):
            if record.waits_for == HARVESTER:
                self._enqueue(ref)

    def _enqueue(self, ref: ObjectRef) -> None:
        self._controller.queue.add(ref)

    def enqueue_all(self) -> None:
        for ref in self._index.relevant_services():
            self._enqueue(ref)

    async def _enqueue_all_when_listed(self, cache: Informer[LoadBalancer] | Informer[Interfaces]) -> None:
        if not cache.is_watching:
            await cache.wait_for_sync()
            self.enqueue_all()

    async def _follow(
        self, cache: Informer[V], affected: Callable[[V | None, V | None], Iterable[ObjectRef]]
    ) -> None:
        """Enqueue the services that each change of the cache affects."""
        async for before, after in cache.changes():
            with handle_crash(self._log, "a change of %s is ignored", cache.kind.plural):
                for ref in dict.fromkeys(affected(before, after)):
                    self._enqueue(ref)

    def _services_with_network(self, *change: Interfaces | None) -> Iterator[ObjectRef]:
        return (ref for ref, service in self.services.items() if service.network)

    # --- one service ----------------------------------------------------------------------------------------------

    async def _reconcile(self, ref: ObjectRef) -> Outcome:
        state = self._index.observe(ref)
        if state is None:
            self._forget(ref)
            return SETTLED
        self._index.remember(state)
        record, log = self._index.record(ref), with_values(self._log, service=state.service.title)
        plan = apply_namespace_gate(state, plan_service(state), self.find_namespace_problem)
        if plan.actions:
            self._metrics.service_syncs.inc()
        try:
            await self._executor.execute(state, plan.actions)
        except Stale:
            return self._retry_stale(record)
        except HostFailed as failed:
            verb = "delete" if needs_removal(state) else "ensure"
            why = explain_error(failed.error, self.settings.namespace)
            if failed.orphan:
                why = (
                    f"failed to delete LoadBalancer {failed.orphan} of an earlier service of this name: {why}"
                )
                self._index.mark_executed(state)  # orphans are deleted last: the rest of the plan is executed
            self._report_problem(record, state, f"failed to {verb} load balancer: {why}")
            if plan.waits_for in (ORPHANS, SECOND):
                self._update_wait(record, state, plan)  # whose timeout goes on
            return Failed(failed.error)
        except KubeError as error:
            log.warning("%s", error)
            self._metrics.service_failures.labels(type(error).__name__).inc()
            return Failed(error)
        record.stale = 0
        self._index.mark_executed(state)
        for action in plan.actions:
            if not isinstance(action, (ConfirmDeleted, EmitEvent)):
                log.info("%s", action)
        return self._conclude(ref, record, state, plan)

    def _retry_stale(self, record: ServiceRecord) -> Outcome:
        """The watch brings the newer object; where it does not, retry with a backoff."""
        now, count = self._clock.now(), record.stale
        record.stale = count + 1
        delay = min(STALE_RETRY * 2 ** min(count, 16), BACK_OFF.maximum)
        return Waiting("the newer object", now, "reconcile again", now + delay)

    def _conclude(self, ref: ObjectRef, record: ServiceRecord, state: ServiceState, plan: Plan) -> Outcome:
        self._update_wait(record, state, plan)
        until = [plan.until, self._index.services.expires(ref)]
        balancers = (one for one in (state.load_balancer, state.second) if one is not None)
        until += [self._index.load_balancers.expires(one.ref) for one in balancers]
        self._set_state(record, _name_state(state, plan))
        if plan.problem:
            until.append(self._report_problem(record, state, plan.problem))
        elif not plan.waits_for and all(isinstance(action, EmitEvent) for action in plan.actions):
            record.reported.clear()
            self._emit_recovered(record, state)
            if state.is_gone and state.host is None:
                self._forget(ref)
        soonest = min((one for one in until if one is not None), default=None)
        if not plan.waits_for and soonest is None:
            return SETTLED
        since = state.wait.since if state.wait.what == plan.waits_for else None
        return Waiting(plan.waits_for or "the watch", since or state.now, "reconcile again", soonest)

    def _emit_recovered(self, record: ServiceRecord, state: ServiceState) -> None:
        """After a problem: without this event the last one would be a failure."""
        service = state.service
        lives = service.wants_load_balancer and not service.is_deleting and not state.is_gone
        if lives and record.last_event in ((service.uid, FAILED), (service.uid, ENSURING.reason)):
            self._executor.emit_event(service, ENSURED)

    def _report_problem(self, record: ServiceRecord, state: ServiceState, problem: str) -> datetime:
        """Emit the problem as an event, unless that was done not long ago; when it is to be emitted again."""
        now = self._clock.monotonic()
        key = (state.service.uid, problem)
        last = record.reported.get(key)
        if last is not None and now - last < EVENT_PERIOD:
            return self._clock.now() + (last + EVENT_PERIOD - now)
        record.reported[key] = now
        while len(record.reported) > MAX_PROBLEMS:
            del record.reported[next(iter(record.reported))]
        with_values(self._log, service=state.service.title).warning("%s", problem)
        self._metrics.service_failures.labels(FAILED).inc()
        event = EmitEvent(FAILED, f"Error syncing load balancer: {problem}", "Warning")
        self._executor.emit_event(state.service, event)
        return self._clock.now() + EVENT_PERIOD

    def _update_wait(self, record: ServiceRecord, state: ServiceState, plan: Plan) -> None:
        if state.wait.what != plan.waits_for:
            record.waits_since = self._clock.monotonic()
        record.waits_for = plan.waits_for

    def _set_state(self, record: ServiceRecord, name: str) -> None:
        if name == record.state:
            return
        self._states.subtract([record.state])
        self._states.update([name])
        record.state = name
        counts = {state: count for state, count in self._states.items() if state and count}
        self._metrics.set_service_states(counts)

    def _forget(self, ref: ObjectRef) -> None:
        if self.services.get(ref) is None and (record := self._index.records.get(ref)) is not None:
            self._set_state(record, "")
            self._index.forget(ref)


def _name_state(state: ServiceState, plan: Plan) -> str:
    if not state.service.wants_load_balancer and not state.service.has_finalizer:
        return ""
    if plan.problem:
        return "refused"
    return "waiting" if plan.waits_for or plan.actions else "ready"
