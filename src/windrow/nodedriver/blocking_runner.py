"""Runs an operation with blocking calls: for the plugin process, which has no event loop.

A `WaitFor` costs one watch when all goes well. The watch begins without a resourceVersion, so the server first sends the
object as it is and no GET is needed; or behind a known one, so that no event is lost in between. The object is read again
only when a watch has ended. The other objects of a `WaitFor` are read when its predicate asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar, assert_never

from windrow.kubernetes import requests
from windrow.kubernetes.answers.replies import decode_answer
from windrow.kubernetes.errors import (
    CertificateError,
    Expired,
    Forbidden,
    KubeError,
    NotFound,
    OutcomeUnknown,
    ServerError,
    TooManyRequests,
    Unreachable,
    error_from_status,
    is_not_found,
)
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import ObjectRef
from windrow.nodedriver.effects import (
    READERS,
    Call,
    Effect,
    Gather,
    Log,
    NotYet,
    WaitFor,
    WaitHopeless,
    WaitingOperation,
    WaitTimeout,
)

R = TypeVar("R")

Send = Callable[[Request], Reply]
# Yields None whenever no event came for some seconds (five, say), so that a silent watch cannot hold up a deadline.
Watch = Callable[[Request], Iterator[WatchEvent | None]]

# A watch is begun anew after this long, so that one that died silently is noticed.
MAX_WATCH_S = 300
# The other objects are not read more often than this.
MIN_READ_INTERVAL_S = 5
# The delay after a failure, and between reads where watches are forbidden.
RETRY_DELAY_S = 5

_TRANSIENT = (Unreachable, OutcomeUnknown, ServerError, TooManyRequests, Expired)


def run(
    operation: WaitingOperation[R],
    send: Send,
    watch: Watch,
    now: Callable[[], datetime],
    log: Callable[[str], None] = lambda text: None,
    *,
    sleep: Callable[[float], object],
) -> R:
    """The operation's result; its exceptions pass through.

    `send` answers one request, whatever the status, and raises the KubeError of a broken connection; repeating what
    may be repeated is its business. `watch` yields events until the server ends the watch, and raises what it is
    refused with; it is closed when the predicate is satisfied. `now` is monotonic.
    """
    runner = _Runner(send, watch, now, log, sleep)
    try:
        effect = next(operation)
        while True:
            try:
                result = runner.execute(effect)
            except (KubeError, WaitTimeout) as error:
                effect = operation.throw(error)
            else:
                effect = operation.send(result)
    except StopIteration as end:
        result_of_operation: R = end.value
        return result_of_operation


@dataclass(frozen=True, slots=True)
class _Runner:
    send: Send
    watch: Watch
    now: Callable[[], datetime]
    log: Callable[[str], None]
    sleep: Callable[[float], object]

    def execute(self, effect: Effect | WaitFor[Any]) -> Any:
        match effect:
            case Call(request=request):
                return decode_answer(request, self.send(request))
            case Gather(requests=wanted):
                return tuple(map(self._answer_or_error, wanted))
            case WaitFor():
                return _Wait(effect, self).result()
            case Log(text=text):
                return self.log(text)
            case _:
                assert_never(effect)

    def _answer_or_error(self, request: Request) -> Any:
        try:
            return decode_answer(request, self.send(request))
        except KubeError as error:
            return error


class _ConditionMet(Exception):
    """The predicate is satisfied; leaves the watch at once."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _Wait:
    """One WaitFor in progress: the objects observed so far, and when each stage began."""

    def __init__(self, wait: WaitFor[Any], runner: _Runner) -> None:
        self._spec, self._runner, self._now, self._sleep = wait, runner, runner.now, runner.sleep
        self._objects: dict[ObjectRef, Any] = {}
        self._version = wait.resource_version
        self._not_yet = NotYet("no event has come yet")
        self._stage_started: dict[str, datetime] = {}
        self._last_event = self._last_read = runner.now()
        self._hopeless_since: datetime | None = None
        self._can_watch = True

    def result(self) -> Any:
        """What the predicate returned. Raises WaitTimeout, WaitHopeless and errors that retrying does not cure."""
        try:
            while True:
                try:
                    self._follow_watch()
                except Expired:
                    self._check_deadline()
                    if self._version:
                        # An object that does not change has an old version, so reading it would give the same again.
                        # A watch without a version begins with the object as it is.
                        self._version = ""
                        continue
                    self._sleep(
                        1
                    )  # a watch without a version cannot expire; who says so is not asked in a tight loop
                except _TRANSIENT as error:
                    self._on_transient(error)
                self._read_watched()
        except _ConditionMet as met:
            return met.value

    def _follow_watch(self) -> None:
        """Evaluate the predicate at every event, until the watch ends."""
        if not self._can_watch:
            self._sleep(RETRY_DELAY_S)
            return
        started = self._now()
        try:
            events = self._runner.watch(self._request())
        except Forbidden:
            self._can_watch = False
            return
        try:
            for event in events:
                if event is not None and event.type == "ERROR":
                    raise error_from_status(event.object)
                if event is not None and event.type != "BOOKMARK":
                    self._on_event(event)
                self._evaluate()
        except Forbidden:
            self._can_watch = False
        finally:
            if (close := getattr(events, "close", None)) is not None:
                close()
        if self._now() - started < timedelta(seconds=1):
            self._sleep(1)  # a server that ends every watch at once is not asked without end

    def _request(self) -> Request:
        ref = self._spec.refs[0]
        left = (self._deadline() - self._now()).total_seconds()
        return requests.watch(
            ref.kind,
            ref.namespace,
            fields=f"metadata.name={ref.name}",
            version=self._version,
            timeout_s=max(1, min(int(left), MAX_WATCH_S)),
        )

    def _on_event(self, event: WatchEvent) -> None:
        ref = self._spec.refs[0]
        metadata = event.object.get("metadata") or {}
        if metadata.get("name") != ref.name:
            return
        self._version = str(metadata.get("resourceVersion", ""))
        # The readings of the other objects belong to an earlier moment.
        self._objects = {ref: None if event.type == "DELETED" else READERS[ref.kind](event.object)}
        self._last_event = self._now()

    def _read_watched(self) -> None:
        """The watch has ended: read the object, as its next event would show it."""
        ref = self._spec.refs[0]
        try:
            raw = self._read(ref)
        except _TRANSIENT as error:
            return self._on_transient(error)
        self._version = str(raw["metadata"].get("resourceVersion", "")) if raw is not None else ""
        self._objects = {**self._objects, ref: READERS[ref.kind](raw) if raw is not None else None}
        self._evaluate()
        return None

    def _on_transient(self, error: KubeError) -> None:
        """Take a failure that may pass for the reason of the delay, and give it some time."""
        if isinstance(error, CertificateError):
            raise error
        self._not_yet = NotYet(error.message, self._not_yet.stage)
        self._check_deadline()
        self._sleep(max(error.retry_after_s or 0, RETRY_DELAY_S))

    def _evaluate(self) -> None:
        self._check_predicate()
        if self._needs_read():
            self._read_others()
            self._check_predicate()
        self._check_hopeless()
        self._check_deadline()

    def _check_predicate(self) -> None:
        result = self._spec.predicate(self._objects)
        if not isinstance(result, NotYet):
            raise _ConditionMet(result)
        self._not_yet = result

    def _needs_read(self) -> bool:
        if self._not_yet.read_after_s is None:
            return False
        now = self._now()
        silence, since_read = now - self._last_event, now - self._last_read
        if silence < timedelta(seconds=self._not_yet.read_after_s):
            return False
        is_new_event = self._last_event >= self._last_read and self._not_yet.read_after_s == 0
        return is_new_event or since_read >= timedelta(
            seconds=max(self._not_yet.read_after_s, MIN_READ_INTERVAL_S)
        )

    def _read_others(self) -> None:
        self._last_read = self._now()
        for ref in self._spec.refs[1:]:
            try:
                raw = self._read(ref)
            except _TRANSIENT:
                continue  # it was to explain something; without it the wait goes on
            self._objects[ref] = READERS[ref.kind](raw) if raw is not None else None

    def _read(self, ref: ObjectRef) -> Any:
        """The object, None where the API server answers that there is none."""
        try:
            request = requests.get(ref)
            return decode_answer(request, self._runner.send(request))
        except NotFound as error:
            if is_not_found(error, ref.name):
                return None
            raise ServerError(error.message, status=error.status) from error  # a proxy's page, most likely

    def _check_hopeless(self) -> None:
        if self._not_yet.give_up_after_s is None:
            self._hopeless_since = None
            return
        self._hopeless_since = self._hopeless_since or self._now()
        if self._now() - self._hopeless_since >= timedelta(seconds=self._not_yet.give_up_after_s):
            wait = self._spec
            raise WaitHopeless(wait.because, self._not_yet.reason, wait.within, self._not_yet.stage)

    def _check_deadline(self) -> None:
        if self._now() >= self._deadline():
            wait = self._spec
            raise WaitTimeout(wait.because, self._not_yet.reason, wait.within, self._not_yet.stage)

    def _deadline(self) -> datetime:
        """The end of the stage that the wait is in; one that comes back goes on with the time it had."""
        return self._stage_started.setdefault(self._not_yet.stage, self._now()) + self._spec.within
