from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.nodedriver.go_keys import GO_KEYS

from windrow.nodedriver.config import (
    Configuration,
    InvalidDriverConfig,
    dump_driver_config,
    find_unknown_keys,
    read_fields,
)
from windrow.nodedriver.config_json import load_driver_config
from windrow.nodedriver.devices import DeviceSpec, DiskSpec, NicSpec

# A HarvesterConfig as Rancher 2.14 stores it.
RANCHER: dict[str, Any] = {
    "cloudConfig": "",
    "clusterName": "",
    "cpuCount": "2",
    "cpuPinning": False,
    "diskInfo": '{"disks":[{"imageName":"default/image-pmtjz","bootOrder":1,"size":40}]}',
    "diskSize": "0",
    "enableEfi": False,
    "memorySize": "4",
    "networkInfo": '{"interfaces":[{"networkName":"default/vm-untag","macAddress":""}]}',
    "reservedMemorySize": "-1",
    "sshPort": "22",
    "sshUser": "rancher",
    "userData": "I2Nsb3VkLWNvbmZpZwo=",
    "vgpuInfo": "",
    "vmAffinity": "",
    "vmNamespace": "default",
}


def test_a_config_of_rancher_is_read_without_complaint() -> None:
    configuration, problems = read_fields(RANCHER)
    assert problems == []
    assert configuration.disks == (DiskSpec(image="default/image-pmtjz", size_gib=40, boot_order=1),)
    assert configuration.nics == (NicSpec(network="default/vm-untag"),)
    assert configuration.memory_size == "4Gi"
    assert configuration.disk_size == "0"
    assert configuration.reserved_memory_size == ""
    assert configuration.user_data == "#cloud-config\n"


def test_structured_values_mean_the_same() -> None:
    structured = {
        **RANCHER,
        "cpuCount": 2,
        "memorySize": "4Gi",
        "diskInfo": {"disks": [{"imageName": "default/image-pmtjz", "bootOrder": 1, "size": "40Gi"}]},
        "networkInfo": [{"networkName": "default/vm-untag"}],
        "userData": "#cloud-config\n",
    }
    assert read_fields(structured) == read_fields(RANCHER)


def test_keys_of_structures_match_in_any_case_as_in_go() -> None:
    configuration, problems = read_fields({"diskInfo": '{"Disks":[{"IMAGENAME":"i","Size":1,"other":2}]}'})
    assert problems == []
    assert configuration.disk_info == (DiskSpec(image="i", size_gib=1),)


@pytest.mark.parametrize(
    ("field", "text", "place"),
    [
        ("diskInfo", '{"disks":[{"size":"big"}]}', "diskInfo.disks[0].size"),
        ("diskInfo", '{"disks":[{"size":1.5}]}', "diskInfo.disks[0].size"),
        ("diskInfo", '{"disks":[{"imageName":7}]}', "diskInfo.disks[0].imageName"),
        ("diskInfo", '{"disks":[{"hotPlugAble":"true"}]}', "diskInfo.disks[0].hotPlugAble"),
        ("diskInfo", '{"disks":{"a":1}}', "diskInfo.disks"),
        ("diskInfo", '{"disks":["a"]}', "diskInfo.disks[0]"),
        ("networkInfo", '{"interfaces":[{"macAddress":1}]}', "networkInfo.interfaces[0].macAddress"),
        ("vgpuInfo", '{"vGPURequests":[1]}', "vgpuInfo.vGPURequests[0]"),
    ],
)
def test_a_wrong_value_inside_a_structure_is_told_with_its_place(field: str, text: str, place: str) -> None:
    _, problems = read_fields({field: text})
    assert [(problem.field, place in problem.message) for problem in problems] == [(field, True)]


def test_the_older_single_disk_and_card_count_as_lists_of_one() -> None:
    configuration, _ = read_fields(
        {"imageName": "i", "diskSize": "10", "diskBus": "scsi", "networkName": "n"}
    )
    assert configuration.disks == (DiskSpec(image="i", size_gib=10, boot_order=1, bus="scsi"),)
    assert configuration.disk_names == ("disk-1",)
    assert configuration.nics == (NicSpec(network="n"),)


def test_the_keys_are_written_in_gos_order_with_ours_behind() -> None:
    keys = list(dump_driver_config(Configuration()))
    assert keys[: len(GO_KEYS)] == GO_KEYS
    assert all(key.startswith("Windrow") for key in keys[len(GO_KEYS) :])


def test_a_fresh_machine_is_written_as_go_does() -> None:
    memory = dump_driver_config(Configuration())
    assert memory["DiskInfo"] is None
    assert memory["DiskSize"] == "0"
    assert memory["AddUserToDockerGroup"] is False


def test_a_memory_survives_json() -> None:
    configuration = replace(
        Configuration(machine_name="m", machine_uid="u"),
        disk_info=(DiskSpec("i", "", 40, 1, "virtio", "disk", True),),
        network_info=(NicSpec("n", "02:00:00:00:00:01", "virtio", "bridge"),),
        vgpu_info=(DeviceSpec("a", "b"),),
        claims=("c-1",),
    )
    assert load_driver_config(json.loads(json.dumps(dump_driver_config(configuration)))) == configuration


def test_memories_of_every_version_are_read() -> None:
    old = {"MachineName": "m", "diskSize": 40, "DiskInfo": None, "CPU": 4, "Unknown": 1, "SSHUser": None}
    configuration = load_driver_config(old)
    assert (configuration.machine_name, configuration.disk_size, configuration.cpu) == ("m", "40", 4)
    assert configuration.ssh_user == "root"


def test_a_memory_is_read_over_what_was_known() -> None:
    before = Configuration(machine_name="m", cpu=8)
    assert load_driver_config({"CPU": 4}, base=before) == Configuration(machine_name="m", cpu=4)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("CPU", "4", "cannot unmarshal string into Go struct field targetDriver.CPU of type int"),
        (
            "SSHUser",
            1,
            "cannot unmarshal number into Go struct field targetDriver.SSHUser of type string",
        ),
        (
            "EnableEFI",
            "x",
            "cannot unmarshal string into Go struct field targetDriver.EnableEFI of type bool",
        ),
        ("CPU", True, "cannot unmarshal bool into Go struct field targetDriver.CPU of type int"),
    ],
)
def test_a_wrong_type_is_told_in_gos_words(key: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidDriverConfig, match=words):
        load_driver_config({key: value})


def test_secrets_do_not_show_when_a_configuration_is_printed() -> None:
    shown = repr(Configuration(ssh_password="hush", user_data="hush", kubeconfig_content="hush"))
    assert "hush" not in shown


def test_names_without_a_namespace_are_in_the_vms_own() -> None:
    configuration = Configuration(vm_namespace="ns1")
    assert configuration.qualified("image") == ("ns1", "image")
    assert configuration.qualified("other/image") == ("other", "image")


@pytest.mark.parametrize(
    ("fields", "words", "hint"),
    [
        ({"diskInfo": '{"disks":[{"imageName":"i","size":1,"bootorderr":1}]}'}, "diskInfo.disks[0] has key 'bootorderr'", "did you mean bootOrder?"),
        ({"diskInfo": {"disks": [], "storage": "x"}}, "diskInfo has key 'storage'", "the keys are disks"),
        ({"networkInfo": {"interfaces": [{"networkName": "n"}, {"mac": "x"}]}}, "networkInfo.interfaces[1] has key 'mac'", "remove it"),
        ({"networkInfo": [{"networkName": "n", "networkType": "L2VlanNetwork"}]}, "interfaces[0] has key 'networkType'", "remove it; the keys are macAddress"),
        ({"networkInfo": [{"vlan": 5}]}, "networkInfo.interfaces[0] has key 'vlan'", "remove it"),
        ({"vgpuInfo": {"vGPURequests": [{"name": "a", "deviceName": "b", "c": 1}]}}, "vgpuInfo.vGPURequests[0] has key 'c'", "remove it"),
    ],
)  # fmt: skip
def test_a_key_within_a_structure_that_nothing_reads_is_warned_of(fields: Any, words: str, hint: str) -> None:
    (told,) = find_unknown_keys(fields)

    assert words in told.message
    assert hint in told.hint
    assert told.severity == "warning"


def test_keys_in_any_case_are_known_and_the_number_of_warnings_is_bounded() -> None:
    assert find_unknown_keys({"diskInfo": {"DISKS": [{"IMAGENAME": "i", "HotplugAble": True}]}}) == []
    assert (
        find_unknown_keys({"diskInfo": {"disks": 5}, "networkInfo": "{", "vgpuInfo": {"vGPURequests": [5]}})
        == []
    )
    many = {"disks": [{f"k{number}": 1 for number in range(1000)}]}
    assert len(find_unknown_keys({"diskInfo": many})) == 20
