"""SetConfigFromFlags: the Go driver's order and texts, its zero values, and the faults it lets through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.nodedriver.harvester_rig import FLAGS, NAME, a_machine

from windrow.nodedriver.config import UNSET, Configuration
from windrow.nodedriver.devices import DiskSpec
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.flags import read_flags
from windrow.nodedriver.go_errors import error_text
from windrow.nodedriver.options import OPTIONS
from windrow.nodedriver.ssh.access import with_ssh_defaults

NEW = replace(UNSET, machine_name=NAME, store_path="/store")


def read(**flags: Any) -> Configuration:
    given = {f"harvester-{key.replace('_', '-')}": value for key, value in flags.items()}
    return read_flags(FLAGS | given, NEW)


def said(**flags: Any) -> str:
    with pytest.raises(Refused) as refused:
        read(**flags)
    return error_text(refused.value, "SetConfigFromFlags")


def test_values_arrive_where_the_go_driver_keeps_them() -> None:
    found = read(
        cpu_count=3,
        memory_size=8,
        disk_size=20,
        reserved_memory_size=256,
        cpu_model="host-model",
        enable_efi=True,
        kubeconfig_content="YXBpVmVyc2lvbjogdjEK",
        cluster_type="imported",
    )
    assert (found.cpu, found.memory_size, found.disk_size, found.reserved_memory_size) == (
        3,
        "8Gi",
        "20",
        "256Mi",
    )
    assert (found.enable_efi, found.cpu_model, found.cluster_type) == (True, "host-model", "imported")
    assert found.kubeconfig_content == "apiVersion: v1\n"
    assert (found.machine_name, found.store_path) == (NAME, "/store")
    assert found.disk_info is not None
    assert found.disk_info[0].size_gib == 40


def test_swarm_fields_are_kept_for_docker_machine() -> None:
    swarm = {"swarm-master": True, "swarm-host": "tcp://0.0.0.0:3376", "swarm-discovery": "token://x"}
    found = read_flags({**FLAGS, **swarm, "engine-env": ["A=b"], "tls-san": None}, NEW)
    assert (found.swarm_master, found.swarm_host, found.swarm_discovery) == tuple(swarm.values())


def test_a_flag_that_is_missing_has_its_zero_value_and_not_its_default() -> None:
    with pytest.raises(Refused) as refused:
        read_flags({}, NEW)
    text = error_text(refused.value, "SetConfigFromFlags")
    assert text.startswith("must specify harvester image name; must specify harvester network name; ")
    assert "invalid number of CPU cores: 0" in text
    assert read(ssh_user=None, ssh_port=None).ssh_port == 0


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"key_pair_name": "k"}, "must specify the ssh private key path of the harvester key pair"),
        (
            {"disk_info": '{"disks":[{"size":4}]}'},
            "must specify image name or storageClass name in harvester disk info",
        ),
        ({"disk_info": '{"disks":[{"imageName":"a"}]}'}, "must specify disk size in harvester disk info"),
        (
            {"disk_info": '{"disks":[{"imageName":"a","size":-1}]}'},
            "must specify disk size in harvester disk info",
        ),
        ({"disk_info": ""}, "must specify harvester image name"),
        ({"disk_info": "", "image_name": "a"}, "must specify harvester disk size"),
        ({"network_info": '{"interfaces":[{}]}'}, "must specify network name in harvester network info"),
        ({"network_info": ""}, "must specify harvester network name"),
        ({"enable_secure_boot": True}, "enable secure boot requires enable EFI"),
        ({"network_data": "version: 1\n"}, "missing section: config"),
        ({"cpu_count": 0}, "invalid number of CPU cores: 0"),
        (
            {"disk_info": '{"disks":[{"imageName":"a/b/c","size":4}]}'},
            'unexpected namespacedName format ("a/b/c"), expected "namespace/name" or "name"',
        ),
    ],
)
def test_a_single_fault_is_told_in_exactly_the_go_driver_s_words(flags: dict[str, Any], text: str) -> None:
    assert said(**flags) == text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"vgpu_info": "{"}, "harvester-vgpu-info is not JSON: Expecting property name"),
        ({"network_info": "x"}, "harvester-network-info is not JSON: Expecting value: line 1 column 1"),
        ({"disk_info": "5"}, "diskInfo.disks is not a list"),
        ({"disk_info": '{"disks":[5]}'}, "diskInfo.disks[0] is not an object"),
        ({"disk_info": '{"disks":[{"imageName":5}]}'}, "diskInfo.disks[0].imageName is 5, not text"),
        ({"disk_info": '{"disks":[{"size":1.5}]}'}, "diskInfo.disks[0].size is 1.5, not a whole number"),
        ({"disk_info": '{"disks":[{"hotPlugAble":"yes"}]}'}, "hotPlugAble is 'yes', not true or false"),
        ({"disk_info": "[" * 100_000}, "harvester-disk-info is not JSON: "),
    ],
)
def test_json_of_another_shape_is_refused_with_the_place_of_the_fault(
    flags: dict[str, Any], message: str
) -> None:
    assert message in said(**flags)


def test_json_keys_match_in_any_case_and_null_is_an_empty_entry() -> None:
    found = a_machine(disk_info='{"DISKS":[{"IMAGENAME":"\\ud800","size":4,"unknown":[1]}]}')
    assert found.disk_info == (DiskSpec(image="\ufffd", size_gib=4),)
    assert "must specify image name" in said(disk_info='{"disks":[null]}')


def test_of_several_faults_the_one_that_go_would_name_comes_first() -> None:
    text = said(cpu_count=0, network_info="", disk_info="", key_pair_name="k", enable_secure_boot=True)
    assert text.split("; ")[:4] == [
        "enable secure boot requires enable EFI",
        "must specify the ssh private key path of the harvester key pair",
        "must specify harvester image name",
        "must specify harvester network name",
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"disk_info": "{}"}, "diskInfo lists no disk"),
        ({"disk_info": '{"disks":[]}'}, "diskInfo lists no disk"),
        ({"network_info": '{"interfaces":[]}'}, "networkInfo lists no interface"),
        ({"memory_size": 0}, "memorySize is 0 GiB"),
        ({"memory_size": -4}, "memorySize is -4 GiB"),
        ({"disk_info": "", "image_name": "a", "disk_size": -1}, "the disk size is -1 GiB"),
        ({"vm_affinity": "no affinity"}, "vmAffinity is not an affinity object"),
        ({"vm_affinity": '{"podAffinity":[1]}'}, "is not an object"),
        ({"user_data": "#!/bin/sh\n"}, "the user data is a script"),
        ({"user_data": "- a list\n"}, "the user data is a list"),
        ({"network_info": '{"interfaces":[{"networkName":"n","macAddress":"x"}]}'}, "is not a MAC address"),
        (
            {"network_info": '{"interfaces":[{"networkName":"n","model":"x"}]}'},
            "the model of interface 0 is 'x'",
        ),
        ({"network_info": '{"interfaces":[{"networkName":"n","type":"sriov"}]}'}, "the type of interface 0"),
        ({"disk_info": '{"disks":[{"imageName":"a","size":4,"bus":"x"}]}'}, "the bus of disk-0 is 'x'"),
        ({"cpu_model": "no such model!"}, "cpuModel is 'no such model!'"),
        ({"vm_namespace": "Default"}, "'Default' is not a namespace name"),
    ],
)
def test_what_the_go_driver_would_only_notice_later_is_told_now(flags: dict[str, Any], message: str) -> None:
    assert message in said(**flags)


@pytest.mark.parametrize("name", ["Upper", "with..dots", "x" * 64])
def test_a_machine_name_that_no_vm_can_have_is_told_now(name: str) -> None:
    with pytest.raises(Refused, match="the machine name"):
        read_flags(FLAGS, replace(NEW, machine_name=name))


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"cpu_count": "two"}, "flag harvester-cpu-count has the value 'two'; give it a whole number"),
        ({"cpu_count": [2]}, "flag harvester-cpu-count has the value of type list; give it a whole number"),
        ({"enable_efi": "maybe"}, "flag harvester-enable-efi has the value 'maybe'; give it true or false"),
        ({"image_name": 5}, "flag harvester-image-name has the value of type int; give it one text"),
        ({"ssh_password": 5}, "flag harvester-ssh-password has the value of type int; give it one text"),
    ],
)
def test_a_value_of_another_type_is_told_with_its_flag(flags: dict[str, Any], text: str) -> None:
    assert said(**flags) == text


def test_numbers_may_come_as_text() -> None:
    assert read(cpu_count="3", reserved_memory_size="-1", enable_efi="true").cpu == 3


def test_flags_of_others_are_nobodys_business() -> None:
    assert read_flags({**FLAGS, "digitalocean-size": object(), "harvester-unheard-of": 5}, NEW) == read()


@pytest.mark.parametrize("text", ["null", " null ", "bnVsbA==", ""])
def test_no_affinity_in_any_spelling_is_none(text: str) -> None:
    assert read(vm_affinity=text).vm_affinity == ""


def test_an_affinity_may_be_yaml() -> None:
    assert read(vm_affinity="podAntiAffinity:\n  x: 1\n").vm_affinity == '{"podAntiAffinity":{"x":1}}'
    assert read(vm_affinity='{"nodeAffinity": {}}').vm_affinity == '{"nodeAffinity": {}}'


def test_half_a_character_is_replaced_as_go_does() -> None:
    assert read(cluster_id="a\ud800").cluster_id == "a\ufffd"


def test_null_entries_are_empty_ones() -> None:
    assert said(disk_info='{"disks":[null]}').startswith("must specify image name or storageClass name")


def test_secrets_stay_out_of_what_is_shown() -> None:
    found = read(
        ssh_password="s3cret-pw", kubeconfig_content="token: s3cret", user_data="#cloud-config\np: s3cret\n"
    )
    assert "s3cret" not in repr(found)


_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 100)
    | st.text(max_size=30)
    | st.lists(st.text(max_size=3), max_size=2)
    | st.sampled_from(
        [
            '{"disks":[{"imageName":"a","size":1}]}',
            '{"interfaces":[{"networkName":"a"}]}',
            "version: 1\nconfig: [{type: [a], subnets: [{type: {}}]}]",
            "version: [1]",
            "network: {version: 1, config: [{type: nameserver, address: {a: 1}}]}",
            "version: 1\nconfig: [{type: physical, subnets: [{type: []}]}]",
            "? {a: b}\n: c",
            "{podAffinity: [1]}",
            "2001-01-01",
            "{nodeAffinity: 2001-01-01}",
            "&a {nodeAffinity: *a}",
            "&a {runcmd: [*a]}",
            "{runcmd: [2001-01-01], write_files: 5, packages: {}}",
            "!!binary x",
            "&a [*a]",
        ]
    )
)


@settings(max_examples=400)
@given(st.dictionaries(st.sampled_from([flag.flag for flag in OPTIONS]), _VALUES))
def test_any_values_are_taken_or_refused_in_words(values: Any) -> None:
    text = "taken"
    try:
        read_flags(FLAGS | values, NEW)
    except Refused as refused:
        text = error_text(refused, "SetConfigFromFlags")
    assert text
    assert "not found" not in text


def test_a_port_of_0_is_22() -> None:
    configuration = read(ssh_port=0)
    assert with_ssh_defaults(configuration).ssh_port == 22


@pytest.mark.parametrize("text", ["", "null", "{}", '{"vGPURequests":null}', '{"vGPURequests":[]}'])
def test_no_vgpu_in_any_spelling_is_none(text: str) -> None:
    assert not read(vgpu_info=text).vgpu_info
