"""The NodeDriver controller: watches NodeDrivers and executes the plan of each, one action at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.controller.controller import Controller
from windrow.controller.outcomes import SETTLED, Changed, Outcome, Refused, Waiting
from windrow.core.clock import Clock
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.core.stamps import TOLERANCE
from windrow.drivers.api import (
    CLUSTER,
    HARVESTER,
    LOCAL_URL,
    MACHINE,
    NODE_DRIVER,
    BuiltIn,
    Fault,
    NodeDriver,
    find_changes,
    fixed_fields,
    machine_config,
    read_driver,
    read_machine_config_kinds,
    read_machine_driver,
    render_builtin,
)
from windrow.drivers.installer import DownloadCancelled, Fetch, Installer, ReadFlags, RunBlocking, run_inline
from windrow.drivers.plan import (
    AddFinalizer,
    DefineKind,
    Download,
    Failure,
    Install,
    NodeDriverState,
    Plan,
    Uninstall,
    next_failure,
    plan_driver,
)
from windrow.drivers.schema import machine_config_kind
from windrow.drivers.status import StatusWriter
from windrow.drivers.store import DriverStore, InstalledDriver
from windrow.kubernetes.errors import AlreadyExists, NotFound
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested
from windrow.kubernetes.resources import CRD, ApiResource

log = with_values(logging.getLogger(__name__))

_NO_OVERRIDE = {"appliedURL": LOCAL_URL, "appliedChecksum": None, "binaryChecksum": None}

# The queue key of resetting the built-in drivers; no object can have this name.
START = ""


class NodeDriverController:
    """Reconciles every NodeDriver of one management API. `run` is its owner's task.

    `fetch` downloads an https URL; `read_flags` starts an installed driver and returns its create flags, and is called
    only for a verified checksum. `programs` are the binaries of built-in drivers by name, where they have one.
    `on_kind_changed` gets each machine config kind that becomes usable or unusable, `on_override` the name of each built-in
    driver whose place another program has taken or left. `sandbox` describes what downloaded
    programs run in, "" for nothing; None leaves it out of the status.
    """

    def __init__(
        self,
        api: Client,
        store: DriverStore,
        fetch: Fetch,
        read_flags: ReadFlags,
        clock: Clock,
        rng: Rng,
        *,
        files_allowed: bool = False,
        built_ins: Sequence[BuiltIn] = (HARVESTER,),
        programs: Mapping[str, Path] | None = None,
        run_blocking: RunBlocking = run_inline,
        on_kind_changed: Callable[[str], None] | None = None,
        on_override: Callable[[str], None] | None = None,
        sandbox: str | None = None,
    ) -> None:
        self._api, self._store = api, store
        self._clock, self._rng = clock, rng
        self._files_allowed, self._sandbox = files_allowed, sandbox
        self._built_ins = {driver.name: driver for driver in built_ins}
        self._programs = dict(programs or {})
        self._run_blocking, self._on_kind_changed = run_blocking, on_kind_changed
        self._on_override = on_override
        markers = {driver.name: driver.marker for driver in built_ins}
        self._installer = Installer(api, store, fetch, read_flags, clock, run_blocking, self._read, markers)
        self._status_writer = StatusWriter(api, clock, rng)
        # With the instant of the monotonic clock at which it was recorded.
        self._failures: dict[str, tuple[Failure, timedelta]] = {}
        self._built_ins_reset = False
        self._reset_generations: dict[str, int] = {}  # of the built-in ones, after the reset of this start
        self._started = asyncio.Event()
        self._drivers: Informer[NodeDriver] = Informer(api.transport, NODE_DRIVER, "", self._read, clock, rng)
        self._clusters: Informer[frozenset[str]] = Informer(
            api.transport, CLUSTER, "", read_machine_config_kinds, clock, rng
        )
        self._machines: Informer[str] = Informer(api.transport, MACHINE, "", read_machine_driver, clock, rng)
        self.controller: Controller[str] = Controller("node drivers", self.reconcile, clock, rng)

    # -- for others ----------------------------------------------------------------------------------------------

    async def wait_started(self) -> None:
        """Return once all NodeDrivers were listed and the built-in ones exist."""
        await self._started.wait()

    @property
    def drivers(self) -> tuple[NodeDriver, ...]:
        """The NodeDrivers of the informer, for `find_driver` and `find_refusal`."""
        return tuple(self._drivers.values())

    def find_binary(self, name: str) -> Path | None:
        """The binary of the driver called `name`, verified against what was installed; None where there is none.

        Also of a driver that is not active: its machines must be removable.
        """
        if name in self._built_ins:
            override = self._find_override(name)
            return self._store.verified_path(override) if override else self._programs.get(name)
        for one in self._drivers.values():
            if one.driver_name == name and (path := self._store.verified_path(one.applied[1])) is not None:
                return path
        return None

    def is_overridden(self, name: str) -> bool:
        """Whether another program is in use in place of the built-in driver `name`, as its NodeDriver asks."""
        return bool(self._find_override(name))

    def _find_override(self, name: str) -> str:
        driver = self._drivers.get(NODE_DRIVER.ref(name)) if name in self._built_ins else None
        return driver.override_checksum if driver is not None and not driver.is_deleting else ""

    # -- the work ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled. Raises Fault at once where the state directory cannot be used."""
        await self._run_blocking(self._store.open)
        async with asyncio.TaskGroup() as group:
            for cache in (self._drivers, self._clusters, self._machines):
                group.create_task(cache.run(), name=f"watch {cache.kind.plural}")
            self.controller.queue.add(START)
            group.create_task(self._follow_drivers())
            for cache in (self._clusters, self._machines):
                group.create_task(self._follow_users(cache))
            group.create_task(self.controller.run(), name="reconcile node drivers")

    async def _follow_drivers(self) -> None:
        async for before, after in self._drivers.changes():
            if changed := after or before:
                self.controller.queue.add(changed.name)
            # A driver that was refused because of this one's name may be installable now.
            if after is None or (before is not None and before.driver_name != after.driver_name):
                for other in self._drivers.values():
                    self.controller.queue.add(other.name)
            self._installer.on_change(before, after)
            self._notify_kinds(before, after)
            self._notify_override(before, after)
            if self._built_ins_reset and self._has_built_ins():
                self._started.set()

    def _notify_kinds(self, before: NodeDriver | None, after: NodeDriver | None) -> None:
        usable = [
            {one.config_kind} if one is not None and one.is_usable else set() for one in (before, after)
        ]
        for kind in sorted(usable[0] ^ usable[1]):
            if self._on_kind_changed is not None:
                self._on_kind_changed(kind)

    def _notify_override(self, before: NodeDriver | None, after: NodeDriver | None) -> None:
        had, has = (one.override_checksum if one is not None else "" for one in (before, after))
        named = after or before
        if named is not None and bool(had) != bool(has) and self._on_override is not None:
            self._on_override(named.name)

    async def _follow_users(self, cache: Informer[Any]) -> None:
        async for _ in cache.changes():
            for one in self._drivers.values():
                if one.is_deleting:
                    self.controller.queue.add(one.name)

    def _read(self, raw: Raw) -> NodeDriver:
        own = self._built_ins.get(name_of(raw))
        return read_driver(raw, files_allowed=self._files_allowed, built_in_kind=own.kind if own else "")

    # -- reconcile -----------------------------------------------------------------------------------------------

    async def reconcile(self, name: str) -> Outcome:
        if name == START:
            return await self._reset_built_ins()
        # A live GET, for the informer may be older than our own last write.
        raw = await self._api.find(NODE_DRIVER.ref(name))
        if raw is None:
            self._failures.pop(name, None)
            self._status_writer.forget(name)
            return SETTLED
        state = await self._observe(raw)
        plan = plan_driver(state)
        raw = await self._status_writer.write(raw, state, plan)
        if state.driver.is_built_in and state.driver.applied[1]:
            await self._installer.sweep()  # the program that was in its place
        return await self._execute(raw, state, plan)

    async def _reset_built_ins(self) -> Outcome:
        for driver in self._built_ins.values():
            ref = NODE_DRIVER.ref(driver.name)
            raw = await self._api.find(ref)
            if raw is None:
                try:
                    await self._api.create(NODE_DRIVER, render_builtin(driver))
                except AlreadyExists:
                    return Changed("it was created meanwhile")
            elif changes := find_changes(driver, raw):
                why = "built-in drivers are reset at every start"
                log.warning("reset %s: %s", ", ".join(changes), why, nodedriver=driver.name)
                # The status first: with the spec, the program that took its place is out of use.
                if nested(raw, "status", "appliedChecksum"):
                    await self._api.patch(ref, {"status": _NO_OVERRIDE}, subresource="status")
                raw = await self._api.patch(ref, {"spec": fixed_fields(driver)})
                self._reset_generations[driver.name] = int(nested(raw, "metadata", "generation", default=0))
        await self._installer.sweep()  # the process before may have ended before its sweep
        self._built_ins_reset = True
        if self._has_built_ins():
            self._started.set()
        return SETTLED

    def _has_built_ins(self) -> bool:
        found = {name: self._drivers.get(NODE_DRIVER.ref(name)) for name in self._built_ins}
        return all(
            one is not None and one.generation >= self._reset_generations.get(name, 0)
            for name, one in found.items()
        )

    async def _observe(self, raw: Raw) -> NodeDriverState:
        driver = self._read(raw)
        now = self._clock.now()
        failure = self._find_failure(driver.name, now)
        if driver.is_deleting:
            return await self._observe_users(NodeDriverState(driver, now, failure=failure))
        if driver.is_built_in or not driver.is_requested or driver.faults:
            return NodeDriverState(driver, now, failure=failure, sandbox=self._sandbox)
        installed: InstalledDriver | None = await self._run_blocking(lambda: self._find_installed(driver))
        crd, owner, kind_external = None, "", False
        if installed is not None:
            kind = machine_config_kind(installed.name)
            crd = await self._api.find(CRD.ref(kind.group_resource))
            owner = await self._find_owner(driver, installed.name)
            kind_external = kind.kind == HARVESTER.kind
        return NodeDriverState(
            driver,
            now,
            downloaded=self._store.has_download(driver.checksum),
            installed=installed,
            crd=crd,
            owner=owner,
            owner_is_built_in=owner in self._built_ins,
            kind_external=kind_external,
            failure=failure,
            sandbox=self._sandbox,
        )

    def _find_failure(self, name: str, now: datetime) -> Failure | None:
        """The last failure, with its times by the wall clock of now, which may have been set since."""
        if name not in self._failures:
            return None
        failure, recorded = self._failures[name]
        was_set = now - failure.at - (self._clock.monotonic() - recorded)
        if abs(was_set) < TOLERANCE:
            return failure
        retry_at = None if failure.retry_at is None else failure.retry_at + was_set
        return replace(failure, since=failure.since + was_set, retry_at=retry_at)

    async def _observe_users(self, state: NodeDriverState) -> NodeDriverState:
        kind, name = state.driver.config_kind, state.driver.driver_name
        if kind:
            clusters = await self._list_names(CLUSTER, lambda raw: kind in read_machine_config_kinds(raw))
            state = replace(state, clusters=clusters)
            with suppress(NotFound):  # the kind has no CRD
                configs = await self._list_names(machine_config(kind), lambda raw: True)
                state = replace(state, machine_configs=configs)
        if name:
            machines = await self._list_names(MACHINE, lambda raw: read_machine_driver(raw) == name)
            state = replace(state, machines=machines)
        return state

    def _find_installed(self, driver: NodeDriver) -> InstalledDriver | None:
        return self._store.find(driver.checksum) if self._store.verified_path(driver.checksum) else None

    async def _find_owner(self, driver: NodeDriver, name: str) -> str:
        """The other NodeDriver that provides the driver called `name`: the built-in one, else the oldest."""
        if name in self._built_ins and name != driver.name:
            return name
        others = [self._read(raw) for raw in await self._api.list(NODE_DRIVER) if name_of(raw) != driver.name]
        holders = [one for one in others if one.driver_name == name and not one.is_deleting]
        if driver.driver_name == name:
            holders = [one for one in holders if (one.created, one.name) < (driver.created, driver.name)]
        return min(((one.created, one.name) for one in holders), default=("", ""))[1]

    async def _list_names(self, resource: ApiResource, uses_driver: Callable[[Raw], bool]) -> tuple[str, ...]:
        found = await self._api.list(resource)
        return tuple(sorted(f"{namespace_of(raw)}/{name_of(raw)}" for raw in found if uses_driver(raw)))

    # -- execute -------------------------------------------------------------------------------------------------

    async def _execute(self, raw: Raw, state: NodeDriverState, plan: Plan) -> Outcome:
        driver, action = state.driver, plan.action
        if plan.fault is not None:
            if plan.retry_at is not None and state.failure is not None:
                return Waiting(str(plan.fault), state.failure.since, "the step is retried", plan.retry_at)
            return Refused(plan.fault.message, plan.fault.hint)
        match action:
            case None:
                return SETTLED
            case AddFinalizer():
                await self._installer.add_finalizer(raw)
            case Uninstall():
                await self._installer.uninstall(raw, driver, action)
            case Download() | Install() | DefineKind():
                log.info("%s, because %s", action.verb, action.because, nodedriver=driver.name)
                try:
                    await self._installer.execute(state, action)
                except DownloadCancelled:
                    return Changed("its spec changed during the download")
                except Fault as fault:
                    now = self._clock.now()
                    previous = self._find_failure(driver.name, now)
                    failed = next_failure(previous, fault, replace(state, now=now), self._rng)
                    self._failures[driver.name] = failed, self._clock.monotonic()
                    return Changed(str(fault))
                if not isinstance(action, Download):
                    self._failures.pop(driver.name, None)
        return Changed(action.because)
