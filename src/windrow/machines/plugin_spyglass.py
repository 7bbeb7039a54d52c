"""Looking at many machines through few processes.

A plugin of ours can be told of one machine after the other, so one of them stays open for each credential: a look through
it takes 4 ms instead of 70 ms of processor time. Where it is busy, ill or not ours, a look has a plugin of its own, and
then many can be waited for at a time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windrow.formats.json import dumps
from windrow.machines.plugin_access import Keys
from windrow.machines.plugin_charges import Charge
from windrow.machines.plugin_sight import Glimpse, look
from windrow.machines.plugin_workshop import Workshop, is_ours
from windrow.machines.plugins import DriverSaid, Plugin, PluginError
from windrow.machines.port import HARVESTER
from windrow.nodedriver.configuration import Configuration, write_memory

# Longer than a look takes; whoever waits longer goes another way.
_WAIT_S = 2.0
# What a machine's memory does not say must not be left over from the machine before.
_BLANK: Mapping[str, Any] = write_memory(Configuration())


@dataclass(slots=True)
class _Glass:
    """One open plugin, and what it was opened with."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    plugin: Plugin | None = None
    made_with: tuple[Path, Mapping[str, str]] | None = None
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    useless: Path | None = None  # this binary is not ours, and cannot be told of another machine

    async def close(self) -> None:
        stack, self.stack = self.stack, AsyncExitStack()
        self.plugin = None
        await stack.aclose()

    async def smash(self) -> None:
        """Close it because of the exception that is being handled: at once."""
        stack, self.stack = self.stack, AsyncExitStack()
        self.plugin = None
        await stack.__aexit__(*sys.exc_info())


class Spyglasses:
    """Looks at machines. `close` leaves no process."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._glasses: dict[str, _Glass] = {}

    async def look(self, charge: Charge, keys: Keys) -> Glimpse:
        """Raises what says nothing of the machine: DriverSaid, PluginError, InfrastructureUnknown."""
        path = self._workshop.get_binary(charge.driver)
        if charge.driver != HARVESTER:
            return await self._alone(charge, keys)
        glass = self._glasses.setdefault(charge.credential, _Glass())
        if glass.useless == path or not await _take(glass.lock):
            return await self._alone(charge, keys)
        try:
            glimpse = None
            if self._glasses.get(charge.credential) is glass:  # else it was put away while we waited
                glimpse = await self._through(glass, path, charge, keys)
        finally:
            glass.lock.release()
        return glimpse or await self._alone(charge, keys)

    async def put_away(self, credential: str) -> None:
        """No machine is behind this credential any more."""
        glass = self._glasses.pop(credential, None)
        if glass is not None:
            async with glass.lock:
                await glass.close()

    async def close(self) -> None:
        while self._glasses:
            await self.put_away(next(iter(self._glasses)))

    async def _alone(self, charge: Charge, keys: Keys) -> Glimpse:
        async with (
            self._workshop.questions.of(charge),
            self._workshop.open(charge, keys, charge.memory) as plugin,
        ):
            return await look(plugin, charge)

    async def _through(self, glass: _Glass, path: Path, charge: Charge, keys: Keys) -> Glimpse | None:
        """None where that plugin is of no use."""
        try:
            plugin = await self._open(glass, path, charge, keys)
            if plugin is None:
                return None
            memory = {**_BLANK, **charge.memory}
            await plugin.set_config(dumps(charge.seal(keys.fields).open(memory)))
            return await look(plugin, charge)
        except DriverSaid:
            raise
        except PluginError:
            await glass.smash()
            return None
        except BaseException:
            await glass.smash()
            raise

    async def _open(self, glass: _Glass, path: Path, charge: Charge, keys: Keys) -> Plugin | None:
        made_with = (path, keys.fields)
        if glass.plugin is not None and glass.made_with == made_with:
            return glass.plugin
        await glass.close()
        plugin = await glass.stack.enter_async_context(self._workshop.open(charge, keys, None))
        if not await is_ours(plugin):
            glass.useless = path
            await glass.close()
            return None
        glass.plugin, glass.made_with = plugin, made_with
        return plugin


async def _take(lock: asyncio.Lock) -> bool:
    try:
        async with asyncio.timeout(_WAIT_S):
            await lock.acquire()
    except TimeoutError:
        return False
    return True
