"""Whose VM it is that stands on Harvester under the name of a machine of the Go driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windrow.core.formats.json import dumps
from windrow.harvester.identity import owner_annotations
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.requests import Reply, Request
from windrow.machines.plugin.credentials import CredentialResolver
from windrow.machines.plugin.ownership import SEEN_UID_KEY, find_vm_uid
from windrow.machines.plugin.tracked_machine import TrackedMachine, load_tracked_machine
from windrow.machines.port import InfrastructureUnknown

PLANNED = {
    "MachineName": "m",
    "VMNamespace": "default",
    "WindrowMachineUID": "uid-1",
    "WindrowClusterUID": "c-1",
    "WindrowCredential": "ns:cc",
    "WindrowPlanned": True,
}
MADE = {**PLANNED, "WindrowVMUID": "harvester:uid-1"}
OWN = {**PLANNED, "WindrowVMUID": "vm-1"}
LABELS = {"harvesterhci.io/creator": "docker-machine-driver-harvester", "harvesterhci.io/vmName": "m"}


class Shows:
    """A Harvester with one VM or none."""

    def __init__(self, vm: dict[str, Any] | None) -> None:
        self._vm = vm

    async def send(self, request: Request) -> Reply:
        if self._vm is not None:
            return Reply(200, dumps(self._vm))
        gone = {"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": "m"}}
        return Reply(404, dumps({**gone, "message": 'virtualmachines.kubevirt.io "m" not found'}))

    def stream(self, request: Request) -> Any:
        raise AssertionError

    async def aclose(self) -> None:
        pass


def a_vm(uid: str = "vm-1", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "m", "namespace": "default", "uid": uid, **metadata}}


def a_charge(tmp_path: Path, memory: dict[str, Any]) -> TrackedMachine:
    return load_tracked_machine(tmp_path, memory)


def a_ring(vm: dict[str, Any] | None) -> CredentialResolver:
    async def kubeconfig(credential: str) -> str:
        return render_kubeconfig(ClientConfig(server="https://harvester.example", token="t"), "harvester")

    async def no_fields(driver: str, credential: str) -> dict[str, str]:
        raise AssertionError

    return CredentialResolver(kubeconfig, no_fields, lambda _: Shows(vm))


@pytest.mark.parametrize(
    ("memory", "vm", "standing"),
    [
        (PLANNED, None, "absent"),
        (PLANNED, a_vm(labels=LABELS), "exists"),
        (PLANNED, a_vm(), "absent"),
        (PLANNED, a_vm(labels=LABELS, annotations=owner_annotations("c-2", "uid-2")), "absent"),
        (PLANNED, a_vm(annotations=owner_annotations("c-1", "uid-1")), "exists"),
        (MADE, None, "absent"),
        (MADE, a_vm(labels=LABELS), "exists"),
        ({**MADE, SEEN_UID_KEY: "vm-1"}, a_vm(), "exists"),
        ({**MADE, SEEN_UID_KEY: "vm-0"}, a_vm(labels=LABELS), "absent"),
        ({**MADE, SEEN_UID_KEY: "vm-1"}, a_vm(annotations=owner_annotations("c-2", "uid-2")), "absent"),
        ({**MADE, SEEN_UID_KEY: "vm-0"}, a_vm(annotations=owner_annotations("c-1", "uid-1")), "exists"),
        # Created by our own client: its uid is recorded, and only its annotations prove it.
        (OWN, a_vm(annotations=owner_annotations("c-1", "uid-1")), "exists"),
        (OWN, a_vm("vm-2", labels=LABELS), "absent"),
        ({**OWN, SEEN_UID_KEY: "vm-2"}, a_vm("vm-2"), "absent"),
    ],
)
async def test_only_a_vm_that_can_be_this_machines_exists(
    tmp_path: Path, memory: dict[str, Any], vm: dict[str, Any] | None, standing: str
) -> None:
    uid = await find_vm_uid(a_ring(vm), a_charge(tmp_path, memory))
    assert uid == ("vm-1" if standing == "exists" else "")


async def test_a_created_vm_without_its_labels_is_left_to_people(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureUnknown, match="put the label back"):
        await find_vm_uid(a_ring(a_vm()), a_charge(tmp_path, MADE))


async def test_a_vm_that_lost_its_annotations_is_left_to_people_with_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureUnknown) as raised:
        await find_vm_uid(a_ring(a_vm(labels=LABELS)), a_charge(tmp_path, OWN))
    assert "has the uid recorded for this machine, but not its owner annotations" in str(raised.value)
    assert "to uid-1 and" in str(raised.value)


async def test_a_machine_of_another_driver_has_no_vm_on_harvester(tmp_path: Path) -> None:
    elsewhere = {**MADE, "WindrowDriver": "digitalocean"}
    assert await find_vm_uid(a_ring(a_vm(labels=LABELS)), a_charge(tmp_path, elsewhere)) is None


def test_a_record_that_was_planned_elsewhere_is_in_doubt(tmp_path: Path) -> None:
    assert load_tracked_machine(tmp_path, PLANNED).create_uncertain
    assert not load_tracked_machine(tmp_path, MADE).create_uncertain
    assert not load_tracked_machine(tmp_path, {**PLANNED, "WindrowPlanned": False}).create_uncertain
