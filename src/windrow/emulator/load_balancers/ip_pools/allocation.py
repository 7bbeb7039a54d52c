"""Address allocation from an IPPool and its status (reference 02 §4.4). Pure.

In the pool's status `allocated` names the holder of each address and `allocatedHistory` the last one, so that a
recreated LoadBalancer gets its old address and no other.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.emulator.load_balancers.ip_pools.ranges import AddressRange, iterate_addresses, render_ranges
from windrow.kubernetes.objects import Raw, nested

DUPLICATE = "duplicate allocation is not allowed"


class NoAddress(Exception):
    """The pool has no address for this holder; the message is the allocator's."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One allocated address, as in `status.allocatedAddress`."""

    address: str
    mask: str
    gateway: str


def choose_address(pool: Mapping[str, Any], ranges: Sequence[AddressRange], holder: str) -> Allocation:
    """The address that `holder` (`namespace/name`) gets from `pool`. Changes nothing. Raises NoAddress."""
    allocated: Mapping[str, str] = nested(pool, "status", "allocated", default={})
    history: Mapping[str, str] = nested(pool, "status", "allocatedHistory", default={})
    remembered = next((address for address, name in history.items() if name == holder), None)
    if remembered is not None:
        return _allocate_remembered(remembered, allocated, ranges, holder)
    for address, name in allocated.items():
        if name == holder and _range_of(address, ranges) is not None:
            raise NoAddress(f"{address} has been allocated to {holder}, {DUPLICATE}")
    for candidate, range_ in iterate_addresses(ranges, nested(pool, "status", "lastAllocated", default="")):
        if str(candidate) not in allocated:
            return _allocation(str(candidate), range_)
    raise NoAddress(f"no IP addresses available in range set: {render_ranges(ranges)}")


def _allocate_remembered(
    address: str, allocated: Mapping[str, str], ranges: Sequence[AddressRange], holder: str
) -> Allocation:
    """The remembered address, or NoAddress: there is no fallback to another."""
    range_ = _range_of(address, ranges)
    if range_ is None:
        raise NoAddress(f"{address} not in range set {render_ranges(ranges)}")
    if str(range_.gateway) == address:
        raise NoAddress(f"requested ip {address} is subnet's gateway")
    if allocated.get(address, holder) != holder:
        raise NoAddress(
            f"requested IP address {address} is not available in range set {render_ranges(ranges)}"
        )
    return _allocation(address, range_)


def _range_of(address: str, ranges: Sequence[AddressRange]) -> AddressRange | None:
    found = ipaddress.ip_address(address)
    return next((range_ for range_ in ranges if range_.contains(found)), None)


def _allocation(address: str, range_: AddressRange) -> Allocation:
    return Allocation(address, range_.mask, "<nil>" if range_.gateway is None else str(range_.gateway))


def reserve(pool: Raw, address: str, holder: str) -> None:
    """Record the address of `holder` in the pool's status. May be repeated."""
    status = pool["status"]
    allocated = status.setdefault("allocated", {})
    if allocated.get(address) == holder:
        return
    status.get("allocatedHistory", {}).pop(address, None)
    allocated[address] = holder
    status["lastAllocated"] = address
    status["available"] = status.get("available", 0) - 1
    _drop_empty(status)


def release(pool: Raw, holder: str) -> None:
    """Remove the address of `holder` from the pool's status. May be repeated."""
    status = pool.get("status") or {}
    allocated = status.get("allocated") or {}
    for address in [one for one, name in allocated.items() if name == holder][:1]:
        status.setdefault("allocatedHistory", {})[address] = holder
        del allocated[address]
        status["available"] = status.get("available", 0) + 1
    _drop_empty(status)


def _drop_empty(status: Raw) -> None:
    """Go leaves empty maps out."""
    for field in ("allocated", "allocatedHistory"):
        if not status.get(field):
            status.pop(field, None)


def recount(pool: Raw, ranges: Sequence[AddressRange]) -> None:
    """The totals after the ranges changed; history entries outside of the ranges are dropped."""
    status = pool.setdefault("status", {})
    status["total"] = sum(range_.size for range_ in ranges)
    status["available"] = status["total"] - len(status.get("allocated") or {})
    status.setdefault("lastAllocated", "")
    history = status.get("allocatedHistory") or {}
    remembered = {
        address: name for address, name in history.items() if _range_of(address, ranges) is not None
    }
    status["allocatedHistory"] = remembered
    _drop_empty(status)
