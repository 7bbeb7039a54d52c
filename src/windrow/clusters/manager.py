"""The cluster manager: watches, and one reconcile per Cluster: observe, plan, carry out, say how it stands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from windrow.catalogue.reading import read_named_kinds
from windrow.client.client import Client
from windrow.client.retrying import RetryingTransport
from windrow.client.transport import Transport
from windrow.client.watching import WatchedCache
from windrow.clusters.actions import GrantAccess, Retire
from windrow.clusters.carry_out import Carrier, trouble_lasts
from windrow.clusters.cluster_deeds import find_proxy
from windrow.clusters.desk import Desk, Harvesters
from windrow.clusters.guests import Dial, Guests, Link
from windrow.clusters.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE
from windrow.clusters.ledger import Ledger
from windrow.clusters.machine_configs import MachineConfigs
from windrow.clusters.observe import Observer, addresses_of, config_clusters, credentials_of
from windrow.clusters.plan import Plan, plan_cluster
from windrow.clusters.reading import JudgeKind, only_harvester
from windrow.clusters.records import Machine, read_machine
from windrow.clusters.sealed import Sealed, read_any_sealed, read_sealed
from windrow.clusters.seen import Seen, Trouble
from windrow.clusters.status import derive_cluster, derive_machine, find_wait, is_whole
from windrow.clusters.trials import Trials
from windrow.kube.kubeconfig import Access
from windrow.kube.objects import Raw, dig, name_of, namespace_of, version_of
from windrow.kube.patches import make_merge_patch
from windrow.kube.refs import SECRET, Kind, Ref
from windrow.machines.port import Machines, Sighting
from windrow.reconcile.controller import Controller
from windrow.reconcile.outcomes import SETTLED, Changed, Failed, Outcome, Waiting
from windrow.values.chance import Chance
from windrow.values.clock import Clock

log = logging.getLogger(__name__)

V = TypeVar("V")

LOOK_AGAIN = timedelta(seconds=30)  # after a refusal: an image may have been imported meanwhile
CATCH_UP = timedelta(seconds=1)
LISTEN_FIRST = timedelta(seconds=10)  # after a start: what could not be asked in this time is told as unknown


class Unfinished(Exception):
    """Something could not be done; it is tried again, later and later."""


class Manager:
    """Keeps every Cluster of one management API as it is asked for."""

    def __init__(
        self,
        api: Client,
        machines: Machines,
        dial: Dial,
        clock: Clock,
        chance: Chance,
        *,
        proxy: str = "",
        judge_kind: JudgeKind = only_harvester,
    ) -> None:
        self._clock = clock
        self._infrastructure = machines
        self._chance = chance
        self._troubles: dict[str, dict[str, Trouble]] = {}  # by cluster uid, then by subject
        self._watched: set[str] = set()
        self._homes: dict[str, Ref] = {}  # machine uid -> its Cluster
        self._group: asyncio.TaskGroup | None = None
        self._begun = clock.now()

        def cache(kind: Kind, read: Callable[[Raw], V | None]) -> WatchedCache[V]:
            return WatchedCache(api.transport, kind, "", read, clock, chance)

        def patient(access: Access) -> Transport:
            return RetryingTransport(dial(access), clock, chance)

        self._clusters: Ledger[Raw] = Ledger(cache(CLUSTER, _whole), _whole, version_of)
        self._machines: Ledger[Machine] = Ledger(
            cache(MACHINE, read_machine), read_machine, lambda machine: machine.version_mark
        )
        self._configs = MachineConfigs(api, lambda kind: cache(kind, _whole), self._hear_configs, judge_kind)
        self._secrets: Ledger[Sealed] = Ledger(
            cache(SECRET, read_sealed), read_any_sealed, lambda sealed: sealed.version_mark
        )
        self._guests = Guests(dial, clock, chance)
        self._credentials: dict[str, str] = {}  # machine uid -> its credential
        harvesters = Harvesters(self._secrets, patient)
        self._trials = Trials(harvesters.get_access, dial, clock, self._hear_trial)
        self._desk = Desk(
            api=api,
            clusters=self._clusters,
            machines=self._machines,
            configs=self._configs,
            secrets=self._secrets,
            infrastructure=machines,
            harvesters=harvesters,
            guests=self._guests,
            trials=self._trials,
            clock=clock,
            chance=chance,
            proxy=proxy,
        )
        self._observer = Observer(self._desk)
        self._carrier = Carrier(self._desk)
        self.controller: Controller[Ref] = Controller("clusters", self.reconcile, clock, chance)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            caches = (self._clusters.cache, self._machines.cache, self._secrets.cache)
            for cache in caches:
                group.create_task(cache.run(), name=f"watch {cache.kind.plural}")
            for cache in caches:
                await cache.synced()
            for configs in self._configs.open(group, [HARVESTER_CONFIG.kind]):
                await configs.synced()
            for machine in self._machines.values():
                self._watch_over(machine)
            group.create_task(self._hear_clusters())
            group.create_task(self._hear_machines())
            group.create_task(self._hear_secrets())
            group.create_task(self._hear_sightings())
            group.create_task(self.controller.run(), name="reconcile clusters")

    # -- what wakes us -------------------------------------------------------------------------------------------

    async def _hear_clusters(self) -> None:
        async for before, after in self._clusters.cache.changes():
            raw = after or before
            if raw is None:
                continue
            ref = CLUSTER.ref(name_of(raw), namespace_of(raw))
            self._clusters.noted(ref, after)
            self.controller.queue.add(ref)

    async def _hear_machines(self) -> None:
        async for before, after in self._machines.cache.changes():
            machine = after or before
            if machine is None:
                continue
            self._machines.noted(machine.ref, after)
            if after is not None:
                self._watch_over(after)
            else:
                self._homes.pop(machine.uid, None)
                self._credentials.pop(machine.uid, None)
                self._watched.discard(machine.uid)
            self.controller.queue.add(CLUSTER.ref(machine.cluster, machine.namespace))

    async def _hear_configs(self, configs: WatchedCache[Raw]) -> None:
        async for before, after in configs.changes():
            for raw in filter(None, (before, after)):
                for ref in config_clusters(configs.kind.kind, raw, list(self._clusters.values())):
                    self.controller.queue.add(ref)

    async def _hear_secrets(self) -> None:
        async for before, after in self._secrets.cache.changes():
            sealed = after or before
            if sealed is None:
                continue
            self._secrets.noted(SECRET.ref(sealed.name, sealed.namespace), after)
            if before != after:
                self._trials.again(f"{sealed.namespace}:{sealed.name}")
            for raw in self._clusters.values():
                if _concerns(sealed, raw):
                    self.controller.queue.add(CLUSTER.ref(name_of(raw), namespace_of(raw)))

    async def _hear_sightings(self) -> None:
        async for before, after in self._infrastructure.sightings().changes():
            sighting = after or before
            if sighting is not None:
                self._hear_sighting(sighting)
            if before and after and before.presence != "unknown" == after.presence:
                self._trials.again(self._credentials.get(after.machine_uid, ""))

    def hear_kind(self, kind: str) -> None:
        """A machine config kind can be used now, or no more: whoever names it is looked at again."""
        for raw in self._clusters.values():
            if kind in read_named_kinds(raw):
                self.controller.queue.add(CLUSTER.ref(name_of(raw), namespace_of(raw)))

    def _hear_sighting(self, sighting: Sighting) -> None:
        home = self._homes.get(sighting.machine_uid)
        if home is not None:
            self.controller.queue.add(home)

    def _hear_trial(self, credential: str) -> None:
        for raw in self._clusters.values():
            if credential in str(raw.get("spec")):
                self.controller.queue.add(CLUSTER.ref(name_of(raw), namespace_of(raw)))

    def _watch_over(self, machine: Machine) -> None:
        self._credentials[machine.uid] = machine.credential
        # Here, because nothing is sighted before it is watched over or ordered, and both come after the record.
        self._homes[machine.uid] = CLUSTER.ref(machine.cluster, machine.namespace)
        if machine.memory is not None and machine.was_made and machine.uid not in self._watched:
            self._watched.add(machine.uid)
            self._infrastructure.watch_over(machine.memory)

    # -- reconcile -----------------------------------------------------------------------------------------------

    async def reconcile(self, key: Ref) -> Outcome:
        if not (self._clusters.cache.is_synced and self._machines.cache.is_synced):
            now = self._clock.now()
            return Waiting("the management API", now, "it goes on", now + CATCH_UP)
        if self._group is not None and (raw := self._clusters.get(key)) is not None:
            self._configs.open(self._group, read_named_kinds(raw))
        seen = await self._observer.look(key)
        if seen is None:
            return SETTLED
        if self._group is not None:
            for credential in credentials_of(seen.cluster):
                self._trials.open(self._group, credential)
        link = self._open_link(key, seen)
        plan = plan_cluster(seen)
        await self._own_up(seen, plan)
        troubles = await self._carrier.carry_out(plan, seen)
        troubles = self._remember(seen, troubles)
        if plan.actions and not troubles and not _only_asks(plan):
            if seen.preflight is not None:
                await self._say_cluster(seen, plan, troubles)  # what the preflight found is seen only now
            return Changed(f"{len(plan.actions)} actions")
        listens_until = self._find_listening(seen)
        if listens_until is not None and not troubles:
            return Waiting("Harvester and the guest API", seen.now, "the status is written", listens_until)
        await self._say(_without_retired(seen, plan, troubles), plan, troubles)
        return self._outcome(seen, plan, troubles, link)

    def _find_listening(self, seen: Seen) -> datetime | None:
        """Until when nothing is said because this process has just begun and has not heard from all sides yet.

        What it does not know yet is known to the status. Were that overwritten with "unknown", each restart would
        take Ready from healthy clusters and give all that is counted from its date a new beginning.
        """
        until = self._begun + LISTEN_FIRST
        if seen.now >= until or seen.cluster.deleting is not None:
            return None
        unheard = seen.standing.initialized and not seen.guest.answers
        unheard |= any(machine.record.was_made and machine.presence == "unknown" for machine in seen.machines)
        return until if unheard else None

    def _open_link(self, key: Ref, seen: Seen) -> Link | None:
        """Keep the way into the guest open, and pointing where its servers are."""
        if self._group is None or seen.secrets is None or seen.cluster.deleting is not None:
            return self._guests.find(seen.cluster.uid)
        urls = addresses_of(seen)
        if not urls:
            return self._guests.find(seen.cluster.uid)
        proxy = find_proxy(self._desk, seen)
        link = self._guests.open(
            self._group, seen.cluster.uid, seen.secrets, proxy, lambda: self.controller.queue.add(key)
        )
        running = {url for url in urls if url not in _stopped_urls(seen)}
        link.lead_to([url for url in urls if url in running] or urls)
        return link

    async def _own_up(self, seen: Seen, plan: Plan) -> None:
        """Before work that may take long: a status that claims more than is so is corrected first."""
        claims = seen.standing.raw.get("ready") is True and seen.cluster.deleting is None
        if not (plan.actions and claims) or is_whole(seen) or self._find_listening(seen):
            return
        await self._say_cluster(seen, plan, self._troubles.get(seen.cluster.uid, {}))

    def _remember(self, seen: Seen, troubles: dict[str, Trouble]) -> dict[str, Trouble]:
        before = self._troubles.get(seen.cluster.uid, {})
        lasting = {
            subject: trouble_lasts(before.get(subject), trouble) for subject, trouble in troubles.items()
        }
        self._troubles[seen.cluster.uid] = lasting
        return lasting

    async def _say(self, seen: Seen, plan: Plan, troubles: dict[str, Trouble]) -> None:
        """Write how it stands, where that has changed."""
        for machine in seen.machines:
            wanted = derive_machine(machine, seen, plan, troubles)
            await self._desk.write_machine_status(machine.record, _change(machine.record.status, wanted))
        await self._say_cluster(seen, plan, troubles)

    async def _say_cluster(self, seen: Seen, plan: Plan, troubles: dict[str, Trouble]) -> None:
        await self._carrier.tell_held(plan, seen)
        await self._carrier.tell_credential(seen)
        wanted = derive_cluster(seen, plan, troubles)
        if seen.cluster.claimed or seen.cluster.deleting is None:
            await self._desk.write_cluster_status(seen, _change(seen.standing.raw, wanted))

    def _outcome(self, seen: Seen, plan: Plan, troubles: dict[str, Trouble], link: Link | None) -> Outcome:
        if troubles:
            subject, trouble = next(iter(troubles.items()))
            return Failed(Unfinished(f"{subject or seen.cluster.name}: {trouble.fact}; {trouble.cure}"))
        instants = [wait.until for wait in plan.waits] + [held.until for held in plan.held]
        instants.append(link.grace_ends if link else None)
        until = min((instant for instant in instants if instant is not None), default=None)
        if plan.refused:
            return Waiting(str(plan.refused[0]), seen.now, "it is looked at again", seen.now + LOOK_AGAIN)
        wait = find_wait(seen, plan, troubles)
        if wait is None and until is None:
            return SETTLED
        return Waiting(wait.what if wait else "", seen.now, wait.then if wait else "", until)


def _stopped_urls(seen: Seen) -> set[str]:
    """Servers that certainly do not answer: a connection to them may hang for minutes without saying so."""
    stopped = [
        machine
        for machine in seen.machines
        if machine.presence == "missing"
        or (machine.sighting and machine.sighting.state in ("stopped", "failed"))
    ]
    return set(addresses_of(replace(seen, machines=tuple(stopped))))


def _without_retired(seen: Seen, plan: Plan, troubles: Mapping[str, Trouble]) -> Seen:
    """What was seen, as it is now that machines were given up: no status may count on those any more."""
    given_up = {action.machine for action in plan.actions if isinstance(action, Retire)} - troubles.keys()
    if not given_up:
        return seen
    machines = tuple(
        replace(machine, record=replace(machine.record, deleting=machine.record.deleting or seen.now))
        if machine.name in given_up
        else machine
        for machine in seen.machines
    )
    return replace(seen, machines=machines)


def _only_asks(plan: Plan) -> bool:
    """Asking for a token that is not issued yet changes nothing."""
    return all(isinstance(action, GrantAccess) for action in plan.actions) and bool(plan.waits)


def _change(before: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that brings the fields of `wanted` into `before`, {} when they are there already."""
    had = {key: before[key] for key in wanted if key in before}
    asked = {key: value for key, value in wanted.items() if value is not None}
    return make_merge_patch(had, asked)


def _concerns(sealed: Sealed, cluster: Raw) -> bool:
    called = f"{sealed.namespace}:{sealed.name}"
    if sealed.cluster_uid:
        return bool(sealed.cluster_uid == dig(cluster, "metadata", "uid"))
    return called in str(cluster.get("spec"))


def _whole(raw: Raw) -> Raw:
    return raw
