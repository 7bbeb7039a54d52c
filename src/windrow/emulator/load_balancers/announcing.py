"""The hosts' own kube-vip: it takes the addresses of the host cluster's load balancer services and answers there.

Addresses by DHCP come from the management network, which the hosts are in.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from windrow.emulator.delays import Delays, Pace
from windrow.emulator.dhcp import DhcpServer, Lan
from windrow.emulator.hand import Hand
from windrow.emulator.load_balancers.doors import Doors, Place, RelayDoor
from windrow.emulator.load_balancers.dummies import ADDRESS as DUMMY
from windrow.emulator.load_balancers.services import (
    ASK_DHCP,
    Backend,
    asked_addresses,
    ports_of,
    ready_backends,
    render_ingress,
)
from windrow.emulator.load_balancers.timing import Stages
from windrow.emulator.networks import Segment
from windrow.emulator.rack import Rack
from windrow.emulator.world import Key, Objects
from windrow.kubernetes.objects import Raw, nested, uid_of
from windrow.kubernetes.resources import SERVICE

MANAGEMENT: Segment = ("mgmt", 0)
MANAGEMENT_LAN = Lan("192.168.100.0/24")


@dataclass(frozen=True, slots=True)
class Held:
    """One announced address."""

    uid: str
    asked: str
    address: str


def hardware_address(uid: str) -> str:
    """A locally administered MAC for an interface of its own, the same for the same service."""
    return ":".join(["02", *(f"{byte:02x}" for byte in hashlib.sha256(uid.encode()).digest()[:5])])


class HostVip:
    """One reconcile per Service of the host cluster."""

    def __init__(
        self,
        hand: Hand,
        slices: Objects,
        rack: Rack,
        servers: Callable[[], Mapping[Segment, DhcpServer]],
        pace: Pace,
        delays: Delays,
        note: Callable[[str], None],
    ) -> None:
        self._hand = hand
        self._slices = slices
        self._rack = rack
        self._servers = servers
        self._pace = pace
        self._delays = delays
        self._doors = Doors(rack, note)
        self._stages = Stages(pace)
        self._held: dict[Key, Held] = {}
        self._behind: dict[Place, set[Key]] = defaultdict(
            set
        )  # who has this machine's port behind its address
        self.news: Callable[[Key], None] = lambda key: None
        rack.listen(self._machine_changed)
        self._management = DhcpServer(MANAGEMENT_LAN)

    async def reconcile(self, key: Key) -> datetime | None:
        service = await self._hand.find(SERVICE.ref(key[1], key[0]))
        asked = next(iter(asked_addresses(service)), "") if service is not None else ""
        held = self._held.get(key)
        if held is not None and (service is None or (held.uid, held.asked) != (uid_of(service), asked)):
            self._let_go(key, held)
            held = None
        if service is None or not asked:
            return None
        if held is None:
            step, takes = ("dhcp", self._delays.vip_dhcp) if asked == ASK_DHCP else (asked, self._delays.vip)
            if due := self._stages.due(uid_of(service), step, takes):
                return due
            self._stages.again(uid_of(service), step)
            held = self._announce(service, asked)
            if held is None:
                return self._pace.after(takes)
            self._held[key] = held
        await self._tell(service, held)
        self._open(key, service, held)
        return None

    def held(self) -> dict[Key, str]:
        """The address of each service that has one, for people and checks."""
        return {key: one.address for key, one in self._held.items()}

    def _announce(self, service: Raw, asked: str) -> Held | None:
        uid = uid_of(service)
        if asked != ASK_DHCP:
            return Held(uid, asked, asked)
        lease = self._dhcp().lease(hardware_address(uid))
        return Held(uid, asked, lease.address) if lease is not None else None

    def _dhcp(self) -> DhcpServer:
        return self._servers().get(MANAGEMENT) or self._management

    def _let_go(self, key: Key, held: Held) -> None:
        self._doors.keep(key, {})
        del self._held[key]
        if held.asked == ASK_DHCP:
            self._dhcp().forget(hardware_address(held.uid))

    async def _tell(self, service: Raw, held: Held) -> None:
        ingress = render_ingress(service, [held.address])
        if nested(service, "status", "loadBalancer", "ingress") == ingress:
            return

        def edit(raw: Raw) -> None:
            if uid_of(raw) == held.uid:
                raw.setdefault("status", {})["loadBalancer"] = {"ingress": ingress}

        metadata = service["metadata"]
        await self._hand.change(SERVICE.ref(metadata["name"], metadata["namespace"]), edit, "status")

    def _open(self, key: Key, service: Raw, held: Held) -> None:
        """A door where some machine listens: an address with nobody behind it refuses connections."""
        wanted = {}
        for port in ports_of(service):
            backends = self._backends(service, port)
            for one in backends:
                self._behind[one.address, one.port].add(key)
            if any(self._rack.find(one.address, one.port) for one in backends):
                wanted[held.address, int(port["port"])] = self._door(service, port)
        self._doors.keep(key, wanted)

    def _machine_changed(self, address: str, port: int) -> None:
        for key in self._behind.get((address, port), ()):
            self.news(key)

    def _door(self, service: Raw, port: Raw) -> Callable[[], RelayDoor]:
        return lambda: RelayDoor(self._rack, lambda: self._backends(service, port))

    def _backends(self, service: Raw, port: Raw) -> list[Backend]:
        found = ready_backends(service, port, self._slices.values(), None)
        return [one for one in found if one.address != DUMMY]
