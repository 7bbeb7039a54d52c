"""The patch of a VM's disks, and what is read of a VM and its instance."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.csi.harvester.disks import (
    Disk,
    DiskChange,
    can_be_added,
    plan_additions,
    plan_patch,
    read_instance,
    read_vm,
)
from windrow.csi.harvester.vm_queue import require_slots
from windrow.csi.volumes import NodeFull
from windrow.kubernetes.patches import PatchFailed, apply_json_patch

PVC = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001"


def a_vm(*plugged: str, **more: Any) -> dict[str, Any]:
    """A VM with its own disk `root` and these plugged in, and a field that no reading knows."""
    volumes: list[dict[str, Any]] = [{"name": "root", "persistentVolumeClaim": {"claimName": "vm-root"}}]
    disks: list[dict[str, Any]] = [
        {"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1, "unknown": {"a": 1}}
    ]
    for name in plugged:
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": True}})
        disks.append({"name": name, "disk": {"bus": "scsi"}})
    spec = {"domain": {"devices": {"disks": disks}}, "volumes": volumes, **more}
    return {"metadata": {"name": "a", "uid": "1"}, "spec": {"template": {"spec": spec}}}


def names(vm: dict[str, Any]) -> tuple[list[str], list[str]]:
    spec = vm["spec"]["template"]["spec"]
    return (
        [one["name"] for one in spec["volumes"]],
        [one["name"] for one in spec["domain"]["devices"]["disks"]],
    )


def attach(volume_id: str, read_only: bool = False) -> DiskChange:
    return DiskChange(volume_id, "attach", read_only)


def detach(volume_id: str) -> DiskChange:
    return DiskChange(volume_id, "detach")


def test_an_attached_volume_is_a_disk_with_a_serial_that_the_guest_can_find():
    after = apply_json_patch(a_vm(), plan_patch(a_vm(), [attach(PVC)]))

    assert after["spec"]["template"]["spec"]["volumes"][-1] == {
        "name": PVC,
        "persistentVolumeClaim": {"claimName": PVC, "hotpluggable": True},
    }
    assert after["spec"]["template"]["spec"]["domain"]["devices"]["disks"][-1] == {
        "name": PVC,
        "serial": "6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001",
        "disk": {"bus": "scsi"},
    }


def test_changes_that_wait_go_out_in_one_patch():
    before = a_vm("b", "c", "d")
    after = apply_json_patch(
        before, plan_patch(before, [detach("b"), attach("x", True), detach("d"), attach("y")])
    )

    assert names(after) == (["root", "c", "x", "y"], ["root", "c", "x", "y"])
    found = read_vm(after)
    assert [one.read_only for one in found.disks] == [False, False, True, False]
    assert (
        after["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0]
        == (before["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0])
    )


@pytest.mark.parametrize("change", [attach("b"), detach("x"), detach("vm-root")])
def test_what_is_as_wanted_needs_no_patch(change: DiskChange):
    assert plan_patch(a_vm("b"), [change]) == []


def test_a_disk_of_the_machine_s_own_is_never_removed():
    vm = a_vm()
    vm["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "root"

    assert plan_patch(vm, [detach("root")]) == []
    vm["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["hotpluggable"] = True
    vm["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "vm-root"
    assert plan_patch(vm, [detach("vm-root")]) == []


def test_a_removal_fails_where_the_vm_was_changed_meanwhile():
    steps = plan_patch(a_vm("b", "c"), [detach("c")])

    with pytest.raises(PatchFailed):
        apply_json_patch(a_vm("c", "b"), steps)


def test_an_addition_does_not_mind_what_was_changed_meanwhile():
    steps = plan_patch(a_vm("b"), [attach("x")])

    assert names(apply_json_patch(a_vm(), steps)) == (["root", "x"], ["root", "x"])


def test_a_vm_without_lists_gets_them():
    vm = {
        "metadata": {"name": "a", "resourceVersion": "7"},
        "spec": {"template": {"spec": {"domain": {"devices": {}}}}},
    }

    assert names(apply_json_patch(vm, plan_patch(vm, [attach("x"), attach("y")]))) == (["x", "y"], ["x", "y"])


@pytest.mark.parametrize("lacking", ["volumes", "disks"])
def test_a_list_is_only_added_to_the_vm_that_was_read_without_it(lacking: str):
    vm = a_vm()
    vm["metadata"]["resourceVersion"] = "7"
    spec = vm["spec"]["template"]["spec"]
    del (spec if lacking == "volumes" else spec["domain"]["devices"])[lacking]
    steps = plan_patch(vm, [attach("x")])

    apply_json_patch(vm, steps)
    changed = a_vm("b")
    changed["metadata"]["resourceVersion"] = "8"
    with pytest.raises(PatchFailed):
        apply_json_patch(changed, steps)
    assert [one["op"] for one in plan_patch(a_vm(), [attach("x")])] == ["test", "add", "add"]


def test_no_change_is_made_to_another_vm_that_has_the_name_by_then():
    vm, recreated = a_vm("b"), a_vm("b")
    vm["metadata"]["uid"], recreated["metadata"]["uid"] = "first", "second"

    for change in (attach("x"), detach("b")):
        steps = plan_patch(vm, [change])
        apply_json_patch(vm, steps)
        with pytest.raises(PatchFailed):
            apply_json_patch(recreated, steps)


def test_a_claim_that_a_vm_has_by_its_data_volume_is_a_disk_of_the_vm_s_own():
    vm = a_vm()
    vm["spec"]["template"]["spec"]["volumes"][0] = {
        "name": "root",
        "dataVolume": {"name": "root", "hotpluggable": True},
    }
    instance = {"metadata": {"name": "a"}, "spec": {"volumes": vm["spec"]["template"]["spec"]["volumes"]}}

    found = read_vm(vm).find("root")
    assert found is not None
    assert not found.is_removable
    assert plan_patch(vm, [detach("root")]) == []
    assert read_instance(instance).has("root")


def test_what_an_administrator_plugged_in_of_the_same_claim_hides_nothing():
    vm = a_vm("b")
    theirs = {"name": "theirs", "persistentVolumeClaim": {"claimName": "b", "hotpluggable": True}}
    vm["spec"]["template"]["spec"]["volumes"].insert(0, theirs)
    after = apply_json_patch(vm, plan_patch(vm, [detach("b")]))

    assert names(after) == (["theirs", "root"], ["root"])
    left = read_vm(after).find("b")
    assert left is not None
    assert not left.is_removable


def test_a_vm_of_the_go_driver_is_read():
    assert read_vm(a_vm("b")).find("b") == Disk("b", "b", True, False, "", "scsi")
    assert read_vm(a_vm("b")).find("b").is_removable  # type: ignore[union-attr]


def test_a_vm_has_no_more_volumes_than_it_can_have():
    full = read_vm(a_vm(*(f"v{number}" for number in range(255))))

    with pytest.raises(NodeFull, match="has 256 volumes"):
        require_slots(full, [attach("x")])
    require_slots(full, [attach("x"), detach("v1")])
    require_slots(full, [detach("v1")])


def test_an_instance_tells_what_is_plugged_in():
    raw = {
        "metadata": {"name": "a", "resourceVersion": "7"},
        "spec": {"volumes": [{"name": "b", "persistentVolumeClaim": {"claimName": "b"}}]},
        "status": {
            "phase": "Running",
            "volumeStatus": [
                {"name": "root", "target": "vda"},
                {"name": "b", "phase": "Ready", "target": "sda", "hotplugVolume": {}},
                {
                    "name": "c",
                    "phase": "AttachedToNode",
                    "message": "m",
                    "hotplugVolume": {"attachPodName": "p"},
                },
            ],
        },
    }
    found = read_instance(raw)

    assert found.resource_version == "7"
    assert found.find("root") is None
    assert found.has("b")
    assert found.has("c")
    assert not found.has("root")
    assert [(one.name, one.phase, one.message) for one in found.plugged] == [
        ("b", "Ready", ""),
        ("c", "AttachedToNode", "m"),
    ]


def test_a_removal_fails_where_the_spec_has_changed_although_the_list_looks_the_same():
    vm = a_vm("b", "c")
    vm["metadata"]["generation"] = 7
    removal, addition = plan_patch(vm, [detach("c")]), plan_patch(vm, [attach("x")])

    assert names(apply_json_patch(vm, removal)) == (["root", "b"], ["root", "b"])
    vm["metadata"]["generation"] = 9
    with pytest.raises(PatchFailed):
        apply_json_patch(vm, removal)
    assert names(apply_json_patch(vm, addition)) == (["root", "b", "c", "x"], ["root", "b", "c", "x"])


def known_vm(*volumes: str, **metadata: object) -> dict[str, Any]:
    vm = a_vm(*volumes)
    vm["metadata"] |= {"uid": "first", "generation": 7, **metadata}
    return vm


def test_a_volume_is_added_to_a_known_vm_only_where_its_spec_is_still_the_same():
    steps = plan_additions(read_vm(known_vm("b")), [attach("x", True), attach("y")])

    after = apply_json_patch(known_vm("b"), steps)
    assert names(after) == (["root", "b", "x", "y"], ["root", "b", "x", "y"])
    assert read_vm(after).find("x").read_only  # type: ignore[union-attr]
    for other in (known_vm("b", generation=8), known_vm("b", uid="second")):
        with pytest.raises(PatchFailed):
            apply_json_patch(other, steps)


@pytest.mark.parametrize(
    ("vm", "changes", "is_known"),
    [
        (known_vm("b"), [attach("x")], True),
        (known_vm("b"), [attach("x"), attach("y")], True),
        (known_vm("b"), [attach("x"), attach("b")], False),
        (known_vm("b"), [detach("b")], False),
        (known_vm("b"), [attach("x"), detach("z")], False),
        (known_vm(uid=""), [attach("x")], False),
        (known_vm(generation=None), [attach("x")], False),
        (known_vm(deletionTimestamp="2026-01-01T00:00:00Z"), [attach("x")], False),
        (known_vm(*(f"v{number}" for number in range(254))), [attach("x")], True),
        (known_vm(*(f"v{number}" for number in range(254))), [attach("x"), attach("y")], False),
    ],
)
def test_what_is_no_addition_to_a_vm_of_which_enough_is_known_needs_a_read(
    vm: dict[str, Any], changes: list[DiskChange], is_known: bool
):
    assert can_be_added(read_vm(vm), changes) is is_known


def test_a_vm_without_a_list_is_read_before_it_gets_one():
    vm = known_vm()
    del vm["spec"]["template"]["spec"]["volumes"]

    assert not can_be_added(read_vm(vm), [attach("x")])
