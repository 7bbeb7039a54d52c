from __future__ import annotations

from typing import Any

import pytest

from windrow.nodedriver.options import BY_FIELD, OPTIONS, InvalidValue, read_value, read_values

# Flag, type and default of the Go driver, in its order.
GO_FLAGS = """
kubeconfig-content string
cluster-type string
cluster-id string
cluster-name string
vm-namespace string default
cpu-count int 2
memory-size int 4
disk-size int 0
disk-bus string
image-name string
disk-info string
ssh-user string root
ssh-port int 22
ssh-password string
key-pair-name string
ssh-private-key-path string
network-type string
network-name string
network-model string
network-info string
cloud-config string
user-data string
network-data string
vm-affinity string
enable-efi bool
enable-secure-boot bool
vgpu-info string
cpu-pinning bool
isolate-emulator-thread bool
enable-tpm bool
reserved-memory-size int -1
cpu-model string
"""


def test_the_flags_are_those_of_the_go_driver_in_its_order() -> None:
    ours = [
        " ".join(filter(None, (option.name, option.type, str(option.default or "") or _zero(option))))
        for option in OPTIONS
    ]
    assert ours == GO_FLAGS.strip().splitlines()


def _zero(option: Any) -> str:
    return "0" if option.type == "int" else ""


def test_names_derive_from_the_flag() -> None:
    option = BY_FIELD["enableEfi"]
    assert (option.flag, option.env, option.key) == (
        "harvester-enable-efi",
        "HARVESTER_ENABLE_EFI",
        "EnableEFI",
    )
    assert BY_FIELD["vgpuInfo"].flag == "harvester-vgpu-info"


def test_rancher_finds_the_cloud_config_flag_before_any_other_like_it() -> None:
    marks = ("user-data", "userdata", "custom-data", "cloud-config")
    first = next(option for option in OPTIONS if any(mark in option.flag for mark in marks))
    assert first.flag == "harvester-cloud-config"
    assert not any(option.flag.endswith("-os") for option in OPTIONS)


@pytest.mark.parametrize(
    ("field", "written", "value"),
    [
        ("cpuCount", "4", 4),
        ("cpuCount", 4, 4),
        ("cpuCount", "", 2),
        ("cpuCount", None, 2),
        ("memorySize", "8", 8),
        ("memorySize", "8Gi", 8),
        ("memorySize", "8192Mi", 8),
        ("reservedMemorySize", "-1", -1),
        ("reservedMemorySize", "1Gi", 1024),
        ("enableEfi", True, True),
        ("enableEfi", "true", True),
        ("enableEfi", "False", False),
        ("enableEfi", "", False),
        ("sshUser", "", "root"),
        ("userData", "I2Nsb3VkLWNvbmZpZwo=", "#cloud-config\n"),
        ("userData", "#cloud-config\n", "#cloud-config\n"),
        ("diskInfo", '{"disks":[]}', {"disks": []}),
        ("diskInfo", {"disks": []}, {"disks": []}),
        ("diskInfo", " ", None),
        ("vmAffinity", "eyJub2RlQWZmaW5pdHkiOnt9fQ==", {"nodeAffinity": {}}),
        ("vmAffinity", {"nodeAffinity": {}}, {"nodeAffinity": {}}),
        ("vmAffinity", "null", None),
        ("clusterName", 51, "51"),
    ],
)
def test_values_are_taken_as_rancher_and_as_people_write_them(field: str, written: Any, value: Any) -> None:
    assert read_value(BY_FIELD[field], written) == value


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ("cpuCount", "two"),
        ("cpuCount", 1.5),
        ("cpuCount", True),
        ("memorySize", "500Mi"),
        ("memorySize", "much"),
        ("enableEfi", "yes"),
        ("diskInfo", "{broken"),
        ("diskInfo", "17"),
        ("vmAffinity", "[1"),
        ("sshUser", {"a": 1}),
        ("sshUser", True),
    ],
)
def test_a_value_of_the_wrong_form_is_told_with_its_field_and_a_cure(field: str, written: Any) -> None:
    with pytest.raises(InvalidValue, match=field) as bad:
        read_value(BY_FIELD[field], written)
    assert bad.value.hint


def test_all_bad_values_are_told_at_once_and_the_rest_is_read() -> None:
    values, problems = read_values({"cpuCount": "x", "memorySize": "y", "sshUser": "me", "somebodyElses": 1})
    assert [problem.field for problem in problems] == ["cpuCount", "memorySize"]
    assert values["SSHUser"] == "me"
    assert values["CPU"] == 2
