"""Which addresses a node has, and as what: InternalIP, ExternalIP, Hostname. Pure.

The guest agent reports everything the guest has on a card, also virtual addresses that move from node to node. So
one address of each family is chosen as internal, by the first rule that applies:

1. the address the kubelet was started with (annotation `alpha.kubernetes.io/provided-node-ip`);
2. the first one inside `--node-ip-cidr`;
3. the first one.

All others are external, unless they are hidden: by the annotation with additional internal
addresses (rules 1 and 3), `--node-exclude-ip-ranges` (rule 2), or a service of type LoadBalancer that was given the
address (always): kube-vip binds it to the same card, and it belongs to the service, not to the node. The kubelet's own
address is never taken for one of those, nor one that is the node's internal one by now.

The framework of cloud providers then puts what the kubelet was started with first, whatever the rule, and refuses a
node whose own address the host side does not confirm; `preferred` and `missing_provided_ips` do so.

Virtual addresses are what Harvester's load balancers of this cluster hold: reserved from a pool, or got by DHCP and
recorded there. Annotations of services do not count: a user who may create a service could write the address of a node
there, and the node would lose it. K3s' own load balancer even writes the addresses of nodes into their status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Set
from ipaddress import IPv4Address, IPv6Address, ip_address

from windrow.cloudprovider import names
from windrow.cloudprovider.nodes.readings import Address, GuestNode, Instance
from windrow.cloudprovider.options import Options, is_node_address
from windrow.cloudprovider.services.readings import LoadBalancer

Ip = IPv4Address | IPv6Address


NO_ADDRESSES: Set[str] = frozenset()


def node_addresses(
    instance: Instance, node: GuestNode, options: Options, virtual: Set[str] = NO_ADDRESSES
) -> tuple[Address, ...]:
    """The addresses that the host side knows for `node`, the Hostname last. Only the Hostname when none is known.

    `virtual` are addresses that services of the guest were given.
    """
    internal, hidden = _rules(node, options)
    reported = reported_ips(instance, options.management_network)
    virtual = virtual - _own_addresses(node)
    chosen = _choose_internal(reported, internal, virtual)
    found = [
        Address("InternalIP" if ip in chosen else "ExternalIP", str(ip))
        for ip in reported
        if ip in chosen or not (hidden(ip) or str(ip) in virtual)
    ]
    return (*found, Address("Hostname", node.name))


def _own_addresses(node: GuestNode) -> Set[str]:
    """Addresses that are the node's own whatever a load balancer holds: the kubelet's, and what it has as internal
    now. A user can make a load balancer of mode dhcp record any address."""
    kubelets = {str(ip) for ip in provided_ips(node)}
    return kubelets | {one.address for one in node.addresses if one.type == "InternalIP"}


def _choose_internal(reported: list[Ip], may_be: Callable[[Ip], bool], virtual: Set[str]) -> set[Ip]:
    """One of each family. A service's address is chosen only where there is no other: then it is the node's, too."""
    chosen: dict[int, Ip] = {}
    for ip in sorted(reported, key=lambda ip: str(ip) in virtual):
        if may_be(ip):
            chosen.setdefault(ip.version, ip)
    return set(chosen.values())


def _rules(node: GuestNode, options: Options) -> tuple[Callable[[Ip], bool], Callable[[Ip], bool]]:
    """(may be the internal one of its family?, is hidden when it is not internal?)"""
    additional = () if options.ignore_provided_ip else node.additional_internal_ips
    if node.provided_ip and not options.ignore_provided_ip:
        provided = provided_ips(node)
        return lambda ip: ip in provided, lambda ip: str(ip) in additional
    if options.node_ip_cidr:
        return (
            lambda ip: any(ip in network for network in options.node_ip_cidr),
            lambda ip: any(ip in network for network in options.node_exclude_ip_ranges),
        )
    return lambda ip: True, lambda ip: str(ip) in additional


def reported_ips(instance: Instance, management_network: str) -> list[Ip]:
    """The usable addresses on the card that counts; none when a single report cannot be understood."""
    card = _management_nic(instance, management_network)
    interface = next((one for one in instance.interfaces if one.name == card), None)
    if interface is None:
        return []
    try:
        ips = [ip_address(text) for text in interface.addresses]
    except ValueError:
        return []
    return [ip for ip in dict.fromkeys(ips) if is_node_address(ip)]


def _management_nic(instance: Instance, management_network: str) -> str:
    """The name of the card on the management network; without one, of the first card that is not the pod network."""
    for card, network in instance.networks:
        if not management_network or network == management_network:
            return card
    return ""


class BadProvidedIp(ValueError):
    """The kubelet's annotation holds neither one address nor one of each family."""


def provided_ips(node: GuestNode) -> tuple[Ip, ...]:
    """The addresses that the kubelet was started with: one, or one of each family. None of an annotation that is
    missing or invalid."""
    try:
        return parse_provided_ips(node.provided_ip)
    except BadProvidedIp:
        return ()


def parse_provided_ips(text: str) -> tuple[Ip, ...]:
    """Raises BadProvidedIp with the framework's words."""
    if not text:
        return ()
    try:
        found = tuple(ip_address(part.strip()) for part in text.split(","))
    except ValueError as error:
        raise BadProvidedIp(f'failed to parse node IP "{text}": {error}') from error
    if len(found) != len({ip.version for ip in found}):
        raise BadProvidedIp(
            f'failed to parse node IP "{text}": must contain either a single IP or a dual-stack pair of IPs'
        )
    return found


def missing_provided_ips(node: GuestNode, known: tuple[Address, ...]) -> tuple[str, ...]:
    """Those addresses of the kubelet that the host side does not know of this node."""
    have = {one.address for one in known}
    return tuple(str(ip) for ip in provided_ips(node) if str(ip) not in have)


def prefer_provided(node: GuestNode, known: tuple[Address, ...]) -> tuple[Address, ...]:
    """`known` as the node's status shows it: the kubelet's own addresses first, in the kubelet's order, and alone of
    their type."""
    first = tuple(one for ip in provided_ips(node) for one in known if one.address == str(ip))
    types = {one.type for one in first}
    return (*first, *(one for one in known if one.type not in types))


def has_ip(addresses: tuple[Address, ...]) -> bool:
    return any(one.type in ("InternalIP", "ExternalIP") for one in addresses)


_PLACEHOLDERS = names.DHCP_PLACEHOLDERS | {""}


def virtual_addresses(balancer: LoadBalancer | None, cluster: str) -> Set[str]:
    """The addresses that the load balancer holds, if it is one of `cluster`."""
    if balancer is None or balancer.owner.cluster != cluster:
        return frozenset()
    recorded = {balancer.address} if balancer.mode == "dhcp" else set()
    return frozenset({*balancer.allocated, *recorded} - _PLACEHOLDERS)


class VirtualAddresses:
    """The virtual addresses of all load balancers of `cluster`; its owner calls `update` for each change, and sets
    `is_known` after all were listed."""

    def __init__(self, cluster: str, *, is_known: bool = False) -> None:
        self.is_known = is_known
        self._cluster = cluster
        self._of: dict[str, Set[str]] = {}
        self._uses: Counter[str] = Counter()

    @property
    def all(self) -> Set[str] | None:
        """None while they are not known."""
        return self._uses.keys() if self.is_known else None

    def update(self, name: str, balancer: LoadBalancer | None) -> Collection[str]:
        """Set the state of a load balancer, None when it is deleted; returns the addresses that are new. May be
        repeated."""
        old, new = self._of.pop(name, frozenset()), virtual_addresses(balancer, self._cluster)
        fresh = [one for one in new if one not in self._uses]
        if new:
            self._of[name] = new
        self._uses.update(new)
        self._uses.subtract(old)
        for one in old:
            if not self._uses[one]:
                del self._uses[one]
        return fresh
