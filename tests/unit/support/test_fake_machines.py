"""The double refuses worlds that cannot be, remembers, and fails when told to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.fake_machines import ImpossibleState, MemoryMachines

from windrow.machines.port import InfrastructureUnknown, MachineRefused, MachineSpec, Problem

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class StillClock:
    def now(self) -> datetime:
        return NOON

    def monotonic(self) -> timedelta:
        return timedelta()

    async def sleep_until(self, instant: datetime) -> None:
        raise AssertionError("nothing waits here")


def a_spec(name: str = "c1-pool1-abcde-fghij", uid: str = "m-1") -> MachineSpec:
    return MachineSpec(name, uid, "c1", "cluster-1", "ns:cc", {}, "#cloud-config\n")


async def test_a_prompt_machine_runs_at_once() -> None:
    machines = MemoryMachines(StillClock())
    await machines.ensure(a_spec(), None)
    status = machines.statuses().get("m-1")
    assert status is not None
    assert (status.state, status.since) == ("running", NOON)


async def test_two_machines_never_share_an_address() -> None:
    machines = MemoryMachines(StillClock())
    await machines.ensure(a_spec(), None)
    await machines.ensure(a_spec("c1-pool1-abcde-other", "m-2"), None)
    with pytest.raises(ImpossibleState):
        machines.set_addresses("c1-pool1-abcde-other", "10.52.0.11")


async def test_a_stopped_machine_has_no_address() -> None:
    machines = MemoryMachines(StillClock())
    await machines.ensure(a_spec(), None)
    machines.stop("c1-pool1-abcde-fghij")
    with pytest.raises(ImpossibleState):
        machines.set_addresses("c1-pool1-abcde-fghij", "10.0.0.1")


async def test_a_hanging_removal_shows_as_deleting_until_it_ends() -> None:
    machines = MemoryMachines(StillClock())
    memory = await machines.ensure(a_spec(), None)
    machines.hang_removal("c1-pool1-abcde-fghij")
    await machines.remove(memory, frozenset())
    assert [(s.state, s.addresses) for s in machines.statuses().values()] == [("deleting", ())]
    machines.finish_removal("c1-pool1-abcde-fghij")
    assert [s.presence for s in machines.statuses().values()] == ["missing"]


async def test_a_failure_is_raised_as_often_as_asked_and_changes_nothing() -> None:
    machines = MemoryMachines(StillClock())
    machines.fail("ensure", InfrastructureUnknown("no answer", "wait"), times=2)
    for _ in range(2):
        with pytest.raises(InfrastructureUnknown):
            await machines.ensure(a_spec(), None)
    assert machines.vm_names() == []
    await machines.ensure(a_spec(), None)
    assert machines.calls_of("ensure") == ["c1-pool1-abcde-fghij"] * 3


async def test_a_refused_spec_is_refused_by_check_and_by_ensure() -> None:
    machines = MemoryMachines(StillClock())
    machines.reject(lambda spec: Problem("image missing", "upload it", "diskInfo"))
    assert [str(problem) for problem in await machines.check([a_spec()])] == ["image missing; upload it"]
    with pytest.raises(MachineRefused):
        await machines.ensure(a_spec(), None)


async def test_a_slow_reader_gets_the_latest_state_once() -> None:
    machines = MemoryMachines(StillClock(), auto_boot=False)
    await machines.ensure(a_spec(), None)
    changes = machines.statuses().changes()
    machines.boot("c1-pool1-abcde-fghij")
    machines.stop("c1-pool1-abcde-fghij")
    before, after = await anext(changes)
    assert before is None
    assert after is not None
    assert after.state == "stopped"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await anext(changes)


async def test_a_machine_that_was_never_created_is_not_missing() -> None:
    machines = MemoryMachines(StillClock())
    machines.fail("ensure", InfrastructureUnknown("no answer", "wait"))
    with pytest.raises(InfrastructureUnknown):
        await machines.ensure(a_spec(), None)
    assert machines.statuses().get("m-1") is None
