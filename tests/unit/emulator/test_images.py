"""The life of images: reference 05 §2.8 and §2.9."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.host.images import is_iso, plan_image, render_class
from windrow.emulator.release import NEWEST_RELEASE
from windrow.kubernetes.conditions import find_condition

from .objects import an_image

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DELAYS = Delays()


class FrozenClock:
    def now(self):
        return NOON

    async def sleep_until(self, instant):
        raise AssertionError("a plan waits for nothing")


PACE = ScaledClock(FrozenClock())


def an(arrives="", **spec):
    raw = an_image("jammy", **spec)
    raw["metadata"].update(uid="u-1", annotations={"emulator.windrow.io/import": arrives} if arrives else {})
    raw.pop("status")
    return raw


def at(image, seconds):
    stage = plan_image(image, timedelta(), timedelta(seconds=seconds), NOON, PACE, DELAYS, NEWEST_RELEASE)
    return {**image, "status": stage.status}, stage.requeue_at


def imported(image):
    return find_condition(image["status"]["conditions"], "Imported")


def test_the_class_is_there_from_the_start_and_named_by_uid():
    image, look = at(an(), 0)

    assert (
        image["status"]["storageClassName"]
        == "lh-u-1"
        == render_class(image, NEWEST_RELEASE)["metadata"]["name"]
    )
    assert render_class(image, NEWEST_RELEASE)["parameters"]["backingImage"] == "vmi-u-1"
    assert (imported(image).status, imported(image).reason) == ("Unknown", "Importing")
    assert look is not None


def test_progress_is_below_100_until_the_image_is_ready():
    shown = [at(an(), seconds)[0]["status"]["progress"] for seconds in (0, 6, 15, 29.99, 30)]

    assert shown == sorted(shown)
    assert shown[0] == 0
    assert shown[-2] == 99
    assert shown[-1] == 100


def test_a_ready_image_has_its_sizes_and_is_not_requeued():
    image, look = at(an(), 30)

    assert imported(image).status == "True"
    assert image["status"]["virtualSize"] > image["status"]["size"] > 0
    assert look is None
    assert at(image, 9999)[0] == image


def test_an_iso_is_as_big_as_it_is():
    image, _ = at(an(url="https://example.org/installer.ISO?x=1"), 30)

    assert image["status"]["virtualSize"] == image["status"]["size"]


@pytest.mark.parametrize(
    ("label", "url", "display", "wanted"),
    [
        ("iso", "https://x/a.qcow2", "a", True),
        ("raw_qcow2", "https://x/a.iso", "a", False),
        ("", "https://x/a.iso?token=1", "a", True),
        ("", "", "Installer.ISO", True),
        ("", "https://x/a.img", "a.iso", False),
    ],
)
def test_an_iso_is_recognized_by_label_url_or_name(label, url, display, wanted):
    image = an(url=url, displayName=display)
    image["metadata"]["labels"] = {"harvesterhci.io/image-type": label} if label else {}

    assert is_iso(image) is wanted


def test_a_failing_import_counts_its_tries_and_gives_up():
    image, seen = an("fails"), []
    for _ in range(6):
        image, look = at(image, 30)
        limit = find_condition(image["status"]["conditions"], "RetryLimitExceeded")
        seen.append((image["status"]["failed"], limit.status, look is not None))

    assert seen[:4] == [(1, "False", True), (2, "False", True), (3, "False", True), (4, "True", False)]
    assert seen[4:] == [seen[3]] * 2
    assert imported(image).status == "False"
    assert find_condition(image["status"]["conditions"], "RetryLimitExceeded").message.startswith(
        "failed due to error: "
    )


def test_a_stuck_import_hangs_for_ever():
    image, look = at(an("stuck"), 86400)

    assert image["status"]["progress"] == 33
    assert imported(image).status == "Unknown"
    assert look is None


def test_an_image_that_was_there_before_is_ready_at_once():
    assert at(an("done"), 0)[0]["status"]["progress"] == 100
