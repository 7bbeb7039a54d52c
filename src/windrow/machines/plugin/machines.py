"""The adapter of the port Machines for docker-machine plugins: any driver's binary, our own among them.

A plugin process lives for one query or one operation. Operations are tasks of `run()`; the caller waits until the
infrastructure shows the result, or the operation failed. `create` has how machines are created, `operations` the other
operations, `poller` how status is read.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from windrow.client.informer import Cache
from windrow.cloudinit.guest_agent import add_guest_agent
from windrow.core.clock import Clock
from windrow.core.files import make_private_directory
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.core.wait import start_in
from windrow.machines.harvester.connections import Connect, ReadKubeconfig
from windrow.machines.plugin.create import CreateOperation
from windrow.machines.plugin.credentials import CredentialResolver, ReadCredentialFields, ResolvedCredential
from windrow.machines.plugin.error_text import translate_error
from windrow.machines.plugin.launcher import (
    ConcurrencyLimit,
    FindBinary,
    FindSandbox,
    MayWrite,
    PluginLauncher,
    is_windrow_plugin,
    may_always_write,
    no_sandbox,
)
from windrow.machines.plugin.operations import PluginOperations, no_answer
from windrow.machines.plugin.poller import PollIntervals, StatusPoller
from windrow.machines.plugin.process.client import DriverError, PluginError, Timeouts
from windrow.machines.plugin.process.orphans import (
    HOST_ID_ENV,
    kill_orphans,
    new_host_id,
    reap_previous_host,
)
from windrow.machines.plugin.tracked_machine import (
    ACCOUNT,
    CHECKS,
    PLANNED,
    PendingOperation,
    TrackedMachine,
    clean_state_dir,
    folder_of,
    load_tracked_machine,
)
from windrow.machines.port import (
    HARVESTER,
    DriverConfig,
    EditUnsupported,
    InfrastructureUnknown,
    MachineRefused,
    MachineSpec,
    MachineStatus,
    Power,
    Problem,
    ReplaceUserDataUnsupported,
    initial_driver_config,
)
from windrow.machines.static_addresses import driver_options, find_pool_problems
from windrow.machines.status_store import StatusStore
from windrow.nodedriver.config import read_fields
from windrow.nodedriver.vm.plan import planned_claims

T = TypeVar("T")

log = with_values(logging.getLogger(__name__))


class PluginMachines:
    """The port Machines over plugin binaries. `run()` is the owner's task; operations wait for it.

    `read_kubeconfig` returns the kubeconfig of a Harvester credential, `read_fields` the fields of any other driver's.
    `connect` opens a transport to a Harvester, whose identity and VMs are read from its API, as the harvester adapter does.
    `state_dir` belongs to this host alone. `env` is the environment of plugins, `host_id` marks them as of this host (a new
    one where it is empty), `find_sandbox` is the sandbox of each. For
    each credential at most `max_processes` plugins serve queries, as many run operations, four times as many create
    machines, and one of our own stays open. `may_run` says whether this process may act at this instant, and may be
    stopped the next one; `may_write` whether it may write in a namespace of a Harvester.
    """

    def __init__(
        self,
        find_binary: FindBinary,
        read_kubeconfig: ReadKubeconfig,
        read_fields: ReadCredentialFields,
        state_dir: Path,
        clock: Clock,
        rng: Rng,
        *,
        env: Mapping[str, str],
        host_id: str = "",
        connect: Connect,
        store: StatusStore | None = None,
        max_processes: int = 8,
        intervals: PollIntervals | None = None,
        timeouts: Timeouts | None = None,
        may_run: Callable[[], bool] = lambda: True,
        may_write: MayWrite = may_always_write,
        find_sandbox: FindSandbox = no_sandbox,
    ) -> None:
        self._state_dir, self._rng, self._intervals = state_dir, rng, intervals or PollIntervals()
        self._host_id = host_id or new_host_id(rng, state_dir)
        self._launcher = PluginLauncher(
            find_binary,
            CredentialResolver(read_kubeconfig, read_fields, connect),
            {**env, HOST_ID_ENV: self._host_id},
            timeouts or Timeouts(),
            ConcurrencyLimit(max_processes),
            ConcurrencyLimit(max_processes),
            ConcurrencyLimit(max_processes * 4),
            may_run,
            may_write,
            find_sandbox,
        )
        statuses = store if store is not None else StatusStore()
        self._poller = StatusPoller(self._launcher, statuses, clock, rng, self._intervals)
        self._operations = PluginOperations(self._launcher, self._poller)
        self._group: asyncio.TaskGroup | None = None
        self._running = asyncio.Event()

    async def run(self) -> None:
        """Run operations and keep the statuses current, until cancelled; then no plugin process is left."""
        make_private_directory(self._state_dir)
        clean_state_dir(self._state_dir)
        reap_previous_host(self._state_dir, self._host_id)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for machine in self._poller.machines.values():
                    self._start_polling(machine)
                self._running.set()
                await asyncio.Event().wait()
        finally:
            self._running.clear()
            for machine in self._poller.machines.values():
                machine.poll_task = machine.operation = None
            await self._poller.close()
            await self._launcher.resolver.close()
            kill_orphans(self._host_id)  # processes that plugins started and left

    # --- the port -------------------------------------------------------------------------------------------------

    async def check(self, specs: Sequence[MachineSpec]) -> list[Problem]:
        problems: list[Problem] = []
        for spec in specs:
            try:
                await self._check(spec)
            except MachineRefused as refused:
                problems += refused.problems
            if spec.driver == HARVESTER:
                problems += find_pool_problems(spec.options)
        return list(dict.fromkeys(problems))

    async def plan(self, spec: MachineSpec) -> DriverConfig:
        self._launcher.get_binary(spec.driver)
        credential = await self._launcher.resolver.resolve(spec.driver, spec.credential, spec.harvester_uid)
        config = dict(initial_driver_config(spec))
        if spec.driver == HARVESTER:
            configuration, _ = read_fields(driver_options(spec))
            named = replace(configuration, machine_name=spec.name, machine_uid=spec.machine_uid)
            config |= {
                "WindrowHarvesterUID": credential.harvester_uid,
                "WindrowClaims": list(planned_claims(named)),
            }
            return {**config, PLANNED: True}
        config = {
            **await self._with_new_plugin(spec, credential, CreateOperation.initial_config),
            **config,
            PLANNED: True,
            ACCOUNT: credential.account,
        }
        if spec.machine_uid not in self._poller.machines:
            # While this state file is here, no driver has started: other hosts, which have none, refuse the machine.
            machine = load_tracked_machine(self._state_dir, config)
            if not (machine.create_started or machine.was_created):
                machine.save(config)
        return config

    async def ensure(self, spec: MachineSpec, config: DriverConfig | None) -> DriverConfig:
        if config is not None and config.get("WindrowVMUID"):
            self.track(config)
            return config
        await self._running.wait()
        machine = self._tracked(config or initial_driver_config(spec))
        if machine.was_created:
            return machine.config
        credential = await self._launcher.resolve(machine, config)
        operation = machine.find_operation("create")
        if operation is None:
            await self._wait_until_idle(machine)
            operation = self._start(
                machine, PendingOperation("create"), lambda own: self._create(machine, spec, credential, own)
            )
        created = await _wait_accepted(machine, operation, self._intervals.create_accept_s)
        if created is None:
            raise InfrastructureUnknown(
                f"driver {machine.driver} is creating machine {machine.name}, which is not visible yet",
                "nothing to do; the Create call goes on",
                may_be_made=True,
            )
        return created

    async def power(self, config: DriverConfig, wanted: Power) -> DriverConfig:
        await self._running.wait()
        machine = self._tracked(config)
        credential = await self._launcher.resolve(machine, config)
        operation = machine.find_operation("power", wanted.value)
        if operation is None:
            await self._wait_until_idle(machine)
            operation = self._start(
                machine,
                PendingOperation("power", wanted.value),
                lambda own: self._operations.power(machine, wanted, credential, own),
            )
        await operation.wait_accepted(self._intervals.other_accept_s)
        return config

    async def replace_user_data(self, config: DriverConfig, cloud_config: str) -> DriverConfig:
        """Only our own plugin can replace user data; with any other driver it stays readable at the infrastructure."""
        machine = self._tracked(config)
        credential = await self._launcher.resolve(machine, config)
        if machine.driver == HARVESTER:
            cloud_config = add_guest_agent(cloud_config, str(config.get("UserData") or ""))
        try:
            replaced = await self._operations.replace_user_data(machine, cloud_config, credential)
        except (DriverError, PluginError) as error:
            raise translate_error(error, machine) from error
        if not replaced:
            raise ReplaceUserDataUnsupported(
                f"driver {machine.driver} cannot replace user data: the bootstrap "
                f"document of {machine.name} stays there, secrets included",
                "restrict who may read the machine's user data there",
            )
        return config

    async def edit(self, config: DriverConfig, options: Mapping[str, Any]) -> DriverConfig:
        """docker-machine's protocol has no call for it."""
        machine = self._tracked(config)
        raise EditUnsupported(
            f"driver {machine.driver} cannot edit {machine.name}: docker-machine plugins only create and remove machines",
            "have the machine replaced",
        )

    async def remove(self, config: DriverConfig, volumes: frozenset[str]) -> None:
        await self._running.wait()
        machine = self._tracked(config)
        credential = await self._launcher.resolve(machine, config)
        operation = machine.find_operation("remove")
        if operation is None:
            if machine.unanswered:
                machine.unanswered = False
                raise no_answer(machine)
            previous = machine.operation
            operation = self._start(
                machine,
                PendingOperation("remove"),
                lambda own: self._operations.remove(machine, volumes, credential, own, previous),
            )
        await _wait_accepted(machine, operation, self._intervals.other_accept_s)

    async def read_status(self, config: DriverConfig) -> MachineStatus:
        machine = self._tracked(config)
        await self._poller.poll_now(machine)
        status = self._poller.store.get(machine.uid)
        return status or MachineStatus(machine.uid, machine.name, "missing")

    def statuses(self) -> Cache[MachineStatus]:
        return self._poller.store

    def track(self, config: DriverConfig) -> None:
        self._tracked(config)

    def release(self, uid: str, then: Callable[[], None]) -> None:
        """Once no operation of the machine runs, poll it no more, write no status of it and call `then`."""
        machine = self._poller.machines.get(uid)
        operation = machine.find_operation() if machine is not None else None
        if operation is not None and operation.task is not None:
            operation.task.add_done_callback(lambda _: self.release(uid, then))
            return
        if machine is not None:
            del self._poller.machines[uid]
            machine.wake.set()
        then()

    def find_begun(self, config: DriverConfig) -> DriverConfig | None:
        """The newest config of a machine that a plugin of this host has begun to create, as one that was created.

        None also for a machine that our own program has begun: it annotates what it makes, so that any adapter that knows
        the annotations may continue.
        """
        uid = str(config["WindrowMachineUID"])
        machine = self._poller.machines.get(uid) or load_tracked_machine(self._state_dir, config)
        if machine.was_created:
            return machine.config
        if not machine.create_started or machine.config.get("WindrowClaims"):
            return None
        return {**machine.config, "WindrowVMUID": machine.vm_uid}

    def forget(self, uid: str) -> None:
        """Delete the folder of a released machine, whose config is recorded elsewhere."""
        if uid not in self._poller.machines:
            shutil.rmtree(folder_of(self._state_dir, uid), ignore_errors=True)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _tracked(self, config: DriverConfig) -> TrackedMachine:
        """The tracked machine of `config`; from now on it is polled."""
        uid = str(config["WindrowMachineUID"])
        machine = self._poller.machines.get(uid)
        if machine is None:
            machine = self._poller.machines[uid] = load_tracked_machine(self._state_dir, config)
            machine.create_uncertain = machine.create_uncertain and not self._poller.store.was_removed(uid)
            if machine.was_created and self._poller.store.get(uid) is None:
                self._poller.put_unknown(machine, "its driver was not polled yet")
            self._start_polling(machine)
        elif config.get("WindrowVMUID") and not machine.was_created:
            machine.config = config
        return machine

    def _start_polling(self, machine: TrackedMachine) -> None:
        if machine.poll_task is None:
            polling = self._poller.poll_until_removed(machine)
            machine.poll_task = start_in(self._group, polling, f"poll {machine.name}")

    async def _check(self, spec: MachineSpec) -> None:
        """Raises MachineRefused, InfrastructureUnknown."""
        await self._with_new_plugin(
            spec, await self._launcher.resolver.resolve(spec.driver, spec.credential), CreateOperation.check
        )

    async def _with_new_plugin(
        self,
        spec: MachineSpec,
        credential: ResolvedCredential,
        ask: Callable[[CreateOperation], Awaitable[T]],
    ) -> T:
        """What `ask` gets from a plugin for a machine that will not be created by it. Raises MachineRefused,
        InfrastructureUnknown."""
        launcher = self._launcher
        planned = {**initial_driver_config(spec), "WindrowMachineUID": self._rng.uid()}
        machine = load_tracked_machine(self._state_dir / CHECKS, planned)
        try:
            async with (
                launcher.queries.for_machine(machine),
                launcher.open(machine, credential, None, secrets=[spec.cloud_config]) as plugin,
            ):
                return await ask(
                    CreateOperation(machine, spec, credential, plugin, self._poller, launcher.resolver)
                )
        except (DriverError, PluginError) as error:
            raise translate_error(error, machine) from error
        finally:
            machine.delete_folder()

    async def _create(
        self,
        machine: TrackedMachine,
        spec: MachineSpec,
        credential: ResolvedCredential,
        operation: PendingOperation,
    ) -> None:
        async with (
            self._launcher.creates.for_machine(machine),
            self._launcher.open(
                machine, credential, None, secrets=[spec.cloud_config], writes=True
            ) as plugin,
            self._poller.using_plugin(machine, plugin),
        ):
            await CreateOperation(
                machine, spec, credential, plugin, self._poller, self._launcher.resolver
            ).create(operation)

    def _start(
        self,
        machine: TrackedMachine,
        operation: PendingOperation,
        work: Callable[[PendingOperation], Awaitable[None]],
    ) -> PendingOperation:
        name = f"{operation.verb} {machine.name}"
        task = start_in(self._group, self._execute(machine, operation, work), name)
        if task is None:
            raise InfrastructureUnknown(f"{name} is not begun: this manager stops", "the next one does it")
        machine.operation, operation.task = operation, task
        machine.last_error = ""
        return operation

    async def _wait_until_idle(self, machine: TrackedMachine) -> None:
        """Return when the machine has no operation. Raises InfrastructureUnknown where that takes long.

        A Create of our own plugin that was accepted only waits for an address; it is cancelled.
        """
        operation = machine.find_operation()
        if operation is None or operation.task is None:
            return
        if operation.verb == "create" and operation.is_resolved and await is_windrow_plugin(machine.plugin):
            operation.task.cancel()
        await asyncio.wait({operation.task}, timeout=self._intervals.other_accept_s)
        if not operation.task.done():
            raise _busy(machine, operation)

    async def _execute(
        self,
        machine: TrackedMachine,
        operation: PendingOperation,
        work: Callable[[PendingOperation], Awaitable[None]],
    ) -> None:
        try:
            await work(operation)
        except (DriverError, PluginError) as error:
            failure = translate_error(error, machine)
            if isinstance(failure, InfrastructureUnknown):
                failure.may_be_made = operation.is_requested
            self._on_failure(machine, operation, failure)
        except Exception as error:  # reported to the caller; other machines are not affected
            self._on_failure(machine, operation, error)
        finally:
            if not operation.is_resolved:
                cancelled = f"{operation.verb} of {machine.name} was cancelled"
                unknown = InfrastructureUnknown(cancelled, "the operation is retried")
                unknown.may_be_made = operation.is_requested
                self._on_failure(machine, operation, unknown)
            machine.wake.set()

    def _on_failure(self, machine: TrackedMachine, operation: PendingOperation, error: Exception) -> None:
        if operation.fail(error):
            machine.unanswered |= operation.is_requested and not isinstance(error, MachineRefused)
            return
        machine.last_error = str(error)
        expected = isinstance(error, MachineRefused | InfrastructureUnknown)
        log.warning(
            "%s: %s", operation.verb, error, exc_info=None if expected else error, machine=machine.name
        )


async def _wait_accepted(
    machine: TrackedMachine, operation: PendingOperation, timeout_s: float
) -> DriverConfig | None:
    """As `operation.wait_accepted`, for a caller that learns from the error whether the machine may be made yet."""
    try:
        return await operation.wait_accepted(timeout_s)
    except InfrastructureUnknown as unknown:
        machine.unanswered = machine.unanswered and not unknown.may_be_made
        raise


def _busy(machine: TrackedMachine, operation: PendingOperation) -> InfrastructureUnknown:
    states = {
        "create": "is being created",
        "power": "is being started or stopped",
        "remove": "is being removed",
    }
    return InfrastructureUnknown(
        f"{machine.name} {states[operation.verb]}, so the next operation has to wait",
        "nothing to do; the operation is retried",
    )
