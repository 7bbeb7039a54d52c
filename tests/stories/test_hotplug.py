"""Volumes plugged into running machines and unplugged from them, as a storage driver and KubeVirt's clients see it."""

from __future__ import annotations

import pytest
from tests.support.clock import run_driven

from windrow.emulator import kinds
from windrow.emulator.guest_os.machine import machine_factory
from windrow.kubernetes.objects import Raw, name_of, nested, new_object, uid_of
from windrow.kubernetes.requests import json_patch, put_subresource
from windrow.kubernetes.resources import POD, PVC

from .cluster_rig import compare
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

SERIAL = "11111111-2222-3333-4444-555555555555"


def a_claim(name: str, size: str = "5Gi", **spec: object) -> Raw:
    usual = {"accessModes": ["ReadWriteMany"], "volumeMode": "Block"}
    return new_object(
        PVC, name, NAMESPACE, spec={**usual, "resources": {"requests": {"storage": size}}, **spec}
    )


def options(name: str, **disk: object) -> Raw:
    return {
        "name": name,
        "disk": {"disk": {"bus": "scsi"}, **disk},
        "volumeSource": {"persistentVolumeClaim": {"claimName": name}},
    }


def volume(vmi: Raw | None, name: str) -> Raw:
    found = nested(vmi, "status", "volumeStatus", default=[])
    return next((one for one in found if one["name"] == name), {})


def is_ready(name: str):
    return lambda vmi: volume(vmi, name).get("phase") == "Ready"


def is_unplugged(name: str):
    return lambda vmi: not volume(vmi, name)


async def ask(harvester, verb: str, wanted: Raw) -> int:
    """Send one of the subresources, and return the answer's status."""
    ref = kinds.VM_SUBRESOURCES.ref("m-1", NAMESPACE)
    return (await harvester.api.local().send(put_subresource(ref, verb, wanted))).status


async def add_declared(harvester, *names: str, **disk: object) -> None:
    """What the Go driver sends to Harvester 1.8: both lists of the template, appended to."""
    changes = []
    for name in names:
        source = {"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": True}}
        added = {"name": name, "disk": {"bus": "scsi"}, **disk}
        changes += [
            {"op": "add", "path": "/spec/template/spec/volumes/-", "value": source},
            {"op": "add", "path": "/spec/template/spec/domain/devices/disks/-", "value": added},
        ]
    reply = await harvester.api.local().send(json_patch(vm_ref(), changes))
    assert reply.status == 200, reply.body


@pytest.mark.parametrize("version", ["v1.7.1", "v1.8.2"])
def test_a_volume_that_is_added_to_a_vm_becomes_ready_and_leaves_again(version):
    async def story():
        async with a_harvester(version=version) as harvester:
            line = harvester.api.local()
            await boot(harvester)
            await line.create(PVC, a_claim("data"))

            assert await ask(harvester, "addvolume", options("data", serial=SERIAL)) == 202
            vmi = await eventually(harvester, vmi_ref(), is_ready("data"), 30)
            found = volume(vmi, "data")
            pod = await line.get(POD.ref(found["hotplugVolume"]["attachPodName"], NAMESPACE))
            (session,) = harvester.hypervisor.running_machines()
            disk = session.hardware.disks[-1]

            assert [one["name"] for one in vmi["spec"]["volumes"]][-1] == "data"
            assert found["target"] == "sda"
            assert found["persistentVolumeClaimInfo"]["claimName"] == "data"
            assert uid_of(pod) == found["hotplugVolume"]["attachPodUID"]
            assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "data"}
            assert pod["spec"]["nodeName"] == vmi["status"]["nodeName"]
            assert (disk.name, disk.serial, disk.size_bytes) == ("sda", SERIAL, 5 << 30)

            assert await ask(harvester, "removevolume", {"name": "data"}) == 202
            vmi = await eventually(harvester, vmi_ref(), is_unplugged("data"), 30)
            await eventually(harvester, POD.ref(name_of(pod), NAMESPACE), is_gone, 5)
            (session,) = harvester.hypervisor.running_machines()

            assert "data" not in [one["name"] for one in vmi["spec"]["volumes"]]
            assert "sda" not in [one.name for one in session.hardware.disks]
            assert await line.find(PVC.ref("data", NAMESPACE)) is not None

    run_driven(story())


def test_volumes_that_are_declared_together_are_attached_side_by_side():
    async def story():
        async with a_harvester() as harvester:
            await boot(harvester)
            names = [f"data-{place}" for place in range(10)]
            for name in names:
                await harvester.api.local().create(PVC, a_claim(name))
            await harvester.clock.sleep(5)
            before = harvester.clock.monotonic()

            await add_declared(harvester, *names)
            vmi = await eventually(
                harvester, vmi_ref(), lambda vmi: all(is_ready(name)(vmi) for name in names), 30
            )

            assert (harvester.clock.monotonic() - before).total_seconds() <= 4
            assert [volume(vmi, name)["target"] for name in names] == [
                f"sd{letter}" for letter in "abcdefghij"
            ]
            assert len({volume(vmi, name)["hotplugVolume"]["attachPodName"] for name in names}) == 1

    run_driven(story())


def test_a_disk_that_leaves_gives_its_name_to_the_next_and_others_keep_theirs():
    async def story():
        async with a_harvester() as harvester:
            await boot(harvester)
            for name in "abc":
                await harvester.api.local().create(PVC, a_claim(name))
            await add_declared(harvester, "a", "b")
            await eventually(harvester, vmi_ref(), is_ready("b"), 30)

            assert await ask(harvester, "removevolume", {"name": "a"}) == 202
            await eventually(harvester, vmi_ref(), is_unplugged("a"), 30)
            await add_declared(harvester, "c")
            vmi = await eventually(harvester, vmi_ref(), is_ready("c"), 30)

            assert {name: volume(vmi, name)["target"] for name in "bc"} == {"b": "sdb", "c": "sda"}

    run_driven(story())


def test_a_volume_waits_for_its_claim():
    async def story():
        async with a_harvester() as harvester:
            await boot(harvester)
            await add_declared(harvester, "late")
            vmi = await eventually(harvester, vmi_ref(), lambda vmi: bool(volume(vmi, "late")), 30)
            assert (volume(vmi, "late")["phase"], volume(vmi, "late")["reason"]) == (
                "Pending",
                "FailedPvcNotFound",
            )

            await harvester.api.local().create(PVC, a_claim("late"))
            await eventually(harvester, vmi_ref(), is_ready("late"), 30)

    run_driven(story())


def test_a_volume_that_is_removed_before_it_was_attached_leaves_no_trace():
    async def story():
        async with a_harvester() as harvester:
            await boot(harvester)
            await harvester.api.local().create(PVC, a_claim("data"))
            await add_declared(harvester, "data")
            await eventually(harvester, vmi_ref(), lambda vmi: bool(volume(vmi, "data")), 30)
            assert await ask(harvester, "removevolume", {"name": "data"}) == 202

            await eventually(harvester, vmi_ref(), is_unplugged("data"), 2)
            await harvester.clock.sleep(20)
            pods = await harvester.api.local().list(POD)
            assert [name_of(pod) for pod in pods if name_of(pod).startswith("hp-volume-")] == []

    run_driven(story())


def test_a_hot_plugged_volume_comes_back_after_a_restart_of_its_machine():
    async def story():
        async with a_harvester() as harvester:
            first = await boot(harvester)
            await harvester.api.local().create(PVC, a_claim("data"))
            await add_declared(harvester, "data")
            await eventually(harvester, vmi_ref(), is_ready("data"), 30)

            assert await order(harvester, "restart") == 202
            again = await eventually(
                harvester,
                vmi_ref(),
                lambda vmi: vmi is not None and uid_of(vmi) != uid_of(first) and is_ready("data")(vmi),
            )

            launcher = await harvester.api.local().list(POD)
            mounted = [
                one["persistentVolumeClaim"]["claimName"]
                for pod in launcher
                for one in pod["spec"]["volumes"]
                if name_of(pod).startswith("virt-launcher")
            ]
            assert "data" not in mounted
            assert volume(again, "data")["target"] == "sda"

    run_driven(story())


def test_a_hot_plugged_volume_moves_with_its_machine():
    async def story():
        async with a_harvester() as harvester:
            line = harvester.api.local()
            first = await boot(harvester)
            await line.create(PVC, a_claim("data"))
            await add_declared(harvester, "data")
            before = await eventually(harvester, vmi_ref(), is_ready("data"), 30)
            assert await order(harvester, "migrate") == 202

            def moved(vmi):
                return (
                    nested(vmi, "status", "nodeName") != nested(first, "status", "nodeName")
                    and volume(vmi, "data")["hotplugVolume"] != volume(before, "data")["hotplugVolume"]
                )

            vmi = await eventually(harvester, vmi_ref(), moved)
            pod = await line.get(POD.ref(volume(vmi, "data")["hotplugVolume"]["attachPodName"], NAMESPACE))
            assert pod["spec"]["nodeName"] == vmi["status"]["nodeName"]
            assert volume(vmi, "data")["phase"] == "Ready"

    run_driven(story())


def test_before_1_8_a_volume_of_an_instance_alone_is_gone_after_a_restart():
    async def story():
        async with a_harvester(version="v1.7.1") as harvester:
            line = harvester.api.local()
            await boot(harvester)
            await line.create(PVC, a_claim("data"))
            here = kinds.VMI_SUBRESOURCES.ref("m-1", NAMESPACE)
            assert (await line.send(put_subresource(here, "addvolume", options("data")))).status == 202
            await eventually(harvester, vmi_ref(), is_ready("data"), 30)

            vm = await line.get(vm_ref())
            assert "data" not in [one["name"] for one in vm["spec"]["template"]["spec"]["volumes"]]

    run_driven(story())


def test_before_1_8_a_template_that_is_changed_by_hand_plugs_nothing_in():
    async def story():
        async with a_harvester(version="v1.7.1") as harvester:
            await boot(harvester)
            await harvester.api.local().create(PVC, a_claim("data"))
            await add_declared(harvester, "data")
            await harvester.clock.sleep(20)
            assert not volume(await harvester.api.local().get(vmi_ref()), "data")

    run_driven(story())


def test_the_guest_finds_its_disk_by_serial_and_sees_it_leave():
    by_id = "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_"

    async def story():
        async with a_harvester(machine=machine_factory()) as harvester:
            await post(harvester)
            await eventually(harvester, vm_ref(), shows("Running"))
            for name in ("data", "plain"):
                await harvester.api.local().create(PVC, a_claim(name))
            await add_declared(harvester, "data", serial=SERIAL)
            await add_declared(harvester, "plain")
            await eventually(
                harvester, vmi_ref(), lambda vmi: is_ready("data")(vmi) and is_ready("plain")(vmi), 30
            )
            (session,) = harvester.hypervisor.running_machines()
            guest = session.machine.guest

            assert guest.read_text(by_id + SERIAL) == "../../sda"
            assert guest.read_text(by_id + "drive-ua-plain") == "../../sdb"
            assert int(guest.read_text("/sys/block/sda/size")) * 512 == 5 << 30

            await ask(harvester, "removevolume", {"name": "data"})
            await eventually(harvester, vmi_ref(), is_unplugged("data"), 30)
            assert not guest.exists(by_id + SERIAL)
            assert not guest.exists("/sys/block/sda/size")
            assert guest.exists(by_id + "drive-ua-plain")

    run_driven(story())


def test_the_life_of_a_hot_plugged_volume_is_told():
    async def story():
        async with a_harvester() as harvester:
            await boot(harvester)
            await harvester.api.local().create(PVC, a_claim("data"))
            await harvester.clock.sleep(5)
            lines: list[str] = []

            async def narrate(what: str, holds) -> None:
                start, last = harvester.clock.monotonic(), None
                lines.append(f"# {what}")
                while True:
                    found = volume(await harvester.api.local().get(vmi_ref()), "data")
                    shown = {key: found.get(key, "") for key in ("phase", "target", "reason", "message")}
                    if shown != last:
                        at = (harvester.clock.monotonic() - start).total_seconds()
                        pod = nested(found, "hotplugVolume", "attachPodName", default="") or "no pod"
                        text = f"{shown['phase'] or 'absent'} {shown['target'] or '-'} {shown['reason']}: {shown['message']}"
                        lines.append(f"{at:4.1f}s {text.replace(pod, 'hp-volume-…')}")
                        last = shown
                    if holds(found):
                        return
                    await harvester.clock.sleep(0.1)

            await add_declared(harvester, "data", serial=SERIAL)
            await narrate("the volume is declared", lambda one: one.get("phase") == "Ready")
            await ask(harvester, "removevolume", {"name": "data"})
            await narrate("the volume is removed", lambda one: not one)
            return lines

    compare("hotplug-volume", run_driven(story()))


def test_a_machine_has_256_disks_at_most():
    async def story():
        async with a_harvester() as harvester:
            vm = a_vm()
            spec = vm["spec"]["template"]["spec"]
            for number in range(256 - len(spec["volumes"])):
                spec["volumes"].append(
                    {"name": f"d{number}", "persistentVolumeClaim": {"claimName": f"d{number}"}}
                )
                spec["domain"]["devices"]["disks"].append({"name": f"d{number}", "disk": {"bus": "scsi"}})
            line = harvester.api.local()
            await line.create(kinds.VM, vm, NAMESPACE)
            await line.create(PVC, a_claim("data"))
            source = {"name": "data", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}
            added = [
                {"op": "add", "path": "/spec/template/spec/volumes/-", "value": source},
                {
                    "op": "add",
                    "path": "/spec/template/spec/domain/devices/disks/-",
                    "value": {"name": "data", "disk": {"bus": "scsi"}},
                },
            ]
            reply = await line.send(json_patch(vm_ref(), added))

            assert reply.status == 422
            assert b"spec.template.spec.volumes: Too many: 257: must have at most 256 items" in reply.body

    run_driven(story())
