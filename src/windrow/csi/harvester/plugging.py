"""How a Harvester takes changes of a VM's disks: by a patch of the VM from 1.8 on, by KubeVirt's subresources before."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from windrow.client.client import Client
from windrow.core.clock import Clock
from windrow.core.formats.json import Raw
from windrow.core.formats.version import NotVersion, Version
from windrow.csi.harvester.disks import DiskChange, VmDisks, disk_of, plan_additions, plan_patch
from windrow.harvester.resources import SETTING, VM, VM_ACTIONS, VMI_ACTIONS
from windrow.kubernetes import requests
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import name_of, nested

SERVER_VERSION = SETTING.ref("server-version")
# Harvester may be upgraded while the driver runs.
ASK_AGAIN = timedelta(minutes=10)


def takes_patches(server_version: str) -> bool:
    """Whether volumes are plugged in by a patch. A version that is no release (`master-…-head`) is the newest."""
    try:
        found = Version.parse(server_version)
    except NotVersion:
        return True
    return (found.major, found.minor) >= (1, 8)


class Plugin:
    """Sends the changes in the way of the Harvester that is there. Where its role forbids patches of VMs, as that of 1.7 does,
    the subresources are used."""

    def __init__(self, client: Client, namespace: str, clock: Clock, log: logging.Logger) -> None:
        self._client, self._namespace = client, namespace
        self._clock, self._log = clock, log
        self._patches: tuple[bool, timedelta] | None = None

    async def __call__(self, raw_vm: Raw, changes: Sequence[DiskChange]) -> Raw | None:
        """The VM after the changes; None where Harvester answers without it."""
        if not await self._takes_patches():
            await self._request(raw_vm, changes)
            return None
        ref = VM.ref(name_of(raw_vm), self._namespace)
        try:
            return await self._client.json_patch(ref, plan_patch(raw_vm, changes))
        except Forbidden as error:
            self._on_forbidden(error)
            await self._request(raw_vm, changes)
            return None

    async def add(self, vm: VmDisks, added: Sequence[DiskChange]) -> Raw | None:
        """The VM after the additions, for which it was not read; None where this Harvester takes no patches, so that nothing was
        changed. Raises KubeError: of a VM whose spec is another by now, as of a `test` that failed."""
        if not await self._takes_patches():
            return None
        try:
            return await self._client.json_patch(VM.ref(vm.vm, self._namespace), plan_additions(vm, added))
        except Forbidden as error:
            self._on_forbidden(error)
            return None

    def _on_forbidden(self, error: Forbidden) -> None:
        """Raises the error where it is no matter of rights."""
        if "exceeded quota" in error.message:
            raise error
        self._log.warning("patches of VirtualMachines are forbidden; using addvolume: %s", error)
        self._patches = False, self._clock.monotonic() + ASK_AGAIN

    async def remove_from_instance(self, vm: str, volume_id: str) -> None:
        """Unplug from an instance whose VM is gone."""
        ref = VMI_ACTIONS.ref(vm, self._namespace)
        await self._client.call(requests.put_subresource(ref, "removevolume", {"name": volume_id}))

    async def _request(self, raw_vm: Raw, changes: Sequence[DiskChange]) -> None:
        ref = VM_ACTIONS.ref(name_of(raw_vm), self._namespace)
        for one in changes:
            if one.kind == "detach":
                options: Raw = {"name": one.volume_id}
                await self._client.call(requests.put_subresource(ref, "removevolume", options))
                continue
            options = {
                "name": one.volume_id,
                "disk": disk_of(one),
                "volumeSource": {"persistentVolumeClaim": {"claimName": one.volume_id, "hotpluggable": True}},
            }
            await self._client.call(requests.put_subresource(ref, "addvolume", options))

    async def _takes_patches(self) -> bool:
        now = self._clock.monotonic()
        if self._patches is None or self._patches[1] <= now:
            raw = await self._client.get(SERVER_VERSION)
            version = str(nested(raw, "value", default="") or nested(raw, "default", default=""))
            self._patches = takes_patches(version), now + ASK_AGAIN
        return self._patches[0]
