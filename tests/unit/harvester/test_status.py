"""What is seen of a machine, and that it survives the wire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.core.formats.json import dumps
from windrow.harvester.references import Host
from windrow.harvester.status import (
    InvalidVmStatus,
    MachineStatus,
    dump_vm_status,
    load_vm_status,
    read_vm_status,
)
from windrow.harvester.vmis import read_vmi
from windrow.harvester.vms import read_vm

HOST = Host("host-1", True, "zone-1", "region-1")


def a_vm(status: str = "Running") -> Any:
    metadata = {"name": "vm", "namespace": "d", "uid": "vm-1"}
    shown = {"printableStatus": status, "runStrategy": "RerunOnFailure"}
    return read_vm({"metadata": metadata, "spec": {"runStrategy": "RerunOnFailure"}, "status": shown})


def a_vmi(phase: str = "Running", **metadata: Any) -> Any:
    return read_vmi(
        {
            "metadata": {"name": "vm", "namespace": "d", **metadata},
            "status": {
                "phase": phase,
                "nodeName": "host-1",
                "interfaces": [{"name": "nic-0", "ipAddress": "10.0.0.5"}],
                "conditions": [{"type": "AgentConnected", "status": "True"}],
            },
        }
    )


def test_a_running_machine_has_addresses_and_an_agent() -> None:
    status = read_vm_status(a_vm(), a_vmi(), HOST)
    assert (status.state, status.addresses, status.agent_connected) == ("running", ("10.0.0.5",), True)
    assert (status.host, status.host_ready, status.zone, status.region) == (
        "host-1",
        True,
        "zone-1",
        "region-1",
    )


@pytest.mark.parametrize(
    ("status", "vmi"),
    [
        ("Stopping", a_vmi()),
        ("Stopping", a_vmi(deletionTimestamp="2026-01-01T00:00:00Z")),
        ("Starting", a_vmi("Scheduled")),
        ("Stopped", a_vmi("Succeeded")),
    ],
)
def test_a_machine_that_is_not_up_has_neither(status: str, vmi: Any) -> None:
    status = read_vm_status(a_vm(status), vmi, HOST)
    assert (status.addresses, status.agent_connected, status.host) == ((), None, "host-1")


def test_a_host_that_cannot_be_seen_is_neither_ready_nor_unready() -> None:
    assert read_vm_status(a_vm(), a_vmi()).host_ready is None


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TRUTH = st.none() | st.booleans()


@given(
    st.builds(
        MachineStatus,
        st.just("m-1"),
        st.just("c1-w-x"),
        st.sampled_from(["present", "missing"]),
        vm_uid=TEXT,
        state=st.sampled_from(["", "running", "stopping", "deleting"]),
        addresses=st.lists(TEXT).map(tuple),
        host=TEXT,
        host_ready=TRUTH,
        agent_connected=TRUTH,
        zone=TEXT,
        region=TEXT,
        because=TEXT,
        is_complete=st.booleans(),
        is_migratable=TRUTH,
        maintenance_strategy=TEXT,
    )
)
def test_a_status_survives_its_json_form(status: MachineStatus) -> None:
    assert load_vm_status(dump_vm_status(status), "m-1", "c1-w-x") == status


def test_what_another_release_leaves_out_is_not_known_and_what_it_adds_is_passed_over() -> None:
    assert load_vm_status(dumps({"presence": "present", "colour": "red"}), "m-1", "c1-w-x") == MachineStatus(
        "m-1", "c1-w-x", "present"
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"presence": "unknown"}',
        b'{"presence": ["present"]}',
        b'{"presence": "present", "state": "asleep"}',
        b'{"presence": "present", "state": {"a": 1}}',
        b'{"presence": "present", "addresses": "10.0.0.5"}',
        b'{"presence": "present", "hostReady": "yes"}',
    ],
)
def test_what_makes_no_sense_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidVmStatus):
        load_vm_status(raw, "m-1", "c1-w-x")


@pytest.mark.parametrize(
    ("status", "expected"), [("True", True), ("False", False), ("Unknown", None), (None, None)]
)
def test_whether_a_vm_can_migrate_is_what_kubevirt_says(status: str | None, expected: bool | None) -> None:
    vmi = a_vmi()
    raw = {
        "metadata": {
            "name": "m",
            "namespace": "d",
            "labels": {"harvesterhci.io/maintain-mode-strategy": "Shutdown"},
        },
        "status": {"conditions": [] if status is None else [{"type": "LiveMigratable", "status": status}]},
    }

    read = read_vmi(raw)
    found = read_vm_status(a_vm(), replace(vmi, is_migratable=read.is_migratable))

    assert (read.is_migratable, read.maintenance_strategy) == (expected, "Shutdown")
    assert found.is_migratable is expected
