"""IPPool controller with one allocator per observed pool (reference 02 §4.4)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from windrow.core.formats.json import dumps
from windrow.emulator import kinds
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import add_finalizers, annotate, remove_finalizer
from windrow.emulator.kit.listers import Key
from windrow.emulator.kit.step_timers import StepTimers
from windrow.emulator.load_balancers import names
from windrow.emulator.load_balancers.ip_pools import allocation
from windrow.emulator.load_balancers.ip_pools.allocation import Allocation, NoAddress
from windrow.emulator.load_balancers.ip_pools.ranges import AddressRange, BadRange, read_ranges
from windrow.emulator.load_balancers.readiness import Failed, set_ready
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, annotations_of, finalizers_of, is_deleting, nested, uid_of

_RECORD = re.compile(r"\s*(?P<address>[^:]+):\s*(?P<namespace>[^:/]+)/(?P<name>[^:/]+?)\s*")


@dataclass(frozen=True, slots=True)
class Allocator:
    """Allocator of one pool: its ranges as last reconciled."""

    checksum: bytes
    ranges: tuple[AddressRange, ...]


class IPPoolController:
    """`reconcile` maintains allocators and totals; the LoadBalancer controller calls `allocate` and `release`."""

    def __init__(self, client: AdminClient, clock: ScaledClock, delays: Delays) -> None:
        self._client = client
        self._clock = clock
        self._timers = StepTimers(clock)
        self._delays = delays
        self._allocators: dict[str, Allocator] = {}

    async def reconcile(self, key: Key) -> timedelta | None:
        ref = kinds.IP_POOL.ref(key[1])
        pool = await self._client.find(ref)
        if pool is None:
            self._allocators.pop(key[1], None)
            return None
        if due := self._timers.due(uid_of(pool), "seen", self._delays.pool_controller):
            return due
        if is_deleting(pool):
            self._allocators.pop(key[1], None)
            await self._client.mutate(ref, remove_finalizer(names.POOL_FINALIZER))
            return None
        await self._ensure_allocator(key[1], pool)
        if annotations_of(pool).get(names.RELEASE_MANUALLY):
            await self._release_manually(key[1], annotations_of(pool)[names.RELEASE_MANUALLY])
        return None

    async def _ensure_allocator(self, name: str, pool: Raw) -> None:
        """An allocator of the pool's present ranges, and totals that fit them."""
        ranges = nested(pool, "spec", "ranges", default=[])
        checksum = dumps(ranges)
        known = self._allocators.get(name)
        if known is not None and known.checksum == checksum and names.POOL_FINALIZER in finalizers_of(pool):
            return
        try:
            ranges = read_ranges(ranges)
        except BadRange:
            return  # the webhook refuses these; one created in spite of it has no allocator
        changed = known is None or known.checksum != checksum
        now = self._clock.now()

        def edit(raw: Raw) -> None:
            add_finalizers(names.POOL_FINALIZER)(raw)
            if changed:
                allocation.recount(raw, ranges)
                set_ready(raw, "True", "", now)

        self._allocators[name] = Allocator(checksum, ranges)
        await self._client.mutate(kinds.IP_POOL.ref(name), edit)

    async def _release_manually(self, name: str, text: str) -> None:
        """Annotation manuallyReleaseIP: release the address of a deleted LoadBalancer. The annotation is removed once."""
        record = _RECORD.fullmatch(text)
        balancer = (
            kinds.LOAD_BALANCER.ref(record["name"], record["namespace"]) if record is not None else None
        )
        is_deleted = balancer is not None and await self._client.find(balancer) is None

        def edit(raw: Raw) -> None:
            annotate(raw, {names.RELEASE_MANUALLY: None})
            if record is not None and is_deleted:
                holder = f"{record['namespace']}/{record['name']}"
                allocated = nested(raw, "status", "allocated", default={})
                if allocated.get(record["address"].strip()) == holder:
                    allocation.release(raw, holder)

        await self._client.mutate(kinds.IP_POOL.ref(name), edit)

    # --- allocation -----------------------------------------------------------------------------------------

    def ranges(self, pool: str) -> Sequence[AddressRange]:
        """The ranges that addresses of the pool come from. Raises Failed when it was not reconciled yet."""
        found = self._allocators.get(pool)
        if found is None:
            raise Failed(f"fail to get allocator {pool}")
        return found.ranges

    def has_address(self, address: str) -> bool:
        """Whether the address is in the range of any pool."""
        found = ipaddress.ip_address(address)
        return any(range_.contains(found) for one in self._allocators.values() for range_ in one.ranges)

    async def allocate(self, pool: str, holder: str) -> Allocation:
        """Allocate an address to `holder` and write it into the pool. Raises Failed."""
        ranges = self.ranges(pool)
        allocations: list[Allocation] = []

        def edit(raw: Raw) -> None:
            chosen = allocation.choose_address(raw, ranges, holder)
            allocation.reserve(raw, chosen.address, holder)
            allocations[:] = [chosen]

        try:
            found = await self._client.mutate(kinds.IP_POOL.ref(pool), edit)
        except NoAddress as error:
            raise Failed(f"fail to get ip from pool {pool}, error: {error}") from error
        except KubeError as error:
            wanted = allocations[0].address if allocations else "an address"
            text = f"fail to get ip from pool {pool}, error: fail to reserve {wanted} into {pool}"
            raise Failed(text) from error
        if found is None:
            text = f'{kinds.IP_POOL.group_resource} "{pool}" not found'
            raise Failed(f"fail to get ip from pool {pool}, error: {text}")
        return allocations[0]

    async def release(self, pool: str, holder: str) -> None:
        """Release the address of `holder` into the pool. Raises Failed. May be repeated."""
        self.ranges(pool)
        try:
            await self._client.mutate(kinds.IP_POOL.ref(pool), lambda raw: allocation.release(raw, holder))
        except KubeError as error:
            raise Failed(str(error)) from error
