"""Which VMs have a volume, as Harvester has them at the moment: what a deletion is decided by.

The list of all VMs is long, and volumes are deleted many at a time; those that come while one list is read share the next.
"""

from __future__ import annotations

import asyncio

from windrow.client.client import Client
from windrow.csi.harvester.disks import read_instance, read_vm
from windrow.csi.harvester.refusals import requesting
from windrow.csi.waits import waits_for
from windrow.harvester.resources import VM, VMI
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import ApiResource


class AttachedNow:
    """Reads the VMs and instances of one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._turn = asyncio.Lock()
        # Those who ask are counted; a list that began later than one asked is good enough for that one.
        self._asked = self._began = 0
        self._nodes: dict[str, set[str]] = {}

    async def nodes_with(self, volume_id: str) -> list[str]:
        """The VMs that have it, or whose instance still has it, in order: not older than this call."""
        self._asked += 1
        mine = self._asked
        async with self._turn:
            if self._began < mine:
                began = self._asked
                self._nodes = await self._read()
                self._began = began
            return sorted(self._nodes.get(volume_id, ()))

    async def _read(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for raw in await self._list(VM):
            vm = read_vm(raw)
            for disk in vm.disks:
                found.setdefault(disk.claim, set()).add(vm.vm)
        for raw in await self._list(VMI):
            instance = read_instance(raw)
            for claim in instance.claims | {one.name for one in instance.plugged}:
                found.setdefault(claim, set()).add(instance.vm)
        return found

    async def _list(self, kind: ApiResource) -> list[Raw]:
        what = f"list {kind.kind}s in namespace {self._namespace}"
        waits_for(f"an answer of Harvester to {what}")
        with requesting(what):
            return await self._client.list(kind, self._namespace)
