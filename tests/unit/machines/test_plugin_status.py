"""One poll through a plugin: what is concluded from the answers of a plugin of ours, and of any other."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from windrow.harvester.status import dump_vm_status
from windrow.machines.plugin.process.client import DriverError, PluginUnusable
from windrow.machines.plugin.status import PollResult, correct_state, poll
from windrow.machines.plugin.tracked_machine import TrackedMachine, load_tracked_machine
from windrow.machines.port import MachineStatus
from windrow.protocols import dockermachine as wire

CONFIG = {
    "MachineName": "m",
    "WindrowMachineUID": "uid-1",
    "WindrowVMUID": "vm-1",
    "WindrowDriver": "digitalocean",
}
STATUS = MachineStatus("uid-1", "m", "present", "vm-1", "running", ("10.0.0.5",), because="it is well")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Answering:
    """A plugin that answers these calls; ours is one that knows WindrowGetVmStatus."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    async def get_extensions(self) -> frozenset[str]:
        return frozenset({wire.GET_VM_STATUS} & self._answers.keys())

    async def call(self, method: str) -> Any:
        answer = self._answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer


def a_machine(tmp_path: Path, **config: Any) -> TrackedMachine:
    return load_tracked_machine(tmp_path, {**CONFIG, **config})


async def polled(machine: TrackedMachine, **answers: Any) -> PollResult:
    return await poll(Answering(**answers), machine)  # type: ignore[arg-type]


async def test_a_plugin_of_ours_reports_the_whole_status(tmp_path: Path) -> None:
    result = await polled(a_machine(tmp_path), **{wire.GET_VM_STATUS: dump_vm_status(STATUS)})
    assert result == PollResult(STATUS, is_windrow=True)


async def test_a_malformed_status_of_a_plugin_of_ours_is_no_status(tmp_path: Path) -> None:
    with pytest.raises(
        PluginUnusable, match="of driver digitalocean returned an invalid status of machine m"
    ):
        await polled(a_machine(tmp_path), **{wire.GET_VM_STATUS: b"[]"})


@pytest.mark.parametrize(
    ("number", "state", "because"),
    [
        (wire.PAUSED, "stopped", ""),
        (wire.SAVED, "stopped", ""),
        (wire.STOPPED, "stopped", ""),
        (wire.STOPPING, "stopping", ""),
        (wire.STARTING, "starting", ""),
        (wire.NONE, "provisioning", ""),
        (wire.ERROR, "failed", "no quota"),
    ],
)
async def test_the_state_that_another_driver_reports(
    tmp_path: Path, number: int, state: str, because: str
) -> None:
    machine = a_machine(tmp_path)
    machine.last_error = because

    result = await polled(machine, GetState=number)

    status = MachineStatus("uid-1", "m", "present", "vm-1", state, because=because)  # type: ignore[arg-type]
    assert result == PollResult(status, is_windrow=False)


@pytest.mark.parametrize(
    ("answer", "addresses", "because"),
    [
        ("10.0.0.5\n", ("10.0.0.5",), ""),
        ("fd00::5", ("fd00::5",), ""),
        ("host-1.example.org", ("host-1.example.org",), ""),
        ("a" * 253, ("a" * 253,), ""),
        ("a" * 254, (), f"its driver reports the address {'a' * 80!r}"),
        ("", (), "its driver reports the address ''"),
        ("10.0.0.5 10.0.0.6", (), "its driver reports the address '10.0.0.5 10.0.0.6'"),
        (DriverError("GetIP", "no address yet"), (), "no address yet"),
    ],
)
async def test_a_machine_that_runs_has_the_address_that_its_driver_reports(
    tmp_path: Path, answer: Any, addresses: tuple[str, ...], because: str
) -> None:
    result = await polled(a_machine(tmp_path), GetState=wire.RUNNING, GetIP=answer)
    status = result.status
    assert (status.state, status.addresses, status.because) == ("running", addresses, because)


async def test_a_machine_is_missing_where_its_driver_says_of_it_that_it_is_not_found(tmp_path: Path) -> None:
    gone = DriverError("GetState", 'machine "m" not found')
    status = (await polled(a_machine(tmp_path), GetState=gone)).status
    assert (status.presence, status.because) == ("missing", 'machine "m" not found')

    for text in ('machine "n" not found', "unauthorized"):
        with pytest.raises(DriverError, match=text):
            await polled(a_machine(tmp_path), GetState=DriverError("GetState", text))


@pytest.mark.parametrize(
    ("number", "name"), [(wire.TIMEOUT, "Timeout"), (wire.NOT_FOUND, "Not Found"), (10, "10"), (-1, "-1")]
)
async def test_a_state_that_means_nothing_is_an_error_that_names_it(
    tmp_path: Path, number: int, name: str
) -> None:
    with pytest.raises(DriverError, match=rf"its state is {name}, which is not conclusive"):
        await polled(a_machine(tmp_path), GetState=number)


@pytest.mark.parametrize(
    ("change", "by_ours", "by_another"),
    [
        ({"state": "running"}, True, True),
        ({"state": "starting"}, True, True),
        ({"state": "provisioning"}, True, False),
        ({"state": "stopped"}, True, False),
        ({"state": "running", "is_complete": False}, False, False),
        ({"presence": "missing", "state": ""}, False, False),
    ],
)
def test_another_driver_s_creation_is_accepted_when_the_machine_starts(
    change: dict[str, Any], by_ours: bool, by_another: bool
) -> None:
    status = replace(STATUS, **change)
    accepted = (PollResult(status, True).is_accepted, PollResult(status, False).is_accepted)
    assert accepted == (by_ours, by_another)


@pytest.mark.parametrize(
    ("change", "is_stopped"),
    [
        ({"state": "stopped"}, True),
        ({"state": "stopping"}, True),
        ({"state": "running"}, False),
        ({"state": "stopped", "is_complete": False}, False),
        ({"state": "stopped", "presence": "missing"}, False),
    ],
)
def test_a_whole_machine_that_does_not_run_is_stopped(change: dict[str, Any], is_stopped: bool) -> None:
    assert PollResult(replace(STATUS, **change), is_windrow=False).is_stopped is is_stopped


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_machine_that_is_being_created_is_neither_stopped_nor_failed_before_it_starts(state: Any) -> None:
    status = replace(STATUS, state=state)
    assert correct_state(None, status, NOW, creating=True).state == "provisioning"
    assert correct_state(None, status, NOW, creating=False) == status


def test_a_machine_whose_creation_has_failed_is_not_provisioning() -> None:
    status = replace(STATUS, state="provisioning")
    failed = correct_state(None, status, NOW, creating=False, last_error="no quota")
    assert (failed.state, failed.because) == ("failed", "no quota")
    assert correct_state(None, status, NOW, creating=True, last_error="no quota") == status
    assert correct_state(None, status, NOW, creating=False) == status
    running = correct_state(None, STATUS, NOW, creating=False, last_error="no quota")
    assert running == STATUS


@pytest.mark.parametrize(
    ("before", "since", "state"),
    [
        ("stopping", timedelta(minutes=12), "stopped"),
        ("stopping", timedelta(minutes=11, seconds=59), "stopping"),
        ("stopped", timedelta(seconds=1), "stopped"),
        ("running", timedelta(minutes=20), "stopping"),
        ("stopping", None, "stopping"),
        (None, None, "stopping"),
    ],
)
def test_a_machine_that_has_been_stopping_for_longer_than_any_guest_may_take_has_stopped(
    before: Any, since: timedelta | None, state: str
) -> None:
    stopping = replace(STATUS, state="stopping")
    previous = replace(STATUS, state=before, since=NOW - since if since else None) if before else None

    found = correct_state(previous, stopping, NOW, creating=False)

    assert found.state == state
    assert found.because == (
        "its driver has reported Stopping for 12 minutes" if state == "stopped" else "it is well"
    )


def test_a_machine_that_was_stopping_and_runs_again_runs() -> None:
    before = replace(STATUS, state="stopping", since=NOW - timedelta(hours=1))
    assert correct_state(before, STATUS, NOW, creating=False) == STATUS
