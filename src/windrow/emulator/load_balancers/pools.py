"""The pool controller, and the allocators that it keeps: one per pool it has seen (reference 02 §4.4)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from windrow.core.json import dumps
from windrow.emulator import kinds
from windrow.emulator.delays import Delays, Pace
from windrow.emulator.hand import Hand
from windrow.emulator.load_balancers import allocation, names
from windrow.emulator.load_balancers.allocation import Grant, NoAddress
from windrow.emulator.load_balancers.conditions import say_ready
from windrow.emulator.load_balancers.outcomes import Failed
from windrow.emulator.load_balancers.ranges import BadRange, Span, read_spans
from windrow.emulator.load_balancers.release import Release
from windrow.emulator.load_balancers.timing import Stages
from windrow.emulator.world import Key
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, annotations_of, finalizers_of, is_deleting, nested, uid_of

_RECORD = re.compile(r"\s*(?P<address>[^:]+):\s*(?P<namespace>[^:/]+)/(?P<name>[^:/]+?)\s*")


@dataclass(frozen=True, slots=True)
class Allocator:
    """What the controller knows of a pool: its ranges as they were when it last looked."""

    checksum: bytes
    spans: tuple[Span, ...]


class Pools:
    """`reconcile` keeps allocators and totals; `take` and `give_back` are for the load balancers' controller."""

    def __init__(self, hand: Hand, pace: Pace, delays: Delays, release: Release) -> None:
        self._hand = hand
        self._pace = pace
        self._release = release
        self._stages = Stages(pace)
        self._delays = delays
        self._allocators: dict[str, Allocator] = {}

    async def reconcile(self, key: Key) -> datetime | None:
        ref = kinds.IP_POOL.ref(key[1])
        pool = await self._hand.find(ref)
        if pool is None:
            self._allocators.pop(key[1], None)
            return None
        due = self._stages.due(uid_of(pool), "seen", self._delays.pool_controller)
        if due is not None:
            return due
        if is_deleting(pool):
            self._allocators.pop(key[1], None)
            await self._hand.change(ref, _let_go)
            return None
        await self._allocate_by(key[1], pool)
        if self._release.releases_by_hand and annotations_of(pool).get(names.RELEASE_BY_HAND):
            await self._release_by_hand(key[1], annotations_of(pool)[names.RELEASE_BY_HAND])
        return None

    async def _allocate_by(self, name: str, pool: Raw) -> None:
        """An allocator of the pool's present ranges, and totals that fit them."""
        ranges = nested(pool, "spec", "ranges", default=[])
        checksum = dumps(ranges)
        known = self._allocators.get(name)
        if known is not None and known.checksum == checksum and names.POOL_FINALIZER in finalizers_of(pool):
            return
        try:
            spans = read_spans(ranges)
        except BadRange:
            return  # the webhook lets none of these in; who got past it has no allocator
        changed = known is None or known.checksum != checksum
        now = self._pace.now()

        def edit(raw: Raw) -> None:
            if names.POOL_FINALIZER not in finalizers_of(raw):
                raw["metadata"]["finalizers"] = [*finalizers_of(raw), names.POOL_FINALIZER]
            if changed:
                allocation.recount(raw, spans)
                say_ready(raw, "True", "", now)

        self._allocators[name] = Allocator(checksum, spans)
        await self._hand.change(kinds.IP_POOL.ref(name), edit)

    async def _release_by_hand(self, name: str, text: str) -> None:
        """An operator's request about an address whose load balancer is gone. Whatever it says, it is answered once."""
        record = _RECORD.fullmatch(text)
        held = ""
        if record is not None:
            balancer = kinds.LOAD_BALANCER.ref(record["name"], record["namespace"])
            if await self._hand.find(balancer) is None:
                held = f"{record['namespace']}/{record['name']}"

        def edit(raw: Raw) -> None:
            annotations_of(raw).pop(names.RELEASE_BY_HAND, None)
            if record is not None and held:
                allocated = nested(raw, "status", "allocated", default={})
                if allocated.get(record["address"].strip()) == held:
                    allocation.release(raw, held)

        await self._hand.change(kinds.IP_POOL.ref(name), edit)

    # --- for load balancers -----------------------------------------------------------------------------------------

    def spans(self, pool: str) -> Sequence[Span]:
        """The ranges that addresses of the pool come from. Raises Failed when the controller has not seen it."""
        found = self._allocators.get(pool)
        if found is None:
            raise Failed(f"fail to get allocator {pool}")
        return found.spans

    def holds(self, address: str) -> bool:
        """Whether the address is in the range of any pool."""
        found = ipaddress.ip_address(address)
        return any(span.holds(found) for one in self._allocators.values() for span in one.spans)

    async def take(self, pool: str, holder: str) -> Grant:
        """Give `holder` an address and write it into the pool. Raises Failed."""
        spans = self.spans(pool)
        granted: list[Grant] = []

        def edit(raw: Raw) -> None:
            grant = allocation.choose(raw, spans, holder)
            allocation.reserve(raw, grant.address, holder)
            granted[:] = [grant]

        try:
            found = await self._hand.change(kinds.IP_POOL.ref(pool), edit)
        except NoAddress as error:
            raise Failed(f"fail to get ip from pool {pool}, error: {error}") from error
        except KubeError as error:
            wanted = granted[0].address if granted else "an address"
            text = f"fail to get ip from pool {pool}, error: fail to reserve {wanted} into {pool}"
            raise Failed(text) from error
        if found is None:
            text = f'{kinds.IP_POOL.group_resource} "{pool}" not found'
            raise Failed(f"fail to get ip from pool {pool}, error: {text}")
        return granted[0]

    async def give_back(self, pool: str, holder: str) -> None:
        """Take the address of `holder` back into the pool. Raises Failed. May be repeated."""
        self.spans(pool)
        try:
            await self._hand.change(kinds.IP_POOL.ref(pool), lambda raw: _release(raw, holder))
        except KubeError as error:
            raise Failed(str(error)) from error


def _release(raw: Raw, holder: str) -> None:
    allocation.release(raw, holder)


def _let_go(raw: Raw) -> None:
    raw["metadata"]["finalizers"] = [one for one in finalizers_of(raw) if one != names.POOL_FINALIZER]
