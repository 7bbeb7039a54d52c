"""A lookout over one namespace of one Harvester: the shared caches, and what they show of a machine.

Nothing is concluded from silence. A VM that is not in the cache is asked for with a live GET, and counts as missing
only when that answers 404 on the Harvester that the machine's memory names. While a watch is broken everything behind
it is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from windrow.client.transport import Transport
from windrow.client.watching import WatchedCache
from windrow.harvester import names
from windrow.harvester.hosts import Host, read_host
from windrow.harvester.instances import Vmi, read_vmi
from windrow.harvester.kinds import VM, VMI
from windrow.harvester.vms import Vm, read_vm
from windrow.kube import requests
from windrow.kube.errors import Forbidden, KubeError, error_for, says_gone
from windrow.kube.refs import NODE, Ref
from windrow.kube.requests import Event, Reply, Request
from windrow.machines.connections import Connection
from windrow.machines.port import InfrastructureUnknown, Sighting, bears_no_marks
from windrow.machines.sightings import sighting_of
from windrow.nodedriver.configuration import Configuration
from windrow.nodedriver.ownership import unclear, whose
from windrow.nodedriver.sights import see
from windrow.nodedriver.steps import answer
from windrow.values.chance import Chance
from windrow.values.clock import Clock, pause

OURS = f"{names.CREATOR}={names.CREATOR_NODE_DRIVER}"
# A VM that was just ordered reaches the cache by its watch; only what stays away is asked for.
GRACE = timedelta(seconds=5)
AGAIN = timedelta(seconds=30)


class Witness:
    """A transport that tells how its requests fare: `trouble` is the last failure, None after a success."""

    def __init__(self, inner: Transport, changed: Callable[[], None]) -> None:
        self._inner, self._changed = inner, changed
        self.trouble: KubeError | None = None

    async def send(self, request: Request) -> Reply:
        try:
            reply = await self._inner.send(request)
        except KubeError as error:
            self._note(error)
            raise
        self._note(error_for(reply))
        return reply

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[AsyncIterator[Event]]:
        try:
            async with self._inner.stream(request) as events:
                self._note(None)
                yield events
        except KubeError as error:
            self._note(error)
            raise

    def _note(self, trouble: KubeError | None) -> None:
        self.trouble = trouble
        self._changed()


class Hosts:
    """The hosts, where the credential may see them; where it may not, none are known and nobody asks again."""

    def __init__(self, transport: Transport, clock: Clock, chance: Chance) -> None:
        self._refused = asyncio.Event()
        self._witness = Witness(transport, self._listen)
        self._cache = WatchedCache(self._witness, NODE, "", read_host, clock, chance)

    def find(self, name: str) -> Host | None:
        return self._cache.get(NODE.ref(name)) if self._cache.is_synced else None

    def changes(self) -> AsyncIterator[tuple[Host | None, Host | None]]:
        return self._cache.changes()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._cache.run())
            await self._refused.wait()
            watching.cancel()

    def _listen(self) -> None:
        if isinstance(self._witness.trouble, Forbidden):
            self._refused.set()


@dataclass(frozen=True, slots=True)
class Watched:
    """A machine to be looked after. `ended` says that its removal was ordered, so that its absence is its end."""

    configuration: Configuration
    ended: bool = False

    @property
    def was_made(self) -> bool:
        return bool(self.configuration.vm_uid) or self.ended


class Lookout:
    """Watches VMs and instances of our creator in one namespace.

    `tell` hears every sighting by machine uid, repeated ones too, and None for a machine that never came to be.
    """

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        hosts: Hosts,
        tell: Callable[[str, Sighting | None], None],
        clock: Clock,
        chance: Chance,
    ) -> None:
        self._connection, self._namespace, self._hosts = connection, namespace, hosts
        self._tell, self._clock = tell, clock
        self._news = asyncio.Event()
        self._witness = Witness(connection.transport, self._news.set)
        self.vms = self._cache(VM, read_vm, chance)
        self.vmis = self._cache(VMI, read_vmi, chance)
        self._machines: dict[str, Watched] = {}
        self._by_ref: dict[Ref, str] = {}
        self._doubts: dict[str, asyncio.Task[None]] = {}
        self._alone: dict[str, Vm] = {}  # found by asking, not in the cache: someone took its label away
        self._group: asyncio.TaskGroup | None = None

    def watch_over(self, machine: Watched) -> None:
        """Look after this machine from now on."""
        configuration = machine.configuration
        self._machines[configuration.machine_uid] = machine
        self._by_ref[configuration.ref] = configuration.machine_uid
        self._look(configuration.machine_uid)

    def forget(self, configuration: Configuration) -> None:
        """Look after this machine no more; what is being asked about it is still told."""
        uid = configuration.machine_uid
        self._machines.pop(uid, None)
        self._alone.pop(uid, None)
        if self._by_ref.get(configuration.ref) == uid:
            del self._by_ref[configuration.ref]

    def reading(self, ref: Ref) -> Vm | None:
        """The VM as the cache shows it; None where that is not certain."""
        return self.vms.get(ref) if self.is_certain else None

    @property
    def is_certain(self) -> bool:
        return self.vms.is_synced and self.vmis.is_synced

    @property
    def why_not(self) -> str:
        """The sentence about an uncertain view."""
        trouble = self._witness.trouble or self.vms.problem or self.vmis.problem
        if trouble is not None:
            return str(self._connection.unknown(trouble))
        return f"Harvester {self._connection.access.server} is being read for the first time"

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self.vms.run())
            group.create_task(self.vmis.run())
            group.create_task(self._follow(self.vms))
            group.create_task(self._follow(self.vmis))
            group.create_task(self._follow_hosts())
            await self._follow_certainty()

    def _cache(self, kind: Any, read: Callable[[Any], Any], chance: Chance) -> WatchedCache[Any]:
        return WatchedCache(self._witness, kind, self._namespace, read, self._clock, chance, labels=OURS)

    # --- when to look ---------------------------------------------------------------------------------------------

    async def _follow(self, cache: WatchedCache[Any]) -> None:
        async for before, after in cache.changes():
            ref: Ref = (after or before).ref  # type: ignore[union-attr]
            uid = self._by_ref.get(VM.ref(ref.name, ref.namespace))
            if uid is not None:
                self._look(uid, was_there=after is None)

    async def _follow_hosts(self) -> None:
        async for before, after in self._hosts.changes():
            changed = {host.name for host in (before, after) if host is not None}
            for vmi in list(self.vmis.values()):
                uid = self._by_ref.get(VM.ref(vmi.ref.name, vmi.ref.namespace))
                if vmi.host in changed and uid is not None:
                    self._look(uid)

    async def _follow_certainty(self) -> None:
        certain: bool | None = None
        while True:
            if self.is_certain != certain or not certain:
                certain = self.is_certain
                for uid in list(self._machines):
                    self._look(uid)
            await self._news.wait()
            self._news.clear()

    # --- what is seen ---------------------------------------------------------------------------------------------

    def _look(self, uid: str, *, was_there: bool = False) -> None:
        machine = self._machines[uid]
        if not self.is_certain:
            self._settle(uid)
            self._tell(uid, self._unknown(machine, self.why_not))
            return
        vm = self.vms.get(machine.configuration.ref)
        if vm is None or not is_mine(vm, machine.configuration):
            if (alone := self._alone.get(uid)) is not None:
                self._tell(uid, self._present(uid, alone))
            self._doubt(uid, timedelta(0) if was_there else GRACE)
            return
        self._settle(uid)
        self._tell(uid, self._present(uid, vm))

    def _present(self, uid: str, vm: Vm) -> Sighting:
        vmi: Vmi | None = self.vmis.get(VMI.ref(vm.ref.name, vm.ref.namespace))
        return sighting_of(uid, vm.ref.name, see(vm, vmi, self._host(vmi)))

    def _host(self, vmi: Vmi | None) -> Host | None:
        return self._hosts.find(vmi.host) if vmi is not None and vmi.host else None

    def _unknown(self, machine: Watched, because: str) -> Sighting:
        configuration = machine.configuration
        return Sighting(configuration.machine_uid, configuration.machine_name, "unknown", because=because)

    # --- doubts ---------------------------------------------------------------------------------------------------

    def _doubt(self, uid: str, grace: timedelta) -> None:
        """The cache does not show the machine: ask, unless that is being done."""
        if uid in self._doubts and grace:
            return
        self._settle(uid)
        if self._group is not None:
            self._doubts[uid] = self._group.create_task(self._clear_doubt(uid, grace))

    def _settle(self, uid: str) -> None:
        if (doubt := self._doubts.pop(uid, None)) is not None:
            doubt.cancel()

    async def _clear_doubt(self, uid: str, grace: timedelta) -> None:
        await pause(self._clock, grace)
        while (machine := self._machines.get(uid)) is not None:
            try:
                verdict = await self._ask(machine)
            except InfrastructureUnknown as unknown:
                verdict = self._unknown(machine, str(unknown))
            self._tell(uid, verdict)
            if verdict is None or verdict.presence == "missing":
                break
            await pause(self._clock, AGAIN)
        self._doubts.pop(uid, None)

    async def _ask(self, machine: Watched) -> Sighting | None:
        """The live answer; None for a machine that never came to be. Raises InfrastructureUnknown."""
        configuration = machine.configuration
        uid = configuration.machine_uid
        self._alone.pop(uid, None)
        try:
            raw = answer(await self._connection.transport.send(requests.get(configuration.ref)))
        except KubeError as error:
            if not says_gone(error, configuration.machine_name):
                raise self._connection.unknown(error) from error
            raw = None
        owner = "another's" if raw is None else whose(configuration, raw)
        if owner == "mine":
            vm = self._alone[uid] = read_vm(raw)
            return self._present(uid, vm)
        if not machine.was_made:
            return None
        await self._connection.confirm(configuration.harvester_uid)
        if raw is not None and bears_no_marks(configuration.vm_uid):
            raise made_by_another(configuration)
        if owner == "unclear":
            problem = unclear(configuration, raw)
            raise InfrastructureUnknown(problem.fact, problem.cure)
        where = f"{configuration.vm_namespace}/{configuration.machine_name}"
        because = f"Harvester has no VM {where}"
        if raw is not None:
            because = f"VM {where} belongs to somebody else now"
        return Sighting(uid, configuration.machine_name, "missing", because=because)


def made_by_another(configuration: Configuration) -> InfrastructureUnknown:
    """A plugin that knows no marks made the machine: nobody but such a plugin can tell whose the VM is."""
    where = f"{configuration.vm_namespace}/{configuration.machine_name}"
    return InfrastructureUnknown(
        f"VM {where} was made by a docker-machine driver that puts no marks on it",
        "let the manager use that driver, or ours as a plugin, for the rest of the machine's life",
    )


def is_mine(vm: Vm, configuration: Configuration) -> bool:
    """Whether the VM bears the machine's marks; without a uid there are none to bear."""
    if not configuration.machine_uid:
        return False
    return (vm.machine_uid, vm.cluster_uid) == (configuration.machine_uid, configuration.cluster_uid)
