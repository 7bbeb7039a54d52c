"""Load balancers of the user's own: an address or a DNS name in front of machines, of which Harvester knows nothing.

A real one is HAProxy with keepalived, an appliance, or DNS with several addresses, and its owner tells it the machines.
Here a program that stands in for the owner does. A port is open while a machine listens there, as with a health check, and TLS
ends at the machine. While a balancer has an address, no DHCP server of the simulated network leases it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windrow.emulator.kit.network import Network
from windrow.emulator.load_balancers.services import Backend
from windrow.emulator.load_balancers.virtual_listeners import ProxyHandler, SocketAddress, VirtualListeners


class ExternalBalancers:
    """The machines behind each address or name, by port."""

    def __init__(self, network: Network, log: Callable[[str], None]) -> None:
        self._network = network
        self._listeners = VirtualListeners(network, log)
        self._members: dict[SocketAddress, tuple[str, ...]] = {}
        network.on_change(self._on_listener)

    def __contains__(self, host: str) -> bool:
        return any(known == host for known, _ in self._members)

    def set_members(self, host: str, port: int, addresses: Iterable[str]) -> None:
        """Pass `port` of `host` on to the machines with these addresses, and to no other. May be repeated."""
        self._members[host, port] = tuple(dict.fromkeys(addresses))
        self._network.claim(host)
        self._sync((host, port))

    def _on_listener(self, address: str, port: int) -> None:
        for place, members in self._members.items():
            if place[1] == port and address in members:
                self._sync(place)

    def _sync(self, place: SocketAddress) -> None:
        wanted = {place: lambda: ProxyHandler(self._network, lambda: self._backends(place))}
        self._listeners.sync(place, wanted if self._backends(place) else {})

    def _backends(self, place: SocketAddress) -> list[Backend]:
        members = ((one, place[1]) for one in self._members[place])
        return [Backend(*one) for one in members if self._network.find(*one) is not None]
