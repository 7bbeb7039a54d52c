"""Until when an attachment that had no answer may still be carried out."""

from __future__ import annotations

from datetime import timedelta

from windrow.csi.harvester.unanswered import UnansweredAttachments
from windrow.harvester.unanswered import LATEST

NOW = timedelta(hours=1)
VM, VOLUME = "node-1", "pvc-1"


def end(known: UnansweredAttachments, now: timedelta = NOW) -> timedelta | None:
    return known.find_end(VM, VOLUME, now)


def test_a_request_without_an_answer_may_be_carried_out_until_its_latest_instant() -> None:
    known = UnansweredAttachments()
    known.on_unanswered(VM, VOLUME, NOW)

    assert end(known) == NOW + LATEST
    assert end(known, NOW + LATEST - timedelta(seconds=1)) == NOW + LATEST
    assert (known.find_end("node-2", VOLUME, NOW), known.find_end(VM, "pvc-2", NOW)) == (None, None)
    assert end(known, NOW + LATEST) is None
    assert end(known) is None  # for good


def test_a_volume_that_is_there_ends_the_wait_for_its_only_request() -> None:
    known = UnansweredAttachments()
    known.on_request(VM, VOLUME)
    known.on_unanswered(VM, VOLUME, NOW)
    known.on_present(VM, VOLUME)

    assert end(known) is None


def test_a_volume_that_is_there_does_not_say_which_of_two_requests_was_carried_out() -> None:
    known = UnansweredAttachments()
    known.on_unanswered(VM, VOLUME, NOW)
    known.on_request(VM, VOLUME)
    known.on_present(VM, VOLUME)

    assert end(known) == NOW + LATEST
    assert end(known, NOW + LATEST) is None

    # Which is over: of the next one it says so again.
    known.on_unanswered(VM, VOLUME, NOW)
    known.on_present(VM, VOLUME)
    assert end(known) is None


def test_a_record_of_another_process_is_waited_for_once() -> None:
    known, until = UnansweredAttachments(), NOW + timedelta(seconds=30)

    assert known.on_recorded(VM, VOLUME, "first", until)
    assert known.on_recorded(VM, VOLUME, "first", until + timedelta(hours=1))
    assert end(known) == until
    assert end(known, until) is None
    assert not known.on_recorded(VM, VOLUME, "first", until)
    assert end(known) is None
    assert known.on_recorded(VM, VOLUME, "second", until)
    known.on_present(VM, VOLUME)
    assert not known.on_recorded(VM, VOLUME, "second", until)


def test_a_record_does_not_shorten_the_wait_for_a_request_of_this_process() -> None:
    known = UnansweredAttachments()
    known.on_unanswered(VM, VOLUME, NOW)

    assert known.on_recorded(VM, VOLUME, "first", NOW + timedelta(seconds=1))
    assert end(known) == NOW + LATEST
