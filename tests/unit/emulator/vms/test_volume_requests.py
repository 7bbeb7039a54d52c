"""Volumes added to and removed from a VirtualMachine, in the words of KubeVirt 1.7."""

from __future__ import annotations

import pytest

from windrow.emulator.vms import volume_requests
from windrow.kubernetes.errors import BadRequest

SOURCE = {"persistentVolumeClaim": {"claimName": "free"}}
ADDED = {"name": "extra", "disk": {"disk": {"bus": "scsi"}}, "volumeSource": SOURCE}


def a_vm(*volumes):
    disks = [{"name": one["name"]} for one in volumes]
    return {
        "spec": {"template": {"spec": {"volumes": list(volumes), "domain": {"devices": {"disks": disks}}}}}
    }


def spec_of(vm):
    return vm["spec"]["template"]["spec"]


FIXED = {"name": "disk-0", "persistentVolumeClaim": {"claimName": "root"}}
PLUGGED = {"name": "extra", "persistentVolumeClaim": {"claimName": "free", "hotpluggable": True}}


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("name", "AddVolumeOptions requires name to be set"),
        ("disk", "AddVolumeOptions requires disk to not be nil"),
        ("volumeSource", "AddVolumeOptions requires VolumeSource to not be nil"),
    ],
)
def test_a_volume_is_added_with_name_disk_and_source(missing, text):
    with pytest.raises(BadRequest) as refused:
        volume_requests.check_added({key: value for key, value in ADDED.items() if key != missing})
    assert (refused.value.message, refused.value.status) == (text, 400)


def test_what_is_added_is_hotpluggable_and_can_be_removed_again():
    vm = a_vm(FIXED)
    assert not volume_requests.find_conflict_of_added(vm, ADDED)
    volume_requests.add_volume(vm, ADDED)
    assert spec_of(vm)["volumes"] == [FIXED, PLUGGED]
    assert spec_of(vm)["domain"]["devices"]["disks"][1] == {"name": "extra", "disk": {"bus": "scsi"}}

    assert not volume_requests.find_conflict_of_removed(vm, {"name": "extra"})
    volume_requests.remove_volume(vm, {"name": "extra"})
    assert vm == a_vm(FIXED)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {**ADDED, "name": "disk-0"},
            "Unable to add volume [disk-0] because volume with that name already exists",
        ),
        ({**ADDED, "name": "other"}, "Unable to add volume source [free] because it already exists"),
    ],
)
def test_names_and_sources_of_volumes_are_unique(options, text):
    assert volume_requests.find_conflict_of_added(a_vm(FIXED, PLUGGED), options) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("disk-0", "Unable to remove volume [disk-0] because it is not hotpluggable"),
        ("root", "Unable to remove volume [disk-0] because it is not hotpluggable"),
        ("gone", "Unable to remove volume [gone] because it does not exist"),
        ("free", ""),
    ],
)
def test_only_what_was_plugged_in_can_be_removed(name, text):
    assert volume_requests.find_conflict_of_removed(a_vm(FIXED, PLUGGED), {"name": name}) == text
