from __future__ import annotations

from typing import Any

import pytest

from windrow.nodedriver.vm.changes import find_changes

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
