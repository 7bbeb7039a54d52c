"""What the blocking runner does beyond the talks: watches that end, that are too old, and that say nothing new."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.nodedriver.shelf import Shelf

from windrow.harvester.kinds import VM, VMI
from windrow.kube.errors import Expired, Forbidden, KubeError
from windrow.kube.requests import Event, Request
from windrow.nodedriver import power
from windrow.nodedriver.blocking import LONGEST_WATCH_S, run
from windrow.nodedriver.steps import NotInTime

REF = VM.ref("m", "ns")
RUNNING = {"status": {"phase": "Running", "interfaces": [{"name": "nic-0", "ipAddress": "10.0.0.5"}]}}


class Scripted(Shelf):
    """A shelf whose watches follow a script: each entry is the events of one watch, or what it is refused with."""

    def __init__(self, *watches: list[Event] | Exception) -> None:
        super().__init__((REF, {"spec": {"runStrategy": "RerunOnFailure"}}))
        self.watches = list(watches)
        self.asked: list[Request] = []

    def watch(self, request: Request) -> Iterator[Event]:
        self.asked.append(request)
        if len(self.asked) > len(self.watches):
            self.put(VMI.ref("m", "ns"), RUNNING)
            return
        script = self.watches[len(self.asked) - 1]
        if isinstance(script, Exception):
            raise script
        yield from script
        self.now += timedelta(seconds=int(request.parameter("timeoutSeconds") or 0))


def wait(shelf: Scripted, within: timedelta = timedelta(minutes=10)) -> Any:
    return run(power.wait_for_address(REF, within), shelf.send, shelf.watch, lambda: shelf.now)


def test_a_watch_that_ends_is_followed_by_a_look_and_another() -> None:
    shelf = Scripted([], [])
    assert wait(shelf) == ("10.0.0.5",)
    assert len(shelf.asked) == 3


def test_a_watch_that_is_too_old_is_begun_anew() -> None:
    error = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    shelf = Scripted(Expired("too old", status=410), [Event("ERROR", error)])
    assert wait(shelf) == ("10.0.0.5",)


def test_a_bookmark_is_no_news() -> None:
    shelf = Scripted([Event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})])
    before = shelf.now
    wait(shelf)
    assert shelf.now - before == timedelta(seconds=LONGEST_WATCH_S)


def test_a_watch_is_for_one_object_and_never_longer_than_the_wait() -> None:
    shelf = Scripted()
    wait(shelf, timedelta(seconds=7))
    [request] = shelf.asked
    assert request.path.endswith("/namespaces/ns/virtualmachineinstances")
    assert request.parameter("fieldSelector") == "metadata.name=m"
    assert request.parameter("timeoutSeconds") == "7"


def test_a_wait_ends_when_its_time_is_over() -> None:
    with pytest.raises(NotInTime, match="last seen: it is provisioning"):
        wait(Scripted([], [], []), timedelta(seconds=90))


def test_a_refused_watch_ends_the_wait() -> None:
    with pytest.raises(Forbidden):
        wait(Scripted(Forbidden("may not", status=403)))
    with pytest.raises(KubeError, match="boom"):
        wait(Scripted([Event("ERROR", {"code": 500, "message": "boom"})]))
