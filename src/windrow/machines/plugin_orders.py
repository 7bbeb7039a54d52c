"""Orders to machines that were made by a plugin: power, a new document, and their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.formats.json import dumps
from windrow.machines.plugin_access import Keys
from windrow.machines.plugin_charges import Charge, Deed
from windrow.machines.plugin_proof import other_account, stands
from windrow.machines.plugin_sight import Glimpse, look
from windrow.machines.plugin_watch import Watch
from windrow.machines.plugin_words import says_gone
from windrow.machines.plugin_workshop import Workshop, is_ours
from windrow.machines.plugins import DriverSaid, Plugin
from windrow.machines.port import MachineRefused, Power, Problem
from windrow.wire import dockermachine as wire

_METHODS = {Power.ON: "Start", Power.OFF: "Stop", Power.RESTART: "Restart"}
_SO_ALREADY: Mapping[Power, frozenset[str]] = {
    Power.ON: frozenset({"running", "starting", "migrating"}),
    Power.OFF: frozenset({"stopped", "stopping"}),
    Power.RESTART: frozenset(),
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Orders:
    """Each order raises what its driver says, and tells its deed when the infrastructure has taken it."""

    workshop: Workshop
    watch: Watch

    async def power(self, charge: Charge, wanted: Power, keys: Keys, deed: Deed) -> None:
        """Raises MachineRefused where the machine is not there."""
        async with (
            self.workshop.deeds.of(charge),
            self.workshop.open(charge, keys, charge.memory) as plugin,
            self.watch.beside(charge, plugin),
        ):
            glimpse = await look(plugin, charge)
            self.watch.show(charge, glimpse)
            before = glimpse.sighting
            if before.presence == "missing":
                if not keys.opens(charge.account):
                    raise other_account(charge)
                raise MachineRefused([_not_there(charge, before.because)])
            if before.state in _SO_ALREADY[wanted]:
                return deed.take(charge.memory)

            async def seen(glimpse: Glimpse) -> None:
                if glimpse.sighting.state != before.state:
                    deed.take(charge.memory)

            await self.watch.call(charge, plugin, _METHODS[wanted], seen)
            return deed.take(charge.memory)

    async def rewrite(self, charge: Charge, document: str, keys: Keys) -> bool:
        """Whether the plugin could replace what the machine reads at its next start."""
        async with (
            self.workshop.questions.of(charge),
            self.workshop.open(charge, keys, charge.memory, secrets=[document]) as plugin,
        ):
            if wire.REWRITE not in await plugin.get_extensions():
                return False
            await plugin.call(wire.REWRITE, document.encode())
            return True

    async def remove(
        self, charge: Charge, volumes: frozenset[str], keys: Keys, deed: Deed, before: Deed | None
    ) -> None:
        await _break_off(charge, before)
        charge.ended = True
        async with (
            self.workshop.deeds.of(charge),
            self.workshop.open(charge, keys, None) as plugin,
            self.watch.beside(charge, plugin),
        ):
            ours = await is_ours(plugin)
            because = f"driver {charge.driver} has made no {charge.name}"
            if ours or charge.was_made or charge.begun or charge.is_in_doubt:
                memory = _with_volumes(charge, volumes, ours=ours)
                await plugin.set_config(dumps(charge.seal(keys.fields).open(memory)))
                if ours or await stands(self.workshop.keys, charge, keys, plugin):
                    await self._remove(charge, plugin, deed)
                    because = f"driver {charge.driver} has removed {charge.name}"
            deed.take(charge.memory)
            self.watch.end(charge, because)

    async def _remove(self, charge: Charge, plugin: Plugin, deed: Deed) -> None:
        async def seen(glimpse: Glimpse) -> None:
            if glimpse.sighting.state == "deleting":
                deed.take(charge.memory)

        try:
            await self.watch.call(charge, plugin, "Remove", seen)
        except DriverSaid as said:
            if not says_gone(said.text, charge.name, charge.driver):
                raise


def _not_there(charge: Charge, because: str) -> Problem:
    return Problem(
        f"machine {charge.name} is not there: {because}", "replace the machine instead of powering it"
    )


def _with_volumes(charge: Charge, volumes: frozenset[str], *, ours: bool) -> dict[str, Any]:
    """The memory by which `volumes` go along too, where the driver can be told so."""
    memory = dict(charge.memory)
    if ours and volumes:
        memory["WindrowVolumes"] = sorted(volumes)
    elif volumes:
        log.warning(
            "driver %s removes what it made with %s and nothing else; these stay: %s",
            charge.driver,
            charge.name,
            ", ".join(sorted(volumes)),
        )
    return memory


async def _break_off(charge: Charge, deed: Deed | None) -> None:
    """End what is being done to the machine. Another's Create that runs is waited for: broken off in the middle, it could
    leave something behind that nobody knows of."""
    if deed is None or deed.task is None or deed.over.is_set():
        return
    if deed.verb != "create" or charge.plugin is None or await is_ours(charge.plugin):
        deed.task.cancel()
    await asyncio.wait({deed.task})
