"""VM networks: NetworkAttachmentDefinitions, their labels, and the DHCP servers of their VLANs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Any

from windrow.core.formats.json import NotJson, dumps, loads
from windrow.emulator import kinds, names
from windrow.emulator.guest_os.hardware import DhcpLease, Nic
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, nested, new_object

UNTAGGED, VLAN, TRUNK = "UntaggedNetwork", "L2VlanNetwork", "L2VlanTrunkNetwork"
POD_NETWORK = ""
# KubeVirt's masquerade: every guest on the pod network gets the same lease.
MASQUERADE = DhcpLease("10.0.2.2", 24, "10.0.2.1", ("10.53.0.10",))
# Cluster networks share a layer-2 segment per VLAN, whatever namespace the definition is in.
Vlan = tuple[str, int]
IPV6_PREFIX_LENGTH = 64
# Low addresses are left for routers and static use.
FIRST_HOST = 20


@dataclass(frozen=True, slots=True)
class Lan:
    """The subnet of a DHCP server. `cidr` must be IPv4; leases begin at its address FIRST_HOST, earlier in a small one.
    `ipv6_prefix` is what its router advertises, if it does."""

    cidr: str
    gateway: str = ""
    ipv6_prefix: str = ""
    nameservers: tuple[str, ...] = ("1.1.1.1",)

    @property
    def range(self) -> IPv4Network:
        return IPv4Network(self.cidr)

    @property
    def router(self) -> str:
        return self.gateway or str(self.range.network_address + 1)


class BadNetwork(ValueError):
    """The definition's config cannot be read."""


def read_config(nad: Mapping[str, Any]) -> Raw:
    """The CNI configuration in a definition. Raises BadNetwork."""
    text = nested(nad, "spec", "config", default="")
    try:
        found = loads(text) if text else {}
    except NotJson as error:
        raise BadNetwork(str(error)) from error
    if not isinstance(found, dict):
        raise BadNetwork("the config is not a JSON object")
    return found


def vlan_of(nad: Mapping[str, Any]) -> Vlan:
    """The VLAN of the definition; ("", 0) for an unreadable config."""
    try:
        config = read_config(nad)
    except BadNetwork:
        return "", 0
    bridge = str(config.get("bridge", "mgmt-br"))
    return bridge.removesuffix("-br"), int(config.get("vlan") or 0)


def type_of(config: Mapping[str, Any]) -> str:
    if config.get("vlan"):
        return VLAN
    return TRUNK if config.get("vlanTrunk") else UNTAGGED


def label_network(nad: Raw, is_ready: bool = True) -> None:
    """The labels that the network controller sets, and at a change its mutator too. Raises BadNetwork. May be repeated."""
    config = read_config(nad)
    cluster_network, vlan = vlan_of(nad)
    labels = labels_of(nad)
    wanted = {key: value for key, value in labels.items() if key != names.VLAN_ID} | {
        names.CLUSTER_NETWORK: cluster_network,
        names.NETWORK_TYPE: type_of(config),
        names.NETWORK_READY: "true" if is_ready else "false",
    }
    nad["metadata"]["labels"] = wanted | ({names.VLAN_ID: str(vlan)} if vlan else {})


def is_network_ready(cluster_network: Mapping[str, Any]) -> bool:
    conditions = nested(cluster_network, "status", "conditions", default=[])
    return any(one.get("type") == "ready" and one.get("status") == "True" for one in conditions)


def render_network(namespace: str, name: str, vlan: int, lan: Lan, cluster_network: str = "mgmt") -> Raw:
    """A bridge network as Harvester's UI creates it; `vlan` 0 is untagged."""
    config: Raw = {
        "cniVersion": "0.3.1",
        "name": name,
        "type": "bridge",
        "bridge": f"{cluster_network}-br",
        "promiscMode": True,
        "ipam": {},
    }
    if vlan:
        config["vlan"] = vlan
    route = {
        "mode": "auto",
        "serverIPAddr": lan.router,
        "cidr": lan.cidr,
        "gateway": lan.router,
        "connectivity": "true",
    }
    annotations = {names.NETWORK_ROUTE: dumps(route).decode()}
    if lan.ipv6_prefix:
        annotations[names.IPV6_PREFIX] = lan.ipv6_prefix
    nad = new_object(
        kinds.NAD,
        name,
        namespace,
        annotations=annotations,
        spec={"config": dumps(config).decode()},
    )
    label_network(nad)
    return nad


def read_lan(nad: Mapping[str, Any]) -> Lan | None:
    """The subnet of the route annotation; None without a usable one."""
    try:
        route = loads(annotations_of(nad).get(names.NETWORK_ROUTE, "{}"))
        lan = Lan(str(route["cidr"]), str(route.get("gateway") or ""))
        return lan if lan.range.num_addresses >= 4 else None
    except (NotJson, KeyError, TypeError, ValueError, AttributeError):
        return None


def read_ipv6_prefix(nad: Mapping[str, Any]) -> IPv6Network | None:
    """The prefix that the router of the network advertises; None without one that machines can use: a /64."""
    try:
        found = IPv6Network(annotations_of(nad)[names.IPV6_PREFIX])
    except (KeyError, ValueError):
        return None
    return found if found.prefixlen == IPV6_PREFIX_LENGTH else None


def autoconfigure(prefix: IPv6Network, mac: str) -> str:
    """The address that a machine gives itself in an advertised prefix (SLAAC), from its MAC address (EUI-64)."""
    octets = bytes.fromhex(mac.replace(":", "").replace("-", ""))
    identifier = bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]
    return str(prefix[int.from_bytes(identifier)])


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

    @property
    def size(self) -> int:
        """How many addresses its range has, those included that static pools keep."""
        return max(self._last - self._first + 1, 0)

    def release(self, mac: str) -> None:
        """End the lease of `mac`; its address may be leased again. May be repeated."""
        self._leases.pop(mac.lower(), None)

    def leases(self) -> dict[str, str]:
        """MAC to address, for checks."""
        return {mac: str(address) for mac, address in self._leases.items()}

    def _next_free(self, is_reserved: Callable[[str], bool]) -> IPv4Address | None:
        # Round robin, as real servers do: a released address is the last to be reused.
        taken = {int(address) for address in self._leases.values()} | {int(IPv4Address(self.lan.router))}
        size = self.size
        for step in range(size):
            candidate = self._first + (self._next - self._first + step) % size
            if candidate not in taken and not is_reserved(str(IPv4Address(candidate))):
                self._next = candidate + 1
                return IPv4Address(candidate)
        return None


class Vlans:
    """The VLANs of the cluster networks and their DHCP servers."""

    def __init__(
        self,
        networks: Mapping[tuple[str, str], Raw],
        is_wanted: Callable[[str], bool] = lambda mac: True,
        is_reserved: Callable[[str], bool] = lambda address: False,
    ) -> None:
        self._networks = networks
        self._is_wanted = is_wanted
        self._is_reserved = is_reserved
        self._servers: dict[Vlan, DhcpServer] = {}
        self._used: dict[
            tuple[str, int, str], str
        ] = {}  # static addresses, with the MAC address that has them

    def find_dhcp_server(self, network: str) -> DhcpServer | None:
        """The DHCP server of network `namespace/nad`.

        A ready definition with a subnet (annotation `route`) has a server.
        """
        namespace, _, name = network.partition("/")
        nad = self._networks.get((namespace, name))
        if nad is None or labels_of(nad).get(names.NETWORK_READY) == "false":
            return None
        segment = vlan_of(nad)
        lan = read_lan(nad)
        if lan is not None:
            self._servers.setdefault(segment, DhcpServer(lan))
        return self._servers.get(segment)

    def lease(self, nic: Nic) -> DhcpLease | None:
        """The DHCP lease of the NIC; None without a server or a free address."""
        if nic.network == POD_NETWORK:
            return MASQUERADE
        server = self.find_dhcp_server(nic.network)
        if server is None:
            return None
        lease = server.lease(nic.mac, self._is_reserved)
        if lease is None:
            # Leases of deleted machines end when the range is exhausted.
            for mac in [mac for mac in server.leases() if not self._is_wanted(mac)]:
                server.release(mac)
            lease = server.lease(nic.mac, self._is_reserved)
        return lease

    def autoconfigure(self, nic: Nic) -> str:
        """The IPv6 address that the NIC gets from the router of its network; "" where none advertises a prefix."""
        namespace, _, name = nic.network.partition("/")
        prefix = read_ipv6_prefix(self._networks.get((namespace, name)) or {"metadata": {}})
        return autoconfigure(prefix, nic.mac) if prefix is not None else ""

    def explain_no_lease(self, nic: Nic) -> str:
        """Why a NIC gets no lease, and what to do: the network is simulated, so this one can say."""
        server = self.find_dhcp_server(nic.network)
        if server is not None:
            return (
                f"the DHCP server of {nic.network} has leased all {server.size} addresses of {server.lan.cidr}; "
                "give the network a larger subnet (--inventory)"
            )
        namespace, _, name = nic.network.partition("/")
        nad = self._networks.get((namespace, name))
        if nad is not None and labels_of(nad).get(names.NETWORK_READY) == "false":
            return f"{nic.network} is not ready (label {names.NETWORK_READY}); see its ClusterNetwork"
        return f"{nic.network} has no subnet (annotation {names.NETWORK_ROUTE}), so nothing leases addresses on it"

    def use(self, nic: Nic, address: str) -> str:
        """The NIC has the address from now on, unless another one of its VLAN has it already: then the MAC address of that one.

        An address ends with its VM.
        """
        namespace, _, name = nic.network.partition("/")
        nad = self._networks.get((namespace, name))
        if nad is None:
            return ""
        place, mac = (*vlan_of(nad), address), nic.mac.lower()
        server = self.find_dhcp_server(nic.network)
        leased = {found: one for one, found in server.leases().items()} if server is not None else {}
        for owner in (self._used.get(place, ""), leased.get(address, "")):
            if owner and owner != mac and self._is_wanted(owner):
                return owner
        self._used[place] = mac
        return ""

    def release(self, nic: Nic) -> None:
        """Release the NIC's lease. May be repeated."""
        server = self.find_dhcp_server(nic.network) if nic.network != POD_NETWORK else None
        if server is not None:
            server.release(nic.mac)

    def servers(self) -> dict[Vlan, DhcpServer]:
        return dict(self._servers)
