"""The VirtualMachine that the driver makes, against the object that the Go driver was seen to make."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windrow.core.formats.json import loads
from windrow.harvester import names
from windrow.harvester.identity import owner_annotations
from windrow.harvester.names import GUEST_CLUSTER, is_label_value, label_value
from windrow.harvester.vms import CloudInit, HostDevice, Nic, VmSpec, build_vm, find_run, read_vm
from windrow.harvester.volumes import Disk, claim_name, owned_claims
from windrow.kubernetes.objects import labels_of, nested

NAME = "c1-pool1-abcde-fghij"
CLAIM = f"{NAME}-disk-0-x2x2x"


def a_plan(**changes: Any) -> VmSpec:
    plan = VmSpec(
        name=NAME,
        namespace="ns1",
        guest_cluster="c1",
        disks=(Disk("disk-0", CLAIM, 40, "lh-image-1", "ns1/image-1", boot_order=1),),
        nics=(Nic("nic-0", "ns1/net1"),),
        cloud_init=CloudInit("#cloud-config\n"),
    )
    return replace(plan, **changes)


def template(raw: dict[str, Any]) -> Any:
    return raw["spec"]["template"]["spec"]


LABELS = {
    "harvesterhci.io/creator": "docker-machine-driver-harvester",
    "harvesterhci.io/vmName": NAME,
    "harvesterhci.io/machineSetName": "ns1-c1-pool1",
    "guestcluster.harvesterhci.io/name": "c1",
    "nodepool.harvesterhci.io/name": "pool1-abcde",
}


def test_the_vm_equals_the_go_drivers() -> None:
    made = build_vm(a_plan())
    claims = made["metadata"]["annotations"].pop("harvesterhci.io/volumeClaimTemplates")

    assert made == {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": NAME, "namespace": "ns1", "labels": LABELS, "annotations": {}},
        "spec": {
            "runStrategy": "RerunOnFailure",
            "template": {
                "metadata": {
                    "labels": LABELS,
                    "annotations": {
                        "harvesterhci.io/sshNames": "[]",
                        "harvesterhci.io/waitForLeaseInterfaceNames": "[]",
                    },
                },
                "spec": {
                    "domain": {
                        "cpu": {"cores": 2, "sockets": 1, "threads": 1},
                        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
                        "devices": {
                            "disks": [
                                {"name": "cloudinitdisk", "disk": {"bus": "virtio"}},
                                {"name": "disk-0", "disk": {"bus": "virtio"}, "bootOrder": 1},
                            ],
                            "interfaces": [{"name": "nic-0", "model": "virtio", "bridge": {}}],
                        },
                    },
                    "networks": [{"name": "nic-0", "multus": {"networkName": "ns1/net1"}}],
                    "volumes": [
                        {"name": "cloudinitdisk", "cloudInitNoCloud": {"userData": "#cloud-config\n"}},
                        {"name": "disk-0", "persistentVolumeClaim": {"claimName": CLAIM}},
                    ],
                    "evictionStrategy": "LiveMigrateIfPossible",
                    "affinity": {
                        "podAntiAffinity": {
                            "preferredDuringSchedulingIgnoredDuringExecution": [
                                {
                                    "weight": 100,
                                    "podAffinityTerm": {
                                        "labelSelector": {
                                            "matchExpressions": [
                                                {"key": "harvesterhci.io/creator", "operator": "Exists"}
                                            ]
                                        },
                                        "topologyKey": "kubernetes.io/hostname",
                                    },
                                }
                            ]
                        }
                    },
                },
            },
        },
    }
    assert loads(claims) == [
        {
            "metadata": {
                "name": CLAIM,
                "creationTimestamp": None,
                "annotations": {"harvesterhci.io/imageId": "ns1/image-1"},
            },
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "40Gi"}},
                "storageClassName": "lh-image-1",
                "volumeMode": "Block",
            },
            "status": {},
        }
    ]


@pytest.mark.parametrize("cluster", ["c" * 64, "a cluster", "c1-", "ü"])
def test_a_vm_bears_labels_that_fit_whatever_its_cluster_is_called(cluster: str) -> None:
    made = build_vm(a_plan(guest_cluster=cluster))
    labels = labels_of(made)
    assert labels == made["spec"]["template"]["metadata"]["labels"]
    assert [name for name, value in labels.items() if not is_label_value(value)] == []
    assert labels[GUEST_CLUSTER] == label_value(cluster)


def test_marks_stand_on_the_vm_its_template_and_its_claims() -> None:
    ours = owner_annotations("cluster-1", "m-1")
    made = build_vm(a_plan(owner_annotations=ours))
    assert made["metadata"]["annotations"].items() >= ours.items()
    assert made["spec"]["template"]["metadata"]["annotations"].items() >= ours.items()
    assert owned_claims(made, "cluster-1", "m-1") == {CLAIM}
    assert owned_claims(made, "cluster-1", "m-2") == frozenset()


def test_a_claim_without_an_image_has_no_annotations() -> None:
    made = build_vm(a_plan(disks=(Disk("disk-0", CLAIM, 5, "longhorn"),)))
    [claim] = loads(made["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"])
    assert "annotations" not in claim["metadata"]


def test_processor_options_are_written_only_when_asked() -> None:
    made = build_vm(a_plan(cpus="dedicated and isolated", cpu_model="host-passthrough", cores=4))
    assert template(made)["domain"]["cpu"] == {
        "cores": 4,
        "sockets": 1,
        "threads": 1,
        "dedicatedCpuPlacement": True,
        "isolateEmulatorThread": True,
        "model": "host-passthrough",
    }


def test_firmware_trusted_module_and_devices() -> None:
    domain = template(
        build_vm(
            a_plan(efi=True, secure_boot=True, tpm=True, devices=(HostDevice("gpu-0", "nvidia.com/A2"),))
        )
    )["domain"]
    assert domain["features"] == {"acpi": {}, "smm": {"enabled": True}}
    assert domain["firmware"] == {"bootloader": {"efi": {"secureBoot": True}}}
    assert domain["devices"]["tpm"] == {}
    assert domain["devices"]["hostDevices"] == [{"name": "gpu-0", "deviceName": "nvidia.com/A2"}]


def test_discs_cards_and_hot_plugged_disks() -> None:
    made = template(
        build_vm(
            a_plan(
                disks=(
                    Disk("disk-0", "a", 1, "x", bus="sata", is_cdrom=True),
                    Disk("disk-1", "b", 1, "x", hotpluggable=True),
                ),
                nics=(Nic("nic-0", "net1", mac="02:00:00:00:00:01"),),
            )
        )
    )
    assert made["domain"]["devices"]["disks"][1:] == [
        {"name": "disk-0", "cdrom": {"bus": "sata"}},
        {"name": "disk-1", "disk": {"bus": "virtio"}},
    ]
    assert made["volumes"][2]["persistentVolumeClaim"] == {"claimName": "b", "hotpluggable": True}
    assert made["domain"]["devices"]["interfaces"] == [
        {"name": "nic-0", "model": "virtio", "bridge": {}, "macAddress": "02:00:00:00:00:01"}
    ]


def test_secrets_are_referred_to_by_the_machines_name() -> None:
    cloud_init = CloudInit(network_data="version: 2\n", user_data_in_secret=True)
    volume = template(build_vm(a_plan(cloud_init=cloud_init)))["volumes"][0]
    assert volume["cloudInitNoCloud"] == {
        "secretRef": {"name": f"{NAME}-cloudinit"},
        "networkData": "version: 2\n",
    }


def test_the_users_affinity_gets_one_more_wish_per_pod_term() -> None:
    affinity = {
        "nodeAffinity": {"x": 1},
        "podAffinity": {},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5}]},
    }
    made = template(build_vm(a_plan(affinity=affinity)))["affinity"]
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    assert made["nodeAffinity"] == {"x": 1}
    assert [spec["weight"] for spec in made["podAffinity"][preferred]] == [1]
    assert [spec["weight"] for spec in made["podAntiAffinity"][preferred]] == [5, 1]
    assert affinity["podAffinity"] == {}


def test_no_guest_cluster_means_no_cluster_labels() -> None:
    labels = build_vm(a_plan(guest_cluster=""))["metadata"]["labels"]
    assert "guestcluster.harvesterhci.io/name" not in labels
    assert "nodepool.harvesterhci.io/name" not in labels


def test_reserved_memory_and_key_names_are_annotations() -> None:
    made = build_vm(a_plan(reserved_memory="256Mi", ssh_names=("ns1/key",)))
    assert made["metadata"]["annotations"]["harvesterhci.io/reservedMemory"] == "256Mi"
    assert (
        nested(made, "spec", "template", "metadata", "annotations", "harvesterhci.io/sshNames")
        == '["ns1/key"]'
    )


def test_claim_names_are_the_same_for_the_same_machine_and_disk_only() -> None:
    assert claim_name(NAME, "disk-0", "m-1") == claim_name(NAME, "disk-0", "m-1")
    assert claim_name(NAME, "disk-0", "m-1") != claim_name(NAME, "disk-0", "m-2")
    stem, _, suffix = claim_name(NAME, "disk-0", "m-1").rpartition("-")
    assert stem == f"{NAME}-disk-0"
    assert len(suffix) == 5
    assert set(suffix) <= set("bcdfghjklmnpqrstvwxz2456789")


def test_a_vm_is_read_back() -> None:
    raw = build_vm(a_plan(owner_annotations=owner_annotations("cluster-1", "m-1")))
    raw["metadata"]["uid"] = "u-1"
    raw["spec"]["template"]["spec"]["volumes"].append(
        {"name": "csi", "persistentVolumeClaim": {"claimName": "pvc-1", "hotpluggable": True}}
    )
    raw["status"] = {
        "printableStatus": "Starting",
        "runStrategy": "RerunOnFailure",
        "created": True,
        "stateChangeRequests": [{"action": "Start"}],
        "conditions": [{"type": "Failure", "status": "True", "message": "no quota"}],
    }
    vm = read_vm(raw)
    assert (vm.uid, vm.machine_uid, vm.cluster_uid) == ("u-1", "m-1", "cluster-1")
    assert (vm.status, vm.observed_run_strategy, vm.start_requested, vm.failure) == (
        "Starting",
        "RerunOnFailure",
        True,
        "no quota",
    )
    assert vm.claims == (CLAIM, "pvc-1")
    assert vm.hotplugged == {"pvc-1"}


def test_a_bare_vm_is_read_without_complaint() -> None:
    vm = read_vm(
        {"metadata": {"name": "vm", "annotations": None}, "spec": {"running": False}, "status": None}
    )
    assert (vm.status, vm.run_strategy, vm.claims) == ("", "Halted", ())


STARTING = {"status": {"phase": "Scheduling", "phaseTransitionTimestamps": [{"phase": "Pending"}]}}
RAN_BEFORE = {
    "status": {
        "phase": "Failed",
        "phaseTransitionTimestamps": [{"phase": "Scheduled"}, {"phase": "Running"}, {"phase": "Failed"}],
    }
}


@pytest.mark.parametrize(
    ("annotations", "strategy", "instance", "expected"),
    [
        ({}, "RerunOnFailure", None, ""),
        ({}, "RerunOnFailure", {}, ""),
        ({}, "RerunOnFailure", STARTING, ""),
        ({names.HALTED_BY_QUOTA: "cpu"}, "Halted", None, ""),
        ({}, "Halted", None, "may have run, for it has been stopped (runStrategy Halted)"),
        (
            {names.MAC_ADDRESSES: "{}"},
            "RerunOnFailure",
            STARTING,
            "has run, for it bears the annotation harvesterhci.io/mac-address",
        ),
        (
            {names.LAST_RESTORE: "default-r1"},
            "RerunOnFailure",
            None,
            "was restored from a backup, for it bears the annotation restore.harvesterhci.io/last-restore-uid",
        ),
        (
            {},
            "RerunOnFailure",
            {"status": {"phase": "Running"}},
            "has run, for its VirtualMachineInstance has been Running",
        ),
        (
            {},
            "RerunOnFailure",
            RAN_BEFORE,
            "has run, for its VirtualMachineInstance has been Failed and Running",
        ),
    ],
)
def test_what_shows_that_a_vm_has_run(
    annotations: dict[str, str], strategy: str, instance: dict[str, Any] | None, expected: str
) -> None:
    vm = build_vm(a_plan())
    vm["metadata"]["annotations"] |= annotations
    vm["spec"]["runStrategy"] = strategy

    assert find_run(vm, instance) == expected
