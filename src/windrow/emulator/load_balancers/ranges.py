"""Ranges of a pool: what its lines mean, with the defaults and the refusals as shipped (reference 02 §4.4, §4.6)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Subnet = ipaddress.IPv4Network | ipaddress.IPv6Network


class BadRange(ValueError):
    """A range cannot be read; the message is the webhook's."""


@dataclass(frozen=True, slots=True)
class Span:
    """Addresses from `start` to `end`, both included, of one subnet. The gateway is never handed out."""

    start: Address
    end: Address
    subnet: Subnet
    gateway: Address | None

    def holds(self, address: Address) -> bool:
        return address.version == self.start.version and int(self.start) <= int(address) <= int(self.end)

    def overlaps(self, other: Span) -> bool:
        ends = (other.start, other.end)
        return any(map(self.holds, ends)) or any(map(other.holds, (self.start, self.end)))

    @property
    def size(self) -> int:
        """How many addresses can be handed out."""
        whole = int(self.end) - int(self.start) + 1
        return whole - 1 if self.gateway is not None and self.holds(self.gateway) else whole

    @property
    def mask(self) -> str:
        return str(self.subnet.netmask)

    def __str__(self) -> str:
        return f"{self.start}-{self.end}"


def read_spans(ranges: Sequence[Mapping[str, Any]]) -> tuple[Span, ...]:
    """The ranges of a pool's spec, in order. Raises BadRange."""
    return tuple(_read(one) for one in ranges)


def _read(raw: Mapping[str, Any]) -> Span:
    text = str(raw.get("subnet", ""))
    try:
        if "/" not in text:
            raise ValueError
        given = ipaddress.ip_interface(text)
    except ValueError:
        raise BadRange(f"invalid CIDR address: {text}, a valid example is 192.168.1.0/24") from None
    subnet: Subnet = given.network
    single = given.version == 4 and subnet.prefixlen == 32
    first: Address = given.ip if single else subnet.network_address + 1
    last: Address = given.ip if single else subnet.broadcast_address - (1 if given.version == 4 else 0)
    start = _part(raw, "rangeStart", "range start", subnet) or first
    end = _part(raw, "rangeEnd", "range end", subnet) or last
    gateway = _part(raw, "gateway", "gateway", subnet) or (None if single else first)
    if int(start) > int(end):
        start, end = end, start
    return Span(start, end, subnet, gateway)


def _part(raw: Mapping[str, Any], key: str, word: str, subnet: Subnet) -> Address | None:
    text = str(raw.get(key) or "")
    if not text:
        return None
    why = _fault(text, subnet)
    if why:
        raise BadRange(f"invalid {word} {text}: {why}")
    return ipaddress.ip_address(text)


def _fault(text: str, subnet: Subnet) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return f"invalid IP {text}"
    if address not in subnet:
        return f"IP {text} is out of subnet {subnet}"
    if address == subnet.network_address:
        return f"IP {text} is the network address"
    if address == subnet.broadcast_address:
        return f"IP {text} is the broadcast address"
    return ""


def walk(spans: Sequence[Span], last: str) -> Iterator[tuple[Address, Span]]:
    """Every address that may be handed out, once, beginning behind `last` (at the very first where `last` is in no
    range) and coming round to it at the end."""
    at = _place(spans, last)
    ordered = [*range(at[0], len(spans)), *range(at[0])] if at is not None else [*range(len(spans))]
    for place in ordered:
        span = spans[place]
        first = int(at[1]) + 1 if at is not None and place == at[0] else int(span.start)
        yield from _between(span, first, int(span.end))
    if at is not None:
        span = spans[at[0]]
        yield from _between(span, int(span.start), int(at[1]))


def _place(spans: Sequence[Span], last: str) -> tuple[int, Address] | None:
    try:
        address = ipaddress.ip_address(last)
    except ValueError:
        return None
    return next(((place, address) for place, span in enumerate(spans) if span.holds(address)), None)


def _between(span: Span, first: int, last: int) -> Iterator[tuple[Address, Span]]:
    kind = type(span.start)
    for number in range(first, last + 1):
        address = kind(number)
        if address != span.gateway:
            yield address, span


def render_set(spans: Sequence[Span]) -> str:
    """`a-b,c-d`, as the allocator's errors write it."""
    return ",".join(map(str, spans))


def render_struct(span: Span) -> str:
    """A range as Go prints the structure; the webhook's texts show it so."""
    mask = f"{int(span.subnet.netmask):x}"
    gateway = "<nil>" if span.gateway is None else span.gateway
    subnet = f"{{IP:{span.subnet.network_address} Mask:{mask}}}"
    return f"{{RangeStart:{span.start} RangeEnd:{span.end} Subnet:{subnet} Gateway:{gateway}}}"


def render_structs(spans: Sequence[Span]) -> str:
    return f"[{' '.join(map(render_struct, spans))}]"
