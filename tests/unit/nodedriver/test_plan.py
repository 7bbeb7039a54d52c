from __future__ import annotations

from dataclasses import replace

import pytest

from windrow.harvester.identity import owner_annotations
from windrow.harvester.vms import HostDevice, Nic
from windrow.harvester.volumes import LONGHORN, ClaimModes
from windrow.nodedriver.affinity import find_unknown_keys
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.devices import DeviceSpec, DiskSpec, NicSpec
from windrow.nodedriver.vm.plan import plan_vm, planned_claims

BASE = Configuration(
    machine_name="c1-pool1-abcde-fghij",
    vm_namespace="ns1",
    cluster_name="c1",
    machine_uid="m-1",
    cluster_uid="cluster-1",
    disk_info=(DiskSpec("image-1", size_gib=40), DiskSpec("", "longhorn", 10)),
    network_info=(NicSpec("net-1"),),
)
CLASSES = {"image-1": "lh-image-1"}


def test_an_image_gives_its_disk_the_class_and_the_full_name() -> None:
    root, data = plan_vm(BASE, CLASSES).disks
    assert (root.storage_class, root.image) == ("lh-image-1", "ns1/image-1")
    assert (data.storage_class, data.image) == ("longhorn", "")


def test_a_disk_is_cloned_with_its_image_s_class_whatever_class_stands_beside_it() -> None:
    asked = replace(BASE, disk_info=(DiskSpec("image-1", "other", 40),))
    [root] = plan_vm(asked, CLASSES).disks
    assert root.storage_class == "lh-image-1"


def test_without_boot_orders_the_first_disk_boots_and_not_the_cloud_init_disk() -> None:
    assert [disk.boot_order for disk in plan_vm(BASE, CLASSES).disks] == [1, 0]


def test_given_boot_orders_are_kept() -> None:
    asked = replace(BASE, disk_info=(DiskSpec("image-1", boot_order=2), DiskSpec("", "x", boot_order=1)))
    assert [disk.boot_order for disk in plan_vm(asked, CLASSES).disks] == [2, 1]
    one = replace(BASE, disk_info=(DiskSpec("image-1"), DiskSpec("", "x", boot_order=1)))
    assert [disk.boot_order for disk in plan_vm(one, CLASSES).disks] == [0, 1]


def test_a_disc_stands_on_sata_unless_told_otherwise() -> None:
    asked = replace(BASE, disk_info=(DiskSpec("image-1", type="cd-rom"), DiskSpec("", "x", bus="scsi")))
    assert [(disk.is_cdrom, disk.bus) for disk in plan_vm(asked, CLASSES).disks] == [
        (True, "sata"),
        (False, "scsi"),
    ]


def test_cards_are_bridged_on_virtio_unless_told_otherwise_and_name_their_network_in_full() -> None:
    asked = replace(
        BASE, network_info=(NicSpec("net-1"), NicSpec("public/b", "02:00:00:00:00:01", "e1000", "bridge"))
    )
    assert plan_vm(asked, CLASSES).nics == (
        Nic("nic-0", "ns1/net-1"),
        Nic("nic-1", "public/b", "02:00:00:00:00:01", "e1000"),
    )


def test_devices_without_a_name_get_one_each() -> None:
    asked = replace(BASE, vgpu_info=(DeviceSpec("", "d"), DeviceSpec("", "d"), DeviceSpec("mine", "d")))
    assert plan_vm(asked, CLASSES).devices == (
        HostDevice("vgpu-0", "d"),
        HostDevice("vgpu-1", "d"),
        HostDevice("mine", "d"),
    )


def test_user_data_is_always_in_the_secret_and_network_data_only_when_long() -> None:
    short = plan_vm(replace(BASE, network_data="version: 2\n"), CLASSES).cloud_init
    assert (short.user_data_in_secret, short.network_data_in_secret) == (True, False)
    assert short.network_data == "version: 2\n"
    assert plan_vm(replace(BASE, network_data="#" * 2048), CLASSES).cloud_init.network_data == "#" * 2048
    long = plan_vm(replace(BASE, network_data="#" * 2049), CLASSES).cloud_init
    assert (long.user_data_in_secret, long.network_data_in_secret, long.network_data) == (True, True, "")


def test_each_field_of_the_machine_config_is_that_of_the_vm() -> None:
    asked = replace(
        BASE,
        cpu=6,
        memory_size="12Gi",
        cpu_model="host-passthrough",
        enable_efi=True,
        enable_secure_boot=True,
        enable_tpm=True,
    )
    plan = plan_vm(asked, CLASSES, vgpus_in="gpus")
    assert (plan.name, plan.namespace, plan.guest_cluster) == ("c1-pool1-abcde-fghij", "ns1", "c1")
    assert plan.owner_annotations == owner_annotations("cluster-1", "m-1")
    assert (plan.cores, plan.memory, plan.cpu_model) == (6, "12Gi", "host-passthrough")
    assert (plan.efi, plan.secure_boot, plan.tpm, plan.devices_in) == (True, True, True, "gpus")
    bare = plan_vm(BASE, CLASSES)
    assert (bare.efi, bare.secure_boot, bare.tpm, bare.devices_in) == (False, False, False, "hostDevices")


def test_a_disk_is_claimed_as_its_class_allows_and_else_as_longhorn_s() -> None:
    once = ClaimModes("ReadWriteOnce", "Filesystem")
    root, data = plan_vm(BASE, CLASSES, {"longhorn": once}).disks
    assert (root.modes, data.modes) == (LONGHORN, once)


def test_the_claims_are_known_before_anything_is_made() -> None:
    assert tuple(disk.claim for disk in plan_vm(BASE, CLASSES).disks) == planned_claims(BASE)
    assert planned_claims(replace(BASE, machine_uid="m-2")) != planned_claims(BASE)


def test_key_pair_affinity_and_memory_are_passed_on() -> None:
    asked = replace(
        BASE,
        key_pair_name="k",
        vm_affinity='{"nodeAffinity":{}}',
        memory_size="8Gi",
        reserved_memory_size="256Mi",
    )
    plan = plan_vm(asked, CLASSES)
    assert plan.ssh_names == ("k",)
    assert plan.affinity == {"nodeAffinity": {}}
    assert (plan.memory, plan.reserved_memory) == ("8Gi", "256Mi")


def test_an_affinity_has_kubernetes_keys_in_any_case_and_no_others() -> None:
    """As Go's JSON reads it, at every level."""
    written = """{"PodAntiAffinity": {"preferredduringschedulingignoredduringexecution": [{"Weight": 5, "other": 1,
      "podaffinityterm": {"TopologyKey": "zone", "labelselector": {"MatchLabels": {"App": "x"}, "matchexpressions": [
      {"Key": "a", "operator": "Exists"}]}}}]}, "nodeAfinity": {"x": 1}, "podAffinity": null}"""
    affinity = plan_vm(replace(BASE, vm_affinity=written), CLASSES).affinity
    selector = {"matchLabels": {"App": "x"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}
    term = {"topologyKey": "zone", "labelSelector": selector}
    preferred = [{"weight": 5, "podAffinityTerm": term}]
    assert affinity == {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
        "podAffinity": None,
    }


def test_keys_of_an_affinity_that_kubernetes_does_not_know_are_named() -> None:
    text = '{"nodeAfinity":{},"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topology":"x"}]}}'
    assert find_unknown_keys(replace(BASE, vm_affinity=text)) == [
        "nodeAfinity",
        "podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topology",
    ]


@pytest.mark.parametrize("written", ["", "null", " null\n"])
def test_an_affinity_of_null_is_none(written: str) -> None:
    assert plan_vm(replace(BASE, vm_affinity=written), CLASSES).affinity is None


@pytest.mark.parametrize(
    ("pinning", "isolated", "placement"),
    [
        (False, False, "shared"),
        (True, False, "dedicated"),
        (True, True, "dedicated and isolated"),
        (False, True, "shared"),
    ],
)
def test_an_emulator_thread_is_isolated_only_beside_pinned_cpus(
    pinning: bool, isolated: bool, placement: str
) -> None:
    asked = replace(BASE, cpu_pinning=pinning, isolate_emulator_thread=isolated)
    assert plan_vm(asked, CLASSES).cpus == placement
