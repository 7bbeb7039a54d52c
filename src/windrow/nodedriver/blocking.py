"""Runs a talk with blocking calls: for the plugin process, which has no event loop.

One `Until` costs one watch when all goes well. The watch begins without a version, so the server sends what there is
first, and nothing more is asked; or behind a version that is known already, so that no event is lost in between. The
object is read again only when a watch has ended. The other objects of an `Until` are read when its judge asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar

from windrow.kubernetes import requests
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
from windrow.nodedriver.steps import (
    READERS,
    Call,
    Gather,
    InVain,
    Note,
    NotInTime,
    Pending,
    Step,
    Talk,
    Until,
    answer,
)

R = TypeVar("R")

Send = Callable[[Request], Reply]
# Yields None whenever nothing was heard for some seconds (five, say), so that a silent watch cannot hold up a deadline.
Watch = Callable[[Request], Iterator[WatchEvent | None]]

# A watch is begun anew after this long, so that one that died silently is noticed.
LONGEST_WATCH_S = 300
# The other objects are not read more often than this.
LOOK_EVERY_S = 5
# How long is waited after a failure, or before a look where watches are forbidden.
PAUSE_S = 5

_PASSING = (Unreachable, OutcomeUnknown, ServerError, TooManyRequests, Expired)


def run(
    talk: Talk[R],
    send: Send,
    watch: Watch,
    now: Callable[[], datetime],
    note: Callable[[str], None] = lambda text: None,
    *,
    pause: Callable[[float], object],
) -> R:
    """The talk's result; its exceptions come through.

    `send` answers one request, whatever the status, and raises the KubeError of a broken connection; repeating what
    may be repeated is its business. `watch` yields events until the server ends the watch, and raises what it is
    refused with; it is closed when enough was heard. `now` only goes forward, whatever becomes of the wall clock.
    `pause` waits for so many seconds.
    """
    runner = _Runner(send, watch, now, note, pause)
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
        self,
        send: Send,
        watch: Watch,
        now: Callable[[], datetime],
        note: Callable[[str], None],
        pause: Callable[[float], object],
    ) -> None:
        self._send, self._watch, self._now, self._note, self._pause = send, watch, now, note, pause

    def take(self, step: Step) -> Any:
        match step:
            case Call(request=request):
                return answer(self._send(request))
            case Gather(requests=asked):
                return tuple(self._answer_or_error(request) for request in asked)
            case Until():
                return _Wait(step, self._send, self._watch, self._now, self._pause).result()
            case Note(text=text):
                return self._note(text)

    def _answer_or_error(self, request: Request) -> Any:
        try:
            return answer(self._send(request))
        except KubeError as error:
            return error


class _Verdict(Exception):
    """The judge is satisfied; carried out of the watch as fast as that goes."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _Wait:
    """One Until under way: what has been seen, and since when."""

    def __init__(
        self,
        until: Until[Any],
        send: Send,
        watch: Watch,
        now: Callable[[], datetime],
        pause: Callable[[float], object],
    ) -> None:
        self._until, self._send, self._watch, self._now, self._pause = until, send, watch, now, pause
        self._seen: dict[ObjectRef, Any] = {}
        self._version = until.after
        self._pending = Pending("nothing is heard of it yet")
        self._entered: dict[str, datetime] = {}
        self._heard = self._looked = now()
        self._troubled: datetime | None = None
        self._may_watch = True

    def result(self) -> Any:
        """What the judge returned. Raises NotInTime, InVain and what asking is refused with for good."""
        try:
            while True:
                try:
                    self._listen()
                except _PASSING as error:
                    self._excuse(error)
                self._look_again()
        except _Verdict as verdict:
            return verdict.value

    def _listen(self) -> None:
        """Judge at every event, until the watch ends."""
        if not self._may_watch:
            self._pause(PAUSE_S)
            return
        begun = self._now()
        try:
            events = self._watch(self._request())
        except Forbidden:
            self._may_watch = False
            return
        try:
            for event in events:
                if event is not None and event.type == "ERROR":
                    raise error_from_status(event.object)
                if event is not None and event.type != "BOOKMARK":
                    self._learn(event)
                self._judge()
        except Forbidden:
            self._may_watch = False
        finally:
            if (close := getattr(events, "close", None)) is not None:
                close()
        if self._now() - begun < timedelta(seconds=1):
            self._pause(1)  # a server that ends every watch at once is not asked without end

    def _request(self) -> Request:
        ref = self._until.of[0]
        left = (self._deadline() - self._now()).total_seconds()
        return requests.watch(
            ref.kind,
            ref.namespace,
            fields=f"metadata.name={ref.name}",
            version=self._version,
            timeout_s=max(1, min(int(left), LONGEST_WATCH_S)),
        )

    def _learn(self, event: WatchEvent) -> None:
        ref = self._until.of[0]
        metadata = event.object.get("metadata") or {}
        if metadata.get("name") != ref.name:
            return
        self._version = str(metadata.get("resourceVersion", ""))
        # What was seen of the others belongs to an earlier moment.
        self._seen = {ref: None if event.type == "DELETED" else READERS[ref.kind](event.object)}
        self._heard = self._now()

    def _look_again(self) -> None:
        """The watch has ended: see what it would have told next."""
        ref = self._until.of[0]
        try:
            raw = self._read(ref)
        except Expired:
            return None
        except _PASSING as error:
            return self._excuse(error)
        self._version = str(raw["metadata"].get("resourceVersion", "")) if raw is not None else ""
        self._seen = {**self._seen, ref: READERS[ref.kind](raw) if raw is not None else None}
        self._judge()
        return None

    def _excuse(self, error: KubeError) -> None:
        """Take a failure that may pass for the reason of the delay, and give it some time."""
        if isinstance(error, CertificateError):
            raise error
        if isinstance(error, Expired):
            if not self._version:
                self._pause(1)  # the present cannot be too old; whoever says so is not asked without end
            self._version = ""
            return
        self._pending = Pending(error.message, self._pending.stage)
        self._check_time()
        self._pause(max(error.retry_after_s or 0, PAUSE_S))

    def _judge(self) -> None:
        self._ask()
        if self._wants_a_look():
            self._look_at_others()
            self._ask()
        self._check_patience()
        self._check_time()

    def _ask(self) -> None:
        verdict = self._until.judge(self._seen)
        if not isinstance(verdict, Pending):
            raise _Verdict(verdict)
        self._pending = verdict

    def _wants_a_look(self) -> bool:
        if self._pending.look_s is None:
            return False
        now = self._now()
        silence, since_look = now - self._heard, now - self._looked
        if silence < timedelta(seconds=self._pending.look_s):
            return False
        is_news = self._heard >= self._looked and self._pending.look_s == 0
        return is_news or since_look >= timedelta(seconds=max(self._pending.look_s, LOOK_EVERY_S))

    def _look_at_others(self) -> None:
        self._looked = self._now()
        for ref in self._until.of[1:]:
            try:
                raw = self._read(ref)
            except _PASSING:
                continue  # it was to explain something; without it the wait goes on
            self._seen[ref] = READERS[ref.kind](raw) if raw is not None else None

    def _read(self, ref: ObjectRef) -> Any:
        """The object, None where the server says that there is none."""
        try:
            return answer(self._send(requests.get(ref)))
        except NotFound as error:
            if is_not_found(error, ref.name):
                return None
            raise ServerError(error.message, status=error.status) from error  # a proxy's page, most likely

    def _check_patience(self) -> None:
        if self._pending.patience_s is None:
            self._troubled = None
            return
        self._troubled = self._troubled or self._now()
        if self._now() - self._troubled >= timedelta(seconds=self._pending.patience_s):
            until = self._until
            raise InVain(until.because, self._pending.what, until.within, self._pending.stage)

    def _check_time(self) -> None:
        if self._now() >= self._deadline():
            until = self._until
            raise NotInTime(until.because, self._pending.what, until.within, self._pending.stage)

    def _deadline(self) -> datetime:
        """The end of the stage that the wait is in; one that comes back goes on with the time it had."""
        return self._entered.setdefault(self._pending.stage, self._now()) + self._until.within
