"""What a poll of a machine leaves as its status, and when it is polled again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import NOON

from windrow.core.rng import Rng
from windrow.machines.plugin.credentials import ResolvedCredential
from windrow.machines.plugin.poller import PollIntervals, StatusPoller
from windrow.machines.plugin.process.client import DriverError
from windrow.machines.plugin.status import PollResult
from windrow.machines.plugin.tracked_machine import (
    ACCOUNT,
    PendingOperation,
    TrackedMachine,
    load_tracked_machine,
)
from windrow.machines.port import InfrastructureUnknown, MachineStatus
from windrow.machines.status_store import REMOVED_KEPT, StatusStore

CONFIG = {"MachineName": "w1", "WindrowMachineUID": "uid-w1", "WindrowCredential": "ns:cc"}
MADE = {"WindrowVMUID": "vm-1"}


class Rig:
    def __init__(
        self, folder: Path, *, is_tracked: bool = True, driver: str = "harvester", **config: Any
    ) -> None:
        self.resolved: Any = ResolvedCredential("ns:cc", {}, {}, account="a1")
        self.store = StatusStore()
        clock: Any = SimpleNamespace(now=lambda: NOON)
        launcher: Any = SimpleNamespace(resolve=self._resolve)
        self.poller = StatusPoller(launcher, self.store, clock, Rng(1), PollIntervals())
        self.machine = load_tracked_machine(folder, {**CONFIG, "WindrowDriver": driver, **config})
        self.machine.make_folder()
        if is_tracked:
            self.poller.machines[self.machine.uid] = self.machine
        self.answer: Any = a_status("present", "running")
        self.polls = 0
        self.poller._pool.poll = self._poll  # type: ignore[method-assign]

    async def _resolve(self, machine: TrackedMachine) -> Any:
        if isinstance(self.resolved, Exception):
            raise self.resolved
        return self.resolved

    async def _poll(self, machine: TrackedMachine, credential: Any) -> PollResult:
        self.polls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        found: PollResult = self.answer
        return found

    def put(self, presence: Any, state: Any = "", **rest: Any) -> MachineStatus | None:
        self.poller.put_result(self.machine, a_status(presence, state, **rest))
        return self.status

    async def poll(self) -> MachineStatus | None:
        await self.poller.poll_now(self.machine)
        return self.status

    @property
    def status(self) -> MachineStatus | None:
        return self.store.get(self.machine.uid)


def a_status(presence: Any, state: Any = "", *, is_windrow: bool = True, **rest: Any) -> PollResult:
    return PollResult(MachineStatus("uid-w1", "w1", presence, state=state, **rest), is_windrow)


@pytest.fixture
async def running() -> AsyncIterator[PendingOperation]:
    """An operation that goes on."""
    operation = PendingOperation("remove")
    operation.task = asyncio.ensure_future(asyncio.sleep(3600))
    yield operation
    operation.task.cancel()


def test_of_a_machine_that_is_not_tracked_any_more_nothing_is_stored(tmp_path: Path) -> None:
    rig = Rig(tmp_path, is_tracked=False, **MADE)

    assert rig.put("present", "running") is None
    rig.poller.put_unknown(rig.machine, "401")
    assert rig.status is None


def test_a_machine_that_is_gone_is_missing_and_stays_tracked_until_its_removal_is_requested(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, **MADE)
    found = rig.put("missing")
    assert found is not None
    assert (found.presence, rig.machine.uid in rig.poller.machines) == ("missing", True)

    rig.machine.removal_requested = True
    rig.put("missing")
    assert (rig.poller.machines, rig.machine.wake.is_set()) == ({}, True)
    assert not rig.machine.folder.exists()
    assert rig.store.was_removed("uid-w1")
    assert rig.status is not None
    assert rig.status.presence == "missing"


def test_a_machine_that_was_never_created_has_no_status(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.store.update(MachineStatus("uid-w1", "w1", "unknown"), NOON)

    assert rig.put("missing") is None
    rig.machine.removal_requested = True
    assert rig.put("missing") is not None


async def test_while_its_driver_removes_it_a_machine_is_not_said_to_be_missing(
    tmp_path: Path, running: PendingOperation
) -> None:
    rig = Rig(tmp_path, **MADE)
    rig.machine.operation, rig.machine.removal_requested = running, True

    assert rig.put("missing") is None
    assert rig.put("present", "deleting") is not None
    assert rig.machine.uid in rig.poller.machines


def test_with_a_credential_of_perhaps_another_account_a_machine_that_is_not_found_is_unknown(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, driver="digitalocean", **MADE)
    rig.machine.account_differs = True
    found = rig.put("missing")

    assert found is not None
    assert found.presence == "unknown"
    found = rig.put("present", "running")
    assert found is not None
    assert found.presence == "present"


@pytest.mark.parametrize(("driver", "presence"), [("digitalocean", "unknown"), ("harvester", "missing")])
def test_a_creation_in_doubt_is_not_found_on_harvester_only(
    tmp_path: Path, driver: str, presence: str
) -> None:
    rig = Rig(tmp_path, driver=driver, **MADE)
    rig.machine.create_uncertain = True
    found = rig.put("missing")

    assert found is not None
    assert found.presence == presence


def test_what_was_last_known_of_a_machine_stays_while_it_is_unknown(tmp_path: Path) -> None:
    rig = Rig(tmp_path, **MADE)
    rig.put("present", "running", vm_uid="vm-1", addresses=("10.0.0.5",), host="h1")
    rig.poller.put_unknown(rig.machine, "401")

    found = rig.status
    assert found is not None
    assert (found.presence, found.because) == ("unknown", "401")
    assert (found.vm_uid, found.addresses, found.host) == ("vm-1", ("10.0.0.5",), "h1")


def test_the_last_status_of_a_machine_that_was_removed_goes_when_many_more_were() -> None:
    store = StatusStore()
    for place in range(REMOVED_KEPT + 1):
        presence: Any = "present" if place == 1 else "missing"
        store.put(str(place), MachineStatus(str(place), "w", presence))
        store.expire(str(place))
    assert (store.get("0"), store.was_removed("0")) == (None, False)
    assert store.was_removed("1")

    store.put("more", MachineStatus("more", "w", "missing"))
    store.expire("more")
    assert not store.was_removed("1")
    assert store.get("1") is not None, "it is there again"
    assert store.get("2") is not None


# -- one poll


@pytest.mark.parametrize(
    ("config", "given", "polled"),
    [
        ({}, {}, False),
        (MADE, {}, True),
        ({}, {"create_started": True}, True),
        ({}, {"removal_requested": True}, True),
    ],
)
async def test_a_machine_is_polled_once_something_of_it_may_exist(
    tmp_path: Path, config: dict[str, Any], given: dict[str, bool], polled: bool
) -> None:
    rig = Rig(tmp_path, **config)
    for name, value in given.items():
        setattr(rig.machine, name, value)
    await rig.poll()

    assert bool(rig.polls) is polled


async def test_a_machine_that_cannot_be_polled_is_unknown_and_says_why(tmp_path: Path) -> None:
    rig = Rig(tmp_path, **MADE)
    for answer, said in (
        (DriverError("GetState", "quota of requests exceeded"), "quota of requests exceeded"),
        (ZeroDivisionError("by zero"), "polling its driver failed: ZeroDivisionError: by zero"),
    ):
        rig.answer = answer
        found = await rig.poll()
        assert found is not None
        assert (found.presence, said in found.because) == ("unknown", True), found.because

    rig.resolved = InfrastructureUnknown("Secret ns:cc is gone", "make it")
    found = await rig.poll()
    assert found is not None
    assert "Secret ns:cc is gone" in found.because


@pytest.mark.parametrize(
    ("presence", "config", "recorded"),
    [("present", MADE, "a1"), ("missing", MADE, "a0"), ("present", {}, "a0")],
)
async def test_a_machine_that_is_found_with_a_credential_is_of_its_account(
    tmp_path: Path, presence: str, config: dict[str, Any], recorded: str
) -> None:
    rig = Rig(tmp_path, **{ACCOUNT: "a0"}, **config)
    rig.machine.create_started = rig.machine.account_differs = True
    rig.answer = a_status(presence, "running")
    await rig.poll()

    assert (rig.machine.account, rig.machine.account_differs) == (recorded, recorded == "a0")


# -- when it is polled again


@pytest.mark.parametrize(
    ("status", "seconds"),
    [
        (None, 45),
        (a_status("present", "running", addresses=("10.0.0.5",)), 45),
        (a_status("present", "running"), 5),  # its address is to come
        (a_status("present", "stopped"), 45),
        (a_status("present", "starting"), 5),
        (a_status("unknown"), 15),
        (a_status("missing"), 15),
    ],
)
def test_a_machine_in_transition_is_polled_more_often_than_one_that_is_steady(
    tmp_path: Path, status: PollResult | None, seconds: int
) -> None:
    rig = Rig(tmp_path, **MADE)
    if status is not None:
        rig.poller.put_result(rig.machine, status)
    intervals = [rig.poller._poll_interval(rig.machine) / timedelta(seconds=seconds) for _ in range(200)]

    assert 0.8 <= min(intervals) < 0.82
    assert 1.18 < max(intervals) <= 1.2
