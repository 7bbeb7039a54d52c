"""Machines made by docker-machine plugins, our own among them: the manager's port over any driver's binary.

    ensure ──> SetConfigRaw, SetConfigFromFlags, PreCreateCheck ──> noted on disk ──> Create ┄┄ looks beside it
                                                                                        │
    the order counts as taken when the machine shows, and Create goes on <──────────────┘

Harvester learns the address of a bridged VM from its guest agent alone, and no driver adds that; so the document that a
Harvester driver is handed brings it.

A plugin process lives for one question or one deed; only `Create` and the like keep one for longer. Deeds are tasks of
`run()`; whoever ordered waits until the infrastructure shows the deed, or it failed.

Plugins offer `GetState` and nothing to watch, so this is the one place that polls (design §2, rule 2): quickly while a
machine is on its way, slowly while it is steady, at once after an order, and never more than a few processes at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from windrow.client.cache import Cache
from windrow.cloudinit.agent import lend_agent
from windrow.formats.json import dumps
from windrow.machines.board import Board, dated
from windrow.machines.connections import Credentials, Dial
from windrow.machines.plugin_access import CredentialFields, KeyRing, Keys
from windrow.machines.plugin_charges import CHECKS, Charge, Deed, clear_up, open_charge, write_private
from windrow.machines.plugin_flags import plan_flags
from windrow.machines.plugin_sight import Glimpse, look, mend
from windrow.machines.plugin_words import explain, says_gone, says_nothing
from windrow.machines.plugins import (
    DriverSaid,
    Patience,
    Plugin,
    PluginError,
    open_plugin,
)
from windrow.machines.port import (
    HARVESTER,
    InfrastructureUnknown,
    MachineRefused,
    MachineSpec,
    Memory,
    Power,
    Problem,
    Sighting,
    planned_memory,
)
from windrow.nodedriver.configuration import read_fields
from windrow.nodedriver.plans import planned_claims
from windrow.nodedriver.stored import read_memory
from windrow.reconcile.alarm import either
from windrow.values.chance import Chance
from windrow.values.clock import Clock
from windrow.wire import dockermachine as wire

BinaryOf = Callable[[str], Path | None]  # driver name -> its plugin binary, where one is installed

# How many machines that have ended are still shown as missing.
ENDED_KEPT = 1000
_STEADY = frozenset({"running", "stopped"})
_GLANCES = (0.2, 0.3, 0.5, 1.0, 2.0, 3.0)  # seconds between looks while a deed goes on; the last one stays
_LAST_NOTE_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a machine is looked at, and how long an order waits to be taken."""

    quick: timedelta = timedelta(seconds=5)
    steady: timedelta = timedelta(seconds=45)
    doubtful: timedelta = timedelta(seconds=15)
    create_taken: float = 45.0
    other_taken: float = 20.0


class PluginMachines:
    """The port Machines over plugin binaries. `run()` is the owner's task; orders wait for it.

    `credentials` gives the kubeconfig text of a Harvester credential, `fields` the fields of any other driver's.
    `state` is a directory of this host alone. `env` is what plugins get of the environment; `argv` what follows the
    binary (rancher-machine's dialect). With `dial`, a Harvester is asked once who it is, as the direct adapter does.
    """

    def __init__(
        self,
        binary_of: BinaryOf,
        credentials: Credentials,
        fields: CredentialFields,
        state: Path,
        clock: Clock,
        chance: Chance,
        *,
        env: Mapping[str, str],
        argv: Sequence[str] = (),
        dial: Dial | None = None,
        board: Board[Sighting] | None = None,
        at_once: int = 16,
        pace: Pace | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._binary_of, self._state, self._clock, self._chance = binary_of, state, clock, chance
        self._keys = KeyRing(credentials, fields, dial, clock)
        self._env, self._argv = dict(env), tuple(argv)
        self._board: Board[Sighting] = board if board is not None else Board()
        self._pace, self._patience = pace or Pace(), patience or Patience()
        self._questions = asyncio.Semaphore(at_once)
        self._deeds = asyncio.Semaphore(at_once)
        self._charges: dict[str, Charge] = {}
        self._ended: deque[str] = deque()
        self._group: asyncio.TaskGroup | None = None
        self._running = asyncio.Event()
        self._cannot_rewrite: set[str] = set()

    async def run(self) -> None:
        """Carry out orders and keep the sightings current, until cancelled; then no plugin is left."""
        self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
        clear_up(self._state)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for charge in self._charges.values():
                    self._watch(charge)
                self._running.set()
                await asyncio.Event().wait()
        finally:
            self._group = None
            self._running.clear()
            for charge in self._charges.values():
                charge.watch = charge.deed = None
            await self._keys.close()

    # --- the port -------------------------------------------------------------------------------------------------

    async def check(self, specs: Sequence[MachineSpec]) -> list[Problem]:
        problems: list[Problem] = []
        for spec in specs:
            try:
                problems += await self._check(spec)
            except MachineRefused as refused:
                problems += refused.problems
        return list(dict.fromkeys(problems))

    async def plan(self, spec: MachineSpec) -> Memory:
        self._get_binary(spec.driver)
        keys = await self._keys.get(spec.driver, spec.credential)
        memory = dict(planned_memory(spec))
        if spec.driver == HARVESTER:
            configuration, _ = read_fields(spec.options)
            named = replace(configuration, machine_name=spec.name, machine_uid=spec.machine_uid)
            memory |= {"WindrowHarvesterUID": keys.identity, "WindrowClaims": list(planned_claims(named))}
        return memory

    async def ensure(self, spec: MachineSpec, memory: Memory | None) -> Memory:
        if memory is not None and memory.get("WindrowVMUID"):
            self.watch_over(memory)
            return memory
        await self._running.wait()
        charge = self._charge(memory or planned_memory(spec))
        if charge.was_made:
            return charge.memory
        keys = await self._unlock(charge, memory)
        deed = charge.deed
        if deed is None or deed.verb != "create" or deed.over.is_set():
            await self._clear_way(charge)
            deed = self._begin(charge, Deed("create"), lambda own: self._create(charge, spec, keys, own))
        made = await deed.outcome(self._pace.create_taken)
        if made is None:
            raise InfrastructureUnknown(
                f"driver {charge.driver} is making {charge.name}, which does not show yet",
                "nothing to do; it is waited for",
            )
        return made

    async def power(self, memory: Memory, wanted: Power) -> Memory:
        await self._running.wait()
        charge = self._charge(memory)
        keys = await self._unlock(charge, memory)
        deed = charge.deed
        if deed is None or (deed.verb, deed.wanted) != ("power", wanted.value) or deed.over.is_set():
            await self._clear_way(charge)
            deed = self._begin(
                charge, Deed("power", wanted.value), lambda own: self._power(charge, wanted, keys, own)
            )
        await deed.outcome(self._pace.other_taken)
        return memory

    async def rewrite(self, memory: Memory, cloud_config: str) -> Memory:
        """Replaces the document where the plugin can, which only our own can. With any other the document that the
        machine was made from stays readable to whoever may read the infrastructure; that is said once in the log."""
        charge = self._charge(memory)
        keys = await self._unlock(charge, memory)
        if charge.driver == HARVESTER:
            cloud_config = lend_agent(cloud_config, str(memory.get("UserData") or ""))
        async with self._questions:
            try:
                async with self._open(charge, keys, charge.memory, secrets=[cloud_config]) as plugin:
                    if wire.REWRITE in await plugin.get_extensions():
                        await plugin.call(wire.REWRITE, cloud_config.encode())
                        return memory
            except (DriverSaid, PluginError) as error:
                raise self._explain(error, charge) from error
        if charge.driver not in self._cannot_rewrite:
            self._cannot_rewrite.add(charge.driver)
            log.warning(
                "driver %s cannot replace what its machines read at their next start: the bootstrap document of "
                "%s stays there, secrets included",
                charge.driver,
                charge.name,
            )
        return memory

    async def remove(self, memory: Memory, volumes: frozenset[str]) -> None:
        await self._running.wait()
        charge = self._charge(memory)
        keys = await self._unlock(charge, memory)
        deed = charge.deed
        if deed is None or deed.verb != "remove" or deed.over.is_set():
            before = deed if deed is not None and not deed.over.is_set() else None
            deed = self._begin(
                charge, Deed("remove"), lambda own: self._remove(charge, volumes, keys, own, before)
            )
        await deed.outcome(self._pace.other_taken)

    def sightings(self) -> Cache[Sighting]:
        return self._board

    def watch_over(self, memory: Memory) -> None:
        self._charge(memory)

    # --- charges --------------------------------------------------------------------------------------------------

    def _charge(self, memory: Memory) -> Charge:
        """The machine of `memory`, which is looked after from now on."""
        uid = str(memory["WindrowMachineUID"])
        charge = self._charges.get(uid)
        if charge is None:
            charge = self._charges[uid] = open_charge(self._state, memory)
            if charge.was_made and self._board.get(uid) is None:
                self._tell(charge, _unknown(charge, "it has not been looked at yet"))
            self._watch(charge)
        elif memory.get("WindrowVMUID") and not charge.was_made:
            charge.memory = memory
        return charge

    def _watch(self, charge: Charge) -> None:
        if self._group is not None and charge.watch is None:
            charge.watch = self._group.create_task(self._look_after(charge), name=f"look after {charge.name}")

    def _tell(self, charge: Charge, sighting: Sighting | None) -> None:
        if sighting is None:
            return self._board.drop(charge.uid)
        self._board.put(charge.uid, dated(self._board.get(charge.uid), sighting, self._clock.now()))
        return None

    def _end(self, charge: Charge) -> None:
        """The machine has ended, and its absence is certain: its last sighting stays for a while, the rest goes."""
        charge.forget()
        if self._charges.pop(charge.uid, None) is None:
            return
        if charge.watch is not None:
            charge.poked.set()
        self._ended.append(charge.uid)
        while len(self._ended) > ENDED_KEPT:
            uid = self._ended.popleft()
            if uid not in self._charges:
                self._board.drop(uid)

    # --- plugins --------------------------------------------------------------------------------------------------

    def _get_binary(self, driver: str) -> Path:
        path = self._binary_of(driver)
        if path is None:
            raise InfrastructureUnknown(
                f"node driver {driver} is not installed here", f"enable it: windrow driver enable {driver}"
            )
        return path

    def _open(
        self, charge: Charge, keys: Keys, memory: Memory | None, *, secrets: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[Plugin]:
        config = dumps(charge.seal(keys.fields).open(memory)) if memory is not None else None
        return open_plugin(
            self._get_binary(charge.driver),
            charge.driver,
            env={**self._env, **keys.env},
            argv=self._argv,
            config=config,
            label=charge.name,
            secrets=[*keys.fields.values(), *secrets],
            patience=self._patience,
        )

    def _explain(
        self, error: DriverSaid | PluginError, charge: Charge
    ) -> InfrastructureUnknown | MachineRefused:
        return explain(error, charge.driver, charge.credential, charge.name)

    async def _unlock(self, charge: Charge, memory: Memory | None = None) -> Keys:
        """The credential, which must lead to where `memory` says that the machine is. Raises InfrastructureUnknown."""
        recorded = str((memory or {}).get("WindrowHarvesterUID") or charge.recorded)
        return await self._keys.get(charge.driver, charge.credential, recorded)

    # --- looking --------------------------------------------------------------------------------------------------

    async def _look_after(self, charge: Charge) -> None:
        """Look at the machine again and again, as often as its state calls for."""
        while charge.uid in self._charges:
            charge.poked.clear()
            if not charge.seen_by_deed:
                try:
                    await self._look(charge)
                except Exception:
                    log.exception("looking at %s", charge.name)
            await either(self._clock, self._pause(charge), charge.poked)

    def _pause(self, charge: Charge) -> timedelta:
        sighting = self._board.get(charge.uid)
        span = self._pace.quick
        if sighting is None or (sighting.state in _STEADY and sighting.presence == "present"):
            span = self._pace.steady
            if sighting is not None and sighting.state == "running" and not sighting.addresses:
                span = self._pace.quick
        elif sighting.presence != "present":
            span = self._pace.doubtful
        return span * self._chance.between(0.8, 1.2)

    async def _look(self, charge: Charge) -> None:
        if not (charge.was_made or charge.begun or charge.ended):
            return None  # nothing was made yet
        try:
            keys = await self._unlock(charge)
            async with self._questions, self._open(charge, keys, charge.memory) as plugin:
                glimpse = await look(plugin, charge)
        except InfrastructureUnknown as unknown:
            return self._tell_unknown(charge, str(unknown))
        except (DriverSaid, PluginError) as error:
            return self._tell_unknown(charge, str(self._explain(error, charge)))
        return self._show(charge, glimpse)

    def _tell_unknown(self, charge: Charge, because: str) -> None:
        if charge.uid in self._charges:
            self._tell(charge, _unknown(charge, because))

    def _show(self, charge: Charge, glimpse: Glimpse) -> None:
        seen = glimpse.sighting
        if charge.uid not in self._charges:
            return None
        creating = charge.deed is not None and charge.deed.verb == "create" and not charge.deed.over.is_set()
        if not glimpse.is_ours:
            before, now = self._board.get(charge.uid), self._clock.now()
            seen = mend(before, seen, now, creating=creating, trouble=charge.trouble)
        if seen.presence == "missing" and not (charge.was_made or charge.ended):
            return self._tell(charge, None)
        self._tell(charge, seen)
        if seen.presence == "missing" and charge.ended and (charge.deed is None or charge.deed.over.is_set()):
            self._end(charge)
        return None

    # --- deeds ----------------------------------------------------------------------------------------------------

    def _begin(self, charge: Charge, deed: Deed, work: Callable[[Deed], Awaitable[None]]) -> Deed:
        assert self._group is not None
        charge.deed = deed
        charge.trouble = ""
        deed.task = self._group.create_task(
            self._carry_out(charge, deed, work), name=f"{deed.verb} {charge.name}"
        )
        return deed

    async def _clear_way(self, charge: Charge) -> None:
        """Return when nothing is being done to the machine. Raises InfrastructureUnknown where that takes long.

        Our own Create that was taken only waits for an address, and need not.
        """
        deed = charge.deed
        if deed is None or deed.task is None or deed.over.is_set():
            return
        if deed.verb == "create" and deed.is_settled and await _is_ours(charge.plugin):
            deed.task.cancel()
        await asyncio.wait({deed.task}, timeout=self._pace.other_taken)
        if not deed.task.done():
            raise _busy(charge, deed)

    async def _carry_out(self, charge: Charge, deed: Deed, work: Callable[[Deed], Awaitable[None]]) -> None:
        try:
            await work(deed)
        except (DriverSaid, PluginError) as error:
            self._failed(charge, deed, self._explain(error, charge))
        except Exception as error:  # the caller hears it; the other machines go on
            self._failed(charge, deed, error)
        finally:
            deed.over.set()
            # A deed that was cancelled has nobody who waits for more than this.
            deed.fail(
                InfrastructureUnknown(f"{deed.verb} of {charge.name} was broken off", "it is tried again")
            )
            charge.poked.set()

    def _failed(self, charge: Charge, deed: Deed, error: Exception) -> None:
        if deed.fail(error):
            return
        charge.trouble = str(error)
        expected = isinstance(error, MachineRefused | InfrastructureUnknown)
        log.warning("%s of %s: %s", deed.verb, charge.name, error, exc_info=None if expected else error)

    @asynccontextmanager
    async def _held(self, charge: Charge, plugin: Plugin) -> AsyncIterator[None]:
        charge.plugin = plugin
        try:
            yield
        finally:
            charge.plugin, charge.seen_by_deed = None, False

    async def _call_and_look(
        self, charge: Charge, plugin: Plugin, method: str, seen: Callable[[Glimpse], Awaitable[None]]
    ) -> None:
        """A call that takes its time; meanwhile the machine is looked at. Raises what the call raises."""
        calling = asyncio.ensure_future(plugin.call(method))
        try:
            place = 0
            while not calling.done():
                await asyncio.wait({calling}, timeout=_GLANCES[min(place, len(_GLANCES) - 1)])
                place += 1
                if not calling.done():
                    await self._glance(charge, plugin, seen)
            calling.result()
        finally:
            calling.cancel()

    async def _glance(
        self, charge: Charge, plugin: Plugin, seen: Callable[[Glimpse], Awaitable[None]]
    ) -> None:
        try:
            glimpse = await look(plugin, charge)
            await seen(glimpse)
        except (DriverSaid, PluginError) as error:
            log.debug("%s cannot be seen while it is worked on: %s", charge.name, error)
            if (
                charge.seen_by_deed
            ):  # its plugin holds the credential it began with; perhaps there is another now
                charge.seen_by_deed = False
                charge.poked.set()
            return
        charge.seen_by_deed = True
        self._show(charge, glimpse)

    # --- making ---------------------------------------------------------------------------------------------------

    async def _create(self, charge: Charge, spec: MachineSpec, keys: Keys, deed: Deed) -> None:
        async with (
            self._open(charge, keys, None, secrets=[spec.cloud_config]) as plugin,
            self._held(charge, plugin),
        ):
            ours = await _is_ours(plugin)
            if charge.begun and not ours and await self._take_up(charge, keys, plugin, deed):
                return
            try:
                await self._set_up(charge, spec, keys, plugin)
                await plugin.call("PreCreateCheck")
                await self._note(charge, spec, keys, plugin, begun=True)
                await self._make(charge, spec, keys, plugin, deed)
            finally:
                charge.user_data.unlink(missing_ok=True)

    async def _set_up(self, charge: Charge, spec: MachineSpec, keys: Keys, plugin: Plugin) -> None:
        """Give the plugin the configuration and the flags. Raises MachineRefused."""
        flags = await plugin.get_flags()
        values, problems = plan_flags(
            spec.driver,
            flags,
            spec.options,
            keys.fields,
            str(charge.user_data),
            cluster_name=spec.cluster_name,
        )
        if problems:
            raise MachineRefused(problems)
        charge.prepare()
        document = spec.cloud_config
        if spec.driver == HARVESTER:
            document = lend_agent(document, read_fields(spec.options)[0].user_data)
        write_private(charge.user_data, document.encode())
        await plugin.set_config(dumps(charge.seal(keys.fields).open(_blank(spec, keys.identity))))
        await plugin.set_flags(values)

    async def _take_up(self, charge: Charge, keys: Keys, plugin: Plugin, deed: Deed) -> bool:
        """An earlier Create was broken off. What runs or starts is taken; anything else of it is cleared away.

        Nobody was told of that machine yet, so nothing can be lost with it.
        """
        await plugin.set_config(dumps(charge.seal(keys.fields).open(charge.memory)))
        try:
            glimpse = await look(plugin, charge)
        except DriverSaid as said:
            if says_nothing(said.text):
                raise
            glimpse = None
        if glimpse is not None and glimpse.is_taken:
            log.info("%s stands already; it is taken as it is", charge.name)
            charge.note({**charge.memory, "WindrowVMUID": _stand_in(charge)})
            deed.take(charge.memory)
            self._show(charge, glimpse)
            return True
        try:
            await plugin.call("Remove")
        except DriverSaid as said:
            if says_nothing(said.text) or "not found" not in said.text.lower():
                raise
        charge.note(charge.memory, begun=False)
        return False

    async def _make(self, charge: Charge, spec: MachineSpec, keys: Keys, plugin: Plugin, deed: Deed) -> None:
        ours = await _is_ours(plugin)

        async def seen(glimpse: Glimpse) -> None:
            taken = not deed.is_settled and glimpse.is_taken
            if taken or not ours:  # another driver may have noted something that finds its machine again
                vm_uid = (glimpse.sighting.vm_uid or _stand_in(charge)) if taken else ""
                await self._note(charge, spec, keys, plugin, vm_uid=vm_uid)
            if taken:
                deed.take(charge.memory)

        try:
            await self._call_and_look(charge, plugin, "Create", seen)
        except DriverSaid as said:
            if "already exists" in said.text.lower() and not deed.is_settled:
                # Somebody else's: what was not made here must never be removed from here.
                charge.note(charge.memory, begun=False)
            elif not ours:
                await self._note(charge, spec, keys, plugin)
            raise
        except asyncio.CancelledError:
            if not ours:
                await self._note_at_last(charge, spec, keys, plugin)
            raise
        if ours and deed.is_settled:
            return
        await self._note(charge, spec, keys, plugin, vm_uid=_stand_in(charge))
        deed.take(charge.memory)

    async def _note_at_last(self, charge: Charge, spec: MachineSpec, keys: Keys, plugin: Plugin) -> None:
        """The host ends in the middle of a Create: what the driver has noted by now finds its machine again."""
        try:
            async with asyncio.timeout(_LAST_NOTE_S):
                await self._note(charge, spec, keys, plugin)
        except (TimeoutError, DriverSaid, PluginError) as error:
            log.warning("%s was being made, and what its driver knows of it is lost: %s", charge.name, error)

    async def _note(
        self,
        charge: Charge,
        spec: MachineSpec,
        keys: Keys,
        plugin: Plugin,
        *,
        begun: bool | None = None,
        vm_uid: str = "",
    ) -> None:
        """Write down what the driver holds of the machine, before and after what it does."""
        memory = charge.seal(keys.fields).close(await plugin.get_memory())
        ours = {
            **{
                key: value for key, value in charge.memory.items() if key in ("WindrowClaims", "WindrowVMUID")
            },
            **{key: value for key, value in planned_memory(spec).items() if key.startswith("Windrow")},
            "WindrowHarvesterUID": keys.identity,
            "WindrowVMUID": vm_uid or charge.memory.get("WindrowVMUID"),
        }
        memory |= {"MachineName": spec.name, **{key: value for key, value in ours.items() if value}}
        if not await _is_ours(plugin):
            memory.pop("WindrowClaims", None)  # it names its disks as it likes
        elif not memory.get("WindrowClaims"):
            memory["WindrowClaims"] = list(planned_claims(read_memory(memory)))
        charge.note(memory, begun=begun)

    # --- power ----------------------------------------------------------------------------------------------------

    async def _power(self, charge: Charge, wanted: Power, keys: Keys, deed: Deed) -> None:
        async with (
            self._deeds,
            self._open(charge, keys, charge.memory) as plugin,
            self._held(charge, plugin),
        ):
            glimpse = await look(plugin, charge)
            self._show(charge, glimpse)
            state = glimpse.sighting.state
            if glimpse.sighting.presence == "missing":
                raise MachineRefused(
                    [
                        Problem(
                            f"machine {charge.name} is not there: {glimpse.sighting.because}",
                            "replace the machine instead of powering it",
                        )
                    ]
                )
            if state in _SO_ALREADY[wanted]:
                return deed.take(charge.memory)

            async def seen(glimpse: Glimpse) -> None:
                if glimpse.sighting.state != state:
                    deed.take(charge.memory)

            await self._call_and_look(charge, plugin, _METHODS[wanted], seen)
            deed.take(charge.memory)
            await self._glance(charge, plugin, seen)
            return None

    # --- removal --------------------------------------------------------------------------------------------------

    async def _remove(
        self, charge: Charge, volumes: frozenset[str], keys: Keys, deed: Deed, before: Deed | None
    ) -> None:
        await self._break_off(charge, keys, before)
        charge.ended = True
        async with self._deeds, self._open(charge, keys, None) as plugin, self._held(charge, plugin):
            ours = await _is_ours(plugin)
            if not (ours or charge.was_made or charge.begun):
                return self._gone(charge, deed, f"driver {charge.driver} has made no {charge.name}")
            memory = dict(charge.memory)
            if volumes:
                self._add_volumes(charge, memory, volumes, ours=ours)
            await plugin.set_config(dumps(charge.seal(keys.fields).open(memory)))

            async def seen(glimpse: Glimpse) -> None:
                if glimpse.sighting.presence == "missing" or glimpse.sighting.state == "deleting":
                    deed.take(charge.memory)

            try:
                await self._call_and_look(charge, plugin, "Remove", seen)
            except DriverSaid as said:
                if not says_gone(said.text, charge.name):
                    raise
            return self._gone(charge, deed, f"driver {charge.driver} has removed {charge.name}")

    def _gone(self, charge: Charge, deed: Deed, because: str) -> None:
        self._tell(charge, Sighting(charge.uid, charge.name, "missing", because=because))
        deed.take(charge.memory)
        self._end(charge)

    def _add_volumes(
        self, charge: Charge, memory: dict[str, Any], volumes: frozenset[str], *, ours: bool
    ) -> None:
        if ours:
            memory["WindrowClaims"] = sorted({*memory.get("WindrowClaims", ()), *volumes})
            return
        log.warning(
            "driver %s removes what it made with %s and nothing else; these stay: %s",
            charge.driver,
            charge.name,
            ", ".join(sorted(volumes)),
        )

    async def _break_off(self, charge: Charge, keys: Keys, deed: Deed | None) -> None:
        """End what is being done to the machine. Another's Create is waited for: broken off in the middle, it could
        leave something behind that nobody knows of."""
        if deed is None or deed.task is None or deed.over.is_set():
            return
        if deed.verb != "create" or await _is_ours(charge.plugin):
            deed.task.cancel()
        await asyncio.wait({deed.task})

    # --- checking -------------------------------------------------------------------------------------------------

    async def _check(self, spec: MachineSpec) -> list[Problem]:
        """Raises MachineRefused, InfrastructureUnknown."""
        keys = await self._keys.get(spec.driver, spec.credential)
        planned = planned_memory(spec)
        charge = open_charge(self._state / CHECKS, {**planned, "WindrowMachineUID": self._chance.uid()})
        try:
            async with self._questions, self._open(charge, keys, None, secrets=[spec.cloud_config]) as plugin:
                await self._set_up(charge, spec, keys, plugin)
                await plugin.call("PreCreateCheck")
        except (DriverSaid, PluginError) as error:
            raise self._explain(error, charge) from error
        finally:
            charge.forget()
        return []


_METHODS = {Power.ON: "Start", Power.OFF: "Stop", Power.RESTART: "Restart"}
_SO_ALREADY: Mapping[Power, frozenset[str]] = {
    Power.ON: frozenset({"running", "starting", "migrating"}),
    Power.OFF: frozenset({"stopped", "stopping"}),
    Power.RESTART: frozenset(),
}


async def _is_ours(plugin: Plugin | None) -> bool:
    return plugin is not None and wire.LOOK in await plugin.get_extensions()


def _blank(spec: MachineSpec, identity: str) -> dict[str, Any]:
    """The configuration that a host gives for a new machine: docker-machine's BaseDriver, all but empty.

    Our own driver learns from it whose machine this is, so that the VM bears the marks from its first moment.
    """
    config: dict[str, Any] = {
        "IPAddress": "",
        "MachineName": spec.name,
        "SSHUser": "",
        "SSHPort": 0,
        "SSHKeyPath": "",
        "StorePath": "",
        "SwarmMaster": False,
        "SwarmHost": "",
        "SwarmDiscovery": "",
    }
    if spec.driver == HARVESTER:
        config |= {key: value for key, value in planned_memory(spec).items() if key.startswith("Windrow")}
        config["WindrowHarvesterUID"] = identity
    return config


def _stand_in(charge: Charge) -> str:
    """What stands for the VM's uid where the driver tells none: that the machine was made, and by whom."""
    return str(charge.memory.get("WindrowVMUID") or f"{charge.driver}:{charge.uid}")


def _unknown(charge: Charge, because: str) -> Sighting:
    return Sighting(charge.uid, charge.name, "unknown", because=because)


def _busy(charge: Charge, deed: Deed) -> InfrastructureUnknown:
    doing = {
        "create": "is just being made",
        "power": "is just being started or stopped",
        "remove": "is being removed",
    }
    return InfrastructureUnknown(
        f"{charge.name} {doing[deed.verb]}, so another order has to wait",
        "nothing to do; the order is given again",
    )
