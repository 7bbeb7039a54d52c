from __future__ import annotations

from typing import Any

import pytest

from windrow.nodedriver.vm.changes import find_changes, find_refusals

OPTIONS = {
    "cpuCount": "2",
    "memorySize": "4",
    "diskInfo": '{"disks":[{"imageName":"default/jammy","bootOrder":1,"size":40}]}',
    "networkInfo": '{"interfaces":[{"networkName":"default/vlan50"}]}',
    "vmNamespace": "default",
}
LARGER = '{"disks":[{"imageName":"default/jammy","bootOrder":1,"size":50}]}'
OTHER_IMAGE = '{"disks":[{"imageName":"default/noble","bootOrder":1,"size":50}]}'


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        ({}, {}),
        ({"memorySize": "4Gi"}, {}),
        ({"memorySize": 4, "enableEfi": "false", "cpuModel": ""}, {}),
        ({"diskInfo": {"disks": [{"imageName": "default/jammy", "bootOrder": 1, "size": "40Gi"}]}}, {}),
        ({"cpuCount": "4", "memorySize": "8Gi"}, {"cpuCount": "restart", "memorySize": "restart"}),
        ({"enableEfi": "true"}, {"enableEfi": "roll"}),
        ({"diskInfo": LARGER}, {"diskInfo": "restart"}),
        ({"diskInfo": OTHER_IMAGE}, {"diskInfo": "roll"}),
        ({"diskInfo": OTHER_IMAGE, "cpuCount": 4}, {"cpuCount": "restart", "diskInfo": "roll"}),
        ({"vmNamespace": "other"}, {"vmNamespace": "new_only"}),
        ({"clusterId": "c-1"}, {"clusterId": "live"}),
        ({"addressPools": [{"name": "a"}]}, {}),
    ],
)
def test_a_change_of_options_takes_what_its_row_says_and_disks_that_grow_a_restart(
    edit: dict[str, Any], expected: dict[str, str]
) -> None:
    assert find_changes(OPTIONS, {**OPTIONS, **edit}) == expected


def test_the_single_disk_of_the_older_form_grows_too() -> None:
    old = {"imageName": "default/jammy", "diskSize": "40"}
    assert find_changes(old, {**old, "diskSize": "50"}) == {"diskSize": "restart"}
    assert find_changes(old, {**old, "diskSize": "30"}) == {"diskSize": "roll"}


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        ({}, []),
        ({"cpuCount": "4"}, []),
        ({"cpuCount": "0"}, ["cpuCount"]),
        ({"memorySize": "ten"}, ["memorySize"]),
        ({"memorySize": "8"}, []),
        ({"reservedMemorySize": "4096"}, ["reservedMemorySize"]),  # as much as the VM has
        ({"diskSize": "big"}, ["diskSize", "diskInfo"]),
        ({"networkData": ":: ["}, []),  # Harvester says that of a new VM; none stops for it
    ],
)
def test_sizes_that_no_vm_can_have_are_refused_before_a_vm_stops(
    edit: dict[str, Any], expected: list[str]
) -> None:
    found = [one.field for one in find_refusals(OPTIONS, {**OPTIONS, **edit})]

    assert set(found) <= set(expected)
    assert bool(found) == bool(expected)


def test_a_size_of_a_disk_is_refused_in_the_older_form_too_and_no_fault_that_was_there_before() -> None:
    old = {"imageName": "default/jammy", "diskSize": "40", "memorySize": "4"}
    assert "diskSize" in [one.field for one in find_refusals(old, {**old, "diskSize": "big"})]
    assert find_refusals({**old, "memorySize": "ten"}, {**old, "memorySize": "ten", "cpuCount": "4"}) == []
    less = {**old, "memorySize": "8", "reservedMemorySize": "5000"}
    assert [one.field for one in find_refusals(less, {**less, "memorySize": "4"})] == ["reservedMemorySize"]
