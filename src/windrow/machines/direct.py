"""Machines on Harvester, made by our own node driver over Harvester's API.

One station per credential: its connection, its view of the hosts, and one lookout per namespace with machines in it.
Stations live in the task group of `run()`; orders (`ensure`, `power`, …) run in the caller's own task, and work also
while nobody runs the stations.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from windrow.client.cache import Cache
from windrow.harvester.vms import Vm
from windrow.kube.errors import Forbidden, KubeError, NotFound
from windrow.kube.refs import NAMESPACE
from windrow.kube.requests import get
from windrow.machines.board import Board, dated
from windrow.machines.connections import Connection, Connections, Credentials, Dial, port_problem
from windrow.machines.lookout import Hosts, Lookout, Watched, is_mine, made_by_another
from windrow.machines.port import (
    InfrastructureUnknown,
    MachineRefused,
    MachineSpec,
    Memory,
    Power,
    Problem,
    Sighting,
    bears_no_marks,
)
from windrow.nodedriver import power as powers
from windrow.nodedriver.check import check
from windrow.nodedriver.configuration import Configuration, read_fields, write_memory
from windrow.nodedriver.create import order
from windrow.nodedriver.observe import find
from windrow.nodedriver.ownership import prove
from windrow.nodedriver.plans import planned_claims
from windrow.nodedriver.problems import Refused
from windrow.nodedriver.remove import remove
from windrow.nodedriver.rewrite import rewrite
from windrow.nodedriver.rules import find_problems
from windrow.nodedriver.steps import answer
from windrow.nodedriver.stored import read_memory
from windrow.reconcile.alarm import either
from windrow.values.chance import Chance
from windrow.values.clock import Clock

# How often a credential is read again by itself: while all is well, and while its Harvester cannot be seen.
RENEWAL = timedelta(seconds=60)
ANXIOUS = timedelta(seconds=10)
# How many machines that have ended are still shown as missing.
ENDED_KEPT = 1000

_POWERS = {Power.ON: powers.start, Power.OFF: powers.stop, Power.RESTART: powers.restart}


class _Station:
    """All machines behind one credential."""

    def __init__(
        self, credential: str, connections: Connections, board: Board[Sighting], clock: Clock, chance: Chance
    ) -> None:
        self.credential = credential
        self._connections, self._board, self._clock, self._chance = connections, board, clock, chance
        self._machines: dict[str, Watched] = {}
        self._lookouts: dict[str, Lookout] = {}
        self._ended: deque[str] = deque()
        self._namespaces = asyncio.Event()
        self._awake = asyncio.Event()
        self._trouble = "its Harvester has not been asked yet"

    def watch_over(self, machine: Watched) -> None:
        configuration = machine.configuration
        self._machines[configuration.machine_uid] = machine
        lookout = self._lookouts.get(configuration.vm_namespace)
        if lookout is not None:
            return lookout.watch_over(machine)
        if self._board.get(configuration.machine_uid) is None:
            self._tell_unknown(configuration)
        self._namespaces.set()
        return None

    def find(self, uid: str) -> Watched | None:
        return self._machines.get(uid)

    def reading(self, configuration: Configuration) -> Vm | None:
        """The machine's VM where a current cache shows it."""
        lookout = self._lookouts.get(configuration.vm_namespace)
        vm = lookout.reading(configuration.ref) if lookout is not None else None
        return vm if vm is not None and is_mine(vm, configuration) else None

    def wake(self) -> None:
        """The credential has just been good for something; do not wait to try it."""
        self._awake.set()

    def tell(self, uid: str, sighting: Sighting | None) -> None:
        if sighting is None:
            return self._board.drop(uid)
        self._board.put(uid, dated(self._board.get(uid), sighting, self._clock.now()))
        machine = self._machines.get(uid)
        if sighting.presence == "missing" and machine is not None and machine.ended:
            self._forget(machine)
        return None

    def _forget(self, machine: Watched) -> None:
        """The machine has ended, and its absence is proved: its last sighting stays for a while, the rest goes."""
        configuration = machine.configuration
        del self._machines[configuration.machine_uid]
        if (lookout := self._lookouts.get(configuration.vm_namespace)) is not None:
            lookout.forget(configuration)
        self._ended.append(configuration.machine_uid)
        while len(self._ended) > ENDED_KEPT:
            uid = self._ended.popleft()
            if uid not in self._machines:
                self._board.drop(uid)

    async def run(self) -> None:
        """Look after the machines until cancelled, over as many connections as it takes."""
        while True:
            self._awake.clear()
            try:
                connection = await self._connections.get(self.credential)
            except InfrastructureUnknown as unknown:
                self._trouble = str(unknown)
                for machine in self._machines.values():
                    self._tell_unknown(machine.configuration)
                await either(self._clock, ANXIOUS, self._awake)
            else:
                await self._stand_on(connection)

    async def _stand_on(self, connection: Connection) -> None:
        """Watch over this connection until it is retired."""
        hosts = Hosts(connection.transport, self._clock, self._chance)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(hosts.run()),
                group.create_task(self._look_out(connection, hosts)),
                group.create_task(self._renew(connection)),
            ]
            await connection.retired.wait()
            for task in tasks:
                task.cancel()
        self._lookouts.clear()

    async def _look_out(self, connection: Connection, hosts: Hosts) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._namespaces.clear()
                for namespace in {each.configuration.vm_namespace for each in self._machines.values()}:
                    if namespace not in self._lookouts:
                        group.create_task(self._open(connection, namespace, hosts).run())
                await self._namespaces.wait()

    def _open(self, connection: Connection, namespace: str, hosts: Hosts) -> Lookout:
        lookout = Lookout(connection, namespace, hosts, self.tell, self._clock, self._chance)
        self._lookouts[namespace] = lookout
        for machine in self._machines.values():
            if machine.configuration.vm_namespace == namespace:
                lookout.watch_over(machine)
        return lookout

    async def _renew(self, connection: Connection) -> None:
        """Read the credential again from time to time; a changed or vanished one retires the connection."""
        while True:
            calm = all(lookout.is_certain for lookout in self._lookouts.values())
            await either(self._clock, RENEWAL if calm else ANXIOUS, connection.retired)
            try:
                await self._connections.get(self.credential)
            except InfrastructureUnknown:
                await self._connections.retire(connection)

    def _tell_unknown(self, configuration: Configuration) -> None:
        self.tell(
            configuration.machine_uid,
            Sighting(configuration.machine_uid, configuration.machine_name, "unknown", because=self._trouble),
        )


class DirectMachines:
    """The port Machines on Harvester. `run()` is the owner's task; without it `sightings` stay unknown.

    `credentials` gives the kubeconfig text that a credential reference stands for now; it raises a KubeError or
    LookupError where there is none. `dial` opens a transport, which repeats requests as it sees fit. Sightings are kept by machine uid; they count as
    synced from the start, because a machine not yet looked at says so itself.
    """

    def __init__(
        self,
        credentials: Credentials,
        dial: Dial,
        clock: Clock,
        chance: Chance,
        board: Board[Sighting] | None = None,
    ) -> None:
        self._connections = Connections(credentials, dial, clock)
        self._board: Board[Sighting] = board if board is not None else Board()
        self._stations: dict[str, _Station] = {}
        self._opened = asyncio.Event()
        self._clock, self._chance = clock, chance

    async def run(self) -> None:
        """Keep the sightings current until cancelled."""
        running: set[str] = set()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._opened.clear()
                    for credential, station in self._stations.items():
                        if credential not in running:
                            running.add(credential)
                            group.create_task(station.run())
                    await self._opened.wait()
        finally:
            await self._connections.close()

    async def check(self, specs: Sequence[MachineSpec]) -> list[Problem]:
        problems: list[Problem] = []
        for credential in dict.fromkeys(spec.credential for spec in specs):
            connection = await self._connections.get(credential)
            configurations = []
            for spec in specs:
                if spec.credential == credential:
                    configuration, found = _configured(spec)
                    configurations.append(configuration)
                    problems += found
            problems += map(port_problem, await connection.run(check(configurations)))
            problems += await _missing_namespaces(connection, configurations)
        return list(dict.fromkeys(problems))

    async def plan(self, spec: MachineSpec) -> Memory:
        configuration = _accepted(spec)
        identity = await (await self._connect(spec.credential)).confirm("")
        claims = planned_claims(configuration)
        return write_memory(replace(configuration, harvester_uid=identity, claims=claims))

    async def ensure(self, spec: MachineSpec, memory: Memory | None) -> Memory:
        if memory is not None and memory.get("WindrowVMUID"):
            self.watch_over(memory)
            return memory
        configuration = _accepted(spec)
        connection = await self._connect(spec.credential)
        identity = await connection.confirm(str((memory or {}).get("WindrowHarvesterUID") or ""))
        made = await connection.run(order(replace(configuration, harvester_uid=identity), spec.cloud_config))
        result = write_memory(made)
        self.watch_over(result)
        return result

    async def power(self, memory: Memory, wanted: Power) -> Memory:
        configuration = read_memory(memory)
        connection = await self._connect(configuration.credential)
        await connection.confirm(configuration.harvester_uid)
        await _leave_to_its_driver(connection, configuration)
        await self._insist_on(connection, configuration)
        await connection.run(_POWERS[wanted](configuration.ref))
        return memory

    async def rewrite(self, memory: Memory, cloud_config: str) -> Memory:
        configuration = read_memory(memory)
        connection = await self._connect(configuration.credential)
        await connection.confirm(configuration.harvester_uid)
        await connection.run(rewrite(configuration, cloud_config))
        return memory

    async def remove(self, memory: Memory, volumes: frozenset[str]) -> None:
        configuration = read_memory(memory)
        connection = await self._connect(configuration.credential)
        await connection.confirm(configuration.harvester_uid)
        await _leave_to_its_driver(connection, configuration)
        station = self._station(configuration.credential)
        known = station.reading(configuration)
        is_gone = await connection.run(remove(configuration, volumes, known))
        station.watch_over(Watched(configuration, ended=True))
        if is_gone:
            uid, name = configuration.machine_uid, configuration.machine_name
            station.tell(
                uid, Sighting(uid, name, "missing", because=f"Harvester has no VM {name} of this machine")
            )

    def sightings(self) -> Cache[Sighting]:
        return self._board

    def watch_over(self, memory: Memory) -> None:
        configuration = read_memory(memory)
        station = self._station(configuration.credential)
        before = station.find(configuration.machine_uid)
        ended = before is not None and before.ended
        machine = Watched(configuration, ended)
        if machine != before:
            station.watch_over(machine)

    async def _connect(self, credential: str) -> Connection:
        connection = await self._connections.get(credential)
        self._station(credential).wake()
        return connection

    def _station(self, credential: str) -> _Station:
        if credential not in self._stations:
            station = _Station(credential, self._connections, self._board, self._clock, self._chance)
            self._stations[credential] = station
            self._opened.set()
        return self._stations[credential]

    async def _insist_on(self, connection: Connection, configuration: Configuration) -> None:
        """Return when the machine's own VM is there; the verbs of KubeVirt know names only."""
        if self._station(configuration.credential).reading(configuration) is not None:
            return
        raw = await connection.run(find(configuration.ref, "see whose VM it is"))
        if raw is None:
            raise MachineRefused(
                [
                    Problem(
                        f"machine {configuration.machine_name} is not there: Harvester has no VM "
                        f"{configuration.vm_namespace}/{configuration.machine_name}",
                        "replace the machine instead of powering it",
                    )
                ]
            )
        try:
            prove(configuration, raw)
        except Refused as refused:
            raise MachineRefused([port_problem(problem) for problem in refused.problems]) from refused


async def _leave_to_its_driver(connection: Connection, configuration: Configuration) -> None:
    """Raises InfrastructureUnknown where a VM stands that may be this machine's, and bears no marks by its making."""
    if not bears_no_marks(configuration.vm_uid):
        return
    if await connection.run(find(configuration.ref, "see whether its VM is still there")) is not None:
        raise made_by_another(configuration)


def _accepted(spec: MachineSpec) -> Configuration:
    """Raises MachineRefused."""
    configuration, problems = _configured(spec)
    if refused := [problem for problem in problems if problem.severity == "error"]:
        raise MachineRefused(refused)
    return configuration


async def _missing_namespaces(
    connection: Connection, configurations: Sequence[Configuration]
) -> list[Problem]:
    """Namespaces are never made for users: who may make machines in which is Harvester's to say."""
    problems = []
    for name in sorted({configuration.vm_namespace for configuration in configurations}):
        try:
            answer(await connection.transport.send(get(NAMESPACE.ref(name))))
        except NotFound:
            fact = f'namespace "{name}" does not exist on Harvester {connection.access.server}'
            problems.append(Problem(fact, "create it there, or correct vmNamespace", "vmNamespace"))
        except Forbidden:
            continue  # who may work in a namespace need not be allowed to read it
        except KubeError as error:
            raise connection.unknown(error) from error
    return problems


def _configured(spec: MachineSpec) -> tuple[Configuration, list[Problem]]:
    """The spec as a configuration, and everything that is wrong with it in itself.

    The credential is named, never copied; rancher-machine's file path means nothing here.
    """
    configuration, problems = read_fields(spec.options)
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
    unread = {problem.field for problem in problems}
    problems = [*problems, *find_problems(configuration, spec.cloud_config, unread=unread)]
    return configuration, [port_problem(problem) for problem in problems]
