"""Which address of a pool a load balancer gets, and how the pool's books are kept (reference 02 §4.4).

The books are the pool's own status: `allocated` says who holds what, `allocatedHistory` who held it last, so that a
load balancer that comes back gets its old address and no other.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.emulator.load_balancers.ranges import Span, render_set, walk
from windrow.kubernetes.objects import Raw, nested

DUPLICATE = "duplicate allocation is not allowed"


class NoAddress(Exception):
    """The pool has none for this holder; the message is the allocator's."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One address, as `status.allocatedAddress` writes it."""

    address: str
    mask: str
    gateway: str


def choose(pool: Mapping[str, Any], spans: Sequence[Span], holder: str) -> Grant:
    """The address that `holder` (`namespace/name`) gets from `pool`. Changes nothing. Raises NoAddress."""
    allocated: Mapping[str, str] = nested(pool, "status", "allocated", default={})
    history: Mapping[str, str] = nested(pool, "status", "allocatedHistory", default={})
    remembered = next((address for address, name in history.items() if name == holder), None)
    if remembered is not None:
        return _ask_for(remembered, allocated, spans, holder)
    for address, name in allocated.items():
        if name == holder and _span_of(address, spans) is not None:
            raise NoAddress(f"{address} has been allocated to {holder}, {DUPLICATE}")
    for candidate, span in walk(spans, nested(pool, "status", "lastAllocated", default="")):
        if str(candidate) not in allocated:
            return _grant(str(candidate), span)
    raise NoAddress(f"no IP addresses available in range set: {render_set(spans)}")


def _ask_for(address: str, allocated: Mapping[str, str], spans: Sequence[Span], holder: str) -> Grant:
    """The address of last time, or nothing: there is no falling back to another."""
    span = _span_of(address, spans)
    if span is None:
        raise NoAddress(f"{address} not in range set {render_set(spans)}")
    if str(span.gateway) == address:
        raise NoAddress(f"requested ip {address} is subnet's gateway")
    if allocated.get(address, holder) != holder:
        raise NoAddress(f"requested IP address {address} is not available in range set {render_set(spans)}")
    return _grant(address, span)


def _span_of(address: str, spans: Sequence[Span]) -> Span | None:
    found = ipaddress.ip_address(address)
    return next((span for span in spans if span.holds(found)), None)


def _grant(address: str, span: Span) -> Grant:
    return Grant(address, span.mask, "<nil>" if span.gateway is None else str(span.gateway))


def reserve(pool: Raw, address: str, holder: str) -> None:
    """Write into the pool that `holder` has the address. May be repeated."""
    status = pool["status"]
    allocated = status.setdefault("allocated", {})
    if allocated.get(address) == holder:
        return
    status.get("allocatedHistory", {}).pop(address, None)
    allocated[address] = holder
    status["lastAllocated"] = address
    status["available"] = status.get("available", 0) - 1
    _tidy(status)


def release(pool: Raw, holder: str) -> bool:
    """Write into the pool that `holder` has no address any more; False when it had none. May be repeated."""
    status = pool.get("status") or {}
    allocated = status.get("allocated") or {}
    address = next((one for one, name in allocated.items() if name == holder), None)
    if address is None:
        return False
    status.setdefault("allocatedHistory", {})[address] = holder
    del allocated[address]
    status["available"] = status.get("available", 0) + 1
    _tidy(status)
    return True


def _tidy(status: Raw) -> None:
    """Go leaves empty maps out."""
    for book in ("allocated", "allocatedHistory"):
        if not status.get(book):
            status.pop(book, None)


def recount(pool: Raw, spans: Sequence[Span]) -> None:
    """The totals after the ranges changed, with a history that knows only addresses still in them."""
    status = pool.setdefault("status", {})
    status["total"] = sum(span.size for span in spans)
    status["available"] = status["total"] - len(status.get("allocated") or {})
    status.setdefault("lastAllocated", "")
    history = status.get("allocatedHistory") or {}
    kept = {address: name for address, name in history.items() if _span_of(address, spans) is not None}
    status["allocatedHistory"] = kept
    _tidy(status)
