"""Devices and disks of single VMs, told through Harvester's API: what is refused, what waits, what boots."""

from __future__ import annotations

from tests.support.clock import run_driven

from windrow.core.formats.json import dumps, loads
from windrow.emulator import kinds
from windrow.emulator.host.nodes import HostSpec
from windrow.emulator.vms.scheduler import list_devices
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import labels_of, nested
from windrow.kubernetes.resources import NODE

from .harvester_rig import IMAGE, NAMESPACE, a_harvester, a_vm, eventually, has_address, vmi_ref

GPU = "nvidia.com/NVIDIA_A2-4Q"
CLAIMS = "harvesterhci.io/volumeClaimTemplates"


def asking_for(device):
    vm = a_vm()
    devices = vm["spec"]["template"]["spec"]["domain"]["devices"]
    devices["hostDevices"] = [{"name": "one", "deviceName": device}]
    return vm


def condition(type, message):
    def holds(vmi):
        found = find_condition(nested(vmi, "status", "conditions"), type)
        return found is not None and found.status == "False" and message in found.message

    return holds


def test_a_device_that_no_host_has_is_not_permitted_where_hosts_have_others():
    async def story():
        async with a_harvester(hosts=[HostSpec("host-1", devices={GPU: 1})]) as harvester:
            await harvester.api.local().create(kinds.VM, asking_for("nvidia.com/OTHER"))
            words = (
                "failed to render launch manifest: HostDevice nvidia.com/OTHER is not permitted in "
                "permittedHostDevices configuration"
            )
            await eventually(harvester, vmi_ref(), condition("Synchronized", words), 60)

    run_driven(story())


def test_without_any_device_on_its_hosts_a_machine_is_unschedulable():
    async def story():
        async with a_harvester() as harvester:
            await harvester.api.local().create(kinds.VM, asking_for(GPU))
            await eventually(harvester, vmi_ref(), condition("PodScheduled", f"3 Insufficient {GPU}"), 60)

    run_driven(story())


def test_hosts_get_what_none_has_and_keep_what_one_has():
    async def story():
        async with a_harvester(hosts=[HostSpec("host-1", devices={GPU: 1}), HostSpec("host-2")]) as harvester:
            for _ in range(2):
                await harvester.preload(devices=[GPU, "amd.com/gpu"], cpu_models=["EPYC-Rome", "host-model"])
            return [await harvester.api.local().get(NODE.ref(name)) for name in ("host-1", "host-2")]

    nodes = run_driven(story())

    assert [list_devices(node) for node in nodes] == [{GPU: 1, "amd.com/gpu": 8}, {"amd.com/gpu": 8}]
    models = {key for node in nodes for key in labels_of(node) if key.startswith("cpu-model.node")}
    assert "cpu-model.node.kubevirt.io/EPYC-Rome" in models
    assert "cpu-model.node.kubevirt.io/host-model" not in models


def test_a_blank_disk_that_comes_first_is_passed_over():
    """As SeaBIOS does: the first disk in boot order that has something to boot."""

    async def story():
        async with a_harvester() as harvester:
            line = harvester.api.local()
            image = await line.get(kinds.IMAGE.ref("jammy", NAMESPACE))
            vm = a_vm(image=IMAGE, storage_class=image["status"]["storageClassName"])
            annotations, spec = vm["metadata"]["annotations"], vm["spec"]["template"]["spec"]
            (root,) = loads(annotations[CLAIMS])
            blank = {
                "metadata": {"name": "m-1-blank", "annotations": {}},
                "spec": {**root["spec"], "storageClassName": "harvester-longhorn"},
            }
            annotations[CLAIMS] = dumps([root, blank]).decode()
            spec["domain"]["devices"]["disks"][1]["bootOrder"] = 2
            spec["domain"]["devices"]["disks"].append(
                {"name": "blank", "disk": {"bus": "virtio"}, "bootOrder": 1}
            )
            spec["volumes"].append({"name": "blank", "persistentVolumeClaim": {"claimName": "m-1-blank"}})
            await line.create(kinds.VM, vm)
            await eventually(harvester, vmi_ref(), has_address, 120)
            (session,) = harvester.hypervisor.running_machines()
            assert session.hardware.boots
            assert session.hardware.image == IMAGE

    run_driven(story())
