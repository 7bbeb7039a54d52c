"""Every situation that one NodeDriver may be in, and the one step that follows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import NoneType
from typing import Any

import pytest

from windrow.core.rng import Rng
from windrow.drivers.api import (
    NO_FIELD_ANNOTATIONS,
    TERMINAL_REASONS,
    Fault,
    FieldAnnotations,
    NodeDriver,
    Reason,
)
from windrow.drivers.plan import (
    RETRY,
    AddFinalizer,
    DefineKind,
    Download,
    Failure,
    Install,
    NodeDriverState,
    Plan,
    Uninstall,
    next_failure,
    plan_driver,
)
from windrow.drivers.schema import read_fields, render_crd
from windrow.drivers.status import derive_status
from windrow.drivers.store import InstalledDriver
from windrow.kubernetes.conditions import Condition, find_condition
from windrow.nodedriver.schema import harvester_config_crd
from windrow.protocols.dockermachine import Flag

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
URL, OTHER = "https://files.example/noop.tar.gz", "https://mirror.example/noop.tar.gz"
SUM, NEW = "a" * 64, "b" * 64
APPLIED = {"appliedURL": URL, "appliedChecksum": SUM, "driverName": "noop", "configKind": "NoopConfig"}
STORED = InstalledDriver(SUM, "noop", Path("/x"), "c" * 64, 9, (URL,))
CRD = render_crd("noop", read_fields([Flag("string", "noop-a", "", "", "")]), SUM)


def a_driver(**fields: Any) -> NodeDriver:
    return NodeDriver(**{"name": "noop", "uid": "u", "url": URL, "checksum": SUM, "active": True, **fields})


def seen(driver: NodeDriver | None = None, **fields: Any) -> NodeDriverState:
    return NodeDriverState(driver or a_driver(has_finalizer=True), NOON, **fields)


def in_use(**fields: Any) -> NodeDriverState:
    return seen(a_driver(has_finalizer=True, status=APPLIED, **fields), installed=STORED, crd=CRD)


def trouble(
    again: datetime | None, asked: tuple[object, ...] = ("u", URL, SUM, NO_FIELD_ANNOTATIONS)
) -> Failure:
    return Failure(Fault("it broke", "mend it", "DownloadFailed"), asked, 1, NOON, NOON, again)


STEPS: dict[str, tuple[NodeDriverState, type]] = {
    "new": (seen(a_driver()), AddFinalizer),
    "claimed": (seen(), Download),
    "downloaded": (seen(downloaded=True), Install),
    "unpacked": (seen(installed=STORED), DefineKind),
    "unpacked, of the same content from another URL": (
        seen(installed=replace(STORED, urls=(OTHER,))),
        Download,
    ),
    "answered": (in_use(), NoneType),
    "switched off": (in_use(active=False), NoneType),
    "never wanted": (seen(a_driver(active=False)), NoneType),
    "wanted for its kind": (
        seen(a_driver(active=False, add_cloud_credential=True, has_finalizer=True)),
        Download,
    ),
    "another URL": (in_use(url=OTHER), Download),
    "another URL, downloaded": (replace(in_use(url=OTHER), downloaded=True), Install),
    "another URL, unpacked": (
        replace(in_use(url=OTHER), installed=replace(STORED, urls=(URL, OTHER))),
        DefineKind,
    ),
    "another checksum": (replace(in_use(checksum=NEW), installed=None), Download),
    "its files are gone": (replace(in_use(), installed=None), Download),
    "its kind is gone": (replace(in_use(), crd=None), DefineKind),
    "its kind was made of an older driver": (
        replace(in_use(), crd=render_crd("noop", (), NEW)),
        DefineKind,
    ),
    "its annotations say more about its fields": (
        in_use(field_annotations=FieldAnnotations(passwords=frozenset("a"))),
        DefineKind,
    ),
    "its kind is kept by the manager": (
        replace(in_use(), crd=harvester_config_crd(), kind_external=True),
        NoneType,
    ),
    "broken, and the time has come": (seen(failure=trouble(NOON)), Download),
    "broken, and asked for otherwise since": (
        seen(failure=trouble(None, ("u", OTHER, SUM, NO_FIELD_ANNOTATIONS))),
        Download,
    ),
    "broken, and made anew since": (
        seen(failure=trouble(None, ("v", URL, SUM, NO_FIELD_ANNOTATIONS))),
        Download,
    ),
    "built in": (seen(a_driver(url="local://", checksum="", built_in_kind="HarvesterConfig")), NoneType),
    "built in, switched off": (seen(a_driver(active=False, built_in_kind="HarvesterConfig")), NoneType),
    "deleted": (seen(a_driver(has_finalizer=True, is_deleting=True, status=APPLIED)), Uninstall),
    "deleted while its fault lasts": (
        seen(a_driver(has_finalizer=True, is_deleting=True), failure=trouble(None)),
        Uninstall,
    ),
}


@pytest.mark.parametrize("situation", STEPS)
def test_each_situation_has_its_step(situation: str):
    before, step = STEPS[situation]

    plan = plan_driver(before)

    assert type(plan.action) is step
    assert plan.fault is None
    assert plan.action is None or plan.action.because


REFUSED: dict[str, tuple[NodeDriverState, Reason]] = {
    "faults in the object": (seen(a_driver(faults=(Fault("bad", "mend"),))), "InvalidSpec"),
    "faults in the object while an older one is in use": (
        in_use(faults=(Fault("bad", "mend"),)),
        "InvalidSpec",
    ),
    "broken, and the time has not come": (
        seen(failure=trouble(NOON + timedelta(seconds=1))),
        "DownloadFailed",
    ),
    "broken for good": (seen(failure=trouble(None)), "DownloadFailed"),
    "another one has the name": (seen(installed=STORED, owner="older"), "NameConflict"),
    "it calls itself otherwise now": (
        replace(in_use(), installed=replace(STORED, name="nope"), crd=None),
        "NameConflict",
    ),
    "the CRD is not ours": (
        seen(installed=STORED, crd={"metadata": {"name": "noopconfigs"}}),
        "NameConflict",
    ),
    "deleted and in use": (
        seen(a_driver(has_finalizer=True, is_deleting=True, status=APPLIED), clusters=("a/b",)),
        "InUse",
    ),
    "deleted, and machines of it are left": (
        seen(a_driver(has_finalizer=True, is_deleting=True, status=APPLIED), machines=("a/b-1",)),
        "InUse",
    ),
}


@pytest.mark.parametrize("situation", REFUSED)
def test_each_refusal_has_its_reason(situation: str):
    before, reason = REFUSED[situation]

    plan = plan_driver(before)

    assert plan.action is None
    assert plan.fault is not None
    assert plan.fault.reason == reason


def test_a_deleted_object_without_our_finalizer_is_left_alone():
    assert plan_driver(seen(a_driver(is_deleting=True))) == Plan()


def test_a_kind_of_which_objects_exist_is_kept():
    deleted = a_driver(has_finalizer=True, is_deleting=True, status=APPLIED)

    assert plan_driver(seen(deleted)).action == Uninstall(
        "NoopConfig", False, "the NodeDriver is being deleted"
    )
    assert plan_driver(seen(deleted, machine_configs=("a/b",))).action == Uninstall(
        "NoopConfig",
        True,
        "the NodeDriver is being deleted; the CRD of NoopConfig stays, because objects of it exist",
    )


def test_clusters_that_use_it_are_named_up_to_three():
    deleted = a_driver(has_finalizer=True, is_deleting=True, status=APPLIED)
    users = tuple(f"ns/{name}" for name in "abcde")

    fault = plan_driver(seen(deleted, clusters=users)).fault

    assert str(fault) == (
        "NoopConfig is used by Clusters ns/a, ns/b, ns/c and 2 more; "
        "delete these Clusters first; the driver is needed to remove their machines"
    )


def test_machines_of_the_driver_are_named_up_to_three():
    deleted = a_driver(has_finalizer=True, is_deleting=True, status=APPLIED)

    def fault(names: str) -> str:
        return str(plan_driver(seen(deleted, machines=tuple(f"ns/{name}" for name in names))).fault)

    assert fault("a") == (
        "driver noop has Machines ns/a; "
        "wait until these Machines are deleted, or delete them; the driver is needed to remove them"
    )
    assert fault("abcde").startswith("driver noop has Machines ns/a, ns/b, ns/c and 2 more; wait")


def test_the_reason_of_an_action_names_what_changed():
    def because(before: NodeDriverState) -> str:
        action = plan_driver(before).action
        assert action is not None
        return action.because

    assert because(seen()) == "it is not installed"
    assert because(in_use(url=OTHER)) == f"its URL changed from {URL}"
    assert because(replace(in_use(checksum=NEW), installed=None)) == f"its checksum changed from {SUM[:12]}…"
    assert because(replace(in_use(), installed=None)) == "its binary is not on disk as it was installed"


# -- later and later ---------------------------------------------------------------------------------------------


class NoJitter(Rng):
    def uniform(self, low: float, high: float) -> float:
        return 1.0


RNG = NoJitter()


def test_a_retryable_fault_is_retried_with_backoff():
    fault = Fault("it broke", "mend it", "DownloadFailed")
    waits: list[timedelta] = []
    before = None
    for _ in range(12):
        before = next_failure(before, fault, seen(), RNG)
        assert before.retry_at is not None
        waits.append(before.retry_at - NOON)

    assert waits[0] == RETRY.initial + timedelta(seconds=1)
    assert waits == sorted(waits)
    assert waits[-1] == RETRY.maximum + timedelta(seconds=1)
    assert before is not None
    assert before.since == NOON


def test_another_fault_or_another_spec_restarts_the_backoff():
    fault = Fault("it broke", "mend it", "DownloadFailed")
    late = next_failure(next_failure(None, fault, seen(), RNG), fault, seen(), RNG)

    assert late.count == 2
    assert next_failure(late, Fault("x", "y", "ProbeFailed"), seen(), RNG).count == 1
    assert next_failure(late, fault, seen(a_driver(url=OTHER)), RNG).count == 1


@pytest.mark.parametrize("reason", sorted(TERMINAL_REASONS))
def test_a_terminal_fault_is_not_retried(reason: Reason):
    assert next_failure(None, Fault("x", "y", reason), seen(), RNG).retry_at is None


@pytest.mark.parametrize(
    ("sandbox", "status", "words"),
    [
        (
            "Landlock ABI 7, seccomp",
            "True",
            "without access to the manager's state (Landlock ABI 7, seccomp)",
        ),
        ("", "False", "can read the manager's state directory"),
    ],
)
def test_the_status_says_whether_the_driver_runs_in_a_sandbox(sandbox: str, status: str, words: str):
    written = derive_status(replace(in_use(), sandbox=sandbox), Plan())

    found = find_condition(written["conditions"], "Sandboxed")
    assert found is not None
    assert found.status == status
    assert words in found.message


def test_a_built_in_driver_has_no_sandbox_to_report():
    built_in = a_driver(has_finalizer=True, built_in_kind="HarvesterConfig", url="local://")
    override = a_driver(has_finalizer=True, built_in_kind="HarvesterConfig")

    def sandboxed(driver: NodeDriver) -> Condition | None:
        written = derive_status(seen(driver, sandbox="Landlock"), Plan())
        return find_condition(written["conditions"], "Sandboxed")

    assert sandboxed(built_in) is None
    assert sandboxed(override) is not None
