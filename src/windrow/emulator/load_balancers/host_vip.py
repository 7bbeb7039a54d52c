"""kube-vip of the Harvester hosts: announces the addresses of the host cluster's LoadBalancer Services.

DHCP leases come from the management network of the hosts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.host.networks import DhcpServer, Lan, Vlan
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Key, Objects
from windrow.emulator.kit.network import Network
from windrow.emulator.kit.step_timers import StepTimers
from windrow.emulator.load_balancers.services import (
    DUMMY_ADDRESS,
    REQUEST_DHCP,
    Backend,
    hardware_address,
    ready_backends,
    render_ingress,
    requested_addresses,
    set_ingress,
    tcp_ports_of,
)
from windrow.emulator.load_balancers.virtual_listeners import ProxyHandler, SocketAddress, VirtualListeners
from windrow.kubernetes.objects import Raw, nested, uid_of
from windrow.kubernetes.resources import SERVICE, ref_of

MANAGEMENT: Vlan = ("mgmt", 0)
MANAGEMENT_LAN = Lan("192.168.100.0/24")


@dataclass(frozen=True, slots=True)
class Announcement:
    """One announced address."""

    uid: str
    requested: str
    address: str


class HostVip:
    """One reconcile per Service of the host cluster."""

    def __init__(
        self,
        client: AdminClient,
        slices: Objects,
        network: Network,
        servers: Callable[[], Mapping[Vlan, DhcpServer]],
        clock: ScaledClock,
        delays: Delays,
        log: Callable[[str], None],
    ) -> None:
        self._client = client
        self._slices = slices
        self._network = network
        self._servers = servers
        self._clock = clock
        self._delays = delays
        self._listeners = VirtualListeners(network, log)
        self._timers = StepTimers(clock)
        self._announced: dict[Key, Announcement] = {}
        self._services_by_backend: dict[SocketAddress, set[Key]] = defaultdict(set)
        self.on_change: Callable[[Key], None] = lambda key: None
        network.on_change(self._on_listener)
        self._management = DhcpServer(MANAGEMENT_LAN)

    async def reconcile(self, key: Key) -> timedelta | None:
        service = await self._client.find(SERVICE.ref(key[1], key[0]))
        requested = next(iter(requested_addresses(service)), "") if service is not None else ""
        held = self._announced.get(key)
        if held is not None and (
            service is None or (held.uid, held.requested) != (uid_of(service), requested)
        ):
            self._withdraw(key, held)
            held = None
        if service is None or not requested:
            return None
        if held is None:
            takes = self._delays.vip_dhcp if requested == REQUEST_DHCP else self._delays.vip
            if due := self._timers.due(uid_of(service), requested, takes):
                return due
            self._timers.restart(uid_of(service), requested)
            held = self._announce(service, requested)
            if held is None:
                return self._clock.after(takes)
            self._announced[key] = held
        await self._write_status(service, held)
        self._listen(key, service, held)
        return None

    def _announce(self, service: Raw, requested: str) -> Announcement | None:
        uid = uid_of(service)
        if requested != REQUEST_DHCP:
            return Announcement(uid, requested, requested)
        lease = self._dhcp().lease(hardware_address(uid))
        return Announcement(uid, requested, lease.address) if lease is not None else None

    def _dhcp(self) -> DhcpServer:
        return self._servers().get(MANAGEMENT) or self._management

    def _withdraw(self, key: Key, held: Announcement) -> None:
        self._listeners.sync(key, {})
        del self._announced[key]
        if held.requested == REQUEST_DHCP:
            self._dhcp().release(hardware_address(held.uid))

    async def _write_status(self, service: Raw, held: Announcement) -> None:
        ingress = render_ingress(service, [held.address])
        if nested(service, "status", "loadBalancer", "ingress") == ingress:
            return

        edit = partial(set_ingress, ingress=ingress)
        await self._client.mutate(ref_of(SERVICE, service), edit, "status", held.uid)

    def _listen(self, key: Key, service: Raw, held: Announcement) -> None:
        """Listen where a machine listens: an address without a backend refuses connections."""
        wanted = {}
        for port in tcp_ports_of(service):
            backends = self._backends(service, port)
            for one in backends:
                self._services_by_backend[one.address, one.port].add(key)
            if any(self._network.find(one.address, one.port) for one in backends):
                wanted[held.address, int(port["port"])] = self._handler(service, port)
        self._listeners.sync(key, wanted)

    def _on_listener(self, address: str, port: int) -> None:
        for key in self._services_by_backend.get((address, port), ()):
            self.on_change(key)

    def _handler(self, service: Raw, port: Raw) -> Callable[[], ProxyHandler]:
        return lambda: ProxyHandler(self._network, lambda: self._backends(service, port))

    def _backends(self, service: Raw, port: Raw) -> list[Backend]:
        found = ready_backends(service, port, self._slices.values(), None)
        return [one for one in found if one.address != DUMMY_ADDRESS]
