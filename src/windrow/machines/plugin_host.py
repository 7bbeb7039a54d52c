"""Machines made by docker-machine plugins, our own among them: the manager's port over any driver's binary.

A plugin process lives for one question or one deed; only `Create` and the like keep one for longer. Deeds are tasks of
`run()`; whoever ordered waits until the infrastructure shows the deed, or it failed. How machines are made stands in
`plugin_making`, what else is done to them in `plugin_orders`, how they are looked at in `plugin_watch`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from windrow.client.cache import Cache
from windrow.cloudinit.agent import lend_agent
from windrow.machines.board import Board
from windrow.machines.connections import Credentials, Dial
from windrow.machines.orphans import MARK, succeed, sweep
from windrow.machines.plugin_access import CredentialFields, KeyRing, Keys
from windrow.machines.plugin_charges import ACCOUNT, CHECKS, PLANNED, Charge, Deed, clear_up, open_charge
from windrow.machines.plugin_making import Making
from windrow.machines.plugin_orders import Orders
from windrow.machines.plugin_watch import Pace, Watch
from windrow.machines.plugin_workshop import BinaryOf, Places, Workshop, explained, is_ours
from windrow.machines.plugins import DriverSaid, Patience, PluginError
from windrow.machines.port import (
    HARVESTER,
    CannotRewrite,
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
from windrow.values.chance import Chance
from windrow.values.clock import Clock

T = TypeVar("T")

log = logging.getLogger(__name__)

__all__ = ["BinaryOf", "Pace", "PluginMachines"]


class PluginMachines:
    """The port Machines over plugin binaries. `run()` is the owner's task; orders wait for it.

    `credentials` gives the kubeconfig text of a Harvester credential, `fields` the fields of any other driver's.
    `state` is a directory of this host alone. `env` is what plugins get of the environment; `argv` what follows the
    binary (rancher-machine's dialect). With `dial`, a Harvester is asked once who it is, as the direct adapter does.
    Behind each credential at most `at_once` processes ask, as many carry out orders, four times as many make machines,
    and one of our own stays open.
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
        at_once: int = 8,
        pace: Pace | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._state, self._chance, self._pace = state, chance, pace or Pace()
        self._number = f"{chance.uid()}@{state}"
        self._workshop = Workshop(
            binary_of,
            KeyRing(credentials, fields, dial, clock),
            {**env, MARK: self._number},
            tuple(argv),
            patience or Patience(),
            Places(at_once),
            Places(at_once),
            Places(at_once * 4),
        )
        pinned: Board[Sighting] = board if board is not None else Board()
        self._watch = Watch(self._workshop, pinned, clock, chance, self._pace)
        self._orders = Orders(self._workshop, self._watch)
        self._group: asyncio.TaskGroup | None = None
        self._running = asyncio.Event()

    async def run(self) -> None:
        """Carry out orders and keep the sightings current, until cancelled; then no plugin is left."""
        self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
        clear_up(self._state)
        succeed(self._state, self._number)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for charge in self._watch.charges.values():
                    self._look_after(charge)
                self._running.set()
                await asyncio.Event().wait()
        finally:
            self._group = None
            self._running.clear()
            for charge in self._watch.charges.values():
                charge.watch = charge.deed = None
            await self._watch.close()
            await self._workshop.keys.close()
            sweep(self._number)  # what plugins started and did not end

    # --- the port -------------------------------------------------------------------------------------------------

    async def check(self, specs: Sequence[MachineSpec]) -> list[Problem]:
        problems: list[Problem] = []
        for spec in specs:
            try:
                await self._check(spec)
            except MachineRefused as refused:
                problems += refused.problems
        return list(dict.fromkeys(problems))

    async def plan(self, spec: MachineSpec) -> Memory:
        self._workshop.get_binary(spec.driver)
        keys = await self._workshop.keys.get(spec.driver, spec.credential)
        memory = dict(planned_memory(spec))
        if spec.driver == HARVESTER:
            configuration, _ = read_fields(spec.options)
            named = replace(configuration, machine_name=spec.name, machine_uid=spec.machine_uid)
            memory |= {"WindrowHarvesterUID": keys.identity, "WindrowClaims": list(planned_claims(named))}
            return {**memory, PLANNED: True}
        memory = {**await self._try(spec, keys, Making.draft), **memory, PLANNED: True, ACCOUNT: keys.account}
        if spec.machine_uid not in self._watch.charges:
            # As long as this note is there, nobody began it: other hosts, which have none, leave it alone.
            charge = open_charge(self._state, memory)
            if not (charge.begun or charge.was_made):
                charge.note(memory)
        return memory

    async def ensure(self, spec: MachineSpec, memory: Memory | None) -> Memory:
        if memory is not None and memory.get("WindrowVMUID"):
            self.watch_over(memory)
            return memory
        await self._running.wait()
        charge = self._charge(memory or planned_memory(spec))
        if charge.was_made:
            return charge.memory
        keys = await self._workshop.unlock(charge, memory)
        deed = charge.deed
        if deed is None or not charge.is_under("create"):
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
        keys = await self._workshop.unlock(charge, memory)
        deed = charge.deed
        if deed is None or deed.wanted != wanted.value or not charge.is_under("power"):
            await self._clear_way(charge)
            own = Deed("power", wanted.value)
            deed = self._begin(charge, own, lambda own: self._orders.power(charge, wanted, keys, own))
        await deed.outcome(self._pace.other_taken)
        return memory

    async def rewrite(self, memory: Memory, cloud_config: str) -> Memory:
        """Replaces the document where the plugin can, which only our own can: with any other it stays readable to
        whoever may read the infrastructure."""
        charge = self._charge(memory)
        keys = await self._workshop.unlock(charge, memory)
        if charge.driver == HARVESTER:
            cloud_config = lend_agent(cloud_config, str(memory.get("UserData") or ""))
        try:
            done = await self._orders.rewrite(charge, cloud_config, keys)
        except (DriverSaid, PluginError) as error:
            raise explained(error, charge) from error
        if not done:
            raise CannotRewrite(
                f"driver {charge.driver} cannot replace what its machines read at their next start: the bootstrap "
                f"document of {charge.name} stays there, secrets included",
                "let nobody else read it there",
            )
        return memory

    async def remove(self, memory: Memory, volumes: frozenset[str]) -> None:
        await self._running.wait()
        charge = self._charge(memory)
        keys = await self._workshop.unlock(charge, memory)
        deed = charge.deed
        if deed is None or not charge.is_under("remove"):
            before = deed
            deed = self._begin(
                charge, Deed("remove"), lambda own: self._orders.remove(charge, volumes, keys, own, before)
            )
        await deed.outcome(self._pace.other_taken)

    def sightings(self) -> Cache[Sighting]:
        return self._watch.board

    def watch_over(self, memory: Memory) -> None:
        self._charge(memory)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _charge(self, memory: Memory) -> Charge:
        """The machine of `memory`, which is looked after from now on."""
        uid = str(memory["WindrowMachineUID"])
        charge = self._watch.charges.get(uid)
        if charge is None:
            charge = self._watch.charges[uid] = open_charge(self._state, memory)
            charge.is_in_doubt = charge.is_in_doubt and not self._watch.has_ended(uid)
            if charge.was_made and self._watch.board.get(uid) is None:
                self._watch.tell_unknown(charge, "it has not been looked at yet")
            self._look_after(charge)
        elif memory.get("WindrowVMUID") and not charge.was_made:
            charge.memory = memory
        return charge

    def _look_after(self, charge: Charge) -> None:
        if self._group is not None and charge.watch is None:
            name = f"look after {charge.name}"
            charge.watch = self._group.create_task(self._watch.look_after(charge), name=name)

    async def _check(self, spec: MachineSpec) -> None:
        """Raises MachineRefused, InfrastructureUnknown."""
        await self._try(spec, await self._workshop.keys.get(spec.driver, spec.credential), Making.check)

    async def _try(self, spec: MachineSpec, keys: Keys, ask: Callable[[Making], Awaitable[T]]) -> T:
        """What a plugin answers for a machine that is not made by it. Raises MachineRefused, InfrastructureUnknown."""
        workshop = self._workshop
        planned = {**planned_memory(spec), "WindrowMachineUID": self._chance.uid()}
        charge = open_charge(self._state / CHECKS, planned)
        try:
            async with (
                workshop.questions.of(charge),
                workshop.open(charge, keys, None, secrets=[spec.cloud_config]) as plugin,
            ):
                return await ask(Making(charge, spec, keys, plugin, self._watch, workshop.keys))
        except (DriverSaid, PluginError) as error:
            raise explained(error, charge) from error
        finally:
            charge.forget()

    async def _create(self, charge: Charge, spec: MachineSpec, keys: Keys, deed: Deed) -> None:
        async with (
            self._workshop.creates.of(charge),
            self._workshop.open(charge, keys, None, secrets=[spec.cloud_config]) as plugin,
            self._watch.beside(charge, plugin),
        ):
            await Making(charge, spec, keys, plugin, self._watch, self._workshop.keys).create(deed)

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
        if deed is None or deed.task is None or not charge.is_under():
            return
        if deed.verb == "create" and deed.is_settled and await is_ours(charge.plugin):
            deed.task.cancel()
        await asyncio.wait({deed.task}, timeout=self._pace.other_taken)
        if not deed.task.done():
            raise _busy(charge, deed)

    async def _carry_out(self, charge: Charge, deed: Deed, work: Callable[[Deed], Awaitable[None]]) -> None:
        try:
            await work(deed)
        except (DriverSaid, PluginError) as error:
            self._failed(charge, deed, explained(error, charge))
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
