"""kube-vip in a guest cluster: takes the addresses of its load balancer services and tells the network and the status.

It comes with the cloud provider's chart, runs on the control-plane nodes, unless the chart's values say otherwise, and
elects one of them, which has all addresses; with `svc_election` each service has a leader of its own (reference 02
§7.4). What it does for a Service stands in the Service's annotations (02 §3.2, §3.8):

* an address is bound to the interface that the annotation names, else to the one with the default route, and
  announced on that interface's network alone: one of another network reaches nobody, and the status shows it anyway;
* `0.0.0.0` asks DHCP, on a macvlan of its own. Without that kernel module, or without an answer, the Service stays
  pending, and nothing happens until the Service changes.

As the real one it works on one Service after the other. The rack carries TCP only: a UDP port is announced and shown,
and nothing can be sent to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, replace

from windrow.core.clock import format_micro_time
from windrow.emulator.guests.box import Box
from windrow.emulator.guests.cluster import GuestCluster
from windrow.emulator.guests.hardware import Nic
from windrow.emulator.guests.kubelet import node_name
from windrow.emulator.guests.service_doors import ServiceDoor
from windrow.emulator.guests.settings import Settings
from windrow.emulator.guests.system import has_module
from windrow.emulator.guests.vip_contest import Contest
from windrow.emulator.guests.vip_settings import VipSettings
from windrow.emulator.hand import Hand
from windrow.emulator.load_balancers.doors import Doors, Place
from windrow.emulator.load_balancers.services import (
    ASK_DHCP,
    ENDPOINT_SLICE,
    ENDPOINTS,
    HARDWARE_ADDRESS,
    HOST,
    INTERFACE,
    REQUESTED,
    Backend,
    asked_addresses,
    ports_of,
    ready_backends,
    render_ingress,
    service_of,
)
from windrow.emulator.mirror import Mirror
from windrow.emulator.world import Key, Objects, Places, key_of
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    name_of,
    namespace_of,
    nested,
    new_object,
    resource_version_of,
    uid_of,
)
from windrow.kubernetes.resources import LEASE, NODE, SERVICE

NAME = "kube-vip"
LEADER_LEASE = "plndr-svcs-lock"
ACCOUNT = ("system:serviceaccount:kube-system:kube-vip", ("system:masters",))
MODULE = "macvlan"
SPAN_S = 3600
_FOLLOWED = (SERVICE, ENDPOINT_SLICE, ENDPOINTS)


class NotAnnounced(Exception):
    """The Service gets no address now; the message is the log's."""


@dataclass(frozen=True, slots=True)
class Vip:
    """One address that this node has. `card` is what DHCP knows it by, None for one that was given."""

    address: str
    interface: str
    reaches: bool
    card: Nic | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """What a Service asks for. Its own address in its status is no new wish."""

    uid: str
    addresses: tuple[str, ...]
    interface: str


@dataclass(slots=True)
class Announced:
    """What is announced for one Service."""

    wish: Wish
    vips: tuple[Vip, ...]
    told: str = ""  # what was last written into the status


class KubeVip:
    """The pod of one node. `run` ends by cancellation only; then every address is let go at once."""

    def __init__(self, box: Box, cluster: GuestCluster, settings: Settings) -> None:
        self.box = box
        self.cluster = cluster
        self.settings = settings
        self.node = node_name(box, settings)
        self._announced: dict[Key, Announced] = {}
        self._failed: dict[Key, str] = {}  # version of a Service that could not be announced
        self._leased = asyncio.Event()  # some address is DHCP's
        self._doors = Doors(box.wires.rack, self._say)
        self._vip = VipSettings()
        self._contest: Contest | None = None  # where each service has its own leader
        self._silent: set[Key] = set()  # services of whose UDP ports it was said that nobody reaches them

    def _say(self, line: str) -> None:
        self.box.say(NAME, line)

    async def run(self) -> None:
        """Run as the chart says; anew when its values change."""
        while True:
            vip = self._vip = await self._placed()
            work = asyncio.ensure_future(self._start())
            changed = asyncio.ensure_future(self.cluster.vip_news.until(lambda: self.cluster.vip != vip))  # noqa: B023
            either: set[asyncio.Future[None]] = {work, changed}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    work.result()
            finally:
                self._let_go_all()  # at once: a machine without power has no addresses
                work.cancel()
                changed.cancel()
                await asyncio.wait(either)

    async def _placed(self) -> VipSettings:
        """Return once the chart is there with this part switched on, and its pod may be placed here.

        The pod does not tolerate an uninitialised node: before the cloud provider, there is no kube-vip. Agents that
        it is not for wait for other values alone, so that hundreds of them cost nothing.
        """
        while True:
            vip = self.cluster.vip
            if vip is None or not vip.enabled or (vip.only_servers and self.settings.role == "agent"):
                await self.cluster.vip_news.wait()
                continue
            await self.cluster.usable()
            node = await self.cluster.local().find(NODE.ref(self.node))
            if node is not None and vip.fits(node):
                return vip
            await self.cluster.pulse.wait()

    async def _start(self) -> None:
        await self.box.pause(self.box.delays.pod_start)
        while True:
            await self.cluster.usable()
            try:
                if self._vip.per_service:
                    await self._lead()
                else:
                    async with self.cluster.vip_leadership:
                        await self._take_lease()
                        await self._lead()
            except* KubeError as errors:
                self._say(f"panic: {errors.exceptions[0]}")
                await self.box.pause(self.box.delays.crash_backoff)

    # -- leadership

    async def _take_lease(self) -> None:
        """Become the leader; another one's lease has to run out first."""
        if self.cluster.vip_leader not in ("", self.node):
            await self.box.pause(self.box.delays.vip_lease)
            await self.cluster.usable()
        self.cluster.vip_leader = self.node
        spec = {
            "holderIdentity": self.node,
            "leaseDurationSeconds": int(self.box.delays.vip_lease),
            "renewTime": format_micro_time(self.box.now()),
        }
        await self.cluster.ensure(LEASE, new_object(LEASE, LEADER_LEASE, "kube-system", spec=spec))
        self._say(f"{self.node} leads and has the addresses of all services")

    async def _lead(self) -> None:
        """Announce until the API is out of reach for too long."""
        work = asyncio.ensure_future(self._announce_all())
        lost = asyncio.ensure_future(self._lose_lease())
        either: set[asyncio.Future[None]] = {work, lost}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            # First the addresses, at once: a machine without power has none.
            self._let_go_all()
            work.cancel()
            lost.cancel()
            await asyncio.wait(either)

    async def _lose_lease(self) -> None:
        while True:
            await self.cluster.pulse.until(lambda: not self.cluster.is_usable())
            await self.box.pause(self.box.delays.vip_renew)
            if not self.cluster.is_usable():
                self._say("lost leadership: the lease could not be renewed")
                return

    # -- services

    async def _announce_all(self) -> None:
        hand = Hand(self.cluster.local(*ACCOUNT))
        services, slices, endpoints = (Mirror(hand, kind, SPAN_S) for kind in _FOLLOWED)
        seen = Seen(services, slices, slices.index(lambda raw: [service_of(raw)]), endpoints)
        waiting: dict[Key, None] = {}
        news = asyncio.Event()

        def add(key: Key) -> None:
            waiting[key] = None
            news.set()

        services.listen(lambda raw: add(key_of(raw)))
        slices.listen(lambda raw: add(service_of(raw)))
        endpoints.listen(lambda raw: add(key_of(raw)))
        async with asyncio.TaskGroup() as group:
            for mirror in (services, slices, endpoints):
                group.create_task(mirror.run())
            for mirror in (services, slices, endpoints):
                await mirror.synced.wait()
            if self._vip.per_service:
                self._contest = Contest(self.box, self.cluster, self.node, group, add)
            group.create_task(self._renew_leases(add))
            while True:
                await news.wait()
                news.clear()
                while waiting:
                    key = next(iter(waiting))
                    del waiting[key]
                    await self._serve(hand, key, seen)

    async def _serve(self, hand: Hand, key: Key, seen: Seen) -> None:
        """One Service: let go of what it does not ask for any more, announce what it asks for."""
        service, announced = seen.services.get(key), self._announced.get(key)
        stands = service is not None and self._stands_for(service, seen)
        if announced is not None and (service is None or not stands or _wish(service) != announced.wish):
            await self._release(key)
        if self._contest is not None:
            self._contest.want(key) if stands else self._contest.give_up(key)
        if service is None:
            self._failed.pop(key, None)
            self._silent.discard(key)
            return
        is_mine = self._contest is None or self._contest.leads(key)
        if key not in self._announced and is_mine and stands:
            await self._announce(service)
        announced = self._announced.get(key)
        if announced is not None:
            self._open(service, announced, seen)
            await self._tell(hand, service, announced)

    def _stands_for(self, service: Raw, seen: Seen) -> bool:
        """Whether this node may have the Service's addresses. With leaders of their own, services with local traffic
        are only for nodes that have a pod of theirs."""
        if not asked_addresses(service):
            return False
        if not self._vip.per_service or nested(service, "spec", "externalTrafficPolicy") != "Local":
            return True
        key = key_of(service)
        return any(
            ClusterConnection(self.node, key, int(port["port"]), seen).backends()
            for port in ports_of(service)
        )

    async def _announce(self, service: Raw) -> None:
        key, version = key_of(service), resource_version_of(service)
        if self._failed.get(key) == version:
            return
        self._failed.pop(key, None)
        wish = _wish(service)
        made: list[Vip] = []
        try:
            for address in wish.addresses:
                if address == "::":
                    self._say("DHCPv6 is not simulated: no address for ::")
                else:
                    made.append(await self._take(service, address, wish.interface))
        except NotAnnounced as error:
            self._failed[key] = version
            self._say(f"error adding service {'/'.join(key)}: {error}")
            for vip in made:
                await self._give_up(vip)
            return
        except asyncio.CancelledError:
            for vip in made:  # the leadership ends in the middle
                self._unbind(vip)
            raise
        self._announced[key] = Announced(wish, tuple(made))

    async def _take(self, service: Raw, address: str, interface: str) -> Vip:
        """Bind one address, asking DHCP where it is to be found out. Raises NotAnnounced."""
        interface = interface or self._vip.interface
        nic = self._find_nic(interface)
        if nic is None:
            raise NotAnnounced(
                f"failed to get interface {interface or 'with the default route'}: Link not found"
            )
        if address == ASK_DHCP:
            return await self._ask_dhcp(service, nic)
        await self.box.pause(self.box.delays.vip)
        vip = Vip(address, nic.name, self._is_near(address, nic))
        if not vip.reaches:
            self._say(
                f"{address} is outside of {self.box.subnets[nic.name]}: nobody on {nic.name} asks for it"
            )
        self._bind(vip)
        return vip

    async def _ask_dhcp(self, service: Raw, nic: Nic) -> Vip:
        name = f"vip-{uid_of(service)[:8]}"
        if not has_module(self.box, MODULE):
            raise NotAnnounced(f"could not add {name}: operation not supported (kernel module {MODULE})")
        mac = annotations_of(service).get(HARDWARE_ADDRESS) or _hardware_address(uid_of(service))
        card = Nic(name, mac, nic.network)
        await self.box.pause(self.box.delays.vip_dhcp)
        lease = await self.box.wires.lease(card, self.box.hostname)
        if lease is None:
            raise NotAnnounced(f"error starting DHCPv4 for {'/'.join(key_of(service))}: error: no answer")
        vip = Vip(lease.address, name, True, card)
        self._bind(vip)
        self._leased.set()
        return vip

    async def _renew_leases(self, add: Callable[[Key], None]) -> None:
        """Ask for every address of DHCP again in time. Where the server gives another one, that one counts."""
        while True:
            await self._leased.wait()
            await self.box.pause(self.box.delays.vip_renewal)
            self._leased.clear()
            for key, announced in list(self._announced.items()):
                if await self._renew(announced):
                    add(key)
                if any(vip.card is not None for vip in announced.vips):
                    self._leased.set()

    async def _renew(self, announced: Announced) -> bool:
        """Whether some address is another one now."""
        vips: list[Vip] = []
        for vip in announced.vips:
            lease = await self.box.wires.lease(vip.card, self.box.hostname) if vip.card is not None else None
            vips.append(replace(vip, address=lease.address) if lease is not None else vip)
        before, announced.vips = announced.vips, tuple(vips)
        for old, new in zip(before, vips, strict=True):
            if old != new:
                self._unbind(old)
                self._bind(new)
        return before != announced.vips

    def _find_nic(self, interface: str) -> Nic | None:
        """The card that Linux calls so; "" is the one with the default route."""
        for place, nic in enumerate(self.box.hardware.nics):
            if not interface and self.box.addresses.get(nic.name):
                return nic
            if interface in (f"enp{place + 1}s0", f"eth{place}", nic.name):
                return nic
        return None

    def _is_near(self, address: str, nic: Nic) -> bool:
        subnet = self.box.subnets.get(nic.name)
        return subnet is None or ipaddress.ip_address(address) in ipaddress.ip_network(subnet)

    async def _tell(self, hand: Hand, service: Raw, announced: Announced) -> None:
        """Annotations by one update, the status by another; the status again when the ports change."""
        uid, vips = uid_of(service), announced.vips
        ingress = render_ingress(service, [vip.address for vip in vips])
        if announced.told == repr(ingress):
            return
        said = {HOST: self.node}
        for vip in vips:
            if vip.card is not None:
                said |= {HARDWARE_ADDRESS: vip.card.mac, REQUESTED: vip.address}

        def annotate(raw: Raw) -> None:
            if uid_of(raw) == uid:
                raw["metadata"]["annotations"] = {**annotations_of(raw), **said}

        def show(raw: Raw) -> None:
            if uid_of(raw) == uid:
                raw.setdefault("status", {})["loadBalancer"] = {"ingress": ingress}

        ref = SERVICE.ref(name_of(service), namespace_of(service))
        try:
            await hand.change(ref, annotate)
            await hand.change(ref, show, "status")
        except KubeError as error:
            self._say(f"updating {ref}: {error}")  # and again at the next change of anything
            return
        announced.told = repr(ingress)

    # -- addresses

    def _bind(self, vip: Vip) -> None:
        self.box.bind(vip.interface, vip.address)

    def _unbind(self, vip: Vip) -> None:
        """Off the interface, unless another Service shares the address."""
        shared = any(vip.address == one.address for held in self._announced.values() for one in held.vips)
        if not shared:
            self.box.unbind(vip.interface, vip.address)

    async def _release(self, key: Key) -> None:
        announced = self._announced.pop(key)
        self._doors.keep(key, {})
        for vip in announced.vips:
            await self._give_up(vip)

    async def _give_up(self, vip: Vip) -> None:
        self._unbind(vip)
        if vip.card is not None:
            await self.box.wires.release(vip.card)

    def _let_go_all(self) -> None:
        """Everything off this node, without a word to DHCP: the next leader asks with the same hardware address."""
        self._doors.close_all()
        announced, self._announced = self._announced, {}
        for held in announced.values():
            for vip in held.vips:
                self._unbind(vip)
        self._failed.clear()
        self._contest = None

    # -- traffic

    def _open(self, service: Raw, announced: Announced, seen: Seen) -> None:
        """A door per address and port that has somebody Ready behind it; the others refuse connections."""
        self._mention_udp(service)
        wanted: dict[Place, Callable[[], ServiceDoor]] = {}
        for port in ports_of(service):
            way = ClusterConnection(self.node, key_of(service), int(port["port"]), seen)
            if way.backends():
                for vip in announced.vips:
                    if vip.reaches:
                        wanted[vip.address, way.port] = self._door(way)
        self._doors.keep(key_of(service), wanted)

    def _mention_udp(self, service: Raw) -> None:
        key = key_of(service)
        others = [one for one in nested(service, "spec", "ports", default=[]) if one not in ports_of(service)]
        if others and key not in self._silent:
            self._silent.add(key)
            listed = ", ".join(f"{one['port']}/{one['protocol']}" for one in others)
            self._say(f"{'/'.join(key)}: {listed} is announced, but the emulated rack carries TCP only")

    def _door(self, way: ClusterConnection) -> Callable[[], ServiceDoor]:
        return lambda: ServiceDoor(self.cluster.beats, way.backends, way.is_sticky)


@dataclass(frozen=True, slots=True)
class Seen:
    """The cluster's Services and endpoints, as they are at every look."""

    services: Objects
    slices: Objects
    slices_of: Places
    endpoints: Objects

    def backends(self, service: Raw, port: Raw) -> list[Backend]:
        """Ready endpoints of one port."""
        key = key_of(service)
        own = [self.slices[one] for one in sorted(self.slices_of.get(key, ()))]
        return ready_backends(service, port, own, self.endpoints.get(key))


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """What kube-proxy on `node` does with connections to one port of a Service: looked up for each anew."""

    node: str
    service: Key
    port: int
    seen: Seen

    def is_sticky(self) -> bool:
        return bool(nested(self.seen.services.get(self.service), "spec", "sessionAffinity") == "ClientIP")

    def backends(self) -> list[Backend]:
        service = self.seen.services.get(self.service)
        port = next((one for one in ports_of(service) if one["port"] == self.port), None) if service else None
        if service is None or port is None:
            return []
        found = self.seen.backends(service, port)
        local_only = nested(service, "spec", "externalTrafficPolicy") == "Local"
        return [one for one in found if not local_only or one.node == self.node]


def _wish(service: Raw) -> Wish:
    interface = annotations_of(service).get(INTERFACE, "")
    return Wish(uid_of(service), asked_addresses(service), interface)


def _hardware_address(uid: str) -> str:
    """A locally administered MAC, the same for the same Service."""
    return ":".join(["02", *(f"{byte:02x}" for byte in hashlib.sha256(uid.encode()).digest()[:5])])
