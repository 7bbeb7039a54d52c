"""Whose VM it is that stands on Harvester under the name of a machine of the Go driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windrow.core.formats.json import dumps
from windrow.harvester.identity import owner_annotations
from windrow.harvester.names import GUEST_CLUSTER
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.requests import Reply, Request
from windrow.machines.plugin.credentials import CredentialResolver, ResolvedCredential, StartState
from windrow.machines.plugin.ownership import (
    SEEN_UID_KEY,
    UNANSWERED_KEY,
    exists,
    find_vm_uid,
    is_adoptable,
)
from windrow.machines.plugin.process.client import DriverError
from windrow.machines.plugin.status import PollResult
from windrow.machines.plugin.tracked_machine import ACCOUNT, TrackedMachine, load_tracked_machine
from windrow.machines.port import InfrastructureUnknown, MachineStatus
from windrow.protocols import dockermachine as wire

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
        ({**MADE, SEEN_UID_KEY: "vm-0", UNANSWERED_KEY: True}, a_vm(labels=LABELS), "exists"),
        ({**MADE, SEEN_UID_KEY: "vm-0", UNANSWERED_KEY: True}, a_vm(), "absent"),
        (
            {**MADE, "ClusterName": "c1", SEEN_UID_KEY: "vm-0", UNANSWERED_KEY: True},
            a_vm(labels={**LABELS, GUEST_CLUSTER: "c2"}),
            "absent",
        ),
        ({**PLANNED, "ClusterName": "c1"}, a_vm(labels={**LABELS, GUEST_CLUSTER: "c2"}), "absent"),
        ({**PLANNED, "ClusterName": "c1"}, a_vm(labels={**LABELS, GUEST_CLUSTER: "c1"}), "exists"),
        # Drivers before v1.0 write no such label, and a machine may have no cluster's name.
        ({**PLANNED, "ClusterName": "c1"}, a_vm(labels=LABELS), "exists"),
        (PLANNED, a_vm(labels={**LABELS, GUEST_CLUSTER: "c2"}), "exists"),
        # It was created: what is written into the label later proves nothing.
        ({**MADE, "ClusterName": "c1"}, a_vm(labels={**LABELS, GUEST_CLUSTER: "c2"}), "exists"),
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


@pytest.mark.parametrize("uid", ["", ".", "..", "../other", "a/b"])
def test_the_folder_of_a_machine_is_below_that_of_all_machines_whatever_its_uid_is(
    tmp_path: Path, uid: str
) -> None:
    """It is deleted as a whole."""
    machine = load_tracked_machine(tmp_path, {**OWN, "WindrowMachineUID": uid})
    assert machine.folder.resolve().parent == tmp_path.resolve()


def test_a_record_that_was_planned_elsewhere_is_in_doubt(tmp_path: Path) -> None:
    assert load_tracked_machine(tmp_path, PLANNED).create_uncertain
    assert not load_tracked_machine(tmp_path, MADE).create_uncertain
    assert not load_tracked_machine(tmp_path, {**PLANNED, "WindrowPlanned": False}).create_uncertain


# -- a machine elsewhere: what its driver says, where that proves anything

ELSEWHERE = {**PLANNED, "WindrowDriver": "digitalocean"}
NOT_FOUND = DriverError("GetState", 'machine "m" not found')


class Answers:
    """The plugin of a foreign driver that answers GetState so."""

    def __init__(self, state: int | DriverError) -> None:
        self._state = state

    async def get_extensions(self) -> frozenset[str]:
        return frozenset()

    async def call(self, method: str) -> Any:
        if method == "GetIP":
            return "10.0.0.1"
        if isinstance(self._state, DriverError):
            raise self._state
        return self._state


async def exists_elsewhere(
    tmp_path: Path, state: int | DriverError, *, uncertain: bool, same_account: bool
) -> bool:
    machine = a_charge(tmp_path, {**ELSEWHERE, ACCOUNT: "digest-1"})
    machine.create_uncertain = uncertain
    account = "digest-1" if same_account else "digest-2"
    credential = ResolvedCredential("ns:cc", {}, {}, account=account)
    return await exists(a_ring(None), machine, credential, Answers(state))  # type: ignore[arg-type]


@pytest.mark.parametrize("vm", [None, a_vm(annotations=owner_annotations("c-1", "uid-1"))])
async def test_on_harvester_the_vm_tells_whether_there_is_something_to_remove(
    tmp_path: Path, vm: Any
) -> None:
    credential = ResolvedCredential("ns:cc", {}, {})
    found = await exists(a_ring(vm), a_charge(tmp_path, OWN), credential, Answers(NOT_FOUND))  # type: ignore[arg-type]
    assert found is (vm is not None)


async def test_with_its_account_a_driver_is_not_asked_about_what_it_created(tmp_path: Path) -> None:
    assert await exists_elsewhere(tmp_path, NOT_FOUND, uncertain=False, same_account=True)


@pytest.mark.parametrize("state", [wire.RUNNING, wire.STOPPED, wire.STOPPING, wire.STARTING])
@pytest.mark.parametrize("same_account", [True, False])
@pytest.mark.parametrize("uncertain", [True, False])
async def test_a_machine_that_its_driver_finds_exists(
    tmp_path: Path, state: int, same_account: bool, uncertain: bool
) -> None:
    assert await exists_elsewhere(tmp_path, state, uncertain=uncertain, same_account=same_account)


async def test_with_another_account_a_machine_that_is_not_found_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureUnknown, match="has changed since its creation"):
        await exists_elsewhere(tmp_path, NOT_FOUND, uncertain=False, same_account=False)
    refused = DriverError("GetState", "unauthorized")
    with pytest.raises(DriverError, match="unauthorized"):
        await exists_elsewhere(tmp_path, refused, uncertain=False, same_account=False)


@pytest.mark.parametrize("state", [NOT_FOUND, DriverError("GetState", "unauthorized"), wire.ERROR])
@pytest.mark.parametrize("same_account", [True, False])
async def test_a_creation_in_doubt_is_proven_by_a_definite_state_only(
    tmp_path: Path, state: int | DriverError, same_account: bool
) -> None:
    with pytest.raises(InfrastructureUnknown, match="cannot determine whether driver digitalocean created"):
        await exists_elsewhere(tmp_path, state, uncertain=True, same_account=same_account)


async def test_a_machine_in_error_exists_where_its_creation_is_certain(tmp_path: Path) -> None:
    assert await exists_elsewhere(tmp_path, wire.ERROR, uncertain=False, same_account=False)


@pytest.mark.parametrize(
    ("presence", "state", "start", "adoptable"),
    [
        ("present", "starting", StartState("ns/m"), True),
        ("present", "starting", None, True),
        ("present", "stopped", StartState("ns/m"), True),
        ("present", "starting", StartState("ns/m", ("m-cloudinit",)), False),
        ("present", "stopped", StartState("ns/m", ("m-cloudinit",), "has run"), False),
        ("present", "failed", StartState("ns/m", (), "has run"), True),
        ("present", "failed", StartState("ns/m"), False),
        ("present", "failed", None, False),
        # Its driver contradicts what Harvester shows.
        ("missing", "stopped", StartState("ns/m", (), "has run"), False),
    ],
)
def test_what_an_earlier_create_left_is_adopted_if_it_starts_is_stopped_or_has_run(
    presence: Any, state: Any, start: StartState | None, adoptable: bool
) -> None:
    result = PollResult(MachineStatus("uid-1", "m", presence, "vm-1", state), is_windrow=False)

    assert is_adoptable(result, start) is adoptable


@pytest.mark.parametrize("start", [None, StartState("ns/m"), StartState("ns/m", (), "has run")])
def test_what_is_in_no_state_that_its_driver_can_read_is_not_adopted(start: StartState | None) -> None:
    assert not is_adoptable(None, start)
