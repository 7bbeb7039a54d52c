"""Operations on machines that a plugin created: power, user data, removal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.core.formats.json import dumps
from windrow.core.logs import with_values
from windrow.machines.plugin.credentials import CredentialResolver, ResolvedCredential
from windrow.machines.plugin.error_text import says_not_found
from windrow.machines.plugin.launcher import PluginLauncher, is_windrow_plugin
from windrow.machines.plugin.ownership import account_changed, exists, find_vm_uid
from windrow.machines.plugin.poller import StatusPoller
from windrow.machines.plugin.process.client import DriverError, Plugin
from windrow.machines.plugin.status import PollResult, poll
from windrow.machines.plugin.tracked_machine import PendingOperation, TrackedMachine
from windrow.machines.port import HARVESTER, InfrastructureUnknown, MachineRefused, Power, Problem
from windrow.protocols import dockermachine as wire

_METHODS = {Power.ON: "Start", Power.OFF: "Stop", Power.RESTART: "Restart"}
_ALREADY_IN_STATE: Mapping[Power, frozenset[str]] = {
    Power.ON: frozenset({"running", "starting", "migrating"}),
    Power.OFF: frozenset({"stopped", "stopping"}),
    Power.RESTART: frozenset(),
}

log = with_values(logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class PluginOperations:
    """The operations. Each raises DriverError, and accepts its PendingOperation when the infrastructure shows the
    result."""

    launcher: PluginLauncher
    poller: StatusPoller

    async def power(
        self,
        machine: TrackedMachine,
        wanted: Power,
        credential: ResolvedCredential,
        operation: PendingOperation,
    ) -> None:
        """Raises MachineRefused where the machine does not exist."""
        async with (
            self.launcher.operations.for_machine(machine),
            self.launcher.open(machine, credential, machine.config, writes=True) as plugin,
            self.poller.using_plugin(machine, plugin),
        ):
            result = await poll(plugin, machine)
            self.poller.put_result(machine, result)
            before = result.status
            if before.presence == "missing":
                if not credential.is_for_account(machine.account):
                    raise account_changed(machine)
                raise MachineRefused([_not_found_problem(machine, before.because)])
            if before.state in _ALREADY_IN_STATE[wanted]:
                return operation.accept(machine.config)

            async def on_poll(result: PollResult) -> None:
                if result.status.state != before.state:
                    operation.accept(machine.config)

            await self.poller.call_while_polling(machine, plugin, _METHODS[wanted], on_poll)
            return operation.accept(machine.config)

    async def replace_user_data(
        self, machine: TrackedMachine, cloud_config: str, credential: ResolvedCredential
    ) -> bool:
        """Whether the plugin could replace the user data."""
        async with (
            self.launcher.queries.for_machine(machine),
            self.launcher.open(
                machine, credential, machine.config, secrets=[cloud_config], writes=True
            ) as plugin,
        ):
            if wire.REPLACE_USER_DATA not in await plugin.get_extensions():
                return False
            await plugin.call(wire.REPLACE_USER_DATA, cloud_config.encode())
            return True

    async def remove(
        self,
        machine: TrackedMachine,
        volumes: frozenset[str],
        credential: ResolvedCredential,
        operation: PendingOperation,
        previous: PendingOperation | None,
    ) -> None:
        await _cancel(machine, previous)
        if machine.unanswered:
            raise no_answer(machine)
        machine.removal_requested = True
        async with (
            self.launcher.operations.for_machine(machine),
            self.launcher.open(machine, credential, None, writes=True) as plugin,
            self.poller.using_plugin(machine, plugin),
        ):
            is_windrow = await is_windrow_plugin(plugin)
            because = f"driver {machine.driver} never created machine {machine.name}"
            # On Harvester a VM may also have come after an earlier removal found none.
            may_exist = machine.was_created or machine.create_started or machine.create_uncertain
            if is_windrow or may_exist or machine.driver == HARVESTER:
                config = _with_volumes(machine, volumes, is_windrow=is_windrow)
                await plugin.set_config(dumps(machine.sanitizer(credential.fields).restore(config)))
                if is_windrow or await exists(self.launcher.resolver, machine, credential, plugin):
                    try:
                        await call_remove(self.poller, self.launcher.resolver, machine, plugin, operation)
                    except DriverError as error:
                        if not says_not_found(error.text, machine.name, machine.driver):
                            raise
                    because = f"driver {machine.driver} removed machine {machine.name}"
            operation.accept(machine.config)
            self.poller.put_removed(machine, because)


async def call_remove(
    poller: StatusPoller,
    resolver: CredentialResolver,
    machine: TrackedMachine,
    plugin: Plugin,
    operation: PendingOperation | None = None,
) -> None:
    """Call Remove; `operation` is accepted once the infrastructure shows it. Raises DriverError, and InfrastructureUnknown
    where a VM is made under the name meanwhile.

    The Go driver waits until there is no VM of the name, ten minutes, and does not notice that it is another one, which a
    creation without an answer may make.
    """
    is_windrow = await is_windrow_plugin(plugin)
    before = None if is_windrow else await find_vm_uid(resolver, machine)

    async def on_poll(result: PollResult) -> None:
        if operation is not None and result.status.state == "deleting":
            operation.accept(machine.config)
        if before is not None and await find_vm_uid(resolver, machine) not in ("", before):
            raise InfrastructureUnknown(
                f"VM {machine.name} was made again while its driver removed it",
                "nothing to do; it is removed too",
            )

    await poller.call_while_polling(machine, plugin, "Remove", on_poll)


def no_answer(machine: TrackedMachine) -> InfrastructureUnknown:
    """The machine cannot be said to be removed, since it may be made yet."""
    return InfrastructureUnknown(
        f"driver {machine.driver} had no answer when it created {machine.name}, which may be made yet",
        "nothing to do; it is looked for again before it counts as removed",
        may_be_made=True,
    )


def _not_found_problem(machine: TrackedMachine, because: str) -> Problem:
    return Problem(
        f"machine {machine.name} not found, so its power state cannot change: {because}",
        "delete the Machine; its pool creates another",
    )


def _with_volumes(machine: TrackedMachine, volumes: frozenset[str], *, is_windrow: bool) -> dict[str, Any]:
    """The config with the `volumes` to remove too, where the driver supports that."""
    config = dict(machine.config)
    if is_windrow and volumes:
        config["WindrowVolumes"] = sorted(volumes)
    elif volumes:
        log.warning(
            "driver %s removes only what it created; these volumes stay: %s",
            machine.driver,
            ", ".join(sorted(volumes)),
            machine=machine.name,
        )
    return config


async def _cancel(machine: TrackedMachine, operation: PendingOperation | None) -> None:
    """Cancel the machine's operation. A Create that a foreign driver was called for is awaited instead: cancelled in the
    middle it could leave something unrecorded."""
    if operation is None or operation.task is None or not operation.is_running:
        return
    if not operation.is_requested or await is_windrow_plugin(machine.plugin):
        operation.task.cancel()
    await asyncio.wait({operation.task})
