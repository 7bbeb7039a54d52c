"""Backups and snapshots of VMs on the emulated Harvester, and restores from them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.emulator import kinds
from windrow.emulator.guest_os.hardware import File
from windrow.emulator.harvester import Harvester
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.informer import LazyInformer
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, nested, new_object, uid_of
from windrow.kubernetes.resources import PVC

from .harvester_rig import NAMESPACE, a_harvester, boot, eventually, is_gone, order, shows, vm_ref, vmi_ref

DISK = PVC.ref("m-1-disk-0-abcde", NAMESPACE)
BACKUP = kinds.VM_BACKUP.ref("before", NAMESPACE)
RESTORE = kinds.VM_RESTORE.ref("back", NAMESPACE)


def on_harvester(story: Callable[[Harvester], Awaitable[None]]) -> None:
    async def run() -> None:
        async with a_harvester() as harvester:
            await story(harvester)

    run_driven(run())


async def take(harvester: Harvester, name: str = "before", vm: str = "m-1", type: str = "snapshot") -> None:
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm}
    raw = new_object(kinds.VM_BACKUP, name, NAMESPACE, spec={"source": source, "type": type})
    await harvester.api.local().create(kinds.VM_BACKUP, raw)


async def restore(harvester: Harvester, target: str, **given: Any) -> None:
    spec = {
        "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": target},
        "virtualMachineBackupName": "before",
        "virtualMachineBackupNamespace": NAMESPACE,
        **given,
    }
    raw = new_object(kinds.VM_RESTORE, "back", NAMESPACE, spec=spec)
    await harvester.api.local().create(kinds.VM_RESTORE, raw)


def is_ready(raw: Raw | None) -> bool:
    return nested(raw, "status", "readyToUse") is True


def is_complete(raw: Raw | None) -> bool:
    return nested(raw, "status", "complete") is True


def conditions(raw: Raw | None) -> dict[str, tuple[str, str]]:
    return {
        one["type"]: (one["status"], one["message"])
        for one in nested(raw, "status", "conditions", default=[])
    }


async def files(harvester: Harvester, claim: Any = DISK) -> dict[str, File]:
    return harvester.hypervisor.disk(uid_of(await harvester.api.local().get(claim))).files


async def a_snapshot(harvester: Harvester) -> Raw:
    """Of a machine with a file, which is changed afterwards."""
    await boot(harvester)
    (await files(harvester))["/f"] = File(b"then")
    await take(harvester)
    found = await eventually(harvester, BACKUP, is_ready, 30)
    (await files(harvester))["/f"] = File(b"now")
    assert found is not None
    return found


def test_a_snapshot_of_a_vm_keeps_its_spec_and_each_of_its_volumes():
    async def story(harvester: Harvester) -> None:
        found = await a_snapshot(harvester)
        status, line = found["status"], harvester.api.local()
        vm = await line.get(vm_ref())
        assert status["sourceUID"] == uid_of(vm)
        assert status["source"]["spec"]["template"] == vm["spec"]["template"]
        (volume,) = status["volumeBackups"]
        assert (volume["name"], volume["volumeName"]) == ("before-volume-m-1-disk-0-abcde", "disk-0")
        assert (volume["readyToUse"], volume["volumeSize"]) == (True, 40 * 2**30)
        assert status["csiDriverVolumeSnapshotClassNames"] == {"driver.longhorn.io": "longhorn-snapshot"}
        done = "Operation complete"
        assert conditions(found) == {"InProgress": ("False", done), "Ready": ("True", done)}
        taken = kinds.SNAPSHOT.ref("before-volume-m-1-disk-0-abcde", NAMESPACE)
        assert await line.find(taken) is not None
        await line.delete(BACKUP)
        await eventually(harvester, taken, is_gone, 30)

    on_harvester(story)


def test_a_new_vm_is_restored_from_a_snapshot_with_disks_of_its_own():
    async def story(harvester: Harvester) -> None:
        await a_snapshot(harvester)
        await restore(harvester, "m-2", newVM=True)
        found = await eventually(harvester, RESTORE, is_complete, 180)
        line = harvester.api.local()
        vm = await line.get(vm_ref("m-2"))
        assert shows("Running")(vm)
        assert found is not None
        (made,) = found["status"]["restores"]
        claim = made["persistentVolumeClaimSpec"]["metadata"]["name"]
        assert claim == f"restore-before-{uid_of(found)}-disk-0"
        assert (await files(harvester, PVC.ref(claim, NAMESPACE)))["/f"].content == b"then"
        assert (await files(harvester))["/f"].content == b"now"
        macs = [
            nested(one, "status", "interfaces", 0, "mac")
            for one in (await line.get(vmi_ref("m-1")), await line.get(vmi_ref("m-2")))
        ]
        assert macs[0] != macs[1]
        assert found["metadata"]["ownerReferences"][0]["name"] == "m-2"
        await line.delete(vm_ref("m-2"))
        await eventually(harvester, RESTORE, is_gone, 120)

    on_harvester(story)


def test_a_vm_that_is_stopped_takes_back_what_a_snapshot_of_it_has():
    async def story(harvester: Harvester) -> None:
        await a_snapshot(harvester)
        with pytest.raises(KubeError, match='Please stop the VM "m-1" before doing a restore'):
            await restore(harvester, "m-1", deletionPolicy="retain")
        await order(harvester, "stop")
        await eventually(harvester, vm_ref(), shows("Stopped"), 120)
        await restore(harvester, "m-1", deletionPolicy="retain")
        found = await eventually(harvester, RESTORE, is_complete, 180)
        assert found is not None
        name = found["status"]["restores"][0]["persistentVolumeClaimSpec"]["metadata"]["name"]
        assert (await files(harvester, PVC.ref(name, NAMESPACE)))["/f"].content == b"then"
        vm = await harvester.api.local().get(vm_ref())
        claims = [
            one.get("persistentVolumeClaim", {}).get("claimName")
            for one in vm["spec"]["template"]["spec"]["volumes"]
        ]
        assert name in claims
        assert (await files(harvester))["/f"].content == b"now", "the old disk is retained"

    on_harvester(story)


def test_backups_and_restores_of_vms_are_refused_in_harvesters_words():
    async def refused(why: str, work: Awaitable[None]) -> None:
        with pytest.raises(KubeError) as caught:
            await work
        assert why in caught.value.message

    async def story(harvester: Harvester) -> None:
        await refused('virtualmachines.kubevirt.io "no" not found', take(harvester, vm="no"))
        await refused("source VM name is empty", take(harvester, vm=""))
        await boot(harvester)
        await refused("backup target is not set", take(harvester, type="backup"))
        await refused("can't get vmbackup default/before", restore(harvester, "m-2", newVM=True))
        await take(harvester)
        await eventually(harvester, BACKUP, lambda raw: nested(raw, "status", "volumeBackups"), 10)
        await refused("VMBackup default/before is not ready", restore(harvester, "m-2", newVM=True))
        await eventually(harvester, BACKUP, is_ready, 30)
        await refused("VM m-1 is already exists", restore(harvester, "m-1", newVM=True))
        await refused("can't replace nonexistent vm m-2", restore(harvester, "m-2", deletionPolicy="retain"))
        await refused("delete policy with backup type snapshot", restore(harvester, "m-1"))
        await restore(harvester, "m-2", newVM=True)
        change = {"spec": {"newVM": False}}
        await refused("VirtualMachineRestore spec is immutable", harvester.api.local().patch(RESTORE, change))

    on_harvester(story)


def test_backups_are_watched_once_there_is_one_or_was_one_at_the_start():
    def watching(harvester: Harvester) -> tuple[LazyInformer, asyncio.Task[None]]:
        informer = LazyInformer(AdminClient(harvester.api.local()), kinds.VM_BACKUP, 3600)
        return informer, asyncio.create_task(informer.run())

    async def story(harvester: Harvester) -> None:
        await boot(harvester)
        before, first = watching(harvester)
        await before.has_synced.wait()
        await take(harvester, "one")
        await asyncio.sleep(60)
        assert list(before) == [], "begin was not called"
        before.begin()
        after, second = watching(harvester)
        await after.has_synced.wait()
        assert list(after) == [(NAMESPACE, "one")]
        await take(harvester, "two")
        await asyncio.sleep(60)
        both = [(NAMESPACE, "one"), (NAMESPACE, "two")]
        assert sorted(before) == sorted(after) == both
        for task in (first, second):
            task.cancel()

    on_harvester(story)


def test_an_error_of_a_backup_is_gone_when_it_is_ready():
    async def story(harvester: Harvester) -> None:
        await boot(harvester)
        line = harvester.api.local()
        setting = kinds.SETTING.ref("csi-driver-config")
        await line.patch(setting, {"value": "{}"})
        await take(harvester)
        found = await eventually(harvester, BACKUP, lambda raw: nested(raw, "status", "error"), 30)
        why = "can't find CSI driver driver.longhorn.io in setting CSIDriverInfo"
        assert nested(found, "status", "error", "message") == why
        assert conditions(found)["InProgress"] == ("False", why)
        await line.patch(setting, {"value": ""})
        found = await eventually(harvester, BACKUP, is_ready, 120)
        assert found is not None
        assert "error" not in found["status"]

    on_harvester(story)
