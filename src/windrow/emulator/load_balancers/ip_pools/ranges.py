"""Address ranges of an IPPool, with Harvester's defaults and error texts (reference 02 §4.4, §4.6)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Subnet = ipaddress.IPv4Network | ipaddress.IPv6Network


class BadRange(ValueError):
    """A range cannot be read; the message is the webhook's."""


@dataclass(frozen=True, slots=True)
class AddressRange:
    """Addresses from `start` to `end`, both included, of one subnet. The gateway is never allocated."""

    start: Address
    end: Address
    subnet: Subnet
    gateway: Address | None

    def contains(self, address: Address) -> bool:
        return address.version == self.start.version and int(self.start) <= int(address) <= int(self.end)

    def overlaps(self, other: AddressRange) -> bool:
        ends = (other.start, other.end)
        return any(map(self.contains, ends)) or any(map(other.contains, (self.start, self.end)))

    @property
    def size(self) -> int:
        """How many addresses can be allocated."""
        whole = int(self.end) - int(self.start) + 1
        return whole - 1 if self.gateway is not None and self.contains(self.gateway) else whole

    @property
    def mask(self) -> str:
        return str(self.subnet.netmask)

    def __str__(self) -> str:
        return f"{self.start}-{self.end}"


def read_ranges(ranges: Sequence[Mapping[str, Any]]) -> tuple[AddressRange, ...]:
    """The ranges of a pool's spec, in order. Raises BadRange."""
    return tuple(_read(one) for one in ranges)


def _read(raw: Mapping[str, Any]) -> AddressRange:
    text = str(raw.get("subnet", ""))
    try:
        if not re.search(r"/[0-9]+$", text):  # Go reads no netmask
            raise ValueError
        given = ipaddress.ip_interface(text)
    except ValueError:
        raise BadRange(f"invalid CIDR address: {text}, a valid example is 192.168.1.0/24") from None
    subnet: Subnet = given.network
    single = given.version == 4 and subnet.prefixlen == 32
    first: Address = given.ip if single else subnet.network_address + 1
    last: Address = given.ip if single else subnet.broadcast_address - (1 if given.version == 4 else 0)
    start = _read_address(raw, "rangeStart", "range start", subnet) or first
    end = _read_address(raw, "rangeEnd", "range end", subnet) or last
    gateway = _read_address(raw, "gateway", "gateway", subnet) or (None if single else first)
    if int(start) > int(end):
        start, end = end, start
    return AddressRange(start, end, subnet, gateway)


def _read_address(raw: Mapping[str, Any], key: str, word: str, subnet: Subnet) -> Address | None:
    text = str(raw.get(key) or "")
    if not text:
        return None
    problem = _find_problem(text, subnet)
    if problem:
        raise BadRange(f"invalid {word} {text}: {problem}")
    return ipaddress.ip_address(text)


def _find_problem(text: str, subnet: Subnet) -> str:
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


def iterate_addresses(ranges: Sequence[AddressRange], last: str) -> Iterator[tuple[Address, AddressRange]]:
    """Every address that may be allocated, once, beginning behind `last` (at the very first where `last` is in no
    range) and wrapping around."""
    at = _position(ranges, last)
    ordered = [*range(at[0], len(ranges)), *range(at[0])] if at is not None else [*range(len(ranges))]
    for place in ordered:
        range_ = ranges[place]
        first = int(at[1]) + 1 if at is not None and place == at[0] else int(range_.start)
        yield from _between(range_, first, int(range_.end))
    if at is not None:
        range_ = ranges[at[0]]
        yield from _between(range_, int(range_.start), int(at[1]))


def _position(ranges: Sequence[AddressRange], last: str) -> tuple[int, Address] | None:
    try:
        address = ipaddress.ip_address(last)
    except ValueError:
        return None
    return next(((place, address) for place, range_ in enumerate(ranges) if range_.contains(address)), None)


def _between(range_: AddressRange, first: int, last: int) -> Iterator[tuple[Address, AddressRange]]:
    kind = type(range_.start)
    for number in range(first, last + 1):
        address = kind(number)
        if address != range_.gateway:
            yield address, range_


def render_ranges(ranges: Sequence[AddressRange]) -> str:
    """`a-b,c-d`, as the allocator's errors write it."""
    return ",".join(map(str, ranges))


def render_go_struct(range_: AddressRange) -> str:
    """A range as Go prints the structure; the webhook's texts show it so."""
    mask = f"{int(range_.subnet.netmask):x}"
    gateway = "<nil>" if range_.gateway is None else range_.gateway
    subnet = f"{{IP:{range_.subnet.network_address} Mask:{mask}}}"
    return f"{{RangeStart:{range_.start} RangeEnd:{range_.end} Subnet:{subnet} Gateway:{gateway}}}"


def render_go_structs(ranges: Sequence[AddressRange]) -> str:
    return f"[{' '.join(map(render_go_struct, ranges))}]"
