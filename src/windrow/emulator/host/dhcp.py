"""DHCP servers of the simulated VLANs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from windrow.emulator.guest_os.hardware import DhcpLease

# Low addresses are left for routers and static use.
FIRST_HOST = 20


@dataclass(frozen=True, slots=True)
class Lan:
    """The subnet of a DHCP server. `cidr` must be IPv4; leases begin at its address FIRST_HOST, earlier in a small one."""

    cidr: str
    gateway: str = ""
    nameservers: tuple[str, ...] = ("1.1.1.1",)

    @property
    def range(self) -> IPv4Network:
        return IPv4Network(self.cidr)

    @property
    def router(self) -> str:
        return self.gateway or str(self.range.network_address + 1)


class DhcpServer:
    """Leases by MAC on one LAN. A MAC keeps its address until its lease is released."""

    def __init__(self, lan: Lan) -> None:
        self.lan = lan
        self._leases: dict[str, IPv4Address] = {}
        network = lan.range
        self._first = int(network.network_address) + min(FIRST_HOST, max(2, network.num_addresses // 4))
        self._last = int(network.broadcast_address) - 1
        self._next = self._first

    def lease(self, mac: str, is_reserved: Callable[[str], bool] = lambda address: False) -> DhcpLease | None:
        """The lease of `mac`; a new one is not of a reserved address. None when the range is exhausted."""
        address = self._leases.get(mac.lower()) or self._next_free(is_reserved)
        if address is None:
            return None
        self._leases[mac.lower()] = address
        return DhcpLease(str(address), self.lan.range.prefixlen, self.lan.router, self.lan.nameservers)

    def release(self, mac: str) -> None:
        """End the lease of `mac`; its address may be leased again. May be repeated."""
        self._leases.pop(mac.lower(), None)

    def leases(self) -> dict[str, str]:
        """MAC to address, for checks."""
        return {mac: str(address) for mac, address in self._leases.items()}

    def _next_free(self, is_reserved: Callable[[str], bool]) -> IPv4Address | None:
        # Round robin, as real servers do: a released address is the last to be reused.
        taken = {int(address) for address in self._leases.values()} | {int(IPv4Address(self.lan.router))}
        size = self._last - self._first + 1
        for step in range(max(size, 0)):
            candidate = self._first + (self._next - self._first + step) % size
            if candidate not in taken and not is_reserved(str(IPv4Address(candidate))):
                self._next = candidate + 1
                return IPv4Address(candidate)
        return None
