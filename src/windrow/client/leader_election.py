"""Leader election on `coordination.k8s.io/v1` Leases, in step with client-go: both may compete for one Lease.

The holder of a Lease renews it every two seconds. Another candidate acquires it when the record has not changed for its
leaseDurationSeconds (15 s) by the candidate's own monotonic clock: clocks of different machines are never compared, and
a wall clock that is set changes nothing. A holder that cannot renew it for ten seconds stops its work, five seconds
before another may begin.

A Lease that is deleted is not free for who has seen its holder, unlike with client-go: the holder notices at its next
renewal only, and creates it again. Who has not seen it begins at once.

That holds however slow the answers are: a holder counts from before its write was sent, the others from after the
answer that showed it to them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from windrow.client.client import Client
from windrow.client.transport import Transport, TransportMiddleware
from windrow.core.clock import Clock, format_micro_time, sleep
from windrow.core.formats.duration import render_duration
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.core.wait import run_until, wait_first
from windrow.kubernetes.errors import AlreadyExists, Conflict, KubeError, NotFound, OutcomeUnknown
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import LEASE, ObjectRef

_log = logging.getLogger(__name__)

RELEASE_TIMEOUT_S = 5.0


class LeadershipLost(Exception):
    """The Lease could not be renewed in time; another process may lead now. The program should end and be restarted."""


class NotLeader(KubeError):
    """Never sent: this process does not lead any more. Its work is cancelled at once."""


class LeaderTransport(TransportMiddleware):
    """Sends writes only while `elector` leads, by its clock at that instant; innermost, so that no wait comes after.

    A process that was stopped past its Lease (SIGSTOP, a suspended host) resumes in the middle of its work, before any
    timer of it runs. Without this its next write would reach the server after another process has begun.
    """

    def __init__(self, inner: Transport, elector: LeaderElector) -> None:
        super().__init__(inner)
        self._elector = elector

    async def send(self, request: Request) -> Reply:
        if not request.is_read and not self._elector.may_write:
            ref = self._elector.ref
            raise NotLeader(
                f"{request.method} {request.path} not sent: this process does not hold {ref} any more; the next leader continues"
            )
        return await self._inner.send(request)


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """The time-outs of client-go's components. `renew` < `lease`, `retry` < `renew`.

    `renew_period` is how long a Lease that was renewed is left alone, where that is longer than `retry_period`.
    """

    lease_duration: timedelta = timedelta(seconds=15)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry_period: timedelta = timedelta(seconds=2)
    renew_period: timedelta = timedelta(seconds=2)


def _takes_over_none(_holder: str) -> bool:
    return False


def _always() -> bool:
    return True


def _ignore() -> None:
    pass


class LeaderElector:
    """One competitor for one Lease. `identity` must be unique to this process.

    A holder for which `takes_over` is true, such as an earlier process of this program, has ended: its Lease is taken
    before it expires, but only until this competitor has held it once. `on_attempt` is called after each attempt.
    `may_release` is asked at the end: a Lease that is not released expires, unless another competitor renews it with the
    same identity.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        rng: Rng,
        config: LeaderElectionConfig | None = None,
        *,
        takes_over: Callable[[str], bool] = _takes_over_none,
        on_attempt: Callable[[], None] = _ignore,
        may_release: Callable[[], bool] = _always,
    ) -> None:
        self.ref: ObjectRef = LEASE.ref(name, namespace)
        self.identity = identity
        self._log = with_values(_log, lease=f"{namespace}/{name}", identity=identity)
        self.is_leader = False
        # A claim was sent: its answer says whether the Lease is ours, and a cancellation does not wait for that answer.
        self._is_claiming = False
        self._client = client
        self._clock = clock
        self._rng = rng
        self._config = config or LeaderElectionConfig()
        self._takes_over, self._on_attempt, self._may_release = takes_over, on_attempt, may_release
        self._attempt_now = asyncio.Event()
        self.problem: KubeError | None = None  # of the last attempt
        # The Lease as this process last wrote it, which it renews without a read.
        self._written: Raw | None = None
        self._record: dict[str, Any] = {}
        self._record_since: timedelta | None = None
        # When the last renewal that succeeded was sent, by this process's monotonic clock.
        self.last_renewed: timedelta | None = None

    @property
    def holder(self) -> str:
        """The holder of the Lease when it was last read; "" for none, or not read yet."""
        return str(self._record.get("holderIdentity") or "")

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, then work while it is held; release it at the end.

        Returns when `work` does. Raises LeadershipLost when the Lease could not be kept; `work` is cancelled then.
        When this is cancelled, the Lease is released, so that a successor need not wait.
        """
        try:
            await self._acquire()
            self._log.info("became leader")
            await self._run_while_leading(work)
        finally:
            await self._release()

    def attempt_now(self) -> None:
        """Attempt to acquire the Lease at once, if it is waited for."""
        self._attempt_now.set()

    async def _acquire(self) -> None:
        while not await self._try_acquire_or_renew_until(
            self._clock.monotonic() + self._config.renew_deadline
        ):
            # client-go's jitter: up to 120 % more.
            period = self._config.retry_period * self._rng.uniform(1.0, 2.2)
            await wait_first(self._clock, period, self._attempt_now)
            self._attempt_now.clear()

    async def _run_while_leading(self, work: Callable[[], Awaitable[None]]) -> None:
        limit = render_duration(self._config.renew_deadline)
        message = f"{self.ref} could not be renewed within {limit}; another process may lead now"
        await run_until(work(), self._renew(), LeadershipLost(message))

    async def _renew(self) -> None:
        """Return when the Lease is lost."""
        was_renewed = True
        while self.is_leader and self._is_held():
            period = self._config.renew_period if was_renewed else self._config.retry_period
            await sleep(self._clock, min(period, self._held_until() - self._clock.monotonic()))
            was_renewed = await self._try_acquire_or_renew_until(self._held_until())
        self.is_leader = self._is_claiming = False

    def _held_until(self) -> timedelta:
        """Until when the work may go on."""
        renewed = self.last_renewed
        return self._clock.monotonic() if renewed is None else renewed + self._config.renew_deadline

    @property
    def may_write(self) -> bool:
        """Whether this process leads at this instant. While this is True no other leader begins."""
        return self.is_leader and self._is_held()

    def may_delegate(self, lasts: timedelta) -> bool:
        """Whether what goes on for `lasts` after this process is stopped has ended when another leader begins."""
        renewed = self.last_renewed
        if not self.may_write or renewed is None:
            return False
        return self._clock.monotonic() + lasts <= renewed + self._config.lease_duration

    def _is_held(self) -> bool:
        return self._clock.monotonic() < self._held_until()

    async def _try_acquire_or_renew_until(self, end: timedelta) -> bool:
        """One attempt, which is given up at `end`."""
        try:
            # Not wait_for: in Python 3.11 it loses a cancellation that comes with the result.
            async with asyncio.timeout((end - self._clock.monotonic()).total_seconds()):
                return await self._try_acquire_or_renew()
        except TimeoutError:
            return False
        finally:
            self._on_attempt()

    async def _try_acquire_or_renew(self) -> bool:
        """One attempt to take or keep the Lease. Never raises a KubeError."""
        before, problem = self.problem, None
        try:
            return await self._acquire_or_renew()
        except (Conflict, AlreadyExists):
            self._is_claiming = False
            return False  # another candidate was first
        except KubeError as error:
            self._is_claiming = self._is_claiming and isinstance(error, OutcomeUnknown)
            problem = error
            if str(error) != str(before):
                self._log.warning("Lease not acquired or renewed: %s; trying again", error)
            return False
        finally:
            self.problem = problem

    async def _acquire_or_renew(self) -> bool:
        written, self._written = self._written, None
        if written is not None and self.is_leader:
            # As client-go: one request, and the resource version says whether another process wrote meanwhile.
            try:
                return await self._claim(written, self._clock.monotonic())
            except (Conflict, NotFound):
                self._is_claiming = False
        raw = await self._client.find(self.ref)
        now = self._clock.monotonic()
        if raw is None:
            if not self._may_take(now):
                return False  # deleted by others: its holder works on, and creates it again when it renews
            made = new_object(LEASE, self.ref.name, self.ref.namespace, spec=self._new_record({}))
            self._is_claiming = True
            return self._granted(await self._client.create(LEASE, made), now)
        self._observe(raw, now)
        if self.holder not in ("", self.identity):
            self.is_leader = False
        return self._may_take(now) and await self._claim(raw, now)

    def _may_take(self, now: timedelta) -> bool:
        """Whether no other process works by the record that was read last."""
        has_ended = self.last_renewed is None and self._takes_over(self.holder)
        return self.holder in ("", self.identity) or has_ended or self._is_expired(now)

    async def _claim(self, raw: Raw, now: timedelta) -> bool:
        raw = {**raw, "spec": {**(raw.get("spec") or {}), **self._new_record(self._record)}}
        self._is_claiming = True
        return self._granted(await self._client.update(LEASE, raw), now)

    def _granted(self, raw: Raw, sent: timedelta) -> bool:
        """Whether this process leads now: an answer may come after the lease that it grants has ended."""
        self._observe(raw, sent)
        self._written = raw
        self.last_renewed = sent
        self.is_leader = self._is_held()
        self._is_claiming = not self.is_leader
        return self.is_leader

    def _observe(self, raw: Raw, now: timedelta) -> None:
        record = raw.get("spec") or {}
        if record != self._record or self._record_since is None:
            self._record = record
            self._record_since = now

    def _is_expired(self, now: timedelta) -> bool:
        lasts = timedelta(seconds=int(self._record.get("leaseDurationSeconds") or 0))
        return self._record_since is not None and self._record_since + lasts <= now

    def _new_record(self, previous: dict[str, Any]) -> dict[str, Any]:
        now = format_micro_time(self._clock.now())
        is_ours = previous.get("holderIdentity") == self.identity
        transitions = int(previous.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._config.lease_duration.total_seconds()),
            "acquireTime": previous["acquireTime"] if is_ours and previous.get("acquireTime") else now,
            "renewTime": now,
            "leaseTransitions": transitions if is_ours or not previous else transitions + 1,
        }

    async def _release(self) -> None:
        """Write a record without holder, if it is still ours. After a failure the next holder waits for the lease to expire."""
        if not self.is_leader and not self._is_claiming:
            return
        self.is_leader = self._is_claiming = False
        if not self._may_release():
            return
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                while not await self._try_release():
                    pass  # a renewal that was sent before has arrived now
        except (KubeError, TimeoutError) as error:
            self._log.info(
                "Lease not released: %s; the next leader waits until it expires", error or "no answer"
            )

    async def _try_release(self) -> bool:
        """Whether the Lease is not ours now."""
        raw = await self._client.find(self.ref)
        if raw is None or (raw.get("spec") or {}).get("holderIdentity") != self.identity:
            return True
        now = format_micro_time(self._clock.now())
        released = {
            **raw["spec"],
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
        }
        try:
            await self._client.update(LEASE, {**raw, "spec": released})
        except Conflict:
            return False
        return True
