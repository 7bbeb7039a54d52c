"""Run strategies as a table: reference 05 §2.5 E."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from windrow.emulator.kit.vm_readings import Instance, Request, Vm
from windrow.emulator.vms.run_strategies import (
    CreateInstance,
    DeleteInstance,
    NoChange,
    WaitUntil,
    backoff,
    open_requests,
    plan_instance,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_vm(strategy: str, **rest) -> Vm:
    plain = Vm(False, strategy, strategy, (), None, 0, "")
    return replace(plain, **rest)


def an_instance(phase: str, **rest) -> Instance:
    return replace(Instance("vmi-1", phase, False, True), **rest)


NEVER, RAN = "", "acted"  # status.runStrategy before and after the first start


@pytest.mark.parametrize(
    ("strategy", "phase", "acted_on", "wanted"),
    [
        ("Always", None, NEVER, CreateInstance),
        ("Always", None, RAN, CreateInstance),
        ("Always", "Running", RAN, NoChange),
        ("Always", "Succeeded", RAN, DeleteInstance),
        ("Always", "Failed", RAN, DeleteInstance),
        ("RerunOnFailure", None, NEVER, CreateInstance),
        ("RerunOnFailure", None, RAN, NoChange),
        ("RerunOnFailure", "Running", RAN, NoChange),
        ("RerunOnFailure", "Succeeded", RAN, DeleteInstance),
        ("RerunOnFailure", "Failed", RAN, DeleteInstance),
        ("Manual", None, NEVER, NoChange),
        ("Manual", "Succeeded", RAN, NoChange),
        ("Manual", "Failed", RAN, NoChange),
        ("Once", None, NEVER, CreateInstance),
        ("Once", None, RAN, NoChange),
        ("Once", "Failed", RAN, NoChange),
        ("Halted", None, NEVER, NoChange),
        ("Halted", "Running", RAN, DeleteInstance),
        ("Halted", "Failed", RAN, DeleteInstance),
    ],
)
def test_each_strategy_does_what_kubevirt_does(strategy, phase, acted_on, wanted):
    vm = a_vm(strategy, acted_on=strategy if acted_on == RAN else "")
    instance = an_instance(phase) if phase else None

    assert isinstance(plan_instance(vm, instance, NOON), wanted)


def test_a_failed_instance_under_rerun_on_failure_adds_a_start_request():
    step = plan_instance(a_vm("RerunOnFailure"), an_instance("Failed"), NOON)

    assert isinstance(step, DeleteInstance)
    assert step.then_start


def test_a_guest_that_powered_itself_off_is_not_started_again():
    step = plan_instance(a_vm("RerunOnFailure"), an_instance("Succeeded"), NOON)

    assert isinstance(step, DeleteInstance)
    assert not step.then_start


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure", "Manual"])
def test_a_restart_deletes_first_and_creates_when_the_old_instance_is_gone(strategy):
    vm = a_vm(strategy, requests=(Request("Stop", "vmi-1"), Request("Start")))

    assert isinstance(plan_instance(vm, an_instance("Running"), NOON), DeleteInstance)
    assert isinstance(plan_instance(vm, None, NOON), CreateInstance)


def test_a_deleting_instance_is_not_changed():
    vm = a_vm("Always", requests=(Request("Stop", "vmi-1"),))

    assert isinstance(plan_instance(vm, an_instance("Running", deleting=True), NOON), NoChange)


def test_a_stop_request_for_an_earlier_instance_counts_as_done():
    vm = a_vm("Manual", requests=(Request("Stop", "vmi-0"),))

    assert open_requests(vm, an_instance("Running")) == ()


def test_a_start_request_is_done_once_an_instance_exists():
    vm = a_vm("RerunOnFailure", requests=(Request("Start"),))

    assert open_requests(vm, an_instance("Pending")) == ()
    assert open_requests(vm, an_instance("Failed"))
    assert open_requests(vm, None)


def test_early_failures_hold_the_next_start_off():
    vm = a_vm("Always", retry_at=NOON + timedelta(seconds=10), failures=1)

    step = plan_instance(vm, None, NOON)

    assert isinstance(step, WaitUntil)
    assert NOON + timedelta(seconds=10) == step.until
    assert isinstance(plan_instance(vm, None, step.until), CreateInstance)


def test_the_back_off_grows_with_the_square_and_is_capped():
    waits = [backoff(count, 10, 300, 0.0).total_seconds() for count in (1, 2, 3, 5, 6, 20)]

    assert waits == [10, 40, 90, 250, 300, 300]


def test_a_vm_that_is_being_deleted_starts_nothing():
    assert isinstance(plan_instance(a_vm("Always", deleting=True), None, NOON), NoChange)
