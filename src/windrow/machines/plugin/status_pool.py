"""A pool of plugins of ours for polling status.

A plugin of ours can be given the config of one machine after the other, so one stays open for each credential: a poll
through it costs 4 ms of processor time instead of 70 ms. Where it is busy, broken or foreign, a poll starts a plugin
of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windrow.core.formats.json import dumps
from windrow.machines.plugin.credentials import ResolvedCredential
from windrow.machines.plugin.launcher import PluginLauncher, is_windrow_plugin
from windrow.machines.plugin.process.client import DriverError, Plugin, PluginError
from windrow.machines.plugin.status import PollResult, poll
from windrow.machines.plugin.tracked_machine import TrackedMachine
from windrow.machines.port import HARVESTER
from windrow.nodedriver.config import Configuration, dump_driver_config

# Longer than a poll takes; after that a poll uses a plugin of its own.
_LOCK_TIMEOUT_S = 2.0
# Keys absent from a machine's config must not keep the value of the machine before.
_EMPTY_CONFIG: Mapping[str, Any] = dump_driver_config(Configuration())


@dataclass(slots=True)
class _PooledPlugin:
    """One open plugin, and the binary and credential that it was started with."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    plugin: Plugin | None = None
    opened_with: tuple[Path, Mapping[str, str]] | None = None
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    foreign_binary: Path | None = None  # a foreign plugin: it cannot be given another machine's config

    async def close(self, error: BaseException | None = None) -> None:
        """Close the plugin; at once because of an `error`."""
        stack, self.stack = self.stack, AsyncExitStack()
        self.plugin = None
        await stack.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)


class StatusPluginPool:
    """Polls machines. After `close` no process is left."""

    def __init__(self, launcher: PluginLauncher) -> None:
        self._launcher = launcher
        self._plugins: dict[str, _PooledPlugin] = {}

    async def poll(self, machine: TrackedMachine, credential: ResolvedCredential) -> PollResult:
        """Raises DriverError, PluginError, InfrastructureUnknown where the status cannot be determined."""
        path = self._launcher.get_binary(machine.driver)
        if machine.driver != HARVESTER:
            return await self._poll_unpooled(machine, credential)
        pooled = self._plugins.setdefault(machine.credential, _PooledPlugin())
        if pooled.foreign_binary == path or not await _acquire(pooled.lock):
            return await self._poll_unpooled(machine, credential)
        try:
            result = None
            if self._plugins.get(machine.credential) is pooled:  # else it was released meanwhile
                result = await self._poll_pooled(pooled, path, machine, credential)
        finally:
            pooled.lock.release()
        return result or await self._poll_unpooled(machine, credential)

    async def release(self, credential: str) -> None:
        """Close the plugin of a credential that no machine uses any more."""
        pooled = self._plugins.pop(credential, None)
        if pooled is not None:
            async with pooled.lock:
                await pooled.close()

    async def close(self) -> None:
        while self._plugins:
            await self.release(next(iter(self._plugins)))

    async def _poll_unpooled(self, machine: TrackedMachine, credential: ResolvedCredential) -> PollResult:
        async with (
            self._launcher.queries.for_machine(machine),
            self._launcher.open(machine, credential, machine.config) as plugin,
        ):
            return await poll(plugin, machine)

    async def _poll_pooled(
        self, pooled: _PooledPlugin, path: Path, machine: TrackedMachine, credential: ResolvedCredential
    ) -> PollResult | None:
        """None where the pooled plugin is not usable."""
        try:
            plugin = await self._open(pooled, path, machine, credential)
            if plugin is None:
                return None
            config = {**_EMPTY_CONFIG, **machine.config}
            await plugin.set_config(dumps(machine.sanitizer(credential.fields).restore(config)))
            return await poll(plugin, machine)
        except DriverError:
            raise
        except BaseException as error:
            await pooled.close(error)
            if isinstance(error, PluginError):
                return None
            raise

    async def _open(
        self, pooled: _PooledPlugin, path: Path, machine: TrackedMachine, credential: ResolvedCredential
    ) -> Plugin | None:
        opened_with = (path, credential.fields)
        if pooled.plugin is not None and pooled.opened_with == opened_with:
            return pooled.plugin
        await pooled.close()
        plugin = await pooled.stack.enter_async_context(self._launcher.open(machine, credential, None))
        if not await is_windrow_plugin(plugin):
            pooled.foreign_binary = path
            await pooled.close()
            return None
        pooled.plugin, pooled.opened_with = plugin, opened_with
        return plugin


async def _acquire(lock: asyncio.Lock) -> bool:
    try:
        async with asyncio.timeout(_LOCK_TIMEOUT_S):
            await lock.acquire()
    except TimeoutError:
        return False
    return True
