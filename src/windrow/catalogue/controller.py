"""The catalogue at work: watches NodeDrivers and does what the plan of each says, one action at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from windrow.catalogue.asking import AskFlags
from windrow.catalogue.builtin import HARVESTER, BuiltIn, find_changes, fixed_fields, render_builtin
from windrow.catalogue.faults import Fault
from windrow.catalogue.kinds import CLUSTER, MACHINE, NODE_DRIVER, machine_config
from windrow.catalogue.plan import (
    Activate,
    Claim,
    Deactivate,
    Download,
    Install,
    Offer,
    Plan,
    Remove,
    Reset,
    Seen,
    Trouble,
    next_trouble,
    plan_driver,
)
from windrow.catalogue.reading import NodeDriver, read_driver, read_named_kinds, read_used_driver
from windrow.catalogue.schemas import kind_of
from windrow.catalogue.store import Store, Stored
from windrow.catalogue.supply import Abandoned, Aside, Fetch, Supplier, at_once
from windrow.catalogue.telling import Teller
from windrow.client.client import Client
from windrow.client.watching import WatchedCache
from windrow.kube.errors import Exists, NotFound
from windrow.kube.objects import Raw, name_of, namespace_of
from windrow.kube.refs import CRD
from windrow.reconcile.controller import Controller
from windrow.reconcile.outcomes import SETTLED, Changed, Outcome, Refused, Waiting
from windrow.values.chance import Chance
from windrow.values.clock import Clock

log = logging.getLogger(__name__)

# The key under which the built-in drivers are brought into order; no object can be called so.
START = ""


class Catalogue:
    """Keeps every NodeDriver of one management API as it is asked for. `run` is its owner's task.

    `fetch` delivers what an https URL leads to; `ask_flags` starts an installed driver and returns its create flags,
    and is called for nothing whose checksum did not match. `programs` are the paths of built-in drivers' own
    programs, by name, where they have one. `heard` is told the kinds whose use has become possible or impossible.
    """

    def __init__(
        self,
        api: Client,
        store: Store,
        fetch: Fetch,
        ask_flags: AskFlags,
        clock: Clock,
        chance: Chance,
        *,
        files_allowed: bool = False,
        built_ins: Sequence[BuiltIn] = (HARVESTER,),
        programs: Mapping[str, Path] | None = None,
        aside: Aside = at_once,
        heard: Callable[[str], None] | None = None,
    ) -> None:
        self._api, self._store = api, store
        self._clock, self._chance = clock, chance
        self._files_allowed = files_allowed
        self._built_ins = {driver.name: driver for driver in built_ins}
        self._programs = dict(programs or {})
        self._aside, self._heard = aside, heard
        self._supplier = Supplier(api, store, fetch, ask_flags, clock, aside, self._read)
        self._teller = Teller(api, clock, chance)
        self._troubles: dict[str, Trouble] = {}
        self._is_reset = False
        self._started = asyncio.Event()
        self._drivers: WatchedCache[NodeDriver] = WatchedCache(
            api.transport, NODE_DRIVER, "", self._read, clock, chance
        )
        self._users: WatchedCache[frozenset[str]] = WatchedCache(
            api.transport, CLUSTER, "", read_named_kinds, clock, chance
        )
        self._machines: WatchedCache[str] = WatchedCache(
            api.transport, MACHINE, "", read_used_driver, clock, chance
        )
        self.controller: Controller[str] = Controller("node drivers", self.reconcile, clock, chance)

    # -- for others ----------------------------------------------------------------------------------------------

    async def synced(self) -> None:
        """Return once all NodeDrivers were read, the built-in ones among them."""
        await self._started.wait()

    @property
    def drivers(self) -> tuple[NodeDriver, ...]:
        """The NodeDrivers as they were read last, for windrow.catalogue.finding."""
        return tuple(self._drivers.values())

    def binary_of(self, name: str) -> Path | None:
        """The program of the driver called `name`, proven to be what was installed; None where there is none.

        Also of a driver that is not active: machines that it made must be removable.
        """
        if name in self._built_ins:
            return self._programs.get(name)
        for one in self._drivers.values():
            if one.driver_name == name and (path := self._store.proven(one.applied[1])) is not None:
                return path
        return None

    # -- the work ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled. Raises Fault at once where the state directory cannot be used."""
        await self._aside(self._store.open)
        async with asyncio.TaskGroup() as group:
            for cache in (self._drivers, self._users, self._machines):
                group.create_task(cache.run(), name=f"watch {cache.kind.plural}")
            self.controller.queue.add(START)
            group.create_task(self._hear_drivers())
            for users in (self._users, self._machines):
                group.create_task(self._hear_users(users))
            group.create_task(self.controller.run(), name="reconcile node drivers")

    async def _hear_drivers(self) -> None:
        async for before, after in self._drivers.changes():
            for one in filter(None, (after or before,)):
                self.controller.queue.add(one.name)
            # Whom this one stood in the way of can be looked at again.
            if after is None or (before is not None and before.driver_name != after.driver_name):
                for other in self._drivers.values():
                    self.controller.queue.add(other.name)
            self._supplier.hear(before, after)
            self._pass_on(before, after)
            if self._is_reset and self._knows_built_ins():
                self._started.set()

    def _pass_on(self, before: NodeDriver | None, after: NodeDriver | None) -> None:
        usable = [
            {one.config_kind} if one is not None and one.is_usable else set() for one in (before, after)
        ]
        for kind in sorted(usable[0] ^ usable[1]):
            if self._heard is not None:
                self._heard(kind)

    async def _hear_users(self, users: WatchedCache[Any]) -> None:
        async for _ in users.changes():
            for one in self._drivers.values():
                if one.is_deleting:
                    self.controller.queue.add(one.name)

    def _read(self, raw: Raw) -> NodeDriver:
        own = self._built_ins.get(name_of(raw))
        return read_driver(raw, files_allowed=self._files_allowed, own_kind=own.kind if own else "")

    # -- reconcile -----------------------------------------------------------------------------------------------

    async def reconcile(self, name: str) -> Outcome:
        if name == START:
            return await self._reset()
        # Asked for anew each time, for the cache may be older than our own last write.
        raw = await self._api.find(NODE_DRIVER.ref(name))
        if raw is None:
            self._troubles.pop(name, None)
            self._teller.forget(name)
            return SETTLED
        seen = await self._observe(raw)
        plan = plan_driver(seen)
        raw = await self._teller.say(raw, seen, plan)
        return await self._carry_out(raw, seen, plan)

    async def _reset(self) -> Outcome:
        for driver in self._built_ins.values():
            ref = NODE_DRIVER.ref(driver.name)
            raw = await self._api.find(ref)
            if raw is None:
                try:
                    await self._api.create(NODE_DRIVER, render_builtin(driver))
                except Exists:
                    return Changed("somebody made it meanwhile")
            elif changes := find_changes(driver, raw):
                reset = Reset(driver.name, changes, "every start brings the built-in drivers into order")
                log.warning("NodeDriver %s: reset %s: %s", reset.name, ", ".join(reset.fields), reset.because)
                await self._api.patch(ref, {"spec": fixed_fields(driver)})
        await self._supplier.sweep()  # the process before may have ended before it came to that
        self._is_reset = True
        if self._knows_built_ins():
            self._started.set()
        return SETTLED

    def _knows_built_ins(self) -> bool:
        return all(self._drivers.get(NODE_DRIVER.ref(name)) is not None for name in self._built_ins)

    async def _observe(self, raw: Raw) -> Seen:
        driver = self._read(raw)
        now = self._clock.now()
        trouble = self._troubles.get(driver.name)
        users = await self._find_users(driver) if driver.is_deleting else ()
        machines = await self._find_machines(driver) if driver.is_deleting else ()
        configs = await self._find_configs(driver) if driver.is_deleting else ()
        if driver.own_kind or not driver.is_wanted or driver.is_deleting or driver.faults:
            return Seen(driver, now, users=users, machines=machines, configs=configs, trouble=trouble)
        stored: Stored | None = await self._aside(lambda: self._look(driver))
        crd, owner, keeps = None, "", False
        if stored is not None:
            kind = kind_of(stored.name)
            crd = await self._api.find(CRD.ref(kind.qualified))
            owner = await self._find_owner(driver, stored.name)
            keeps = kind.kind == HARVESTER.kind
        return Seen(
            driver,
            now,
            downloaded=self._store.has_download(driver.checksum),
            stored=stored,
            crd=crd,
            owner=owner,
            owner_built_in=owner in self._built_ins,
            keeps_kind=keeps,
            trouble=trouble,
        )

    def _look(self, driver: NodeDriver) -> Stored | None:
        return self._store.find(driver.checksum) if self._store.proven(driver.checksum) else None

    async def _find_owner(self, driver: NodeDriver, name: str) -> str:
        """Who else gives the driver called `name`. Of several the built-in one has it, then the oldest."""
        if name in self._built_ins:
            return name
        others = [self._read(raw) for raw in await self._api.list(NODE_DRIVER) if name_of(raw) != driver.name]
        holders = [one for one in others if one.driver_name == name and not one.is_deleting]
        if driver.driver_name == name:
            holders = [one for one in holders if (one.created, one.name) < (driver.created, driver.name)]
        return min(((one.created, one.name) for one in holders), default=("", ""))[1]

    async def _find_users(self, driver: NodeDriver) -> tuple[str, ...]:
        if not driver.config_kind:
            return ()
        found = [raw for raw in await self._api.list(CLUSTER) if driver.config_kind in read_named_kinds(raw)]
        return tuple(sorted(f"{namespace_of(raw)}/{name_of(raw)}" for raw in found))

    async def _find_machines(self, driver: NodeDriver) -> tuple[str, ...]:
        if not driver.driver_name:
            return ()
        found = [raw for raw in await self._api.list(MACHINE) if read_used_driver(raw) == driver.driver_name]
        return tuple(sorted(f"{namespace_of(raw)}/{name_of(raw)}" for raw in found))

    async def _find_configs(self, driver: NodeDriver) -> tuple[str, ...]:
        if not driver.config_kind:
            return ()
        try:
            found = await self._api.list(machine_config(driver.config_kind))
        except NotFound:  # the kind is not defined
            return ()
        return tuple(sorted(f"{namespace_of(raw)}/{name_of(raw)}" for raw in found))

    # -- carry out -----------------------------------------------------------------------------------------------

    async def _carry_out(self, raw: Raw, seen: Seen, plan: Plan) -> Outcome:
        driver, action = seen.driver, plan.action
        if plan.fault is not None:
            if plan.again is not None and seen.trouble is not None:
                return Waiting(str(plan.fault), seen.trouble.since, "it is tried again", plan.again)
            return Refused(plan.fault.fact, plan.fault.cure)
        match action:
            case None | Activate() | Deactivate():
                return SETTLED
            case Claim():
                await self._supplier.claim(raw)
            case Remove():
                await self._supplier.remove(raw, driver, action)
            case Download() | Install() | Offer():
                log.info("NodeDriver %s: %s: %s", driver.name, type(action).__name__.lower(), action.because)
                try:
                    await self._supplier.supply(seen, action)
                except Abandoned:
                    return Changed("it is not asked for any more")
                except Fault as fault:
                    spread = self._chance.between(0.9, 1.1)
                    before = self._troubles.get(driver.name)
                    self._troubles[driver.name] = next_trouble(
                        before, fault, replace(seen, now=self._clock.now()), spread
                    )
                    return Changed(str(fault))
                if not isinstance(action, Download):
                    self._troubles.pop(driver.name, None)
        return Changed(type(action).__name__)
