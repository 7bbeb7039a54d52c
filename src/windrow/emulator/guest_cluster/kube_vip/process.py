"""kube-vip in a guest cluster: announces the addresses of LoadBalancer Services and writes their status.

It is installed with the cloud provider's chart, runs on the control-plane nodes by default, and elects one leader for
all Services; with `svc_election` one per Service (reference 02 §7.4). The Service's annotations decide (02 §3.2, §3.8):

* an address is bound to the interface that the annotation names, else to the one with the default route, and
  announced on that interface's network alone: one of another network is unreachable, and the status shows it anyway;
* `0.0.0.0` requests a DHCP lease for a macvlan interface. Without that kernel module, or without an answer, the
  Service stays pending until it changes.

As the real one it takes one Service at a time, and in this it is as little forgiving (held against the real program by
tests/conformance/test_kube_vip.py, versions 1.1.2 and 1.2.2):

* 1.2 and later announces a Service only while it has an endpoint, and waits up to 30 s for the address of a Service that
  has none, while all others wait; a DHCP server that does not answer holds all of them up for two minutes;
* it looks at each change of a Service as it was then, however late, but finds the address that it waits for in the Service
  as it is now: an empty annotation on the way to an address then counts as one that takes it off;
* another address, or an empty annotation, takes the announced one off. The new one is announced by versions before 1.2
  with one leader, unless an empty annotation came between; by later ones with an election per Service, and else once the
  endpoints change after another change of the Service, with nothing in the status. Or a restart does it;
* what becomes of a Service of another type or with `ignore` is not looked at: its address stays on the node, also after
  the Service is deleted. So does that of a Service whose annotation is removed after its status was cleared;
* the status is written once: changed ports, another interface and a cleared status are not followed.

The simulated network carries TCP only: a UDP port is announced and shown in the status, but unreachable.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from windrow.core.work_queue import WorkQueue
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.distribution.distribution import Settings
from windrow.emulator.guest_cluster.kube_vip.election import ServiceElection, acquire_lease
from windrow.emulator.guest_cluster.kube_vip.service_handler import ServiceHandler, ServiceState
from windrow.emulator.guest_cluster.kube_vip.settings import KubeVipSettings
from windrow.emulator.guest_cluster.kubelet import node_name
from windrow.emulator.guest_os.hardware import Nic
from windrow.emulator.guest_os.notifier import result_unless
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.system import has_module
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import annotate
from windrow.emulator.kit.informer import WATCH_TIMEOUT_S, Informer, start_informers
from windrow.emulator.kit.listers import Key, key_of
from windrow.emulator.load_balancers.services import (
    ADDRESSES,
    ENDPOINT_SLICE,
    ENDPOINTS,
    HARDWARE_ADDRESS,
    INTERFACE,
    REQUEST_DHCP,
    REQUESTED_ADDRESS,
    VIP_HOST,
    hardware_address,
    is_for_kube_vip,
    render_ingress,
    requested_addresses,
    requests_no_address,
    service_of,
    set_ingress,
    tcp_ports_of,
)
from windrow.emulator.load_balancers.virtual_listeners import SocketAddress, VirtualListeners
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    nested,
    resource_version_of,
    uid_of,
)
from windrow.kubernetes.resources import NODE, SERVICE, ref_of

NAME = "kube-vip"
LEADER_LEASE: Key = ("kube-system", "plndr-svcs-lock")
USER_AND_GROUPS = ("system:serviceaccount:kube-system:kube-vip", ("system:masters",))
KERNEL_MODULE = "macvlan"
ADDRESS_WAIT_S = 30.0
# How soon the next change has to come after an address was taken off, to be there before the endpoints are read anew.
EXCHANGE = timedelta(milliseconds=100)
_WATCHED_KINDS = (SERVICE, ENDPOINT_SLICE, ENDPOINTS)


class NotAnnounced(Exception):
    """The Service gets no address now; the message is logged."""


@dataclass(frozen=True, slots=True)
class BoundAddress:
    """One address on this node. `dhcp_nic` is the macvlan interface of a lease, None for a static address."""

    address: str
    interface: str
    is_reachable: bool
    dhcp_nic: Nic | None = None


@dataclass(frozen=True, slots=True)
class AddressRequest:
    """The addresses that a Service requests, and where it says so: another place counts as another request."""

    uid: str
    addresses: tuple[str, ...]
    is_annotated: bool
    traffic_policy: str


@dataclass(slots=True)
class Announcement:
    """The addresses announced for one Service."""

    request: AddressRequest
    addresses: tuple[BoundAddress, ...]
    ports: list[Raw]
    is_bound: bool = False
    is_written: bool = False  # its status
    is_deletable: bool = True  # whether kube-vip looks at the Service's deletion


@dataclass(slots=True)
class ExchangedAddress:
    """What became of a Service whose address was taken off: the change after that, which its endpoints may bring on."""

    uid: str
    since: timedelta  # of the monotonic clock
    service: Raw | None = None


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    """A Service to look at: as it was when it changed, or as it is then (`raw` None, `is_current`)."""

    key: Key
    raw: Raw | None = None
    is_current: bool = False


class KubeVip:
    """The kube-vip pod of one node. `run` ends by cancellation only; then every address is removed at once."""

    def __init__(self, guest: GuestOS, cluster: GuestCluster, settings: Settings) -> None:
        self.guest = guest
        self.cluster = cluster
        self.settings = settings
        self.node = node_name(guest, settings)
        self._announced: dict[Key, Announcement] = {}
        self._failed: dict[Key, str] = {}  # resourceVersion of each Service that could not be announced
        self._queued: Counter[Key] = Counter()  # events of each Service that are still to be looked at
        self._left: list[Announcement] = []  # of Services whose deletion it did not look at
        self._exchanged: dict[
            Key, ExchangedAddress
        ] = {}  # of each Service whose former address was taken off
        self._has_leases = asyncio.Event()  # set while an address has a DHCP lease
        self._listeners = VirtualListeners(guest.host.network, self._log)
        self._settings_of_chart = KubeVipSettings()
        self._election: ServiceElection | None = None  # with svc_election
        self._udp_reported: set[Key] = set()  # Services whose unreachable UDP ports were logged

    def _log(self, line: str) -> None:
        self.guest.log(NAME, line)

    async def run(self) -> None:
        """Run with the chart's values; restart when they change."""
        while True:
            vip = self._settings_of_chart = await self._wait_for_placement()
            changed = self.cluster.vip_changed.wait_for(lambda: self.cluster.vip_settings != vip)  # noqa: B023
            await result_unless(self._run_pod(), changed, self._drop_all)

    async def _wait_for_placement(self) -> KubeVipSettings:
        """Return once the chart is installed with kube-vip enabled and this node may run its pod.

        The pod does not tolerate an uninitialised node: before the cloud provider, there is no kube-vip. Agents that
        the affinity excludes wait for other values only, so that hundreds of them cost nothing.
        """
        while True:
            vip = self.cluster.vip_settings
            if vip is None or not vip.enabled or (vip.is_for_servers_only and self.settings.role == "agent"):
                await self.cluster.vip_changed.wait()
                continue
            await self.cluster.wait_usable()
            node = await self.cluster.client().find(NODE.ref(self.node))
            if node is not None and vip.can_run_on(node):
                return vip
            await self.cluster.changed.wait()

    async def _run_pod(self) -> None:
        await self.guest.sleep(self.guest.delays.pod_start)
        while True:
            await self.cluster.wait_usable()
            try:
                if self._settings_of_chart.per_service:
                    await self._lead()
                else:
                    async with self.cluster.vip_locks[LEADER_LEASE]:
                        await acquire_lease(self.guest, self.cluster, self.node, LEADER_LEASE)
                        self._log(f"{self.node} became leader, announcing the addresses of all Services")
                        await self._lead()
            except* KubeError as errors:
                self._log(f"panic: {errors.exceptions[0]}")
                await self.guest.sleep(self.guest.delays.crash_backoff)

    # -- leadership

    async def _lead(self) -> None:
        """Announce until the lease cannot be renewed."""
        # Addresses go first and at once: a machine without power has none.
        await result_unless(self._announce_all(), self._watch_lease(), self._drop_all)

    async def _watch_lease(self) -> None:
        while True:
            await self.cluster.changed.wait_for(lambda: not self.cluster.is_usable())
            await self.guest.sleep(self.guest.delays.vip_renew)
            if not self.cluster.is_usable():
                self._log("lost leadership: the lease could not be renewed")
                return

    # -- services

    async def _announce_all(self) -> None:
        client = AdminClient(self.cluster.client(*USER_AND_GROUPS))
        services, slices, endpoints = (Informer(client, kind, WATCH_TIMEOUT_S) for kind in _WATCHED_KINDS)
        state = ServiceState(services, slices, slices.add_index(lambda raw: [service_of(raw)]), endpoints)
        events: asyncio.Queue[ServiceEvent] = asyncio.Queue()
        endpoint_queue: WorkQueue[Key] = WorkQueue(self.guest.host.clock)

        self._queued.clear()

        def put(event: ServiceEvent) -> None:
            self._queued[event.key] += 1
            events.put_nowait(event)

        def on_change(raw: Raw) -> None:
            put(ServiceEvent(key_of(raw), services.get(key_of(raw))))

        def sync(key: Key) -> None:
            put(ServiceEvent(key, is_current=True))

        services.add_event_handler(on_change)
        slices.add_event_handler(lambda raw: endpoint_queue.add(service_of(raw)))
        endpoints.add_event_handler(lambda raw: endpoint_queue.add(key_of(raw)))
        async with asyncio.TaskGroup() as group:
            await start_informers(group, (services, slices, endpoints))
            if self._settings_of_chart.per_service:
                self._election = ServiceElection(self.guest, self.cluster, self.node, group, sync)
            group.create_task(self._renew_leases(endpoint_queue.add))
            group.create_task(
                _work(endpoint_queue, partial(self._sync_endpoints, client, state=state, add=sync))
            )
            while True:
                event = await events.get()
                self._queued -= Counter([event.key])
                service = state.services.get(event.key) if event.is_current else event.raw
                await self._sync_service(client, event.key, service, state)

    async def _sync_service(
        self, client: AdminClient, key: Key, service: Raw | None, state: ServiceState
    ) -> None:
        """Look at one Service: withdraw what it does not request any more, announce what it requests."""
        await self._forget_deleted(key, service)
        announced = self._announced.get(key)
        if service is None or not is_for_kube_vip(service):
            if announced is not None:
                announced.is_deletable = False
            if self._election is not None and announced is None:
                self._election.withdraw(key)
            if service is not None and announced is not None:
                self._listen(service, announced, state)
            return
        if not requested_addresses(service) and not requests_no_address(service):
            service = await self._wait_for_address(key, state)
            if service is None:
                return
        if announced is not None:
            announced.is_deletable = True
            if _read_request(service) != announced.request:
                await self._withdraw(key)
                may_follow = (self._election is not None) == self._settings_of_chart.waits_for_endpoints
                if not (may_follow and requested_addresses(service)):
                    self._exchanged[key] = ExchangedAddress(
                        uid_of(service), self.guest.host.clock.monotonic()
                    )
        elif (exchanged := self._exchanged.get(key)) is not None:
            exchanged.service = service
            if self.guest.host.clock.monotonic() - exchanged.since < EXCHANGE:
                await self._announce_exchanged(key, state)
        may_announce = self._may_announce(service, state)
        if self._election is not None:
            if announced is not None and not may_announce and key in self._announced:
                await self._withdraw(key)
            self._election.enter(key) if may_announce else self._election.withdraw(key)
        is_mine = self._election is None or self._election.leads(key)
        if key not in self._announced and key not in self._exchanged and is_mine and may_announce:
            await self._announce(service)
        if not self._queued[key]:  # the next change of it comes before its endpoints are read
            await self._sync_endpoints(client, key, state)

    async def _forget_deleted(self, key: Key, service: Raw | None) -> None:
        """The Service of this name is gone, or another one took its name."""
        uid = uid_of(service) if service is not None else ""
        exchanged = self._exchanged.get(key)
        if exchanged is not None and exchanged.uid != uid:
            del self._exchanged[key]
        if uid == "":
            self._failed.pop(key, None)
            self._udp_reported.discard(key)
        announced = self._announced.get(key)
        if announced is None or announced.request.uid == uid:
            return
        del self._announced[key]
        self._listeners.sync(key, {})
        if not announced.is_deletable:
            self._left.append(announced)
            return
        for vip in announced.addresses:
            await self._release_address(vip)

    async def _wait_for_address(self, key: Key, state: ServiceState) -> Raw | None:
        """The Service once it has an address; None without one after a while. Versions before 1.2 do not wait."""
        waits = self._settings_of_chart.waits_for_endpoints
        for _ in range(int(ADDRESS_WAIT_S) if waits else 0):
            await self.guest.sleep(1.0)
            service = state.services.get(key)
            if service is None:
                return None
            if requested_addresses(service) or requests_no_address(service):
                return service
        if waits:
            self._log(
                f"service watcher event failed: failed to wait for the service LB address of {'/'.join(key)}"
            )
        return None

    async def _sync_endpoints(
        self, client: AdminClient, key: Key, state: ServiceState, add: Callable[[Key], None] | None = None
    ) -> None:
        """Follow the endpoints of one Service, whatever the others wait for."""
        service, announced = state.services.get(key), self._announced.get(key)
        if service is None:
            return
        if add is not None and self._election is not None:
            add(key)  # who may lead it depends on its endpoints
        elif add is not None:
            announced = await self._announce_exchanged(key, state) or announced
        if announced is None:
            return
        is_open = not self._settings_of_chart.waits_for_endpoints or state.has_endpoints(service, self.node)
        if is_open != announced.is_bound:
            announced.is_bound = is_open
            for vip in announced.addresses:
                self._bind(vip) if is_open else self._unbind(vip)
        self._listen(service, announced, state)
        if announced.is_bound:
            await self._write_status(client, service, announced)

    async def _announce_exchanged(self, key: Key, state: ServiceState) -> Announcement | None:
        """When the endpoints are read: announce the address that came after one taken off. Its status stays as it is."""
        exchanged = self._exchanged.get(key)
        if (
            exchanged is None
            or exchanged.service is None
            or not self._settings_of_chart.waits_for_endpoints
            or not requested_addresses(exchanged.service)
            or not state.has_endpoints(exchanged.service, self.node)
        ):
            return None
        del self._exchanged[key]
        await self._announce(exchanged.service)
        announced = self._announced.get(key)
        if announced is not None:
            announced.is_written = True
        return announced

    def _may_announce(self, service: Raw, state: ServiceState) -> bool:
        """Whether this node may announce the Service. With svc_election, a Service with externalTrafficPolicy Local is
        announced only on nodes that have a Ready endpoint of it."""
        if not requested_addresses(service):
            return False
        if not self._settings_of_chart.per_service:
            return True
        if self._settings_of_chart.waits_for_endpoints:
            return state.has_endpoints(service, self.node)
        is_local = nested(service, "spec", "externalTrafficPolicy") == "Local"
        return not is_local or any(route.backends() for route in state.routes_of(service, self.node))

    async def _announce(self, service: Raw) -> None:
        key, version = key_of(service), resource_version_of(service)
        if self._failed.get(key) == version:
            return
        self._failed.pop(key, None)
        request = _read_request(service)
        added: list[BoundAddress] = []
        try:
            for address in request.addresses:
                if address == "::":
                    self._log("DHCPv6 is not simulated: no address for ::")
                else:
                    interface = annotations_of(service).get(INTERFACE, "")
                    added.append(await self._add_address(service, address, interface))
        except NotAnnounced as error:
            self._failed[key] = version
            self._log(f"error adding service {'/'.join(key)}: {error}")
            for vip in added:
                await self._release_address(vip)
            return
        except asyncio.CancelledError:
            for vip in added:  # the leadership ended meanwhile
                self._unbind(vip)
            raise
        ports = nested(service, "spec", "ports", default=[])
        self._announced[key] = Announcement(request, tuple(added), ports)

    async def _add_address(self, service: Raw, address: str, interface: str) -> BoundAddress:
        """Bind one address, a leased one for 0.0.0.0. Raises NotAnnounced."""
        interface = interface or self._settings_of_chart.interface
        nic = self._find_nic(interface)
        if nic is None:
            raise NotAnnounced(
                f"failed to get interface {interface or 'with the default route'}: Link not found"
            )
        if address == REQUEST_DHCP:
            return await self._request_lease(service, nic)
        await self.guest.sleep(self.guest.delays.vip)
        vip = BoundAddress(address, nic.name, self._is_in_subnet(address, nic))
        if not vip.is_reachable:
            subnets = " and ".join(self.guest.subnets[nic.name])
            self._log(f"{address} is outside of {subnets}: unreachable from the network of {nic.name}")
        return vip

    async def _request_lease(self, service: Raw, nic: Nic) -> BoundAddress:
        name = f"vip-{uid_of(service)[:8]}"
        if not has_module(self.guest, KERNEL_MODULE):
            raise NotAnnounced(
                f"could not add {name}: operation not supported (kernel module {KERNEL_MODULE})"
            )
        mac = annotations_of(service).get(HARDWARE_ADDRESS) or hardware_address(uid_of(service))
        card = Nic(name, mac, nic.network)
        await self.guest.sleep(self.guest.delays.vip_dhcp)
        lease = await self.guest.host.lease(card, self.guest.hostname)
        if lease is None:
            await self.guest.sleep(self.guest.delays.vip_dhcp_patience)
            raise NotAnnounced(f"error starting DHCPv4 for {'/'.join(key_of(service))}: error: no answer")
        vip = BoundAddress(lease.address, name, True, card)
        self._has_leases.set()
        return vip

    async def _renew_leases(self, add: Callable[[Key], None]) -> None:
        """Renew every DHCP lease in time. When the server leases another address, announce that one."""
        while True:
            await self._has_leases.wait()
            await self.guest.sleep(self.guest.delays.vip_renewal)
            self._has_leases.clear()
            for key, announced in list(self._announced.items()):
                if await self._renew(announced):
                    add(key)
                if any(vip.dhcp_nic is not None for vip in announced.addresses):
                    self._has_leases.set()

    async def _renew(self, announced: Announcement) -> bool:
        """Renew the leases; True when an address changed."""
        vips: list[BoundAddress] = []
        for vip in announced.addresses:
            nic = vip.dhcp_nic
            lease = await self.guest.host.lease(nic, self.guest.hostname) if nic is not None else None
            vips.append(replace(vip, address=lease.address) if lease is not None else vip)
        before, announced.addresses = announced.addresses, tuple(vips)
        for old, new in zip(before, vips, strict=True):
            if old != new and announced.is_bound:
                self._unbind(old)
                self._bind(new)
        if before != announced.addresses:
            announced.is_written = False
        return before != announced.addresses

    def _find_nic(self, interface: str) -> Nic | None:
        """The NIC of that Linux name; "" means the one with the default route."""
        for place, nic in enumerate(self.guest.hardware.nics):
            if not interface and self.guest.addresses.get(nic.name):
                return nic
            if interface in (f"enp{place + 1}s0", f"eth{place}", nic.name):
                return nic
        return None

    def _is_in_subnet(self, address: str, nic: Nic) -> bool:
        subnets = self.guest.subnets.get(nic.name, ())
        wanted = ipaddress.ip_address(address)
        return not subnets or any(wanted in ipaddress.ip_network(one) for one in subnets)

    async def _write_status(self, client: AdminClient, service: Raw, announced: Announcement) -> None:
        """Write the annotations, then the status, once."""
        uid, vips = announced.request.uid, announced.addresses
        if announced.is_written or uid != uid_of(service):
            return
        announced.is_written = True
        with_ports = {"spec": {"ports": announced.ports}}
        ingress = render_ingress(with_ports, [vip.address for vip in vips])
        annotations: dict[str, str | None] = {VIP_HOST: self.node}
        for vip in vips:
            if vip.dhcp_nic is not None:
                annotations |= {HARDWARE_ADDRESS: vip.dhcp_nic.mac, REQUESTED_ADDRESS: vip.address}

        ref = ref_of(SERVICE, service)
        try:
            await client.mutate(ref, lambda raw: annotate(raw, annotations), uid=uid)
            await client.mutate(ref, partial(set_ingress, ingress=ingress), "status", uid)
        except KubeError as error:
            announced.is_written = False  # retried at the next change of the Service or its endpoints
            self._log(f"updating {ref}: {error}")

    # -- addresses

    def _bind(self, vip: BoundAddress) -> None:
        self.guest.add_address(vip.interface, vip.address)

    def _unbind(self, vip: BoundAddress) -> None:
        """Remove the address from its interface, unless another Service shares it."""
        others = (*self._announced.values(), *self._left)
        if not any(vip.address == one.address for held in others if held.is_bound for one in held.addresses):
            self.guest.remove_address(vip.interface, vip.address)

    async def _withdraw(self, key: Key) -> None:
        announced = self._announced.pop(key)
        self._listeners.sync(key, {})
        for vip in announced.addresses:
            await self._release_address(vip)

    async def _release_address(self, vip: BoundAddress) -> None:
        self._unbind(vip)
        if vip.dhcp_nic is not None:
            await self.guest.host.release(vip.dhcp_nic)

    def _drop_all(self) -> None:
        """Remove every address without releasing leases: the next leader requests them with the same MAC address."""
        self._listeners.close_all()
        announced, self._announced = [*self._announced.values(), *self._left], {}
        self._left = []
        for held in announced:
            for vip in held.addresses:
                self._unbind(vip)
        self._failed.clear()
        self._exchanged.clear()
        self._election = None

    # -- traffic

    def _listen(self, service: Raw, announced: Announcement, state: ServiceState) -> None:
        """Listen on each address and port that has a Ready endpoint; the others refuse connections."""
        self._report_udp_ports(service)
        wanted: dict[SocketAddress, Callable[[], ServiceHandler]] = {}
        for route in state.routes_of(service, self.node):
            if route.backends():
                for vip in announced.addresses:
                    if vip.is_reachable and announced.is_bound:
                        wanted[vip.address, route.port] = partial(
                            ServiceHandler,
                            self.cluster.heartbeats,
                            route.backends,
                            route.is_sticky,
                            self.cluster.served_files,
                        )
        self._listeners.sync(key_of(service), wanted)

    def _report_udp_ports(self, service: Raw) -> None:
        key = key_of(service)
        ports, reachable = nested(service, "spec", "ports", default=[]), tcp_ports_of(service)
        others = [one for one in ports if one not in reachable]
        if others and key not in self._udp_reported:
            self._udp_reported.add(key)
            listed = ", ".join(f"{one['port']}/{one['protocol']}" for one in others)
            self._log(f"{'/'.join(key)}: {listed} is announced, but the simulated network carries TCP only")


async def _work(queue: WorkQueue[Key], sync: Callable[[Key], Awaitable[None]]) -> None:
    while True:
        key = await queue.get()
        try:
            await sync(key)
        finally:
            queue.done(key)


def _read_request(service: Raw) -> AddressRequest:
    policy = nested(service, "spec", "externalTrafficPolicy") or "Cluster"
    return AddressRequest(
        uid_of(service), requested_addresses(service), ADDRESSES in annotations_of(service), policy
    )
