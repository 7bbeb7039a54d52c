"""Which addresses a node has, and as what: InternalIP, ExternalIP, Hostname. Pure.

The guest agent reports everything the guest has on a card, also virtual addresses that move from node to node. So
one address of each family is chosen as internal, by the first rule that applies:

1. the address the kubelet was started with (annotation `alpha.kubernetes.io/provided-node-ip`);
2. the first one inside `--node-ip-cidr`;
3. the first one.

All others are external, unless something says they are nobody's business.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

from windrow.cloudprovider.flags import Options, is_usable
from windrow.cloudprovider.readings import Address, GuestNode, Instance

Ip = IPv4Address | IPv6Address


def node_addresses(instance: Instance, node: GuestNode, options: Options) -> tuple[Address, ...]:
    """The addresses that the host side knows for `node`, the Hostname last. Only the Hostname when none is known."""
    internal, hidden = _rules(node, options)
    found: list[Address] = []
    taken: set[int] = set()
    for ip in reported_ips(instance, options.management_network):
        if ip.version not in taken and internal(ip):
            taken.add(ip.version)
            found.append(Address("InternalIP", str(ip)))
        elif not hidden(ip):
            found.append(Address("ExternalIP", str(ip)))
    return (*found, Address("Hostname", node.name))


def _rules(node: GuestNode, options: Options) -> tuple[Callable[[Ip], bool], Callable[[Ip], bool]]:
    """(may be the internal one of its family?, is hidden when it is not internal?)"""
    provided = provided_ips(node)
    additional = node.additional_internal_ips
    if provided and not options.ignore_provided_ip:
        return lambda ip: ip in provided, lambda ip: str(ip) in additional
    if options.node_ip_cidr:
        return (
            lambda ip: any(ip in network for network in options.node_ip_cidr),
            lambda ip: any(ip in network for network in options.node_exclude_ip_ranges),
        )
    return lambda ip: True, lambda ip: str(ip) in additional


def reported_ips(instance: Instance, management_network: str) -> list[Ip]:
    """The usable addresses on the card that counts; none when a single report cannot be understood."""
    card = _card(instance, management_network)
    interface = next((one for one in instance.interfaces if one.name == card), None)
    if interface is None:
        return []
    try:
        ips = [ip_address(text) for text in interface.addresses]
    except ValueError:
        return []
    return [ip for ip in dict.fromkeys(ips) if is_usable(ip)]


def _card(instance: Instance, management_network: str) -> str:
    """The name of the card on the management network; without one, of the first card that is not the pod network."""
    for card, network in instance.networks:
        if not management_network or network == management_network:
            return card
    return ""


def provided_ips(node: GuestNode) -> tuple[Ip, ...]:
    """The addresses that the kubelet was started with: none, one, or one of each family."""
    found = []
    for text in node.provided_ip.split(","):
        try:
            found.append(ip_address(text.strip()))
        except ValueError:
            continue
    return tuple(found)


def missing_provided_ips(node: GuestNode, known: tuple[Address, ...]) -> tuple[str, ...]:
    """Those addresses of the kubelet that the host side does not know of this node."""
    have = {one.address for one in known}
    return tuple(str(ip) for ip in provided_ips(node) if str(ip) not in have)


def preferred(node: GuestNode, known: tuple[Address, ...]) -> tuple[Address, ...]:
    """`known` as the node's status shows it: the kubelet's own addresses first, and alone of their type."""
    own = {str(ip) for ip in provided_ips(node)}
    if not own:
        return known
    first = tuple(one for one in known if one.address in own)
    types = {one.type for one in first}
    return (*first, *(one for one in known if one.type not in types))


def has_ip(addresses: tuple[Address, ...]) -> bool:
    return any(one.type in ("InternalIP", "ExternalIP") for one in addresses)
