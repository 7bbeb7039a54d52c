"""What proves that nothing of a VM runs any more."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.harvester.shutdown import LAUNCHERS, read_shutdown, select_launchers

VM = {"metadata": {"name": "w1", "namespace": "default"}}
REF = "VirtualMachine default/w1"


def an_instance(phase: str | None = None) -> dict[str, Any]:
    return {**VM, "status": {"phase": phase} if phase else {}}


def a_launcher(phase: str | None = None) -> dict[str, Any]:
    metadata = {"name": "virt-launcher-w1-x", "namespace": "default"}
    return {"metadata": metadata, "status": {"phase": phase} if phase else {}}


@pytest.mark.parametrize(
    ("vm", "vmi", "launchers", "because"),
    [
        (None, None, [], "is not found, and no launcher pod of it runs"),
        (VM, None, [], "has no VirtualMachineInstance, and no launcher pod of it runs"),
        (VM, an_instance("Failed"), [a_launcher("Failed")], "has ended, and no launcher pod of it runs"),
        (VM, an_instance("Succeeded"), [], "has ended, and no launcher pod of it runs"),
        (None, None, [a_launcher("Succeeded")], "is not found, and no launcher pod of it runs"),
    ],
)
def test_it_is_proven(vm: Any, vmi: Any, launchers: Any, because: str) -> None:
    found = read_shutdown(REF, vm, vmi, launchers)

    assert found.is_proven
    assert found.because == f"{REF} {because}"


@pytest.mark.parametrize("phase", [None, "Pending", "Scheduling", "Scheduled", "Running", "Unknown"])
def test_an_instance_that_may_run_is_no_proof_also_without_its_vm(phase: str | None) -> None:
    for vm in (VM, None):
        found = read_shutdown(REF, vm, an_instance(phase), [])

        assert not found.is_proven
        assert found.because == f"VirtualMachineInstance default/w1 is {phase or 'Pending'}"


@pytest.mark.parametrize("phase", [None, "Pending", "Running", "Unknown"])
def test_a_launcher_pod_that_may_run_is_no_proof_also_without_its_instance(phase: str | None) -> None:
    found = read_shutdown(REF, None, None, [a_launcher("Failed"), a_launcher(phase)])

    assert not found.is_proven
    assert found.because == f"Pod default/virt-launcher-w1-x is {phase or 'Pending'}"


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"vm.kubevirt.io/name": "w1"}},
        {"labels": {"vm.kubevirt.io/name": "web", "harvesterhci.io/vmName": "w1"}},
        {"labels": {"vm.kubevirt.io/name": "web"}, "annotations": {"kubevirt.io/domain": "w1"}},
        {"ownerReferences": [{"kind": "Job", "name": "x"}, {"kind": "VirtualMachineInstance", "name": "w1"}]},
    ],
    ids=["host-name", "harvester", "domain", "owner"],
)
def test_a_launcher_pod_is_of_the_vm_that_anything_says_it_is_of(metadata: dict[str, Any]) -> None:
    """KubeVirt's label has the host name of the guest, which need not be the VM's name."""
    assert LAUNCHERS == "kubevirt.io=virt-launcher"
    assert select_launchers("w1", [{"metadata": metadata}]) == [{"metadata": metadata}]


def test_the_launcher_pods_of_other_vms_are_not_taken() -> None:
    others = [
        {"metadata": {"name": "virt-launcher-w1-x"}},
        {
            "metadata": {
                "labels": {"vm.kubevirt.io/name": "w10"},
                "annotations": {"kubevirt.io/domain": "w10"},
            }
        },
        {"metadata": {"ownerReferences": [{"kind": "Job", "name": "w1"}]}},
    ]

    assert select_launchers("w1", others) == []
