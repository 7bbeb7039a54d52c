"""Leader election on `coordination.k8s.io/v1` Leases, in step with client-go: both may compete for one Lease.

Who holds a Lease writes it every two seconds. Others take it over when they have seen no write for as long as the
record itself says (15 s). "Seen" is by one's own clock: clocks of different machines are never compared. A holder
that cannot write for ten seconds stops its work, five seconds before anybody else may begin.

That holds however slow the answers are: a holder counts from before its write was sent, the others from after the
answer that showed it to them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from windrow.client.client import Client
from windrow.kube.errors import Conflict, Exists, KubeError, Unanswered
from windrow.kube.objects import Raw, new_object
from windrow.kube.refs import LEASE, Ref
from windrow.values.chance import Chance
from windrow.values.clock import Clock, pause, stamp_micro
from windrow.values.duration import render_duration

log = logging.getLogger(__name__)

RELEASE_S = 5.0


class LeadershipLost(Exception):
    """The Lease could not be renewed in time; another may lead now. The program should end and start anew."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The time-outs of client-go's components. `renew` < `lease`, `retry` < `renew`."""

    lease: timedelta = timedelta(seconds=15)
    renew: timedelta = timedelta(seconds=10)
    retry: timedelta = timedelta(seconds=2)


class Candidate:
    """One competitor for one Lease. `identity` must be unique to this process."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        chance: Chance,
        terms: Terms | None = None,
    ) -> None:
        self.ref: Ref = LEASE.ref(name, namespace)
        self.identity = identity
        self.is_leader = False
        # A claim is under way: whether the Lease is ours shows in the answer, which a cancellation does not wait for.
        self._claims = False
        self._client = client
        self._clock = clock
        self._chance = chance
        self._terms = terms or Terms()
        self._record: dict[str, Any] = {}
        self._record_since: datetime | None = None
        self._renewed: datetime | None = None

    @property
    def renewed(self) -> datetime | None:
        """When the last claim of ours that was granted was sent, by our own clock."""
        return self._renewed

    @property
    def holder(self) -> str:
        """Who had the Lease when it was last looked at; "" for nobody, or not looked at yet."""
        return str(self._record.get("holderIdentity") or "")

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, then work while it is held; release it at the end.

        Returns when `work` does. Raises LeadershipLost when the Lease could not be kept; `work` is cancelled then.
        When this is cancelled, the Lease is released, so that a successor need not wait.
        """
        try:
            await self._acquire()
            log.info("%s: %s leads", self.ref, self.identity)
            await self._work_while_leading(work)
        finally:
            await self._release()

    async def _acquire(self) -> None:
        while not await self._try_until(self._clock.now() + self._terms.renew):
            # client-go's jitter: up to 120 % more.
            await pause(self._clock, self._terms.retry * self._chance.between(1.0, 2.2))

    async def _work_while_leading(self, work: Callable[[], Awaitable[None]]) -> None:
        working = asyncio.ensure_future(work())
        renewing = asyncio.ensure_future(self._renew())
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            renewing.cancel()
            was_working = not working.done()
            working.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)
        if was_working:
            raise LeadershipLost(
                f"{self.ref} could not be renewed within {render_duration(self._terms.renew)}; another may lead now"
            )
        working.result()

    async def _renew(self) -> None:
        """Return when the Lease is lost."""
        while self.is_leader and self._is_held():
            await self._clock.until(min(self._clock.now() + self._terms.retry, self._held_until()))
            await self._try_until(self._held_until())
        self.is_leader = self._claims = False

    def _held_until(self) -> datetime:
        """Until when we may work."""
        return self._clock.now() if self._renewed is None else self._renewed + self._terms.renew

    def _is_held(self) -> bool:
        return self._clock.now() < self._held_until()

    async def _try_until(self, end: datetime) -> bool:
        """One attempt, which is given up at `end`."""
        try:
            # Not wait_for: in Python 3.11 it loses a cancellation that comes with the result.
            async with asyncio.timeout((end - self._clock.now()).total_seconds()):
                return await self._try()
        except TimeoutError:
            return False

    async def _try(self) -> bool:
        """One attempt to take or keep the Lease. Never raises a KubeError."""
        try:
            return await self._take()
        except (Conflict, Exists):
            self._claims = False
            return False  # somebody was quicker
        except KubeError as error:
            self._claims = self._claims and isinstance(error, Unanswered)
            log.warning("%s: %s", self.ref, error)
            return False

    async def _take(self) -> bool:
        raw = await self._client.find(self.ref)
        now = self._clock.now()
        if raw is None:
            made = new_object(LEASE, self.ref.name, self.ref.namespace, spec=self._claim({}, now))
            self._claims = True
            return self._won(await self._client.create(LEASE, made), now)
        self._observe(raw, now)
        holder = str(self._record.get("holderIdentity") or "")
        if holder not in ("", self.identity):
            self.is_leader = False
            if not self._is_over(now):
                return False
        raw = {**raw, "spec": {**(raw.get("spec") or {}), **self._claim(self._record, now)}}
        self._claims = True
        return self._won(await self._client.update(LEASE, raw), now)

    def _won(self, raw: Raw, sent: datetime) -> bool:
        """Whether we lead now: an answer may come when what it grants is over."""
        self._observe(raw, sent)
        self._renewed = sent
        self.is_leader = self._is_held()
        self._claims = not self.is_leader
        return self.is_leader

    def _observe(self, raw: Raw, now: datetime) -> None:
        record = raw.get("spec") or {}
        if record != self._record or self._record_since is None:
            self._record = record
            self._record_since = now

    def _is_over(self, now: datetime) -> bool:
        lasts = timedelta(seconds=int(self._record.get("leaseDurationSeconds") or 0))
        return self._record_since is not None and self._record_since + lasts <= now

    def _claim(self, before: dict[str, Any], now: datetime) -> dict[str, Any]:
        mine = before.get("holderIdentity") == self.identity
        transitions = int(before.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._terms.lease.total_seconds()),
            "acquireTime": before["acquireTime"] if mine and before.get("acquireTime") else stamp_micro(now),
            "renewTime": stamp_micro(now),
            "leaseTransitions": transitions if mine or not before else transitions + 1,
        }

    async def _release(self) -> None:
        """Leave an empty record behind, if it is still ours. A failure costs the successor a wait, nothing else."""
        if not self.is_leader and not self._claims:
            return
        self.is_leader = self._claims = False
        try:
            async with asyncio.timeout(RELEASE_S):
                while not await self._give_up():
                    pass  # a renewal of ours was under way; it has arrived now
        except (KubeError, TimeoutError) as error:
            log.info("%s could not be released: %s", self.ref, error or "no answer")

    async def _give_up(self) -> bool:
        """Whether the Lease is not ours now."""
        raw = await self._client.find(self.ref)
        if raw is None or (raw.get("spec") or {}).get("holderIdentity") != self.identity:
            return True
        now = stamp_micro(self._clock.now())
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
