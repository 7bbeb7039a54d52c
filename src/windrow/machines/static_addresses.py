"""The addresses that were claimed for a machine, as options that every node driver of Harvester knows: network data, and a
MAC address for each card by which the guest finds it.

Network data is of version 2: the Go driver takes more than one default gateway only there, and a machine with IPv4 and IPv6
has two. A card is matched by its MAC address alone, since what the guest calls it is the guest's matter. A card without
address gets DHCP, as it would have without network data; a default route that it learns comes after the one written here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from windrow.core.formats.yaml import dump
from windrow.kubernetes.objects import mappings_at
from windrow.machines.port import MachineSpec, Problem, StaticAddress
from windrow.nodedriver.config import Configuration, read_fields
from windrow.nodedriver.devices import STRUCTURES, NicSpec

FIELD = "addressPools"
LATER_ROUTE = (
    1000  # the metric of a default route learnt on another card; those written here have the system's default
)


def driver_options(spec: MachineSpec) -> Mapping[str, Any]:
    """The fields of the machine config that are the driver's, with the addresses of this machine."""
    options = {key: value for key, value in spec.options.items() if key != FIELD}
    if not spec.addresses:
        return options
    configuration, _ = read_fields(options)
    nics = tuple(
        replace(nic, mac=nic.mac or derive_mac(spec.machine_uid or spec.name, place))
        for place, nic in enumerate(configuration.nics)
    )
    for name in ("networkName", "networkModel", "networkType"):
        options.pop(name, None)
    options["networkInfo"] = STRUCTURES["NetworkInfo"].write(nics)
    options["networkData"] = render_network_data(configuration, nics, spec.addresses)
    return options


def derive_mac(seed: str, place: int) -> str:
    """A locally administered MAC address, the same for the same machine and card."""
    digest = hashlib.sha256(f"{seed}/{place}".encode()).digest()[:5]
    return ":".join(f"{octet:02x}" for octet in (0x02, *digest))


def render_network_data(
    configuration: Configuration, nics: Sequence[NicSpec], addresses: Sequence[StaticAddress]
) -> str:
    """Network data of version 2 for these cards."""
    ethernets = {}
    for place, nic in enumerate(nics):
        network = "/".join(configuration.qualified(nic.network))
        own = [one for one in addresses if one.network == network]
        # Of two cards on one network the first has the addresses.
        addresses = [one for one in addresses if one.network != network]
        ethernets[f"nic-{place}"] = {"match": {"macaddress": nic.mac}, **_render_card(own)}
    return dump({"version": 2, "ethernets": ethernets})


def _render_card(own: Sequence[StaticAddress]) -> dict[str, Any]:
    if not own:
        return {"dhcp4": True, "dhcp4-overrides": {"route-metric": LATER_ROUTE}}
    card: dict[str, Any] = {
        "dhcp4": False,
        "dhcp6": False,
        "addresses": [f"{one.address}/{one.prefix}" for one in own],
    }
    if routes := [{"to": _everywhere(one), "via": one.gateway} for one in own if one.gateway]:
        card["routes"] = routes
    if servers := list(dict.fromkeys(server for one in own for server in one.nameservers)):
        card["nameservers"] = {"addresses": servers}
    if any(":" in one.address for one in own):
        card["accept-ra"] = False  # no second IPv6 address beside the one that was claimed
    return card


def _everywhere(address: StaticAddress) -> str:
    return "::/0" if ":" in address.address else "0.0.0.0/0"


def find_pool_problems(options: Mapping[str, Any]) -> list[Problem]:
    """What is wrong between the address pools of a HarvesterConfig and its network cards."""
    pools = options.get(FIELD)
    wanted = [one.get("network") for one in pools if isinstance(one, dict)] if isinstance(pools, list) else []
    configuration, _ = read_fields({key: value for key, value in options.items() if key != FIELD})
    networks = ["/".join(configuration.qualified(nic.network)) for nic in configuration.nics]
    problems = []
    named = ["/".join(configuration.qualified(str(name))) for name in wanted if name]
    for place, network in enumerate(named):
        if network not in networks:
            problems.append(
                Problem(
                    f"{FIELD}[{place}].network is {network}, and the machine has no interface there",
                    f"name one of {', '.join(networks)}, or add the interface to networkInfo",
                    f"{FIELD}[{place}].network",
                )
            )
    if named and named[0] in networks and named[0] != networks[0]:
        problems.append(
            Problem(
                f"{FIELD}[0] is on {named[0]}, so that is the node's network, and the first interface is on {networks[0]}",
                "let it be the first in networkInfo: the cloud provider looks for the node's address on the first one",
                f"{FIELD}[0].network",
                "warning",
            )
        )
    if named and not set(networks) - set(named):
        problems += _list_lacking(mappings_at(options, FIELD))
    return problems


def _list_lacking(pools: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """What machines lack that learn nothing by DHCP."""
    lacking = (
        (
            "gateway",
            "so machines reach their own subnets only",
            "the router of the network that leads to others",
        ),
        ("nameservers", "so machines resolve no names", "the name servers of the network"),
    )
    return [
        Problem(
            f"no entry of {FIELD} has {key}, and no interface has DHCP, {effect}",
            f"write {key} into one: {what}",
            f"{FIELD}[0].{key}",
            "warning",
        )
        for key, effect, what in lacking
        if not any(pool.get(key) or (key == "gateway" and pool.get("ipPool")) for pool in pools)
    ]
