"""Runs a talk with blocking calls: for the plugin process, which has no event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar

from windrow.kube import requests
from windrow.kube.errors import Expired, KubeError, NotFound, error_from_status
from windrow.kube.requests import Event, Reply, Request
from windrow.nodedriver.steps import (
    READERS,
    Call,
    Gather,
    Note,
    NotInTime,
    Pending,
    Seen,
    Step,
    Talk,
    Until,
    answer,
)

R = TypeVar("R")

Send = Callable[[Request], Reply]
Watch = Callable[[Request], Iterator[Event]]
# One watch at a time, and none longer than this, so that a connection that died silently is noticed.
LONGEST_WATCH_S = 60


def run(
    talk: Talk[R],
    send: Send,
    watch: Watch,
    now: Callable[[], datetime],
    note: Callable[[str], None] = lambda text: None,
) -> R:
    """The talk's result; its exceptions come through.

    `send` answers one request, whatever the status, and raises the KubeError of a broken connection. `watch` yields
    events until the server ends the watch, and raises what it is refused with.
    """
    runner = _Runner(send, watch, now, note)
    try:
        step = next(talk)
        while True:
            try:
                result = runner.take(step)
            except (KubeError, NotInTime) as error:
                step = talk.throw(error)
            else:
                step = talk.send(result)
    except StopIteration as end:
        result_of_talk: R = end.value
        return result_of_talk


class _Runner:
    def __init__(
        self, send: Send, watch: Watch, now: Callable[[], datetime], note: Callable[[str], None]
    ) -> None:
        self._send, self._watch, self._now, self._note = send, watch, now, note

    def take(self, step: Step) -> Any:
        match step:
            case Call(request=request):
                return self._answer(request)
            case Gather(requests=asked):
                return tuple(self._answer_or_error(request) for request in asked)
            case Until():
                return self._wait(step)
            case Note(text=text):
                return self._note(text)

    def _answer(self, request: Request) -> Any:
        return answer(self._send(request))

    def _answer_or_error(self, request: Request) -> Any:
        try:
            return self._answer(request)
        except KubeError as error:
            return error

    def _wait(self, until: Until[Any]) -> Any:
        deadline = self._now() + until.within
        pending = Pending("nothing yet")
        while True:
            # Looked at before each watch, so that nothing is missed between two.
            seen, version = self._look(until)
            verdict = until.judge(seen)
            if not isinstance(verdict, Pending):
                return verdict
            pending = verdict
            left = deadline - self._now()
            if left <= timedelta(0):
                raise NotInTime(until.because, pending.what, until.within)
            self._await_change(until, version, left)

    def _look(self, until: Until[Any]) -> tuple[Seen, str]:
        seen: dict[Any, Any] = {}
        version = ""
        for ref in reversed(until.of):  # the watched one last, so that its version is the newest
            try:
                raw = self._answer(requests.get(ref))
            except NotFound:
                seen[ref], version = None, ""
            else:
                seen[ref] = READERS[ref.kind](raw)
                version = str(raw["metadata"].get("resourceVersion", ""))
        return seen, version

    def _await_change(self, until: Until[Any], version: str, left: timedelta) -> None:
        """Return at the first event about the first object, or when the watch ends."""
        ref = until.of[0]
        seconds = max(1, min(int(left.total_seconds()), LONGEST_WATCH_S))
        request = requests.watch(
            ref.kind,
            ref.namespace,
            fields=f"metadata.name={ref.name}",
            version=version,
            timeout_s=seconds,
        )
        try:
            for event in self._watch(request):
                if event.type == "ERROR":
                    raise error_from_status(event.object)
                if event.type != "BOOKMARK":
                    return
        except Expired:
            return  # too old to watch from: looking again is the cure
