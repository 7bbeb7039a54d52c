"""What is watched on Harvester: the claims, VMs and instances of one namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from windrow.client.informer import Informer
from windrow.client.transport import Transport
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.csi.errors import FailedPrecondition
from windrow.csi.harvester.claims import Claim, read_claim
from windrow.csi.harvester.disks import READY, InstanceDisks, VmDisks, read_instance, read_vm
from windrow.csi.harvester.shared.filesystems import NAMESPACE as SHARES
from windrow.csi.harvester.shared.filesystems import Filesystem, read_filesystem
from windrow.csi.volumes import PermissionMissing
from windrow.csi.waits import waits_for
from windrow.harvester.resources import NETWORK_FILESYSTEM, VM, VMI
from windrow.kubernetes.errors import Forbidden, NotFound
from windrow.kubernetes.objects import version_number
from windrow.kubernetes.resources import PVC, ObjectRef


class HarvesterState:
    """Three informers, and one way to wait for what they tell. Its owner runs it."""

    def __init__(self, transport: Transport, namespace: str, clock: Clock, rng: Rng) -> None:
        self._waiting: dict[asyncio.Event, None] = {}  # in the order in which they began to wait
        rest = clock, rng
        self.namespace = namespace
        self.claims: Informer[Claim] = Informer(
            transport, PVC, namespace, read_claim, *rest, on_state=self._wake
        )
        self.vms: Informer[VmDisks] = Informer(transport, VM, namespace, read_vm, *rest, on_state=self._wake)
        self.instances: Informer[InstanceDisks] = Informer(
            transport, VMI, namespace, read_instance, *rest, on_state=self._wake
        )
        # Watched from the first time on that a shared volume is asked for: many a credential may not do that.
        self.filesystems: Informer[Filesystem] = Informer(
            transport, NETWORK_FILESYSTEM, SHARES, read_filesystem, *rest, on_state=self._wake
        )
        self._has_shared = asyncio.Event()

    @property
    def _informers(self) -> tuple[Informer[Any], ...]:
        return self.claims, self.vms, self.instances

    async def run(self) -> None:
        """Keep them current until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())
                group.create_task(self._follow(informer))
            group.create_task(self._watch_filesystems())

    async def _watch_filesystems(self) -> None:
        await self._has_shared.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.filesystems.run())
            group.create_task(self._follow(self.filesystems))

    async def _follow(self, informer: Informer[Any]) -> None:
        async for _ in informer.changes():
            self._wake()

    def _wake(self) -> None:
        for event in list(self._waiting):
            event.set()

    def problem(self) -> str:
        """Why they are not current; "" when they are."""
        for informer in self._informers:
            if informer.error is not None:
                return f"cannot watch {informer.kind.plural} in namespace {self.namespace} on Harvester: {informer.error}"
            if not informer.has_synced:
                return f"{informer.kind.plural} in namespace {self.namespace} on Harvester are not read yet"
        return ""

    async def wait_for_sync(self) -> None:
        """Return once each of them was read."""
        for informer in self._informers:
            if not informer.has_synced:
                waits_for(
                    f"the first list of {informer.kind.plural} in namespace {self.namespace} on Harvester"
                )
                await informer.wait_for_sync()

    async def wait_for_filesystems(self) -> None:
        """Return once the NetworkFilesystems were read. Raises PermissionMissing and FailedPrecondition where they cannot be."""
        self._has_shared.set()

        def describe_wait() -> str:
            what = f"list {self.filesystems.kind.plural} in namespace {SHARES}"
            if self.filesystems.has_synced:
                return ""
            match self.filesystems.error:
                case Forbidden() as error:
                    raise PermissionMissing(
                        f"Harvester refuses to {what}: {error.message}",
                        f"shared volumes need all rights on networkfilesystems.harvesterhci.io in namespace {SHARES}: bind "
                        "the ClusterRole harvesterhci.io:csi-driver to the driver's ServiceAccount there, or everywhere "
                        "(windrow addon --cluster-wide)",
                    )
                case NotFound() as error:
                    raise FailedPrecondition(
                        f"Harvester cannot {what}: {error.message}",
                        "shared volumes need Harvester 1.4 or later",
                    )
            return f"the first list of networkfilesystems in namespace {SHARES} on Harvester"

        await self.wait_until(describe_wait)

    async def wait_for_filesystem(self, name: str, resource_version: str) -> None:
        """As `wait_for_vm`, of the NetworkFilesystems."""
        await self._wait_for_version(self.filesystems, NETWORK_FILESYSTEM.ref(name, SHARES), resource_version)

    async def wait_until(self, describe_wait: Callable[[], str]) -> None:
        """Return once there is nothing to wait for: `describe_wait` says what, "" when it is there. Looks at each change."""
        changed = asyncio.Event()
        self._waiting[changed] = None
        try:
            while what := describe_wait():
                waits_for(what)
                changed.clear()
                await changed.wait()
        finally:
            del self._waiting[changed]

    async def wait_for_vm(self, name: str, resource_version: str) -> None:
        """Return once the VMs here are as new as the VM that had the version on Harvester."""
        await self._wait_for_version(self.vms, VM.ref(name, self.namespace), resource_version)

    async def wait_for_instance(self, name: str, resource_version: str) -> None:
        """The same of the instances."""
        await self._wait_for_version(self.instances, VMI.ref(name, self.namespace), resource_version)

    async def wait_for_claim(self, name: str, resource_version: str) -> None:
        """The same of the claims."""
        await self.wait_for_sync()
        await self._wait_for_version(self.claims, PVC.ref(name, self.namespace), resource_version)

    async def _wait_for_version(self, informer: Informer[Any], ref: ObjectRef, version: str) -> None:
        wanted = version_number(version)

        def describe_wait() -> str:
            if version_number(informer.resource_version) >= wanted:
                return ""
            return f"the watch of {ref} on Harvester to tell of its last change"

        await self.wait_until(describe_wait)

    # --- readings ---------------------------------------------------------------------------------------------------

    def vm(self, name: str) -> VmDisks | None:
        return self.vms.get(VM.ref(name, self.namespace))

    def instance(self, name: str) -> InstanceDisks | None:
        return self.instances.get(VMI.ref(name, self.namespace))

    def claim(self, name: str) -> Claim | None:
        return self.claims.get(PVC.ref(name, self.namespace))

    def filesystem(self, name: str) -> Filesystem | None:
        return self.filesystems.get(NETWORK_FILESYSTEM.ref(name, SHARES))

    async def read_nodes_sharing(self, volume_id: str) -> tuple[str, ...]:
        """The VMs that have the shared volume, in order, also where its claim is gone. None of a disk, and where exports cannot be
        read: then the driver made none."""
        await self.wait_for_sync()
        claim = self.claim(volume_id)
        if claim is not None and claim.volume.kind != "shared":
            return ()
        try:
            await self.wait_for_filesystems()
        except FailedPrecondition:
            return ()
        name = claim.export if claim is not None else ""
        exports = [one for one in self.filesystems.values() if one.name == name or one.volume_id == volume_id]
        return tuple(sorted({node for one in exports for node in one.known_nodes}))

    def nodes_with(self, claim: str) -> list[str]:
        """The VMs that have the claim, or whose instance still has it, in order."""
        found = {vm.vm for vm in self.vms.values() if vm.find(claim)}
        found |= {one.vm for one in self.instances.values() if one.has(claim)}
        return sorted(found)

    def nodes_ready(self) -> dict[str, tuple[str, ...]]:
        """By claim, the VMs that want it and whose instance has it ready: what is published. Each VM is read once."""
        found: dict[str, list[str]] = {}
        for vm in self.vms.values():
            instance = self.instance(vm.vm)
            plugged = instance.plugged if instance is not None else ()
            ready = {one.name for one in plugged if one.phase == READY}
            for claim in ready.intersection(disk.claim for disk in vm.disks):
                found.setdefault(claim, []).append(vm.vm)
        return {claim: tuple(sorted(vms)) for claim, vms in found.items()}

    def has_ready(self, vm: str, claim: str) -> bool:
        """Whether the guest has the volume."""
        instance = self.instance(vm)
        plugged = instance.find(claim) if instance is not None else None
        return plugged is not None and plugged.phase == READY
