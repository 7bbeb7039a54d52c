"""Fault injection: failures between clients and the simulated Harvester.

A `Fault` says what happens (`effect`), to which requests (verb, kind, name, caller's path), and how often. Faults are
scripted. Injected ones are counted, so that a test can assert that its fault happened.

Failures of the cluster itself are elsewhere: hosts in `host.nodes`, guest agents in `AgentFault` below, quotas in
`vms.quotas`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from windrow.apiserver.request.info import parse_request_info, query_options, request_verb
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.emulator.delays import ScaledClock
from windrow.kubernetes.errors import OutcomeUnknown, error_for
from windrow.kubernetes.handler import Handler, Peer, TlsIdentity
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.requests import Reply, Request, WatchEvent

# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slow:
    """The answer takes `seconds` longer."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request is answered with an error and never reaches the server."""

    status: int
    reason: str = ""
    message: str = "injected fault"
    retry_after_s: int = 0


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection breaks before the server has seen the request."""


@dataclass(frozen=True, slots=True)
class DropReply:
    """The server executes the request, and the connection breaks before its reply (time-out after commit)."""


@dataclass(frozen=True, slots=True)
class CutWatch:
    """A watch ends after `events` events: cleanly, or broken."""

    events: int = 0
    clean: bool = True


@dataclass(frozen=True, slots=True)
class StallWatch:
    """A watch stays open after `events` events and carries nothing any more, neither events nor bookmarks nor its end."""

    events: int = 0


@dataclass(frozen=True, slots=True)
class ExpireWatch:
    """A watch answers 410: the version it asks from is too old."""


Effect = Slow | Refuse | Reset | DropReply | CutWatch | StallWatch | ExpireWatch

CONFLICT = Refuse(
    409,
    "Conflict",
    "Operation cannot be fulfilled: the object has been modified; "
    "please apply your changes to the latest version and try again",
)
TOO_MANY_REQUESTS = Refuse(
    429, "TooManyRequests", "too many requests, please try again later", retry_after_s=1
)
INTERNAL_ERROR = Refuse(500, "InternalError", "Internal error occurred: etcdserver: leader changed")
UNAVAILABLE = Refuse(503, "ServiceUnavailable", "the server is currently unable to handle the request")
UNAUTHORIZED = Refuse(401, "Unauthorized", "Unauthorized")
GONE = Refuse(410, "Expired", "too old resource version: 1 (2)")


def denied(message: str, status: int = 500, reason: str = "InternalError") -> Refuse:
    """The refusal of Harvester's validating webhook."""
    text = f'admission webhook "validator.harvesterhci.io" denied the request: {message}'
    return Refuse(status, reason, text)


WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True)
class Fault:
    """Injects `effect` into matching requests: every `every`-th, with `probability`, at most `times`."""

    effect: Effect
    verbs: frozenset[str] = frozenset()  # empty: all
    plurals: frozenset[str] = frozenset()  # such as `virtualmachines`; empty: all
    name: str = "*"
    namespace: str = "*"
    every: int = 1
    times: int | None = None
    probability: float = 1.0
    where: Callable[[Request], bool] | None = None

    def matches(self, request: Request) -> bool:
        verb, plural, namespace, name = parse_request(request)
        return (
            (not self.verbs or verb in self.verbs)
            and (not self.plurals or plural in self.plurals)
            and fnmatchcase(name, self.name)
            and fnmatchcase(namespace, self.namespace)
            and (self.where is None or self.where(request))
        )


def parse_request(request: Request) -> tuple[str, str, str, str]:
    """Verb, plural, namespace and name of a request; plural "" where it names no resource."""
    info = parse_request_info(request.path)
    verb = request_verb(request.method, info, query_options(request))
    return verb, info.plural, info.namespace, info.name


@dataclass(slots=True)
class AgentFault:
    """A fault of the guest agents of VMs whose `namespace/name` matches."""

    machines: str = "*"
    kind: Literal["absent", "late", "lying"] = "absent"
    late_s: float = 0.0
    false_addresses: tuple[str, ...] = ("169.254.7.7",)  # reported for every interface by kind `lying`


@dataclass(eq=False, slots=True)
class OpenWatch:
    """A watch that a client has open."""

    request: Request
    timeout: asyncio.Timeout
    stalled: bool = False

    def cut(self) -> None:
        """Break the connection. May be repeated."""
        if self.timeout.expired():
            return
        self.timeout.reschedule(asyncio.get_running_loop().time())


@dataclass(slots=True)
class Faults:
    """The active faults, and how often each was injected. `watches` are those that are open now."""

    script: list[Fault] = field(default_factory=list)
    agents: list[AgentFault] = field(default_factory=list)
    unresponsive: list[str] = field(default_factory=list)  # VMs (`namespace/name`) that ignore ACPI shutdown
    ended: list[Fault] = field(default_factory=list)  # ended; kept because the counts are by identity
    matched: Counter[int] = field(default_factory=Counter)  # id(fault) -> matching requests
    injected: Counter[int] = field(default_factory=Counter)  # id(fault) -> times injected
    watches: set[OpenWatch] = field(default_factory=set)

    def add(self, fault: Fault) -> Fault:
        self.script.append(fault)
        return fault

    def end(self, fault: Fault) -> None:
        """Deactivate the fault. May be repeated."""
        self.ended += [one for one in self.script if one is fault]
        self.script = [one for one in self.script if one is not fault]

    def times_injected(self, fault: Fault) -> int:
        """How often `fault` was injected."""
        return self.injected[id(fault)]

    def cut_watches(self) -> int:
        """Break every watch that is open; how many there were."""
        for watch in self.watches:
            watch.cut()
        return len(self.watches)

    def stall_watches(self) -> int:
        """Let every watch that is open carry nothing any more and stay open; how many there were. New ones work."""
        for watch in self.watches:
            watch.stalled = True
        return len(self.watches)

    def draw(self, request: Request, rng: Rng) -> list[Effect]:
        """The effects for this request, in script order."""
        return [fault.effect for fault in tuple(self.script) if self._applies(fault, request, rng)]

    def _applies(self, fault: Fault, request: Request, rng: Rng) -> bool:
        if not fault.matches(request):
            return False
        self.matched[id(fault)] += 1
        if fault.times is not None and self.injected[id(fault)] >= fault.times:
            return False
        if self.matched[id(fault)] % fault.every or (
            fault.probability < 1.0 and rng.uniform(0, 1) >= fault.probability
        ):
            return False
        self.injected[id(fault)] += 1
        return True

    def is_unresponsive(self, machine: str) -> bool:
        """Whether VM `namespace/name` ignores ACPI shutdown."""
        return any(fnmatchcase(machine, pattern) for pattern in self.unresponsive)

    def agent_of(self, machine: str) -> AgentFault | None:
        """The fault of the guest agent of `namespace/name`; the last one stated wins."""
        return next((one for one in reversed(self.agents) if fnmatchcase(machine, one.machines)), None)


# --- injection ---------------------------------------------------------------------------------------------------


class FaultInjector:
    """A Handler that injects the active faults before `handler`. TLS is not affected."""

    def __init__(self, handler: Handler, faults: Faults, clock: ScaledClock, rng: Rng) -> None:
        self._handler = handler
        self._faults = faults
        self._clock = clock
        self._rng = rng

    def identity(self) -> TlsIdentity | None:
        return self._handler.identity()

    async def send(self, request: Request, peer: Peer) -> Reply:
        lose = False
        for effect in self._faults.draw(request, self._rng):
            match effect:
                case Slow(seconds):
                    await self._clock.sleep(seconds)
                case Refuse():
                    return render_refusal(effect)
                case Reset():
                    raise OutcomeUnknown(
                        "connection reset by peer (a fault, before the server saw the request)"
                    )
                case DropReply():
                    lose = True
        reply = await self._handler.send(request, peer)
        if lose:
            raise OutcomeUnknown("connection reset by peer (a fault, after the server executed the request)")
        return reply

    @asynccontextmanager
    async def stream(self, request: Request, peer: Peer) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        limit: CutWatch | StallWatch | None = None
        for effect in self._faults.draw(request, self._rng):
            match effect:
                case Slow(seconds):
                    await self._clock.sleep(seconds)
                case Refuse():
                    error = error_for(render_refusal(effect))
                    assert error is not None
                    raise error
                case Reset() | DropReply():
                    raise OutcomeUnknown("connection reset by peer (a fault)")
                case ExpireWatch():
                    yield _one(WatchEvent("ERROR", _status(GONE)))
                    return
                case CutWatch() | StallWatch():
                    limit = effect
        try:
            async with asyncio.timeout(None) as timeout, self._handler.stream(request, peer) as events:
                watch = OpenWatch(request, timeout)
                self._faults.watches.add(watch)
                try:
                    yield _limit_events(events, limit, watch)
                finally:
                    self._faults.watches.discard(watch)
        except TimeoutError:
            raise OutcomeUnknown(BROKEN_WATCH) from None


BROKEN_WATCH = "connection reset by peer (a fault, in the middle of a watch)"


def render_refusal(refusal: Refuse) -> Reply:
    """The error reply, as an API server sends it."""
    body = _status(refusal)
    headers = {}
    if refusal.retry_after_s:
        body["details"] = {"retryAfterSeconds": refusal.retry_after_s}
        headers["Retry-After"] = str(refusal.retry_after_s)
    return Reply(refusal.status, dumps(body), headers=headers)


def _status(refusal: Refuse) -> Raw:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.message,
        "reason": refusal.reason,
        "code": refusal.status,
    }


async def _one(event: WatchEvent) -> AsyncIterator[WatchEvent]:
    yield event


async def _limit_events(
    events: AsyncIterator[WatchEvent], limit: CutWatch | StallWatch | None, watch: OpenWatch
) -> AsyncIterator[WatchEvent]:
    given = 0
    async for event in events:
        if limit is not None and given >= limit.events:
            match limit:
                case StallWatch():
                    watch.stalled = True
                case CutWatch(clean=True):
                    return
                case CutWatch():
                    raise OutcomeUnknown(BROKEN_WATCH)
        if watch.stalled:
            break
        given += 1
        yield event
    if watch.stalled:
        await asyncio.Event().wait()
