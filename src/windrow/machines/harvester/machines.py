"""The adapter of the port Machines that runs the built-in node driver against the Harvester API, without a process.

One worker per credential: its connection, an informer for Nodes, and one VmWatcher per namespace with machines in it.
Workers are tasks of `run()`; the verbs (`ensure`, `power`, …) run in the caller's task, also when `run()` does not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from windrow.client.client import Client
from windrow.client.informer import Cache
from windrow.client.middleware.unanswered import UnansweredCreations
from windrow.core.clock import Clock
from windrow.core.crash import handle_crash
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.core.wait import wait_first
from windrow.harvester.resources import VM
from windrow.harvester.vms import Vm
from windrow.machines.harvester.connections import (
    Connect,
    Connection,
    Connections,
    ReadKubeconfig,
)
from windrow.machines.harvester.vm_watcher import (
    HostCache,
    TrackedVm,
    VmWatcher,
    foreign_driver_vm,
    is_owned_by,
)
from windrow.machines.port import (
    DriverConfig,
    InfrastructureUnknown,
    MachineRefused,
    MachineSpec,
    MachineStatus,
    Power,
    Problem,
    is_synthetic_uid,
)
from windrow.machines.static_addresses import driver_options, find_pool_problems
from windrow.machines.status_store import StatusStore
from windrow.nodedriver.config import Configuration, dump_driver_config, find_unknown_keys, read_fields
from windrow.nodedriver.config_json import load_driver_config
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.validate.network_data import find_shared_addresses
from windrow.nodedriver.validate.references import check as find_problems_there
from windrow.nodedriver.validate.rules import find_problems
from windrow.nodedriver.vm import power as powers
from windrow.nodedriver.vm.create import ensure_created, replace_user_data
from windrow.nodedriver.vm.edit import edit, with_edits
from windrow.nodedriver.vm.observe import find_object, get_status
from windrow.nodedriver.vm.ownership import require_owner
from windrow.nodedriver.vm.plan import planned_claims
from windrow.nodedriver.vm.remove import remove

# How often a credential is read again by itself: while all is well, and while its Harvester cannot be seen.
log = with_values(logging.getLogger(__name__))

CREDENTIAL_CHECK_INTERVAL = timedelta(seconds=60)
RETRY_INTERVAL = timedelta(seconds=10)

_POWERS = {Power.ON: powers.start, Power.OFF: powers.stop, Power.RESTART: powers.restart}


class _CredentialWorker:
    """Keeps the status of all machines of one credential current."""

    def __init__(
        self,
        credential: str,
        connections: Connections,
        store: StatusStore,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.credential = credential
        self._connections, self._store, self._clock, self._rng = connections, store, clock, rng
        self._machines: dict[str, TrackedVm] = {}
        self._watchers: dict[str, VmWatcher] = {}
        self._namespaces_changed = asyncio.Event()
        self._wake = asyncio.Event()
        self._unknown_reason = "no request was sent to its Harvester yet"

    def track(self, machine: TrackedVm) -> None:
        configuration = machine.configuration
        self._machines[configuration.machine_uid] = machine
        watcher = self._watchers.get(configuration.vm_namespace)
        if watcher is not None:
            return watcher.track(machine)
        if self._store.get(configuration.machine_uid) is None:
            self._put_unknown(machine)
        self._namespaces_changed.set()
        return None

    def find_machine(self, uid: str) -> TrackedVm | None:
        return self._machines.get(uid)

    def find_vm(self, configuration: Configuration) -> Vm | None:
        """The machine's VM, where a synced informer has it."""
        watcher = self._watchers.get(configuration.vm_namespace)
        vm = watcher.find_vm(configuration.ref) if watcher is not None else None
        return vm if vm is not None and is_owned_by(vm, configuration) else None

    def wake(self) -> None:
        """The credential has just worked; connect without waiting for the next retry."""
        self._wake.set()

    def put_status(self, uid: str, status: MachineStatus | None) -> None:
        if status is None:
            return self._store.put(uid, None)
        self._store.update(status, self._clock.now())
        machine = self._machines.get(uid)
        if status.presence == "missing" and machine is not None and machine.removal_requested:
            self._untrack(machine)
        return None

    def _untrack(self, machine: TrackedVm) -> None:
        """The machine was removed and is verified missing: stop tracking it; its last status stays for a while."""
        configuration = machine.configuration
        del self._machines[configuration.machine_uid]
        if (watcher := self._watchers.get(configuration.vm_namespace)) is not None:
            watcher.untrack(configuration)
        self._store.expire(configuration.machine_uid)

    async def run(self) -> None:
        """Watch the machines until cancelled. A defect met with one Harvester does not end the workers of the others."""
        while True:
            with handle_crash(
                log,
                "watching the machines of a credential failed; trying again in %s",
                RETRY_INTERVAL,
                secret=self.credential,
            ) as crash:
                await self._run()
            self._watchers.clear()
            self._unknown_reason = f"the answers of its Harvester cannot be used: {crash.error!r}"
            for machine in self._machines.values():
                self._put_unknown(machine)
            await wait_first(self._clock, RETRY_INTERVAL, self._wake)

    async def _run(self) -> None:
        """Watch over one connection after the other."""
        while True:
            self._wake.clear()
            try:
                connection = await self._connections.get(self.credential)
            except InfrastructureUnknown as unknown:
                self._unknown_reason = str(unknown)
                for machine in self._machines.values():
                    self._put_unknown(machine)
                await wait_first(self._clock, RETRY_INTERVAL, self._wake)
            else:
                await self._run_connection(connection)

    async def _run_connection(self, connection: Connection) -> None:
        """Watch over this connection until it is retired; then cancel the watches."""
        hosts = HostCache(connection.transport, self._clock, self._rng)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(hosts.run()),
                group.create_task(self._run_watchers(connection, hosts)),
                group.create_task(self._check_credential(connection)),
            ]
            await connection.retired.wait()
            for task in tasks:
                task.cancel()
        self._watchers.clear()

    async def _run_watchers(self, connection: Connection, hosts: HostCache) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._namespaces_changed.clear()
                for namespace in {each.configuration.vm_namespace for each in self._machines.values()}:
                    if namespace not in self._watchers:
                        group.create_task(self._make_watcher(connection, namespace, hosts).run())
                await self._namespaces_changed.wait()

    def _make_watcher(self, connection: Connection, namespace: str, hosts: HostCache) -> VmWatcher:
        watcher = VmWatcher(connection, namespace, hosts, self.put_status, self._clock, self._rng)
        self._watchers[namespace] = watcher
        for machine in self._machines.values():
            if machine.configuration.vm_namespace == namespace:
                watcher.track(machine)
        return watcher

    async def _check_credential(self, connection: Connection) -> None:
        """Read the credential Secret periodically; a changed or deleted one retires the connection."""
        while True:
            all_synced = all(watcher.has_synced for watcher in self._watchers.values())
            await wait_first(
                self._clock, CREDENTIAL_CHECK_INTERVAL if all_synced else RETRY_INTERVAL, connection.retired
            )
            try:
                await self._connections.get(self.credential)
            except InfrastructureUnknown:
                await self._connections.retire(connection)

    def _put_unknown(self, machine: TrackedVm) -> None:
        self._store.update(machine.status("unknown", self._unknown_reason), self._clock.now())


class HarvesterMachines:
    """The port Machines on Harvester. `run()` is the owner's task; without it all statuses stay unknown.

    `read_kubeconfig` returns the current kubeconfig of a credential; it raises a KubeError or LookupError where there
    is none. `connect` opens a transport, with its own retries. The store counts as synced from the start, because a
    machine that was not observed yet is there as unknown.
    """

    def __init__(
        self,
        read_kubeconfig: ReadKubeconfig,
        connect: Connect,
        clock: Clock,
        rng: Rng,
        store: StatusStore | None = None,
    ) -> None:
        self._connections = Connections(read_kubeconfig, connect)
        self._store = store if store is not None else StatusStore()
        self._workers: dict[str, _CredentialWorker] = {}
        self._workers_changed = asyncio.Event()
        self._clock, self._rng = clock, rng

    async def run(self) -> None:
        """Keep the statuses current until cancelled."""
        running: set[str] = set()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._workers_changed.clear()
                    for credential, worker in self._workers.items():
                        if credential not in running:
                            running.add(credential)
                            group.create_task(worker.run())
                    await self._workers_changed.wait()
        finally:
            await self._connections.close()

    async def check(self, specs: Sequence[MachineSpec]) -> list[Problem]:
        problems: list[Problem] = []
        networks: list[tuple[str, list[str]]] = []
        for credential in dict.fromkeys(spec.credential for spec in specs):
            connection = await self._connections.get(credential)
            configurations = []
            for spec in specs:
                if spec.credential == credential:
                    configuration, found = _read_spec(spec)
                    configurations.append(configuration)
                    problems += found
                    networks.append((configuration.network_data, [nic.network for nic in configuration.nics]))
            problems += await connection.run(
                find_problems_there(configurations, connection.client_config.server)
            )
        return list(dict.fromkeys([*problems, *find_shared_addresses(networks)]))

    async def plan(self, spec: MachineSpec) -> DriverConfig:
        configuration = _valid_configuration(spec)
        identity = await (await self._get_connection(spec.credential)).verify_identity(spec.harvester_uid)
        claims = planned_claims(configuration)
        return dump_driver_config(replace(configuration, harvester_uid=identity, claims=claims))

    async def ensure(self, spec: MachineSpec, config: DriverConfig | None) -> DriverConfig:
        if config is not None and config.get("WindrowVMUID"):
            self.track(config)
            return config
        configuration = _valid_configuration(spec)
        connection = await self._get_connection(spec.credential)
        identity = await connection.verify_identity(
            str((config or {}).get("WindrowHarvesterUID") or spec.harvester_uid)
        )
        creations = UnansweredCreations(connection.transport, VM.plural)
        creation = ensure_created(replace(configuration, harvester_uid=identity), spec.cloud_config)
        try:
            made = await connection.run(creation, creations)
        except InfrastructureUnknown as unknown:
            unknown.may_be_made = creations.found
            raise
        result = dump_driver_config(made)
        self.track(result)
        return result

    async def power(self, config: DriverConfig, wanted: Power) -> DriverConfig:
        configuration, connection = await self._open(config)
        await _refuse_foreign_driver_vm(connection, configuration)
        await self._require_vm(connection, configuration)
        await connection.run(_POWERS[wanted](configuration.ref))
        return config

    async def replace_user_data(self, config: DriverConfig, cloud_config: str) -> DriverConfig:
        configuration, connection = await self._open(config)
        await connection.run(replace_user_data(configuration, cloud_config))
        return config

    async def edit(self, config: DriverConfig, options: Mapping[str, Any]) -> DriverConfig:
        configuration, connection = await self._open(config)
        wanted, unreadable = read_fields(options)
        edited = with_edits(configuration, wanted)
        fields = {problem.field for problem in unreadable}
        problems = [*unreadable, *find_problems(edited, must_boot=True, unreadable=fields)]
        if refused := [problem for problem in problems if problem.severity == "error"]:
            raise MachineRefused(refused)
        return dump_driver_config(await connection.run(edit(configuration, edited)))

    async def remove(self, config: DriverConfig, volumes: frozenset[str]) -> None:
        configuration, connection = await self._open(config)
        await _refuse_foreign_driver_vm(connection, configuration)
        worker = self._worker(configuration.credential)
        known_vm = worker.find_vm(configuration)
        is_gone = await connection.run(remove(configuration, volumes, known_vm))
        machine = TrackedVm(configuration, removal_requested=True)
        worker.track(machine)
        if is_gone:
            because = f"VirtualMachine {configuration.machine_name} not found"
            worker.put_status(configuration.machine_uid, machine.status("missing", because))

    async def read_status(self, config: DriverConfig) -> MachineStatus:
        configuration, connection = await self._open(config)
        try:
            return await connection.run(get_status(configuration))
        except MachineRefused as refused:
            return TrackedVm(configuration).status("unknown", str(refused))

    def statuses(self) -> Cache[MachineStatus]:
        return self._store

    def track(self, config: DriverConfig) -> None:
        configuration = load_driver_config(config)
        worker = self._worker(configuration.credential)
        before = worker.find_machine(configuration.machine_uid)
        removal_requested = before is not None and before.removal_requested
        machine = TrackedVm(configuration, removal_requested)
        if machine != before:
            worker.track(machine)

    async def get_client(self, credential: str) -> Client:
        """A client of the Harvester that the credential leads to. Raises InfrastructureUnknown."""
        return Client((await self._get_connection(credential)).transport)

    async def _open(self, config: DriverConfig) -> tuple[Configuration, Connection]:
        """The machine's configuration, and the connection to its own Harvester. Raises InfrastructureUnknown."""
        configuration = load_driver_config(config)
        connection = await self._get_connection(configuration.credential)
        await connection.verify_identity(configuration.harvester_uid)
        return configuration, connection

    async def _get_connection(self, credential: str) -> Connection:
        connection = await self._connections.get(credential)
        self._worker(credential).wake()
        return connection

    def _worker(self, credential: str) -> _CredentialWorker:
        if credential not in self._workers:
            worker = _CredentialWorker(credential, self._connections, self._store, self._clock, self._rng)
            self._workers[credential] = worker
            self._workers_changed.set()
        return self._workers[credential]

    async def _require_vm(self, connection: Connection, configuration: Configuration) -> None:
        """Raises MachineRefused unless the machine's own VM exists: KubeVirt's subresources go by name only."""
        if self._worker(configuration.credential).find_vm(configuration) is not None:
            return
        raw = await connection.run(find_object(configuration.ref, "see whose VM it is"))
        if raw is None:
            message = f"VirtualMachine {configuration.vm_namespace}/{configuration.machine_name} not found"
            hint = "delete the Machine; its pool creates another"
            raise MachineRefused([Problem(f"{message}, so its power state cannot change", hint)])
        try:
            require_owner(configuration, raw)
        except Refused as refused:
            raise MachineRefused(refused.problems) from refused


async def _refuse_foreign_driver_vm(connection: Connection, configuration: Configuration) -> None:
    """Raises InfrastructureUnknown where a VM exists that a driver without owner annotations created."""
    if not is_synthetic_uid(configuration.vm_uid):
        return
    if await connection.run(find_object(configuration.ref, "see whether its VM is still there")) is not None:
        raise foreign_driver_vm(configuration)


def _valid_configuration(spec: MachineSpec) -> Configuration:
    """Raises MachineRefused."""
    configuration, problems = _read_spec(spec)
    if refused := [problem for problem in problems if problem.severity == "error"]:
        raise MachineRefused(refused)
    return configuration


def _read_spec(spec: MachineSpec) -> tuple[Configuration, list[Problem]]:
    """The spec as a configuration, and the problems that show without a request.

    The configuration names the credential and never holds its kubeconfig.
    """
    options = driver_options(spec)
    configuration, problems = read_fields(options)
    configuration = replace(
        configuration,
        machine_name=spec.name,
        cluster_name=spec.cluster_name,
        machine_uid=spec.machine_uid,
        cluster_uid=spec.cluster_uid,
        credential=spec.credential,
        kubeconfig_content="",
        cloud_config="",
    )
    unread_fields = {problem.field for problem in problems}
    problems = [
        *problems,
        *find_unknown_keys(options),
        *find_pool_problems(spec.options),
        *find_problems(configuration, spec.cloud_config, must_boot=True, unreadable=unread_fields),
    ]
    return configuration, problems
