"""What the storage of the emulated Harvester makes for a claim: its volume, where that is attached, how it grows and goes."""

from __future__ import annotations

import pytest
from tests.support.clock import run_driven

from windrow.emulator import kinds
from windrow.kubernetes.errors import Forbidden, error_for
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested, new_object, uid_of
from windrow.kubernetes.requests import merge_patch
from windrow.kubernetes.resources import PVC, STORAGE_CLASS, VOLUME_ATTACHMENT

from .harvester_rig import (
    NAMESPACE,
    a_harvester,
    a_vm,
    boot,
    eventually,
    is_gone,
    order,
    post,
    shows,
    vm_ref,
    vmi_ref,
)
from .test_hotplug import a_claim, add_declared, ask, is_ready, is_unplugged

DATA = PVC.ref("data", NAMESPACE)


def is_bound(claim: Raw | None) -> bool:
    return nested(claim, "status", "phase") == "Bound"


def volume_of(claim: Raw | None):
    return kinds.PV.ref(nested(claim, "spec", "volumeName"))


def longhorn_of(claim: Raw | None):
    return kinds.LONGHORN_VOLUME.ref(nested(claim, "spec", "volumeName"), "longhorn-system")


async def a_class(harvester, name: str, **fields) -> None:
    usual = {
        "provisioner": "driver.longhorn.io",
        "allowVolumeExpansion": True,
        "volumeBindingMode": "Immediate",
    }
    raw = new_object(STORAGE_CLASS, name, **{"reclaimPolicy": "Delete", **usual, **fields})
    await harvester.api.local().create(STORAGE_CLASS, raw)
    await harvester.clock.sleep(1)


async def resize(harvester, size: str):
    change = {"spec": {"resources": {"requests": {"storage": size}}}}
    reply = await harvester.api.local().send(merge_patch(DATA, change))
    if error := error_for(reply):
        raise error


async def attached(harvester, claim: Raw) -> list[str]:
    found = await harvester.api.local().list(VOLUME_ATTACHMENT)
    name = nested(claim, "spec", "volumeName")
    return [one["spec"]["nodeName"] for one in found if one["spec"]["source"]["persistentVolumeName"] == name]


def test_a_bound_claim_names_its_provisioner_and_its_volume():
    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            await client.create(PVC, a_claim("data"))
            claim = await eventually(harvester, DATA, is_bound, 10)
            volume = await client.get(volume_of(claim))
            longhorn = await client.get(longhorn_of(claim))

            notes = annotations_of(claim)
            assert notes["volume.kubernetes.io/storage-provisioner"] == "driver.longhorn.io"
            assert notes["volume.beta.kubernetes.io/storage-provisioner"] == "driver.longhorn.io"
            assert notes["pv.kubernetes.io/bind-completed"] == "yes"
            assert notes["pv.kubernetes.io/bound-by-controller"] == "yes"
            assert claim["spec"]["volumeName"] == f"pvc-{uid_of(claim)}"
            assert volume["spec"]["csi"]["driver"] == "driver.longhorn.io"
            assert volume["spec"]["csi"]["volumeHandle"] == claim["spec"]["volumeName"]
            assert volume["spec"]["claimRef"]["uid"] == uid_of(claim)
            assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
            assert volume["status"]["phase"] == "Bound"
            assert longhorn["spec"]["size"] == str(5 << 30)
            assert longhorn["status"]["state"] == "detached"

    run_driven(story())


def test_a_claim_that_goes_takes_its_volume_with_it_or_leaves_it_released():
    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            await a_class(harvester, "kept", reclaimPolicy="Retain")
            for name, wanted in (("gone", "harvester-longhorn"), ("kept", "kept")):
                await client.create(PVC, a_claim(name, storageClassName=wanted))
            claims = [
                await eventually(harvester, PVC.ref(name, NAMESPACE), is_bound, 10)
                for name in ("gone", "kept")
            ]
            for claim in claims:
                await client.delete(PVC.ref(name_of(claim), NAMESPACE))

            await eventually(harvester, volume_of(claims[0]), is_gone, 10)
            assert await client.find(longhorn_of(claims[0])) is None
            released = await eventually(
                harvester, volume_of(claims[1]), lambda raw: nested(raw, "status", "phase") == "Released", 10
            )
            assert released["spec"]["claimRef"]["name"] == "kept"
            assert await client.find(longhorn_of(claims[1])) is not None

    run_driven(story())


def test_a_volume_is_attached_to_the_host_of_the_machine_that_has_it():
    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            vmi = await boot(harvester)
            await client.create(PVC, a_claim("data"))
            claim = await eventually(harvester, DATA, is_bound, 10)
            assert await attached(harvester, claim) == []
            host = vmi["status"]["nodeName"]
            root = await client.get(PVC.ref("m-1-disk-0-abcde", NAMESPACE))
            assert await attached(harvester, root) == [host]

            await add_declared(harvester, "data")
            await eventually(harvester, vmi_ref(), is_ready("data"), 30)
            (one,) = [
                raw
                for raw in await client.list(VOLUME_ATTACHMENT)
                if raw["spec"]["source"]["persistentVolumeName"] == claim["spec"]["volumeName"]
            ]
            assert name_of(one).startswith("csi-")
            assert one["spec"]["attacher"] == "driver.longhorn.io"
            assert (one["spec"]["nodeName"], one["status"]["attached"]) == (host, True)
            assert (await client.get(longhorn_of(claim)))["status"]["currentNodeID"] == host

            assert await ask(harvester, "removevolume", {"name": "data"}) == 202
            await eventually(harvester, vmi_ref(), is_unplugged("data"), 30)
            await harvester.clock.sleep(1)
            assert await attached(harvester, claim) == []
            assert (await client.get(longhorn_of(claim)))["status"]["state"] == "detached"

    run_driven(story())


def test_a_machine_that_stops_lets_go_of_its_volumes():
    async def story():
        async with a_harvester() as harvester:
            await boot(harvester)
            claim = await harvester.api.local().get(PVC.ref("m-1-disk-0-abcde", NAMESPACE))
            assert await order(harvester, "stop") == 202
            await eventually(harvester, vmi_ref(), is_gone)
            await harvester.clock.sleep(1)
            assert await attached(harvester, claim) == []

    run_driven(story())


def test_a_claim_grows_after_its_delay_and_its_guest_sees_it():
    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            await boot(harvester)
            await client.create(PVC, a_claim("data"))
            await eventually(harvester, DATA, is_bound, 10)
            await add_declared(harvester, "data")
            await eventually(harvester, vmi_ref(), is_ready("data"), 30)

            await resize(harvester, "8Gi")
            await harvester.clock.sleep(1)
            growing = await client.get(DATA)
            assert growing["status"]["capacity"] == {"storage": "5Gi"}
            assert [one["type"] for one in growing["status"]["conditions"]] == ["Resizing"]
            grown = await eventually(
                harvester, DATA, lambda raw: nested(raw, "status", "capacity", "storage") == "8Gi", 10
            )
            await harvester.clock.sleep(1)

            assert "conditions" not in grown["status"]
            assert (await client.get(volume_of(grown)))["spec"]["capacity"] == {"storage": "8Gi"}
            assert (await client.get(longhorn_of(grown)))["spec"]["size"] == str(8 << 30)
            (session,) = harvester.hypervisor.running_machines()
            assert session.hardware.disks[-1].size_bytes == 8 << 30

    run_driven(story())


def test_a_claim_grows_where_its_class_allows_it():
    async def story():
        async with a_harvester() as harvester:
            await a_class(harvester, "stiff", allowVolumeExpansion=False)
            await harvester.api.local().create(PVC, a_claim("data", storageClassName="stiff"))
            await eventually(harvester, DATA, is_bound, 10)
            with pytest.raises(Forbidden) as refused:
                await resize(harvester, "8Gi")
            return refused.value.message

    assert run_driven(story()) == (
        'persistentvolumeclaims "data" is forbidden: only dynamically provisioned pvc can be resized and the '
        "storageclass that provisions the pvc must support resize"
    )


def test_a_local_volume_is_made_on_the_host_of_its_first_machine():
    async def story():
        async with a_harvester() as harvester:
            lvm = "lvm.driver.harvesterhci.io"
            await a_class(harvester, "local", provisioner=lvm, volumeBindingMode="WaitForFirstConsumer")
            client = harvester.api.local()
            await client.create(PVC, a_claim("data", storageClassName="local"))
            await harvester.clock.sleep(30)
            assert nested(await client.get(DATA), "status", "phase") == "Pending"

            vm = a_vm(storage_class="local")
            await client.create(kinds.VM, vm)
            vmi = await eventually(
                harvester, vmi_ref(), lambda raw: nested(raw, "status", "phase") == "Running", 120
            )
            root = await client.get(PVC.ref("m-1-disk-0-abcde", NAMESPACE))
            volume = await client.get(volume_of(root))
            term = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]
            assert term["values"] == [vmi["status"]["nodeName"]]
            assert await client.find(longhorn_of(root)) is None

            await add_declared(harvester, "data")
            await eventually(harvester, vmi_ref(), is_ready("data"), 30)

    run_driven(story())


def test_a_claim_that_names_a_volume_waits_for_it_and_takes_no_other():
    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            await client.create(PVC, a_claim("data", volumeName="old"))
            await harvester.clock.sleep(10)
            assert nested(await client.get(DATA), "status", "phase") == "Pending"
            spec = {
                "capacity": {"storage": "5Gi"},
                "accessModes": ["ReadWriteMany"],
                "csi": {"driver": "driver.longhorn.io", "volumeHandle": "old"},
            }
            await client.create(kinds.PV, new_object(kinds.PV, "old", spec=spec))
            claim = await eventually(harvester, DATA, is_bound, 10)
            assert (await client.get(volume_of(claim)))["spec"]["claimRef"]["name"] == "data"

    run_driven(story())


def test_an_image_that_an_older_harvester_imported_keeps_its_class():
    async def story():
        async with a_harvester(version="v1.8.2") as harvester:
            notes = {"emulator.windrow.io/imported-by": "v1.7.1", "emulator.windrow.io/import": "done"}
            spec = {"displayName": "old", "sourceType": "download", "url": "https://images.example/old.qcow2"}
            raw = new_object(kinds.IMAGE, "old", NAMESPACE, annotations=notes, spec=spec)
            await harvester.api.local().create(kinds.IMAGE, raw)
            image = await eventually(
                harvester,
                kinds.IMAGE.ref("old", NAMESPACE),
                lambda raw: nested(raw, "status", "progress") == 100,
                30,
            )

            assert image["status"]["storageClassName"] == "longhorn-old"
            assert await harvester.api.local().find(STORAGE_CLASS.ref("longhorn-old")) is not None

    run_driven(story())


def test_a_volume_with_its_machine_is_attached_twice_while_it_migrates():
    async def story():
        async with a_harvester() as harvester:
            await post(harvester)
            await eventually(harvester, vm_ref(), shows("Running"))
            claim = await harvester.api.local().get(PVC.ref("m-1-disk-0-abcde", NAMESPACE))
            (source,) = await attached(harvester, claim)
            assert await order(harvester, "migrate") == 202
            await eventually(
                harvester, vmi_ref(), lambda vmi: nested(vmi, "status", "migrationState", "targetNode")
            )
            await harvester.clock.sleep(1)
            both = await attached(harvester, claim)
            await eventually(
                harvester, vmi_ref(), lambda vmi: nested(vmi, "status", "migrationState", "completed")
            )
            await harvester.clock.sleep(1)
            (target,) = await attached(harvester, claim)

            assert sorted(both) == sorted([source, target])

    run_driven(story())
