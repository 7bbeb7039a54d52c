"""Addresses and ranges of addresses: `10.0.0.5`, `10.0.0.0/24`, `10.0.0.10-10.0.0.20`."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class NotAddress(ValueError):
    """The text is neither an address nor a range of addresses; the message says what was found."""


def parse_address(text: str) -> Address:
    """The address that `text` writes. Raises NotAddress, also for an IPv4 address written as IPv6, which has a second text."""
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError as error:
        raise NotAddress(
            f"wanted an IP address such as 10.0.0.5, found {text!r}; write one without a port"
        ) from error
    if is_mapped(address):
        raise NotAddress(f"wanted an IP address, found {text!r}, IPv4 written as IPv6; write it as IPv4")
    return address


def is_mapped(address: Address) -> bool:
    """Whether it is an IPv4 address written as IPv6: `::ffff:10.0.0.5`."""
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def is_address(text: str) -> bool:
    """Whether `text` is an IP address and not, say, a name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def usable_address(text: str | None) -> str:
    """The address as it is compared, without its prefix length; "" for none that others could reach."""
    try:
        address = ipaddress.ip_address((text or "").partition("/")[0])
    except ValueError:
        return ""
    return "" if address.is_link_local or address.is_loopback else str(address)


@dataclass(frozen=True, slots=True)
class Range:
    """All addresses from `first` to `last`, both included; of one family."""

    first: Address
    last: Address

    @classmethod
    def parse(cls, text: str) -> Range:
        """A network (`10.0.0.0/24`), two ends (`10.0.0.1-10.0.0.9`) or one address. Raises NotAddress.

        A network may be written by any address in it: `10.0.0.7/24` is `10.0.0.0/24`.
        """
        text = text.strip()
        if "/" in text:
            return cls._of_network(text)
        first, dash, last = text.partition("-")
        begin = parse_address(first)
        end = parse_address(last) if dash else begin
        if begin.version != end.version or int(begin) > int(end):
            raise NotAddress(
                f"wanted a range that goes up within one family, found {text!r}; write <first>-<last>"
            )
        return cls(begin, end)

    @classmethod
    def _of_network(cls, text: str) -> Range:
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError as error:
            raise NotAddress(f"wanted a network such as 10.0.0.0/24, found {text!r}: {error}") from error
        if is_mapped(network.network_address):
            raise NotAddress(f"wanted a network, found {text!r}, IPv4 written as IPv6; write it as IPv4")
        return cls(network.network_address, network.broadcast_address)

    @property
    def size(self) -> int:
        return int(self.last) - int(self.first) + 1

    def __contains__(self, address: Address) -> bool:
        return address.version == self.first.version and int(self.first) <= int(address) <= int(self.last)

    def overlaps(self, other: Range) -> bool:
        """Whether some address is in both."""
        return self.first in other or other.first in self

    def __iter__(self) -> Iterator[Address]:
        kind = type(self.first)
        return (kind(number) for number in range(int(self.first), int(self.last) + 1))

    def __str__(self) -> str:
        if self.first == self.last:
            return str(self.first)
        return f"{self.first}-{self.last}"
