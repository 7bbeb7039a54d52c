"""Starts plugins: the driver's binary, the current credential, its sandbox, and limits on the number of processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from windrow.core.formats.json import dumps
from windrow.machines.plugin.credentials import CredentialResolver, ResolvedCredential
from windrow.machines.plugin.process.client import Plugin, Timeouts, open_plugin
from windrow.machines.plugin.process.sandbox import Sandbox
from windrow.machines.plugin.tracked_machine import TrackedMachine
from windrow.machines.port import HARVESTER, DriverConfig, InfrastructureUnknown
from windrow.protocols import dockermachine as wire

FindBinary = Callable[[str], Path | None]  # driver name -> its plugin binary, where one is installed
# Binary -> what it may open beside the directories of its machine; None: it runs without a sandbox.
FindSandbox = Callable[[Path], Sandbox | None]


def no_sandbox(path: Path) -> None:
    """Every plugin runs without a sandbox."""


MayWrite = Callable[[str, str], bool]
"""Whether this manager may write with a credential in a namespace of its Harvester at this instant."""


def may_always_write(credential: str, namespace: str) -> bool:
    """No Lease guards Harvester."""
    return True


class ConcurrencyLimit:
    """A limit on the number of processes per credential, so that one that blocks does not hold up the others."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._semaphores: dict[str, asyncio.Semaphore] = {}

    def for_machine(self, machine: TrackedMachine) -> asyncio.Semaphore:
        return self._semaphores.setdefault(machine.credential, asyncio.Semaphore(self._count))


@dataclass(frozen=True, slots=True)
class PluginLauncher:
    """Starts plugins, with separate limits for queries, operations, and creations, which take long."""

    find_binary: FindBinary
    resolver: CredentialResolver
    env: Mapping[str, str]
    timeouts: Timeouts
    queries: ConcurrencyLimit
    operations: ConcurrencyLimit
    creates: ConcurrencyLimit
    may_run: Callable[[], bool] = lambda: True
    may_write: MayWrite = may_always_write
    find_sandbox: FindSandbox = no_sandbox

    def get_binary(self, driver: str) -> Path:
        """Raises InfrastructureUnknown."""
        path = self.find_binary(driver)
        if path is None:
            raise InfrastructureUnknown(
                f"NodeDriver {driver} is not installed", f"activate it: windrow driver enable {driver}"
            )
        return path

    def open(
        self,
        machine: TrackedMachine,
        credential: ResolvedCredential,
        driver_config: DriverConfig | None,
        *,
        secrets: Sequence[str] = (),
        writes: bool = False,
    ) -> AbstractAsyncContextManager[Plugin]:
        """A plugin for this machine, with `driver_config` set if given, else unconfigured. One that `writes` runs while the
        manager may write where the machine is."""
        config = (
            dumps(machine.sanitizer(credential.fields).restore(driver_config))
            if driver_config is not None
            else None
        )
        path = self.get_binary(machine.driver)
        env, home = {**self.env, **credential.env}, None
        if (sandbox := self.find_sandbox(path)) is not None:
            *store, home = machine.make_plugin_directories()
            sandbox = sandbox.with_paths((machine.folder,), (*store, home))
            env |= {"HOME": str(home), "TMPDIR": str(home)}

        def may_run() -> bool:
            return self.may_run() and (not writes or self._may_write(machine))

        return open_plugin(
            path,
            machine.driver,
            env=env,
            config=config,
            label=machine.name,
            secrets=[*credential.fields.values(), *secrets],
            folder=home,
            sandbox=sandbox,
            timeouts=self.timeouts,
            may_run=may_run,
        )

    def _may_write(self, machine: TrackedMachine) -> bool:
        """Machines elsewhere are guarded by no Lease."""
        namespace = str(machine.config.get("VMNamespace") or "")
        return machine.driver != HARVESTER or self.may_write(machine.credential, namespace)

    async def resolve(
        self, machine: TrackedMachine, config: DriverConfig | None = None
    ) -> ResolvedCredential:
        """The credential, which must lead to the Harvester that `config` records. Raises InfrastructureUnknown."""
        recorded = str((config or {}).get("WindrowHarvesterUID") or machine.harvester_uid)
        credential = await self.resolver.resolve(machine.driver, machine.credential, recorded)
        machine.account_differs = not credential.is_for_account(machine.account)
        return credential


async def is_windrow_plugin(plugin: Plugin | None) -> bool:
    """Whether it is a plugin of ours, which returns whole statuses, continues a Create, and writes owner annotations."""
    return plugin is not None and wire.GET_VM_STATUS in await plugin.get_extensions()
