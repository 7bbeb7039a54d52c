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
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from windrow.client.client import Client
from windrow.client.recording import Recorder
from windrow.client.transport import Transport
from windrow.client.watching import WatchedCache
from windrow.cloudprovider import names
from windrow.cloudprovider.flags import Options
from windrow.cloudprovider.measures import Measures
from windrow.cloudprovider.services.actions import ENSURED, ENSURING, HARVESTER, Plan, Tell
from windrow.cloudprovider.services.balancer_readings import Balancer, balancer_reader
from windrow.cloudprovider.services.carrying import FAILED, Carrier, HostFailed, Stale
from windrow.cloudprovider.services.deeds import tell_action
from windrow.cloudprovider.services.doubt import hold_back
from windrow.cloudprovider.services.knowledge import Knowledge
from windrow.cloudprovider.services.own_address import STRAYS
from windrow.cloudprovider.services.planning import must_go, plan_service
from windrow.cloudprovider.services.seeing import Pause, Policy, Seen, Unseen
from windrow.cloudprovider.services.service_readings import (
    Interfaces,
    Service,
    read_interfaces,
    read_service,
)
from windrow.cloudprovider.services.telling import Teller
from windrow.cloudprovider.services.words import explain_error
from windrow.harvester.kinds import LOAD_BALANCER
from windrow.kube.errors import KubeError
from windrow.kube.refs import CONFIG_MAP, SERVICE, Ref
from windrow.reconcile.controller import BackOff, Controller
from windrow.reconcile.outcomes import SETTLED, Failed, Outcome, Waiting
from windrow.values.chance import Chance
from windrow.values.clock import Clock

Say = Callable[[str], None]

# Soon after somebody else's write: by then the watch has brought it.
AFTER_CHANGE = timedelta(milliseconds=200)
# As the cloud framework has it.
BACK_OFF = BackOff(timedelta(seconds=5), timedelta(seconds=300))
# Servers keep events for an hour; a problem that lasts is told again before its event is gone.
TELL_AGAIN = timedelta(minutes=50)
MOST_PROBLEMS = 20
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
        chance: Chance,
        say: Say,
        measures: Measures | None = None,
    ) -> None:
        policy = Policy(options.cluster_name, namespace, options.management_network)
        # Why `namespace` may be none of ours; None when it is.
        self.find_doubt: Callable[[], Unseen | None] = lambda: None
        self.services: WatchedCache[Service] = WatchedCache(
            guest, SERVICE, "", read_service, clock, chance, heard=self._hearer("services")
        )
        self.balancers: WatchedCache[Balancer] = WatchedCache(
            host,
            LOAD_BALANCER,
            namespace,
            balancer_reader(policy.cluster),
            clock,
            chance,
            heard=self._hearer("load balancers"),
        )
        self.interfaces: WatchedCache[Interfaces] = WatchedCache(
            guest,
            CONFIG_MAP,
            names.NETWORK_MAP_NAMESPACE,
            read_interfaces,
            clock,
            chance,
            fields=f"metadata.name={names.NETWORK_MAP_NAME}",
            heard=self._hearer("networks"),
        )
        self._knowledge = Knowledge(
            self.services, self.balancers, self.interfaces, policy, options.names_cluster, clock
        )
        self._teller = Teller(Recorder(Client(guest), names.SERVICE_EVENTS, clock, chance))
        self._carrier = Carrier(
            Client(guest),
            Client(host),
            self._teller,
            policy,
            self._knowledge.service_answers,
            self._knowledge.balancer_answers,
            lambda: self._knowledge.guest_uid,
        )
        self._measures = measures or Measures()
        self._controller: Controller[Ref] = Controller(
            "services",
            self._reconcile,
            clock,
            chance,
            workers=options.service_workers,
            back_off=BACK_OFF,
            heard=self._count_retry,
            added=lambda ref: self._measures.queue_added(QUEUE),
        )
        queue = self._controller.queue
        self._measures.queue(QUEUE, lambda: len(queue))
        self.policy = policy
        self._clock = clock
        self._say = say
        self._pauses: dict[Ref, Pause] = {}
        # Problems told of a service (by UID), with the instant.
        self._told: dict[Ref, dict[tuple[str, str], datetime]] = {}
        self._states: dict[Ref, str] = {}
        self._stale: dict[Ref, int] = {}  # plans in a row that came too late

    async def run(self) -> None:
        """Work until cancelled. Harvester may be out of reach: then services that need it are told so."""
        caches = (self.services, self.balancers, self.interfaces)
        async with asyncio.TaskGroup() as group:
            for cache in caches:
                group.create_task(cache.run())
            await self.services.synced()
            group.create_task(self._follow_balancers())
            group.create_task(self._follow_services())
            group.create_task(self._follow_interfaces())
            for cache in (self.balancers, self.interfaces):
                group.create_task(self._wake_all_when_listed(cache))
            group.create_task(self._teller.run())
            group.create_task(self._controller.run())

    # --- who is looked at, and when -----------------------------------------------------------------------------------

    def _hearer(self, what: str) -> Callable[[KubeError | None], None]:
        def heard(problem: KubeError | None) -> None:
            if problem is None:
                self._say(f"{what} are watched again")
                self.wake_all()
                return
            self._say(f"{what} cannot be watched: {problem}")
            for ref in [ref for ref, pause in self._pauses.items() if pause.what == HARVESTER]:
                self._wake(ref)

        return heard

    def _wake(self, ref: Ref) -> None:
        self._controller.queue.add(ref)

    def _count_retry(self, ref: Ref, outcome: Outcome) -> None:
        if isinstance(outcome, Failed):
            self._measures.queue_retried(QUEUE)

    def wake_all(self) -> None:
        for ref in self._knowledge.all_services():
            self._wake(ref)

    async def _wake_all_when_listed(self, cache: WatchedCache[Balancer] | WatchedCache[Interfaces]) -> None:
        if not cache.is_synced:
            await cache.synced()
            self.wake_all()

    async def _follow_services(self) -> None:
        async for before, after in self.services.changes():
            for ref in set_of(self._knowledge.take_service(before, after)):
                self._wake(ref)

    async def _follow_balancers(self) -> None:
        async for before, after in self.balancers.changes():
            for ref in set_of(self._knowledge.take_balancer(before, after)):
                self._wake(ref)

    async def _follow_interfaces(self) -> None:
        async for _ in self.interfaces.changes():
            for ref, service in self.services.items():
                if service.network:
                    self._wake(ref)

    # --- one service ----------------------------------------------------------------------------------------------------

    async def _reconcile(self, ref: Ref) -> Outcome:
        seen = self._knowledge.observe(ref, self._pauses.get(ref, Pause()))
        if seen is None:
            self._forget(ref)
            return SETTLED
        plan = hold_back(seen, plan_service(seen, self.policy), self.find_doubt)
        if plan.actions:
            self._measures.service_synced()
        try:
            await self._carrier.carry_out(seen, plan.actions)
        except Stale:
            return self._look_again(ref)
        except HostFailed as failed:
            verb = "delete" if must_go(seen, self.policy) else "ensure"
            words = explain_error(failed.error, self.policy.namespace)
            if failed.leftover:
                words = f"{failed.leftover}, which an earlier service of this name left, cannot be deleted: {words}"
                self._knowledge.has_carried_out(seen)  # it goes last: all else of the plan is done
            self._complain(seen, f"failed to {verb} load balancer: {words}")
            if plan.waits_for == STRAYS:
                self._pause(ref, seen, plan)  # it is not waited for without end
            return Failed(failed.error)
        except KubeError as error:
            self._say(f"service {seen.service.title}: {error}")
            self._measures.service_failed(type(error).__name__)
            return Failed(error)
        self._stale.pop(ref, None)
        self._knowledge.has_carried_out(seen)
        self._report(seen, plan)
        return self._conclude(ref, seen, plan)

    def _look_again(self, ref: Ref) -> Outcome:
        """The watch brings the newer object; where it does not, look later and later."""
        now, count = self._clock.now(), self._stale.get(ref, 0)
        self._stale[ref] = count + 1
        wait = min(AFTER_CHANGE * 2 ** min(count, 16), BACK_OFF.most)
        return Waiting("the newer object", now, "look again", now + wait)

    def _report(self, seen: Seen, plan: Plan) -> None:
        for action in plan.actions:
            if told := tell_action(action):
                self._say(f"service {seen.service.title}: {told}")

    def _conclude(self, ref: Ref, seen: Seen, plan: Plan) -> Outcome:
        pause = self._pause(ref, seen, plan)
        until = [plan.until, self._knowledge.service_answers.until(ref)]
        if seen.balancer is not None:
            until.append(self._knowledge.balancer_answers.until(seen.balancer.ref))
        if plan.problem:
            until.append(self._complain(seen, plan.problem))
        elif not plan.waits_for and all(isinstance(action, Tell) for action in plan.actions):
            self._told.pop(ref, None)
            self._say_the_end(seen)
            if seen.is_over and seen.host is None:
                self._forget(ref)
        self._count(ref, seen, plan)
        soonest = min((one for one in until if one is not None), default=None)
        if not plan.waits_for and soonest is None:
            return SETTLED
        return Waiting(plan.waits_for or "the watch", pause.since or seen.now, "look again", soonest)

    def _say_the_end(self, seen: Seen) -> None:
        """A problem that was told is over: without a word the last one read would be that it fails."""
        service = seen.service
        lives = service.wants_balancer and not service.is_deleting and not seen.is_over
        if lives and self._carrier.last_words.get(service.ref) in (
            (service.uid, FAILED),
            (service.uid, ENSURING.reason),
        ):
            self._carrier.tell(service, ENSURED)

    def _pause(self, ref: Ref, seen: Seen, plan: Plan) -> Pause:
        if not plan.waits_for:
            self._pauses.pop(ref, None)
            return Pause()
        pause = seen.pause if seen.pause.what == plan.waits_for else Pause(plan.waits_for, seen.now)
        self._pauses[ref] = pause
        return pause

    def _complain(self, seen: Seen, problem: str) -> datetime:
        """Tell the problem on the service, unless that was done not long ago; when to tell it again."""
        now = self._clock.now()
        told = self._told.setdefault(seen.service.ref, {})
        key = (seen.service.uid, problem)
        last = told.get(key)
        if last is not None and now - last < TELL_AGAIN:
            return last + TELL_AGAIN
        told[key] = now
        while len(told) > MOST_PROBLEMS:
            del told[next(iter(told))]
        self._say(f"service {seen.service.title}: {problem}")
        self._measures.service_failed(FAILED)
        tell = Tell(FAILED, f"Error syncing load balancer: {problem}", "Warning")
        self._carrier.tell(seen.service, tell)
        return now + TELL_AGAIN

    def _count(self, ref: Ref, seen: Seen, plan: Plan) -> None:
        if not seen.service.wants_balancer and not seen.service.is_protected:
            self._states.pop(ref, None)
        elif plan.problem:
            self._states[ref] = "refused"
        else:
            self._states[ref] = "waiting" if plan.waits_for or plan.actions else "ready"
        self._measures.services_are(Counter(self._states.values()))

    def _forget(self, ref: Ref) -> None:
        if self.services.get(ref) is not None:
            return
        self._knowledge.forget(ref)
        for memory in (self._pauses, self._told, self._states, self._stale, self._carrier.last_words):
            memory.pop(ref, None)
        self._measures.services_are(Counter(self._states.values()))


def set_of(refs: Iterable[Ref]) -> dict[Ref, None]:
    """Each once, in their order."""
    return dict.fromkeys(refs)
