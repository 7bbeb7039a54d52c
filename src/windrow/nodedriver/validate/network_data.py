"""Checks of cloud-init network data: a machine without gateway, DHCP or name server is reported before it is created.

The Go driver's checks and texts, without its crashes: scalars where it wants lists, and the forms of version 1 that it
does not support (dhcp4, bonds, name servers inside a subnet), are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from windrow.cloudinit.network_data import list_static_addresses
from windrow.core.formats.yaml import NotYaml, load
from windrow.core.text import collapse_whitespace
from windrow.harvester.problems import Problem

FIELD = "networkData"
_DHCP = frozenset({"dhcp", "dhcp4", "dhcp6", "ipv6_dhcpv6-stateful", "ipv6_dhcpv6-stateless", "ipv6_slaac"})
_STATIC = frozenset({"static", "static6"})
_DEVICES = frozenset({"physical", "bond", "bridge", "vlan", "infiniband"})


@dataclass(slots=True)
class _Offers:
    """What a version 1 document configures: default gateways, DHCP, and name servers."""

    gateways: int = 0
    dhcp: int = 0
    name_servers: int = 0


def find_network_problems(text: str) -> list[Problem]:
    """What is wrong with network data; nothing for empty text and for version 2, which is not checked."""
    if not text.strip():
        return []
    try:
        document = load(text)
    except NotYaml as error:
        return [
            Problem(
                f"networkData is not YAML: {collapse_whitespace(error)}", "correct it at that place", FIELD
            )
        ]
    if isinstance(document, dict) and "network" in document:
        document = document["network"]
    if not isinstance(document, dict):
        return [Problem("networkData is not a map", "start it with version: 1 or version: 2", FIELD)]
    if "version" not in document:
        return [_missing("version")]
    if str(document["version"]) != "1":
        return []
    if not isinstance(document.get("config"), list):
        return [_missing("config")]
    offers = _Offers()
    problems = [problem for entry in document["config"] for problem in _check_entry(entry, offers)]
    return problems or _check_offers(offers)


def find_shared_addresses(machines: Iterable[tuple[str, Collection[str]]]) -> list[Problem]:
    """An error for each address that network data gives to several machines on one network. Of each machine its network
    data, and its networks on Harvester."""
    owners = Counter(
        (address.partition("/")[0], frozenset(networks))
        for text, networks in machines
        for address in dict.fromkeys(list_static_addresses(text))
    )
    hint = "use DHCP, or a pool of one machine with a HarvesterConfig of its own for each address"
    return [
        Problem(f"networkData gives each of {count} machines the address {address}", hint, "networkData")
        for (address, _), count in owners.items()
        if count > 1
    ]


def _check_entry(entry: Any, offers: _Offers) -> list[Problem]:
    if not isinstance(entry, dict) or "type" not in entry:
        return [_missing("type")]
    kind = str(entry["type"])
    if kind == "nameserver":
        if "address" not in entry:
            return [_missing("address")]
        offers.name_servers += len(_as_list(entry["address"]))
    if kind not in _DEVICES:
        return []
    if kind == "physical" and not isinstance(entry.get("subnets"), list):
        return [_missing("subnets")]
    return [problem for subnet in _as_list(entry.get("subnets")) for problem in _check_subnet(subnet, offers)]


def _check_subnet(subnet: Any, offers: _Offers) -> list[Problem]:
    if not isinstance(subnet, dict) or "type" not in subnet:
        return [_missing("type")]
    kind = str(subnet["type"])
    if kind in _DHCP:
        offers.dhcp += 1
        offers.name_servers += 1
    if kind in _STATIC and subnet.get("gateway"):
        offers.gateways += 1
    offers.name_servers += len(_as_list(subnet.get("dns_nameservers")))
    return []


def _check_offers(offers: _Offers) -> list[Problem]:
    if offers.gateways > 1:
        return [
            _problem(
                f"the number of default gateway cannot greater than 1, but get: {offers.gateways}",
                "leave the gateway to one subnet",
            )
        ]
    if not offers.gateways and not offers.dhcp:
        return [
            _problem("static gateway or dhcp is not configured", "give one subnet a gateway, or use dhcp")
        ]
    if not offers.name_servers:
        return [_problem("nameserver is not configured", "add an entry of type nameserver")]
    return []


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _missing(section: str) -> Problem:
    return _problem(f"missing section: {section}", f"add {section} to networkData")


def _problem(message: str, hint: str) -> Problem:
    """A problem whose message is the Go driver's."""
    return Problem(message, hint, FIELD, go=message)
