"""Informers for VirtualMachines and VirtualMachineInstances of one namespace, and the machine status they yield.

Absence from an informer proves nothing: the VM is then read with a live GET, and counts as missing only when that
answers 404 on the Harvester that the machine's config records. While a watch is broken every machine of the namespace
is unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, TypeVar

from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.transport import Transport
from windrow.core.clock import Clock, sleep
from windrow.core.crash import handle_crash
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.core.wait import start_in
from windrow.harvester import names
from windrow.harvester.references import Host, read_host
from windrow.harvester.resources import VM, VMI
from windrow.harvester.status import read_vm_status
from windrow.harvester.vmis import Vmi, read_vmi
from windrow.harvester.vms import Vm, read_vm
from windrow.kubernetes.errors import Forbidden, KubeError
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import NODE, ApiResource, ObjectRef
from windrow.machines.harvester.connections import Connection
from windrow.machines.port import InfrastructureUnknown, MachineStatus, is_synthetic_uid
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.vm.ownership import owner_of, ownership_unknown

V = TypeVar("V")

log = with_values(logging.getLogger(__name__))

CREATOR_SELECTOR = f"{names.CREATOR}={names.CREATOR_NODE_DRIVER}"
# A VM that was just created reaches the informer by its watch; only one that does not is read with a GET.
RECHECK_GRACE = timedelta(seconds=5)
RECHECK_INTERVAL = timedelta(seconds=30)


class HostCache:
    """An informer for the Nodes of Harvester. It stops where the credential may not list them; then it has none."""

    def __init__(self, transport: Transport, clock: Clock, rng: Rng) -> None:
        self._forbidden = asyncio.Event()
        self._cache = Informer(transport, NODE, "", read_host, clock, rng, on_error=self._on_error)

    def find(self, name: str) -> Host | None:
        return self._cache.get(NODE.ref(name)) if self._cache.is_watching else None

    def changes(self) -> AsyncIterator[tuple[Host | None, Host | None]]:
        return self._cache.changes()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._cache.run())
            await self._forbidden.wait()
            watching.cancel()

    def _on_error(self, error: KubeError | None) -> None:
        if isinstance(error, Forbidden):
            self._forbidden.set()


@dataclass(frozen=True, slots=True)
class TrackedVm:
    """A machine whose status is kept current. After `removal_requested` its absence means that it is removed."""

    configuration: Configuration
    removal_requested: bool = False

    @property
    def was_created(self) -> bool:
        return bool(self.configuration.vm_uid) or self.removal_requested

    def status(self, presence: Literal["missing", "unknown"], because: str) -> MachineStatus:
        """Its status where there is no VM to read it from."""
        configuration = self.configuration
        return MachineStatus(configuration.machine_uid, configuration.machine_name, presence, because=because)


class VmWatcher:
    """Watches the VMs of our creator label, and their instances, in one namespace.

    `on_status` gets every status by machine uid, repeated ones too, and None for a machine that was never created.
    """

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        hosts: HostCache,
        on_status: Callable[[str, MachineStatus | None], None],
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._connection, self._namespace, self._hosts = connection, namespace, hosts
        self._on_status, self._clock = on_status, clock
        self._state_changed = asyncio.Event()
        self.vms = self._informer(VM, read_vm, rng)
        self.vmis = self._informer(VMI, read_vmi, rng)
        self._machines: dict[str, TrackedVm] = {}
        self._by_ref: dict[ObjectRef, str] = {}
        self._rechecks: dict[str, asyncio.Task[None]] = {}
        # Found with a GET and not in the informer: their creator label is gone.
        self._unlabelled: dict[str, Vm] = {}
        self._group: asyncio.TaskGroup | None = None

    def track(self, machine: TrackedVm) -> None:
        """Keep the status of this machine current."""
        configuration = machine.configuration
        self._machines[configuration.machine_uid] = machine
        self._by_ref[configuration.ref] = configuration.machine_uid
        self._refresh(configuration.machine_uid)

    def untrack(self, configuration: Configuration) -> None:
        """Stop tracking this machine; a recheck under way still reports."""
        uid = configuration.machine_uid
        self._machines.pop(uid, None)
        self._unlabelled.pop(uid, None)
        if self._by_ref.get(configuration.ref) == uid:
            del self._by_ref[configuration.ref]

    def find_vm(self, ref: ObjectRef) -> Vm | None:
        """The VM in the informer; None where that is not synced."""
        return self.vms.get(ref) if self.has_synced else None

    @property
    def has_synced(self) -> bool:
        return self.vms.is_watching and self.vmis.is_watching

    @property
    def unsynced_reason(self) -> str:
        """Why the status of the namespace's machines is unknown."""
        error = self.vms.error or self.vmis.error
        if error is not None:
            return str(self._connection.translate_error(error))
        if self.vms.has_synced and self.vmis.has_synced:
            return f"VirtualMachines are being listed again from Harvester {self._connection.client_config.server}"
        return f"the first list of VirtualMachines from Harvester {self._connection.client_config.server} is not done"

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self.vms.run())
            group.create_task(self.vmis.run())
            group.create_task(self._follow_changes(self.vms))
            group.create_task(self._follow_changes(self.vmis))
            group.create_task(self._follow_hosts())
            await self._follow_sync_state()

    def _informer(self, kind: ApiResource, read: Callable[[Raw], V], rng: Rng) -> Informer[V]:
        return Informer(
            self._connection.transport,
            kind,
            self._namespace,
            read,
            self._clock,
            rng,
            labels=CREATOR_SELECTOR,
            on_state=self._state_changed.set,
        )

    # --- events ---------------------------------------------------------------------------------------------------

    async def _follow_changes(self, informer: Informer[Vm] | Informer[Vmi]) -> None:
        async for before, after in informer.changes():
            if (uid := self._machine_of(after or before)) is not None:
                self._refresh(uid, just_deleted=after is None)

    def _machine_of(self, reading: Vm | Vmi | None) -> str | None:
        return self._by_ref.get(VM.ref(reading.ref.name, reading.ref.namespace)) if reading else None

    async def _follow_hosts(self) -> None:
        async for before, after in self._hosts.changes():
            changed = {host.name for host in (before, after) if host is not None}
            for vmi in list(self.vmis.values()):
                if any(vmi.host == name for name in changed) and (uid := self._machine_of(vmi)) is not None:
                    self._refresh(uid)

    async def _follow_sync_state(self) -> None:
        synced: bool | None = None
        while True:
            if self.has_synced != synced or not synced:
                synced = self.has_synced
                for uid in list(self._machines):
                    self._refresh(uid)
            await self._state_changed.wait()
            self._state_changed.clear()

    # --- status ---------------------------------------------------------------------------------------------------

    def _refresh(self, uid: str, *, just_deleted: bool = False) -> None:
        machine = self._machines[uid]
        if not self.has_synced:
            self._cancel_recheck(uid)
            self._on_status(uid, machine.status("unknown", self.unsynced_reason))
            return
        vm = self.vms.get(machine.configuration.ref)
        if vm is None or not is_owned_by(vm, machine.configuration):
            if (unlabelled := self._unlabelled.get(uid)) is not None:
                self._on_status(uid, self._present(uid, unlabelled))
            self._schedule_recheck(uid, timedelta(0) if just_deleted else RECHECK_GRACE)
            return
        self._cancel_recheck(uid)
        self._on_status(uid, self._present(uid, vm))

    def _reading(self, machine: TrackedVm) -> handle_crash:
        """What Harvester says of this VM and cannot be read proves nothing about the VM."""
        ref = machine.configuration.ref
        return handle_crash(log, "VirtualMachine cannot be read; its state is unknown", object=ref)

    def _unreadable(self, machine: TrackedVm) -> MachineStatus:
        ref = machine.configuration.ref
        return machine.status(
            "unknown", f"what Harvester says of {ref} cannot be read; see the manager's log"
        )

    def _present(self, uid: str, vm: Vm) -> MachineStatus:
        machine = self._machines[uid]
        with self._reading(machine):
            return self._read_status(uid, vm)
        return self._unreadable(machine)

    def _read_status(self, uid: str, vm: Vm) -> MachineStatus:
        vmi: Vmi | None = self.vmis.get(VMI.ref(vm.ref.name, vm.ref.namespace))
        return replace(read_vm_status(vm, vmi, self._host(vmi)), machine_uid=uid)

    def _host(self, vmi: Vmi | None) -> Host | None:
        return self._hosts.find(vmi.host) if vmi is not None and vmi.host else None

    # --- rechecks -------------------------------------------------------------------------------------------------

    def _schedule_recheck(self, uid: str, grace: timedelta) -> None:
        """The informer does not have the VM: read it with a GET, unless that is being done."""
        if uid in self._rechecks and grace:
            return
        self._cancel_recheck(uid)
        if (recheck := start_in(self._group, self._recheck(uid, grace))) is not None:
            self._rechecks[uid] = recheck

    def _cancel_recheck(self, uid: str) -> None:
        if (recheck := self._rechecks.pop(uid, None)) is not None:
            recheck.cancel()

    async def _recheck(self, uid: str, grace: timedelta) -> None:
        await sleep(self._clock, grace)
        while (machine := self._machines.get(uid)) is not None:
            status: MachineStatus | None = self._unreadable(machine)
            with self._reading(machine):
                try:
                    status = await self._get_live(machine)
                except InfrastructureUnknown as unknown:
                    status = machine.status("unknown", str(unknown))
            self._on_status(uid, status)
            if status is None or status.presence == "missing":
                break
            await sleep(self._clock, RECHECK_INTERVAL)
        self._rechecks.pop(uid, None)

    async def _get_live(self, machine: TrackedVm) -> MachineStatus | None:
        """The status by a live GET; None for a machine that was never created. Raises InfrastructureUnknown."""
        configuration = machine.configuration
        uid = configuration.machine_uid
        self._unlabelled.pop(uid, None)
        try:
            raw = await Client(self._connection.transport).find(configuration.ref)
        except KubeError as error:
            raise self._connection.translate_error(error) from error
        owner = "another" if raw is None else owner_of(configuration, raw)
        if raw is not None and owner == "this machine":
            vm = self._unlabelled[uid] = read_vm(raw)
            return self._present(uid, vm)
        if not machine.was_created:
            return None
        await self._connection.verify_identity(configuration.harvester_uid)
        if raw is not None and is_synthetic_uid(configuration.vm_uid):
            raise foreign_driver_vm(configuration)
        if owner == "unknown":
            assert raw is not None  # else its owner is "another"
            problem = ownership_unknown(configuration, raw)
            raise InfrastructureUnknown(problem.message, problem.hint)
        where = f"{configuration.vm_namespace}/{configuration.machine_name}"
        because = f"VirtualMachine {where} not found"
        if raw is not None:
            because = f"VirtualMachine {where} has another owner now"
        return machine.status("missing", because)


def foreign_driver_vm(configuration: Configuration) -> InfrastructureUnknown:
    """The error for a VM created by a plugin that writes no owner annotations: only that plugin may handle it."""
    where = f"{configuration.vm_namespace}/{configuration.machine_name}"
    return InfrastructureUnknown(
        f"VirtualMachine {where} was created by a docker-machine driver that writes no owner annotations",
        "run the manager with that driver, or with ours as a plugin, until the machine is deleted",
    )


def is_owned_by(vm: Vm, configuration: Configuration) -> bool:
    """Whether the VM has the owner annotations of this machine and cluster."""
    if not configuration.machine_uid:
        return False
    return (vm.machine_uid, vm.cluster_uid) == (configuration.machine_uid, configuration.cluster_uid)
