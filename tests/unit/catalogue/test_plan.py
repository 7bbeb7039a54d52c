"""Every situation that one NodeDriver may be in, and the one step that follows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from windrow.catalogue.faults import HOPELESS, Fault, Reason
from windrow.catalogue.plan import (
    FIRST,
    MOST,
    Activate,
    Claim,
    Deactivate,
    Download,
    Install,
    Offer,
    Plan,
    Remove,
    Seen,
    Trouble,
    next_trouble,
    plan_driver,
)
from windrow.catalogue.reading import NO_HINTS, Hints, NodeDriver
from windrow.catalogue.schemas import read_fields, render_crd
from windrow.catalogue.store import Stored
from windrow.nodedriver.schema import harvester_config_crd
from windrow.wire.dockermachine import Flag

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
URL, OTHER = "https://files.example/noop.tar.gz", "https://mirror.example/noop.tar.gz"
SUM, NEW = "a" * 64, "b" * 64
APPLIED = {"appliedURL": URL, "appliedChecksum": SUM, "driverName": "noop", "configKind": "NoopConfig"}
STORED = Stored(SUM, "noop", Path("/x"), "c" * 64, 9, (URL,))
CRD = render_crd("noop", read_fields([Flag("string", "noop-a", "", "", "")]), SUM)


def a_driver(**fields: Any) -> NodeDriver:
    return NodeDriver(**{"name": "noop", "uid": "u", "url": URL, "checksum": SUM, "active": True, **fields})


def seen(driver: NodeDriver | None = None, **fields: Any) -> Seen:
    return Seen(driver or a_driver(is_claimed=True), NOON, **fields)


def in_use(**fields: Any) -> Seen:
    return seen(a_driver(is_claimed=True, status=APPLIED, **fields), stored=STORED, crd=CRD)


def trouble(again: datetime | None, asked: tuple[object, ...] = ("u", URL, SUM, NO_HINTS)) -> Trouble:
    return Trouble(Fault("it broke", "mend it", "DownloadFailed"), asked, 1, NOON, again)


STEPS: dict[str, tuple[Seen, type]] = {
    "new": (seen(a_driver()), Claim),
    "claimed": (seen(), Download),
    "downloaded": (seen(downloaded=True), Install),
    "unpacked": (seen(stored=STORED), Offer),
    "unpacked, of the same content from another URL": (seen(stored=replace(STORED, urls=(OTHER,))), Download),
    "answered": (in_use(), Activate),
    "switched off": (in_use(active=False), Deactivate),
    "never wanted": (seen(a_driver(active=False)), Deactivate),
    "wanted for its kind": (
        seen(a_driver(active=False, add_cloud_credential=True, is_claimed=True)),
        Download,
    ),
    "another URL": (in_use(url=OTHER), Download),
    "another URL, downloaded": (replace(in_use(url=OTHER), downloaded=True), Install),
    "another URL, unpacked": (replace(in_use(url=OTHER), stored=replace(STORED, urls=(URL, OTHER))), Offer),
    "another checksum": (replace(in_use(checksum=NEW), stored=None), Download),
    "its files are gone": (replace(in_use(), stored=None), Download),
    "its kind is gone": (replace(in_use(), crd=None), Offer),
    "its kind was made of an older driver": (
        replace(in_use(), crd=render_crd("noop", (), NEW)),
        Offer,
    ),
    "its annotations say more about its fields": (in_use(hints=Hints(passwords=frozenset("a"))), Offer),
    "its kind is kept by the manager": (
        replace(in_use(), crd=harvester_config_crd(), keeps_kind=True),
        Activate,
    ),
    "broken, and the time has come": (seen(trouble=trouble(NOON)), Download),
    "broken, and asked for otherwise since": (
        seen(trouble=trouble(None, ("u", OTHER, SUM, NO_HINTS))),
        Download,
    ),
    "broken, and made anew since": (seen(trouble=trouble(None, ("v", URL, SUM, NO_HINTS))), Download),
    "built in": (seen(a_driver(url="local://", checksum="", own_kind="HarvesterConfig")), Activate),
    "built in, switched off": (seen(a_driver(active=False, own_kind="HarvesterConfig")), Deactivate),
    "deleted": (seen(a_driver(is_claimed=True, is_deleting=True, status=APPLIED)), Remove),
    "deleted while its fault lasts": (
        seen(a_driver(is_claimed=True, is_deleting=True), trouble=trouble(None)),
        Remove,
    ),
}


@pytest.mark.parametrize("situation", STEPS)
def test_each_situation_has_its_step(situation: str):
    before, step = STEPS[situation]

    plan = plan_driver(before)

    assert type(plan.action) is step
    assert plan.fault is None
    assert plan.action.because


REFUSED: dict[str, tuple[Seen, Reason]] = {
    "faults in the object": (seen(a_driver(faults=(Fault("bad", "mend"),))), "Refused"),
    "faults in the object while an older one is in use": (in_use(faults=(Fault("bad", "mend"),)), "Refused"),
    "broken, and the time has not come": (
        seen(trouble=trouble(NOON + timedelta(seconds=1))),
        "DownloadFailed",
    ),
    "broken for good": (seen(trouble=trouble(None)), "DownloadFailed"),
    "another one has the name": (seen(stored=STORED, owner="older"), "NameTaken"),
    "it calls itself otherwise now": (
        replace(in_use(), stored=replace(STORED, name="nope"), crd=None),
        "NameTaken",
    ),
    "the kind is somebody else's": (
        seen(stored=STORED, crd={"metadata": {"name": "noopconfigs"}}),
        "NameTaken",
    ),
    "deleted and in use": (
        seen(a_driver(is_claimed=True, is_deleting=True, status=APPLIED), users=("a/b",)),
        "InUse",
    ),
    "deleted, and machines of it are left": (
        seen(a_driver(is_claimed=True, is_deleting=True, status=APPLIED), machines=("a/b-1",)),
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


def test_an_object_that_is_deleted_and_was_never_claimed_is_left_alone():
    assert plan_driver(seen(a_driver(is_deleting=True))) == Plan()


def test_a_kind_of_which_objects_exist_is_kept():
    deleted = a_driver(is_claimed=True, is_deleting=True, status=APPLIED)

    assert plan_driver(seen(deleted)).action == Remove("NoopConfig", False, "it was deleted")
    assert plan_driver(seen(deleted, configs=("a/b",))).action == Remove(
        "NoopConfig", True, "it was deleted; NoopConfig stays, because objects of it exist"
    )


def test_who_uses_it_is_named_up_to_three():
    deleted = a_driver(is_claimed=True, is_deleting=True, status=APPLIED)
    users = tuple(f"ns/{name}" for name in "abcde")

    fault = plan_driver(seen(deleted, users=users)).fault

    assert str(fault) == (
        "NoopConfig is used by Clusters ns/a, ns/b, ns/c and 2 more; "
        "delete them first; the driver is needed to remove their machines"
    )


def test_machines_that_it_made_are_named_up_to_three():
    deleted = a_driver(is_claimed=True, is_deleting=True, status=APPLIED)

    def fault(names: str) -> str:
        return str(plan_driver(seen(deleted, machines=tuple(f"ns/{name}" for name in names))).fault)

    assert fault("a") == (
        "the driver noop has made Machine ns/a; "
        "wait until it is gone, or delete it; the driver is needed to remove it"
    )
    assert fault("abcde").startswith("the driver noop has made Machines ns/a, ns/b, ns/c and 2 more; wait")


def test_reasons_say_what_changed():
    def because(before: Seen) -> str:
        action = plan_driver(before).action
        assert action is not None
        return action.because

    assert because(seen()) == "it is not installed yet"
    assert because(in_use(url=OTHER)) == f"its URL changed from {URL}"
    assert because(replace(in_use(checksum=NEW), stored=None)) == f"its checksum changed from {SUM[:12]}…"
    assert because(replace(in_use(), stored=None)) == "its program is not on the disk as it was installed"


# -- later and later ---------------------------------------------------------------------------------------------


def test_what_may_heal_is_tried_again_later_and_later():
    fault = Fault("it broke", "mend it", "DownloadFailed")
    waits: list[timedelta] = []
    before = None
    for _ in range(12):
        before = next_trouble(before, fault, seen(), 1.0)
        assert before.again is not None
        waits.append(before.again - NOON)

    assert waits[0] == FIRST + timedelta(seconds=1)
    assert waits == sorted(waits)
    assert waits[-1] == MOST + timedelta(seconds=1)
    assert before is not None
    assert before.since == NOON


def test_another_fault_or_another_wish_begins_anew():
    fault = Fault("it broke", "mend it", "DownloadFailed")
    late = next_trouble(next_trouble(None, fault, seen(), 1.0), fault, seen(), 1.0)

    assert late.failures == 2
    assert next_trouble(late, Fault("x", "y", "NoAnswer"), seen(), 1.0).failures == 1
    assert next_trouble(late, fault, seen(a_driver(url=OTHER)), 1.0).failures == 1


@pytest.mark.parametrize("reason", sorted(HOPELESS))
def test_what_cannot_heal_is_not_tried_again(reason: Reason):
    assert next_trouble(None, Fault("x", "y", reason), seen(), 1.0).again is None
