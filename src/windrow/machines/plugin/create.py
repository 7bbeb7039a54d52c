"""Creates a machine through a plugin.

    new config ──> flags ──> PreCreateCheck ──> saved on disk ──> Create ┄┄ polls during it
                                                                    │
    accepted when the machine is visible; Create goes on  <─────────┘

Whatever the driver notes in its config on the way is saved here at once. Our own driver may be called again and
continues; with any other, a machine that an earlier Create left is adopted if it runs, else removed. A Create that was
refused, and left nothing, counts as never started, so that a VM that others create later under the name is not taken for
this machine's (`ownership`). One that ended without a certain answer counts as started for good: what it requested may be
carried out after any check that finds nothing.

Harvester learns the address of a bridged VM from its guest agent alone, and no driver adds that; so the document for a
Harvester driver installs it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import Any

from windrow.cloudinit.guest_agent import add_guest_agent
from windrow.core.files import write_private
from windrow.core.formats.json import dumps
from windrow.core.logs import with_values
from windrow.machines.plugin.credentials import CredentialResolver, ResolvedCredential
from windrow.machines.plugin.error_text import is_inconclusive, says_already_exists
from windrow.machines.plugin.flags import plan_flags
from windrow.machines.plugin.launcher import is_windrow_plugin
from windrow.machines.plugin.operations import call_remove
from windrow.machines.plugin.ownership import (
    SEEN_UID_KEY,
    UNANSWERED_KEY,
    cannot_start,
    exists,
    find_vm_uid,
    is_adoptable,
    observe_start,
)
from windrow.machines.plugin.poller import OnPoll, StatusPoller
from windrow.machines.plugin.process.client import DriverError, Plugin, PluginError
from windrow.machines.plugin.sanitizer import SecretSanitizer
from windrow.machines.plugin.status import PollResult, poll
from windrow.machines.plugin.tracked_machine import ACCOUNT, PendingOperation, TrackedMachine
from windrow.machines.port import (
    HARVESTER,
    DriverConfig,
    InfrastructureUnknown,
    MachineRefused,
    MachineSpec,
    initial_driver_config,
)
from windrow.machines.static_addresses import driver_options
from windrow.nodedriver.config import read_fields
from windrow.nodedriver.config_json import load_driver_config
from windrow.nodedriver.vm.plan import planned_claims

# Of a program that is told to stop: Kubernetes gives it 30 s. A busy computer takes more than one.
_LAST_SAVE_S = 5.0
_LAST_SAVE_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)

log = with_values(logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class CreateOperation:
    """The creation of one machine with an open plugin that was not configured yet."""

    machine: TrackedMachine
    spec: MachineSpec
    credential: ResolvedCredential
    plugin: Plugin
    poller: StatusPoller
    resolver: CredentialResolver

    async def check(self) -> None:
        """Raises MachineRefused, and what the driver says."""
        await self._configure()
        await self.plugin.call("PreCreateCheck")

    async def create(self, operation: PendingOperation) -> None:
        """Raises MachineRefused, and DriverError. `operation` is accepted when the infrastructure shows the machine."""
        is_windrow, machine = await is_windrow_plugin(self.plugin), self.machine
        was_started = machine.create_started or machine.create_uncertain
        try:
            if not is_windrow and was_started:
                machine.config = {**machine.config, UNANSWERED_KEY: True}
                if await self._adopt_partial(operation):
                    return
            await self.check()
            await self._save(create_started=True)
            if is_windrow:
                await self._call_windrow(operation)
            else:
                await self._call_foreign(operation, was_started=was_started)
        finally:
            self.machine.user_data_path.unlink(missing_ok=True)

    async def _configure(self) -> None:
        machine, spec = self.machine, self.spec
        values, problems = plan_flags(
            spec.driver,
            await self.plugin.get_flags(),
            driver_options(spec),
            self.credential.fields,
            str(machine.user_data_path),
            cluster_name=spec.cluster_name,
        )
        if problems:
            raise MachineRefused(problems)
        machine.make_folder()
        write_private(machine.user_data_path, _cloud_config(spec).encode())
        await self._set_config(_new_config(spec, self.credential.harvester_uid))
        await self.plugin.set_flags(values)

    async def _set_config(self, config: Any) -> None:
        await self.plugin.set_config(dumps(self._sanitizer().restore(config)))

    def _sanitizer(self) -> SecretSanitizer:
        return replace(self.machine.sanitizer(self.credential.fields), document=_cloud_config(self.spec))

    async def initial_config(self) -> dict[str, Any]:
        """The driver's config before it creates the machine. Raises MachineRefused, DriverError."""
        await self._configure()
        return self.machine.sanitizer(self.credential.fields).sanitize(await self.plugin.get_driver_config())

    async def _adopt_partial(self, operation: PendingOperation) -> bool:
        """An earlier Create was cancelled or not answered, or may have been: adopt a machine that runs, starts, is
        stopped or has run, remove anything else of it. Raises InfrastructureUnknown where its existence cannot be
        determined, or where a VM that has run can be neither.

        A plan from a restored state may be of long ago. Its machine has worked since then, and a person may have stopped
        it; one that never worked is replaced in time. What failed to start, or is being deleted, is nothing to lose; nor
        is a VM that was made after its driver had given up, which then creates no Secret for it, so that it cannot start.
        Elsewhere than on Harvester only the driver knows what has run.
        """
        machine = self.machine
        await self._set_config(machine.config)
        if not await exists(self.resolver, machine, self.credential, self.plugin):
            return False
        result = await self._find_status()
        is_running = result is not None and result.status.state == "running"
        start = None if is_running else await observe_start(self.resolver, machine)
        if result is not None and is_adoptable(result, start):
            log.info("its VM exists, adopting it", machine=machine.name)
            await self._save(create_started=True, vm_uid=machine.vm_uid)
            operation.accept(machine.config)
            self.poller.put_result(machine, result)
            return True
        if start is not None and start.run:
            raise cannot_start(start)
        try:
            await call_remove(self.poller, self.resolver, machine, self.plugin)
        except DriverError as error:
            is_absent = result is not None and result.status.presence == "missing"
            if not is_absent and (is_inconclusive(error.text) or "not found" not in error.text.lower()):
                raise
        return False

    async def _find_status(self) -> PollResult | None:
        """None where the driver has an error that says nothing of Harvester or the account. Raises DriverError."""
        try:
            return await poll(self.plugin, self.machine)
        except DriverError as error:
            if is_inconclusive(error.text):
                raise
            return None

    async def _call_windrow(self, operation: PendingOperation) -> None:
        machine = self.machine

        async def on_poll(result: PollResult) -> None:
            if not operation.is_resolved and result.is_accepted:
                await self._save(vm_uid=result.status.vm_uid or machine.vm_uid)
                operation.accept(machine.config)

        try:
            await self._call_create(operation, on_poll)
        except DriverError as error:
            if says_already_exists(error.text, machine.name) and not operation.is_resolved:
                # It has another owner: what was not created here must never be removed from here.
                machine.save(machine.config, create_started=False)
            raise
        if not operation.is_resolved:
            await self._save(vm_uid=machine.vm_uid)
            operation.accept(machine.config)

    async def _call_foreign(self, operation: PendingOperation, *, was_started: bool) -> None:
        machine = self.machine
        before = machine.config

        async def on_poll(result: PollResult) -> None:
            accepted = not operation.is_resolved and result.is_accepted
            # It may have added the id of its machine.
            await self._save(vm_uid=(result.status.vm_uid or machine.vm_uid) if accepted else "")
            if accepted:
                operation.accept(machine.config)

        try:
            try:
                await self._call_create(operation, on_poll)
            except DriverError as error:
                await self._save()
                if not operation.is_resolved and not was_started and await self._left_nothing(error):
                    machine.save(machine.config, create_started=False)
                raise
            await self._save(vm_uid=machine.vm_uid)
        except asyncio.CancelledError:
            await self._save_last(before)
            raise
        operation.accept(machine.config)

    async def _call_create(self, operation: PendingOperation, on_poll: OnPoll) -> None:
        operation.is_requested = True
        await self.poller.call_while_polling(self.machine, self.plugin, "Create", on_poll)

    async def _left_nothing(self, error: DriverError) -> bool:
        """Whether the first Create of the machine, which ended with `error`, has left nothing, and nothing can follow."""
        machine = self.machine
        if is_inconclusive(error.text):
            return False  # what it requested may be carried out yet
        if machine.driver != HARVESTER and says_already_exists(error.text, machine.name):
            return True  # it has another owner: what was not created here must never be removed from here
        try:
            found = await find_vm_uid(self.resolver, machine)
            return found == "" or (
                found is None and (await poll(self.plugin, machine)).status.presence == "missing"
            )
        except (DriverError, PluginError, InfrastructureUnknown) as unknown:
            log.info(
                "cannot determine whether the refused Create left anything: %s", unknown, machine=machine.name
            )
            return False

    async def _save_last(self, before: DriverConfig) -> None:
        """The host stops during a Create: save what the driver has in its config by now, such as the id of its machine.

        One that was called and has noted nothing since `before` may be making its machine at this moment, and would be killed
        between that and this reading of its config: it is read until the id is there. On Harvester a VM is found by its name.
        """
        name = self.machine.name
        try:
            async with asyncio.timeout(_LAST_SAVE_S):
                await self._save()
                for pause_s in _LAST_SAVE_PAUSES_S:
                    if self.machine.driver == HARVESTER or self.machine.config != before:
                        break
                    await self.poller.pause(pause_s)
                    await self._save()
        except TimeoutError:
            log.warning(
                "it was being created, and its driver did not tell its config within %d s: what it has made may stay",
                _LAST_SAVE_S,
                machine=name,
            )
        except (DriverError, PluginError) as error:
            log.warning("it was being created, and the config of its driver is lost: %s", error, machine=name)

    async def _save(self, *, create_started: bool | None = None, vm_uid: str = "") -> None:
        """Save the driver's config, before and after each change."""
        machine = self.machine
        config = self._sanitizer().sanitize(await self.plugin.get_driver_config())
        known = {
            **_owner_keys(self.spec),
            "MachineName": self.spec.name,
            "WindrowHarvesterUID": self.credential.harvester_uid,
            ACCOUNT: self.credential.account,
            SEEN_UID_KEY: machine.config.get(SEEN_UID_KEY)
            or (await self._observed_vm_uid() if vm_uid else ""),
            UNANSWERED_KEY: machine.config.get(UNANSWERED_KEY),
            "WindrowVMUID": config.get("WindrowVMUID") or vm_uid or machine.config.get("WindrowVMUID"),
            "WindrowClaims": machine.config.get("WindrowClaims"),
        }
        config |= {key: value for key, value in known.items() if value}
        if not await is_windrow_plugin(self.plugin):
            config.pop("WindrowClaims", None)  # it chooses the names of its disks
        elif not config.get("WindrowClaims"):
            config["WindrowClaims"] = list(planned_claims(load_driver_config(config)))
        machine.account_differs = False
        machine.save(config, create_started=create_started)

    async def _observed_vm_uid(self) -> str:
        if await is_windrow_plugin(self.plugin):
            return ""
        try:
            return await find_vm_uid(self.resolver, self.machine) or ""
        except InfrastructureUnknown as error:
            log.info("its VM cannot be read, so its uid is unknown: %s", error, machine=self.machine.name)
            return ""


def _cloud_config(spec: MachineSpec) -> str:
    if spec.driver != HARVESTER:
        return spec.cloud_config
    return add_guest_agent(spec.cloud_config, read_fields(driver_options(spec))[0].user_data)


def _owner_keys(spec: MachineSpec) -> dict[str, Any]:
    return {key: value for key, value in initial_driver_config(spec).items() if key.startswith("Windrow")}


def _new_config(spec: MachineSpec, harvester_uid: str) -> dict[str, Any]:
    """The config of a new machine: docker-machine's BaseDriver, nearly empty.

    Our own driver takes the owner annotations from it, so that the VM has them from its creation.
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
        config |= {**_owner_keys(spec), "WindrowHarvesterUID": harvester_uid}
    return config
