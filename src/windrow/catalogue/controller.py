"""The catalogue at work: watches NodeDrivers and does what the plan of each says, one action at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from windrow.catalogue.asking import AskFlags, ask
from windrow.catalogue.builtin import HARVESTER, BuiltIn, find_changes, fixed_fields, render_builtin
from windrow.catalogue.faults import Fault
from windrow.catalogue.finding import Driver, find_driver, find_refusal
from windrow.catalogue.kinds import CLUSTER, NODE_DRIVER, machine_config
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
from windrow.catalogue.reading import FINALIZER, NodeDriver, read_driver, read_named_kinds
from windrow.catalogue.schemas import is_ours, kind_of, read_fields, render_crd
from windrow.catalogue.standing import derive_status, headline, offered
from windrow.catalogue.store import Store, Stored
from windrow.client.client import Client
from windrow.client.downloads import DownloadFailed
from windrow.client.recording import Recorder, Told
from windrow.client.watching import WatchedCache
from windrow.kube.errors import Conflict, Exists, NotFound
from windrow.kube.objects import Raw, finalizers_of, is_deleting, name_of, namespace_of, uid_of
from windrow.kube.patches import make_merge_patch
from windrow.kube.refs import CRD
from windrow.reconcile.controller import Controller
from windrow.reconcile.outcomes import SETTLED, Changed, Outcome, Refused, Waiting
from windrow.values.chance import Chance
from windrow.values.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

MANAGER = "windrow-catalogue"
CHUNK = 1024 * 1024
# The key under which the built-in drivers are brought into order; no object can be called so.
START = ""

# Hands every byte behind an URL to the function, in order. windrow.client.downloads has the one over HTTPS.
Fetch = Callable[[str, Callable[[bytes], None]], Awaitable[None]]
# Runs work on files beside the event loop: asyncio.to_thread, or in stories nothing but the call.
Aside = Callable[[Callable[[], T]], Awaitable[T]]


_NOBODY = NodeDriver("", "", "", "", False)


async def at_once(work: Callable[[], T]) -> T:
    return work()


class Abandoned(Exception):
    """What is being fetched is not asked for any more."""


@dataclass(slots=True)
class _Errand:
    """A download under way, and the bell that calls it off."""

    asked: tuple[str, str]
    called_off: asyncio.Event = field(default_factory=asyncio.Event)


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
        kept_kinds: frozenset[str] = frozenset({HARVESTER.kind}),
        aside: Callable[[Callable[[], Any]], Awaitable[Any]] = at_once,
        heard: Callable[[str], None] | None = None,
    ) -> None:
        self._api, self._store, self._fetch, self._ask_flags = api, store, fetch, ask_flags
        self._clock, self._chance = clock, chance
        self._files_allowed = files_allowed
        self._built_ins = {driver.name: driver for driver in built_ins}
        self._programs = dict(programs or {})
        self._kept_kinds = kept_kinds
        self._aside, self._heard = aside, heard
        self._recorder = Recorder(api, "windrow-catalogue", clock, chance)
        self._troubles: dict[str, Trouble] = {}
        self._told: dict[str, tuple[str, str, str]] = {}
        self._errands: dict[str, _Errand] = {}
        self._is_reset = False
        self._started = asyncio.Event()
        self._drivers: WatchedCache[NodeDriver] = WatchedCache(
            api.transport, NODE_DRIVER, "", self._read, clock, chance
        )
        self._users: WatchedCache[frozenset[str]] = WatchedCache(
            api.transport, CLUSTER, "", read_named_kinds, clock, chance
        )
        self.controller: Controller[str] = Controller("node drivers", self.reconcile, clock, chance)

    # -- for others ----------------------------------------------------------------------------------------------

    async def synced(self) -> None:
        """Return once all NodeDrivers were read, the built-in ones among them."""
        await self._started.wait()

    def find_driver(self, kind: str) -> Driver | None:
        """The driver that gives the machine config kind `kind`, active or not; None where none does."""
        return find_driver(kind, self._drivers.values())

    def refusal(self, kind: str) -> Fault | None:
        """Why no Cluster may use `kind` now; None where it may."""
        return find_refusal(kind, self._drivers.values())

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
            for cache in (self._drivers, self._users):
                group.create_task(cache.run(), name=f"watch {cache.kind.plural}")
            self.controller.queue.add(START)
            group.create_task(self._hear_drivers())
            group.create_task(self._hear_users())
            group.create_task(self.controller.run(), name="reconcile node drivers")

    async def _hear_drivers(self) -> None:
        async for before, after in self._drivers.changes():
            for one in filter(None, (after or before,)):
                self.controller.queue.add(one.name)
            # Whom this one stood in the way of can be looked at again.
            if after is None or (before is not None and before.driver_name != after.driver_name):
                for other in self._drivers.values():
                    self.controller.queue.add(other.name)
            self._call_off(before, after)
            self._pass_on(before, after)
            if self._is_reset and self._knows_built_ins():
                self._started.set()

    def _call_off(self, before: NodeDriver | None, after: NodeDriver | None) -> None:
        """End a download that nobody waits for any more: a server may take its time."""
        errand = self._errands.get((after or before or _NOBODY).name)
        if errand is None:
            return
        if (
            after is None
            or after.is_deleting
            or not after.is_wanted
            or (after.url, after.checksum) != errand.asked
        ):
            errand.called_off.set()

    def _pass_on(self, before: NodeDriver | None, after: NodeDriver | None) -> None:
        usable = [
            {one.config_kind} if one is not None and one.is_usable else set() for one in (before, after)
        ]
        for kind in sorted(usable[0] ^ usable[1]):
            if self._heard is not None:
                self._heard(kind)

    async def _hear_users(self) -> None:
        async for _ in self._users.changes():
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
            self._told.pop(name, None)
            return SETTLED
        seen = await self._observe(raw)
        plan = plan_driver(seen)
        raw = await self._say(raw, seen, plan)
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
        await self._sweep()  # the process before may have ended before it came to that
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
        configs = await self._find_configs(driver) if driver.is_deleting else ()
        if driver.own_kind or not driver.is_wanted or driver.is_deleting or driver.faults:
            return Seen(driver, now, users=users, configs=configs, trouble=trouble)
        stored: Stored | None = await self._aside(lambda: self._look(driver))
        crd, owner, keeps = None, "", False
        if stored is not None:
            kind = kind_of(stored.name)
            crd = await self._api.find(CRD.ref(kind.qualified))
            owner = await self._find_owner(driver, stored.name)
            keeps = kind.kind in self._kept_kinds
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
                finalizers = [*finalizers_of(raw), FINALIZER]
                change = {
                    "finalizers": finalizers,
                    "resourceVersion": raw["metadata"]["resourceVersion"],
                }
                await self._api.patch(NODE_DRIVER.ref(driver.name), {"metadata": change})
            case Remove():
                await self._remove(raw, driver, action)
            case Download() | Install() | Offer():
                log.info("NodeDriver %s: %s: %s", driver.name, type(action).__name__.lower(), action.because)
                try:
                    await self._supply(raw, seen, action)
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

    async def _supply(self, raw: Raw, seen: Seen, action: Download | Install | Offer) -> None:
        match action:
            case Download():
                await self._download(seen.driver, action)
            case Install():
                name = seen.driver.name
                await self._aside(lambda: self._store.install(action.checksum, name, action.url))
            case Offer():
                await self._offer(raw, seen, action)

    async def _download(self, driver: NodeDriver, action: Download) -> None:
        try:
            receipt = self._store.receive(action.checksum, driver.name)
            try:
                await self._bring(driver, action, receipt.write)
                await self._aside(receipt.keep)
            finally:
                receipt.drop()
        except DownloadFailed as error:
            raise Fault(error.fact, error.cure, "DownloadFailed") from error
        except OSError as error:
            said = (error.strerror or str(error)).lower()
            raise Fault(
                f"the driver cannot be read ({said})", "check spec.url and the network", "DownloadFailed"
            ) from error

    async def _bring(self, driver: NodeDriver, action: Download, write: Callable[[bytes], None]) -> None:
        """Fetch what the action names. Raises Abandoned when the object asks for something else meanwhile."""
        if action.url.startswith("file:"):
            await self._aside(lambda: _copy(action.url, write))
            return
        errand = self._errands[driver.name] = _Errand((action.url, action.checksum))
        waits = [
            asyncio.ensure_future(self._fetch(action.url, write)),
            asyncio.ensure_future(errand.called_off.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not waits[0].done():
                raise Abandoned
            waits[0].result()
        finally:
            del self._errands[driver.name]
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _offer(self, raw: Raw, seen: Seen, action: Offer) -> None:
        stored = action.stored
        path = await self._aside(lambda: self._store.proven(stored.digest))
        if path is None:
            raise Fault(
                "its program is not what was installed any more", "look at the state directory", "StoreFailed"
            )
        fields = read_fields(await ask(path, self._ask_flags, self._clock), seen.driver.hints)
        kind = kind_of(stored.name)
        if not seen.keeps_kind:
            crd = render_crd(stored.name, fields, stored.digest)
            await self._api.apply(CRD.ref(kind.qualified), crd, MANAGER, force=True)
        status = offered(seen, action, kind.kind)
        await self._api.patch(NODE_DRIVER.ref(seen.driver.name), {"status": status}, subresource="status")
        await self._sweep()

    async def _remove(self, raw: Raw, driver: NodeDriver, action: Remove) -> None:
        if action.kind and not action.keep_kind and action.kind not in self._kept_kinds:
            ref = CRD.ref(machine_config(action.kind).qualified)
            crd = await self._api.find(ref)
            if crd is not None and is_ours(crd):
                await self._api.delete(ref, uid=uid_of(crd))
        await self._sweep(without=driver.name)
        left = [one for one in finalizers_of(raw) if one != FINALIZER]
        change = {"finalizers": left, "resourceVersion": raw["metadata"]["resourceVersion"]}
        log.info("NodeDriver %s: removed: %s", driver.name, action.because)
        try:
            await self._api.patch(NODE_DRIVER.ref(driver.name), {"metadata": change})
        except (Conflict, NotFound):
            return  # it changed or went meanwhile; the next look sees how

    async def _sweep(self, without: str = "") -> None:
        """Remove the files that no NodeDriver names any more."""
        keep: set[str] = set()
        for raw in await self._api.list(NODE_DRIVER):
            if name_of(raw) == without:
                continue
            one = self._read(raw)
            keep |= {one.checksum, one.applied[1]} - {""}
        gone = await self._aside(lambda: self._store.sweep(keep))
        if gone:
            log.info("removed the files of drivers that nobody names: %s", ", ".join(gone))

    # -- say -----------------------------------------------------------------------------------------------------

    async def _say(self, raw: Raw, seen: Seen, plan: Plan) -> Raw:
        """Write how it stands where that has changed; tell it as an event and in the log where it is news.

        Returns the object as it is then.
        """
        wanted = derive_status(seen, plan)
        before = dict(seen.driver.status)
        had = {key: before[key] for key in wanted if key in before}
        change = make_merge_patch(had, {key: value for key, value in wanted.items() if value is not None})
        if not change or (is_deleting(raw) and not seen.driver.is_claimed):
            return raw
        ref = NODE_DRIVER.ref(seen.driver.name)
        raw = await self._api.patch(ref, {"status": change}, subresource="status")
        await self._tell(seen, plan)
        return raw

    async def _tell(self, seen: Seen, plan: Plan) -> None:
        condition = headline(seen, plan)
        message = str(plan.fault) if plan.fault is not None else condition.message
        news = (condition.status, condition.reason, message)
        tries_again = seen.trouble is not None and seen.trouble.asked == seen.asked and plan.fault is None
        if self._told.get(seen.driver.name) == news or (tries_again and condition.status != "True"):
            return
        self._told[seen.driver.name] = news
        bad = plan.fault is not None
        log.log(logging.WARNING if bad else logging.INFO, "NodeDriver %s: %s", seen.driver.name, message)
        about = NODE_DRIVER.ref(seen.driver.name)
        told = Told(about, seen.driver.uid, condition.reason, message, "Warning" if bad else "Normal")
        await self._recorder.tell(told)


def _copy(url: str, write: Callable[[bytes], None]) -> None:
    with Path(unquote(urlsplit(url).path)).open("rb") as file:
        while chunk := file.read(CHUNK):
            write(chunk)
